"""Plans as people read them."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter

import pytest

from reconciler.cli.text.action_words import reason_text
from reconciler.cli.text.lines import text_of
from reconciler.cli.text.markdown import LIMIT, plan_markdown
from reconciler.cli.text.plan_text import at_once, plan_text
from reconciler.cli.text.sections import is_dangerous, sections
from reconciler.planning.actions import Forget, Reason, Risk, RunJob
from reconciler.resources.address import Address
from tests.cli import sample_plans
from tests.cli.golden import FOLDER, TEXTS


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_a_plan_reads_as_it_did(name: str) -> None:
    assert TEXTS[name]() == (FOLDER / name).read_text(encoding="utf-8"), "python -m tests.cli.golden writes it anew"


def test_what_waits_for_two_steps_of_one_topic_names_it_once() -> None:
    topic = Address("topic/west/shop:orders")
    waits = RunJob(
        address=topic, job="switch-groups", source=topic, sink=topic, depends_on=(f"create:{topic}", f"move:{topic}")
    )
    (row,) = sections(dataclasses.replace(sample_plans.everything(), actions=(waits,))).jobs
    assert row.after == f"after: {topic}"


def test_every_action_has_exactly_one_row() -> None:
    plan = sample_plans.everything()
    found = sections(plan)
    shown = [row.action.id for rows in (found.danger, found.changes, found.jobs) for row in rows if row.action]
    by_drift = [row.name for row in found.drift]
    assert max(Counter(shown).values()) == 1
    missing = [action for action in plan.actions if action.id not in shown]
    assert [action.address for action in missing] == ["topic/west/shop:eu:audit"]
    assert missing[0].address in by_drift


def test_danger_comes_before_everything_else() -> None:
    text = TEXTS["plan-everything.txt"]()
    heads = re.findall(r"^([A-Z]+) +\d+$", text, re.MULTILINE)
    assert heads == ["DANGER", "CHANGES", "JOBS", "DRIFT", "WAITING"]


def test_the_last_lines_alone_are_enough_to_decide() -> None:
    *_, counts, blocked = TEXTS["plan-everything.txt"]().splitlines()
    assert counts.startswith("Plan: ")
    assert "1 to delete" in counts
    assert "2 blocked" in counts
    assert blocked == (
        "Blocked: allow once with  --allow delete:topic/west/shop:eu:orders --allow update:topic/west/shop:eu:logs"
    )


def test_counts_agree_in_every_format() -> None:
    text, markdown = TEXTS["plan-everything.txt"](), TEXTS["plan-everything.md"]()
    counts = re.search(r"^Plan: (.*) · digest", text, re.MULTILINE)
    assert counts is not None
    assert f"**{counts[1]}**" in markdown
    assert counts[0] in markdown


def test_no_cell_is_cut_and_no_line_is_wrapped_in_a_pipe() -> None:
    long = "x" * 400
    plan = dataclasses.replace(sample_plans.empty(), actions=(Forget(address=Address(f"topic/west/{long}")),))
    lines = text_of(plan_text(plan)).splitlines()
    assert any(long in line and "forget" in line for line in lines)


def test_a_narrow_terminal_folds_a_line_instead_of_cutting_it() -> None:
    wide = TEXTS["plan-everything.txt"]()
    narrow = TEXTS["plan-everything-narrow.txt"]()
    assert sorted(wide.split()) == sorted(narrow.split())


def test_a_block_that_nothing_lifts_says_so() -> None:
    (first, *_) = sample_plans.dangerous()
    assert first.blocked is not None
    stuck = dataclasses.replace(first, blocked=dataclasses.replace(first.blocked, allow=None))
    text = text_of(plan_text(dataclasses.replace(sample_plans.empty(), actions=(stuck,))))
    assert text.splitlines()[-1] == "Blocked: no --allow lifts  delete:topic/west/shop:eu:orders"


def test_many_blocks_are_lifted_by_one_pattern_that_can_be_pasted() -> None:
    (first, *_) = sample_plans.dangerous()
    assert first.blocked is not None
    names = [*(f"topic/west/kill:k{number}" for number in range(30)), "namespace/west/kill", "topic/east/a"]
    blocked = [
        dataclasses.replace(
            first,
            address=Address(name),
            blocked=dataclasses.replace(first.blocked, allow=f"delete:{name}", instead=None),
        )
        for name in names
    ]
    text = text_of(plan_text(dataclasses.replace(sample_plans.empty(), actions=tuple(blocked))))
    assert text.splitlines()[-1] == (
        "Blocked: allow once with  --allow delete:namespace/west/kill --allow delete:topic/east/a"
        " --allow 'delete:topic/west/kill:*'"
    )
    assert at_once([f"delete:topic/west/{name}" for name in "abcdef"]) == ["delete:topic/west/*"]
    assert at_once([f"delete:topic/west/kill:{name}" for name in "edcba"])[0] == "delete:topic/west/kill:e"


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_words_that_stay_on_one_line(reason: Reason) -> None:
    assert all("\n" not in reason_text(reason, action) for action in sample_plans.everything().actions)


@pytest.mark.parametrize("count", [0, 1, 200, 300, 400, 20_000])
def test_a_comment_is_never_longer_than_a_comment_may_be(count: int) -> None:
    for plan in (sample_plans.many(count), sample_plans.mostly_dangerous(count)):
        assert len(plan_markdown(plan).encode()) <= LIMIT


@pytest.mark.parametrize("count", [1_000, 20_000])
def test_of_what_is_ordinary_as_much_as_fits_is_listed_and_the_rest_is_counted_by_kind(count: int) -> None:
    markdown = plan_markdown(sample_plans.many(count))
    listed = len(set(re.findall(r"topic-\d{6}", markdown)))
    rest = re.search(r"\| \+ \| topic \| `west` \| ([\d,]+) \|", markdown)
    assert rest is not None
    assert listed + int(rest[1].replace(",", "")) == count
    assert 0.95 * LIMIT < len(markdown.encode()) <= LIMIT
    assert "`irreversible: keys move to other partitions`" in markdown


def test_danger_loses_words_only_when_it_alone_is_too_long_and_rows_only_after_that() -> None:
    brief = plan_markdown(sample_plans.mostly_dangerous(600))
    assert brief.count("**blocked**") == 600
    cut = plan_markdown(sample_plans.mostly_dangerous(20_000))
    told = re.search(r"\*\*([\d,]+) more rows of danger do not fit here", cut)
    assert told is not None
    assert len(set(re.findall(r"topic-\d{6}", cut))) + int(told[1].replace(",", "")) == 20_000


def test_every_dangerous_address_is_named_for_as_long_as_it_fits_the_gravest_first() -> None:
    plan = sample_plans.mostly_dangerous(3_000)
    (_, first, *_) = sample_plans.dangerous()
    mild = [
        dataclasses.replace(first, address=Address(f"topic/east/mild-{number:06}"), risk=Risk.DISRUPTIVE)
        for number in range(3_000)
    ]
    dense = plan_markdown(plan)
    assert len(set(re.findall(r"topic-\d{6}", dense))) == 3_000
    assert "do not fit" not in dense
    both = plan_markdown(dataclasses.replace(plan, actions=(*mild, *plan.actions)))
    assert len(set(re.findall(r"topic-\d{6}", both))) == 3_000
    assert 0 < len(set(re.findall(r"mild-\d{6}", both))) < 3_000
    assert len(both.encode()) <= LIMIT


def test_a_comment_fits_also_where_a_table_of_counts_would_not() -> None:
    ordinary = [Forget(address=Address(f"topic/cluster-{number:06}/t")) for number in range(5_000)]
    danger = sample_plans.mostly_dangerous(2_000).actions
    markdown = plan_markdown(dataclasses.replace(sample_plans.empty(), actions=(*danger, *ordinary)))
    assert len(markdown.encode()) <= LIMIT
    assert "5,000 ordinary changes." in markdown
    assert len(set(re.findall(r"topic-\d{6}", markdown))) == 2_000


def test_a_comment_can_be_found_again_by_its_marker() -> None:
    first = plan_markdown(dataclasses.replace(sample_plans.everything(), environment="prod")).splitlines()[0]
    assert first == f"<!-- reconciler:plan workspace=shop environment=prod digest={sample_plans.DIGEST} -->"


def test_what_is_dangerous_is_what_has_a_risk_a_block_or_differs_where_it_was_adopted() -> None:
    assert all(is_dangerous(action) for action in sample_plans.dangerous())
    assert not any(is_dangerous(action) for action in sample_plans.ordinary())
    assert {action.risk for action in sample_plans.dangerous()} >= {Risk.NONE, Risk.IRREVERSIBLE, Risk.DATA_LOSS}
