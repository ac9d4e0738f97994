"""Every behaviour we claim is shown by a test, and the page says by which."""

from __future__ import annotations

import pytest

from tests.docs import facts

CLAIMED = {number: claim for claims in facts.claims().values() for number, claim in claims.items()}
SHOWN = facts.marked()

SOURCE = """
@pytest.mark.fact("F-K-001", "F-K-002")
@pytest.mark.parametrize("name", ["a"])
def test_one(name): ...

def test_other(): ...

@pytest.mark.parametrize("name", [pytest.param("a", marks=pytest.mark.fact("F-K-003")), "b"])
def test_some(name): ...

class TestMany:
    @pytest.mark.fact("F-K-001")
    def test_within(self): ...
"""

CASES = """
why: One.
facts: [F-K-001, F-K-002]
---
why: Two.
---
why: Three.
facts: [F-K-001]
"""


@pytest.mark.parametrize("number", CLAIMED)
def test_a_claim_has_a_test_that_shows_it(number: str) -> None:
    assert [str(one) for one in SHOWN if number in one.facts], f"{CLAIMED[number]} Mark the test that shows it."


def test_every_marker_names_a_claim() -> None:
    assert [str(one) for one in SHOWN if set(one.facts) - CLAIMED.keys()] == []


def test_the_page_is_what_the_markers_say() -> None:
    page = facts.page(facts.claims(), SHOWN)
    assert facts.PAGE.read_text(encoding="utf-8") == page, "write it anew: make schemas"


def test_markers_are_read_from_functions_and_methods_without_importing_them() -> None:
    found = [(one.test, one.facts) for one in facts.shown_in(SOURCE, "tests/test_it.py")]
    marked = {"test_one": ("F-K-001", "F-K-002"), "test_some": ("F-K-003",), "test_within": ("F-K-001",)}
    assert dict(found) == marked


def test_a_claim_without_a_test_stands_out_on_the_page() -> None:
    shown = list(facts.shown_in(SOURCE, "tests/test_it.py"))
    page = facts.page({"Names": {"F-K-001": "One.", "F-K-004": "Four."}}, shown)
    assert "| F-K-001 | One. | [test_it](../tests/test_it.py): `test_one`, `test_within` |" in page
    assert f"| F-K-004 | Four. | {facts.UNSHOWN} |" in page


def test_planning_cases_are_counted() -> None:
    shown = list(facts.cases_in(CASES, "tests/cases/some.yaml"))
    assert [(one.line, one.test) for one in shown] == [(2, "One."), (7, "Three.")]
    page = facts.page({"Names": {"F-K-001": "One.", "F-K-002": "Two."}}, shown)
    assert "| F-K-001 | One. | [some](../tests/cases/some.yaml): 2 cases |" in page
    assert "| F-K-002 | Two. | [some](../tests/cases/some.yaml): 1 case |" in page
