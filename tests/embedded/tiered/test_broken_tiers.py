"""The machine of two tiers can fail: variants that leave out one rule are noticed; the real thing passes everywhere."""

from __future__ import annotations

import pytest

from reconciler.embedded.segments import head as head_module
from reconciler.errors import ReconcilerError
from tests.embedded.tiered.tier_machine import OTHERS, RULES, VARIANTS, WORKS, be_overtaken, die_everywhere

pytestmark = pytest.mark.thorough


@pytest.fixture(autouse=True)
def _small_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_module, "TAIL", 4)
    monkeypatch.setattr(head_module, "BRANCHES", 2)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.soak if at % 3 else ()) for at, name in enumerate(VARIANTS)]
)
def test_a_broken_variant_is_noticed(name: str) -> None:
    with VARIANTS[name].applied(), pytest.raises((AssertionError, ReconcilerError)):
        _play(VARIANTS[name].noticed)


def _play(noticed: str | tuple[str, str]) -> None:
    match noticed:
        case str(rule):
            die_everywhere(rule)
        case (job, other):
            be_overtaken(job, other, moments=7)


@pytest.mark.soak
@pytest.mark.parametrize("name", RULES)
def test_a_rule_that_died_at_any_write_is_finished_by_others(name: str) -> None:
    assert die_everywhere(name) > 1


@pytest.mark.parametrize("name", RULES)
def test_a_rule_that_died_is_finished_by_others(name: str) -> None:
    assert die_everywhere(name, every=17) > 0


@pytest.mark.soak
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("job", WORKS)
def test_a_job_that_is_overtaken_in_the_middle_harms_nothing(job: str, other: str) -> None:
    be_overtaken(job, other)
