"""Every behaviour we claim is shown by a test, and the page says by which."""

from __future__ import annotations

from collections import Counter
from functools import cache

from tests.docs import facts

CLAIMED = {number: claim for claims in facts.claims().values() for number, claim in claims.items()}
shown_in_tests = cache(facts.marked)

SOURCE = """
@pytest.mark.fact("F-K-001", "F-K-002")
@pytest.mark.parametrize("name", ["a"])
def test_one(name): ...

def test_other(): ...

@pytest.mark.parametrize("name", [pytest.param("a", marks=pytest.mark.fact("F-K-003")), "b"])
def test_some(name): ...

class TestMany:
    @pytest.mark.thorough
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


def test_each_claim_says_for_each_platform_what_is_shown_of_it_and_a_test_shows_it_somewhere() -> None:
    shown, cells, wrong = shown_in_tests(), facts.cells(), {}
    for number in CLAIMED:
        by_tests = [one for one in shown if number in one.facts]
        found = {platform: facts.cell(number, platform, by_tests, cells) for platform in facts.PLATFORMS}
        is_to_come = number.startswith("F-C-2")  # of a platform that is to come
        is_shown = is_to_come or {"shown", "partly"} & {text.partition(":")[0] for text in found.values()}
        says_more = all(text.startswith(facts.KINDS) and text.partition(": ")[0] for text in found.values())
        if not (is_shown and says_more):
            wrong[number] = found
    assert wrong == {}


def test_all_facts_of_the_systems_are_listed() -> None:
    counts = Counter(number[:3] for number in CLAIMED)
    assert counts == {"F-C": 80, "F-K": 63, "F-R": 112}


def test_every_marker_names_a_claim() -> None:
    assert [str(one) for one in shown_in_tests() if set(one.facts) - CLAIMED.keys()] == []


def test_the_page_is_what_the_markers_say() -> None:
    page = facts.page(facts.claims(), shown_in_tests())
    assert facts.PAGE.read_text(encoding="utf-8") == page, "write it anew: make schemas"


def test_markers_are_read_from_functions_and_methods_without_importing_them() -> None:
    found = [(one.test, one.facts) for one in facts.shown_in(SOURCE, "tests/test_it.py")]
    marked = {"test_one": ("F-K-001", "F-K-002"), "test_some": ("F-K-003",), "test_within": ("F-K-001",)}
    assert dict(found) == marked


def test_a_page_says_where_a_fact_is_shown_by_what_and_when_that_runs() -> None:
    shown = list(facts.shown_in(SOURCE, "tests/test_it.py"))
    page = facts.page({"Names": {"F-K-001": "One.", "F-C-001": "Three."}}, shown)
    why = "not possible: Kafka has no namespaces; F-K-030 to F-K-034 say what stands in for them"
    why_not = why.replace("Kafka", "Redpanda")
    tests = "[test_it](../tests/test_it.py): `test_one`, `test_within`"
    assert f"| F-K-001 | One. | shown | {why} | {why_not} | not yet | {tests} | `test`, `test-all` |" in page
    assert "| F-C-001 | Three. | not yet | not yet |" in page


def test_a_test_shows_a_fact_on_the_platform_it_runs_on() -> None:
    files = ("cli/kafka/test_it.py", "cases/kafka_it.yaml", "cli/test_kafka.py", "cases/redpanda_it.yaml")
    found = [facts.Shown(f"tests/{file}", 1, "test", ()).platform for file in files]
    assert found == ["kafka", "kafka", "embedded", "redpanda"]


def test_what_is_marked_for_all_of_a_file_runs_when_that_says() -> None:
    source = "pytestmark = [pytest.mark.spark, pytest.mark.soak]\n" + SOURCE
    found = {one.test: one.run for one in facts.shown_in(source, "tests/test_it.py")}
    assert found == {"test_one": "soak", "test_some": "soak", "test_within": "test-all"}


def test_planning_cases_are_counted() -> None:
    shown = list(facts.cases_in(CASES, "tests/cases/some.yaml"))
    assert [(one.line, one.test) for one in shown] == [(2, "One."), (7, "Three.")]
    page = facts.page({"Names": {"F-K-001": "One.", "F-K-002": "Two."}}, shown)
    assert "[some](../tests/cases/some.yaml): 2 cases | `test` |" in page
    assert "[some](../tests/cases/some.yaml): 1 case | `test` |" in page
