"""Plans as people read them."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from reconciler.cli.text.action_words import format_reason, summarize_resource
from reconciler.cli.text.amounts import format_change, format_changes
from reconciler.cli.text.lines import to_plain_text
from reconciler.cli.text.markdown import LIMIT, format_plan_comment
from reconciler.cli.text.plan_text import format_plan
from reconciler.cli.text.remarks import format_junit, list_plan_remarks
from reconciler.cli.text.sections import sort_plan_rows
from reconciler.cli.text.states_text import format_differences, format_state_diff
from reconciler.operations import state_views as state_diffs
from reconciler.operations.steps.approval import ApprovalCheck
from reconciler.planning.actions import (
    Adopt,
    Block,
    Change,
    Create,
    Delete,
    Forget,
    Reason,
    Risk,
    RunJob,
    Update,
    is_dangerous,
)
from reconciler.planning.allowances import group_allowances
from reconciler.planning.plan import DriftFinding, Plan
from reconciler.planning.plan_rows import compute_digest
from reconciler.planning.same_or_less import Difference, FieldDifference, Move, SameOrLess, Why
from reconciler.planning.saved_plan import encode_saved_plan, read_plan_to_show
from reconciler.resources.address import Address
from reconciler.resources.base import OfNamespace, OnCluster
from reconciler.resources.inventory import read_resource
from reconciler.resources.mirror_link import MirrorLink, MirrorLinkSpec
from reconciler.resources.namespace import Namespace
from reconciler.state.snapshots import Snapshot
from tests.cli import sample_results
from tests.cli.conftest import environment
from tests.cli.golden import FOLDER, FORGE, TEXTS
from tests.cli.sample_results import everything, roles, switching
from tests.cli.terminals import Size, pictures


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_a_plan_reads_as_it_did(name: str) -> None:
    assert TEXTS[name]() == (FOLDER / name).read_text(encoding="utf-8"), "python -m tests.cli.golden writes it anew"


def test_what_waits_for_two_steps_of_one_topic_names_it_once() -> None:
    topic = Address("topic/west/shop:orders")
    waits = RunJob(
        address=topic, job="switch-groups", source=topic, sink=topic, depends_on=(f"create:{topic}", f"move:{topic}")
    )
    (row,) = sort_plan_rows(dataclasses.replace(sample_results.everything(), actions=(waits,))).jobs
    assert row.after == f"after: {topic}"


def test_every_action_has_exactly_one_row() -> None:
    plan = sample_results.everything()
    found = sort_plan_rows(plan)
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
    assert "blocked" not in counts
    assert blocked == (
        "Allow once with: --allow delete:topic/west/shop:eu:orders --allow update:topic/west/shop:eu:logs"
    )


def test_counts_agree_in_every_format() -> None:
    text, markdown = TEXTS["plan-everything.txt"](), TEXTS["plan-everything.md"]()
    counts = re.search(r"^Plan: (.*) · digest", text, re.MULTILINE)
    assert counts is not None
    assert f"**{counts[1]} · 2 blocked**" in markdown


def test_no_cell_is_cut_and_no_line_is_wrapped_in_a_pipe() -> None:
    long = "x" * 400
    plan = dataclasses.replace(sample_results.empty(), actions=(Forget(address=Address(f"topic/west/{long}")),))
    lines = to_plain_text(format_plan(plan)).splitlines()
    assert any(long in line and "forget" in line for line in lines)


@pytest.mark.parametrize("plan", ["plan-everything", "plan-mounting", "plan-roles"])
@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_a_narrow_terminal_breaks_lines_between_words_and_cuts_nothing(plan: str, width: int) -> None:
    wide, narrow = TEXTS[f"{plan}.txt"](), TEXTS[f"{plan}-{width}.txt"]()
    assert sorted(wide.split()) == sorted(narrow.replace(" \\\n", "\n").split())
    assert all(len(line) <= width or len(line.split()) == 1 for line in narrow.splitlines())
    (screen,) = pictures(narrow.replace("\n", "\r\n"), Size(width, 200))
    assert "".join(screen) == narrow.replace("\n", "")


def test_a_block_that_nothing_lifts_says_so() -> None:
    (first, *_) = sample_results.dangerous()
    assert first.blocked is not None
    stuck = dataclasses.replace(first, blocked=dataclasses.replace(first.blocked, allow=None))
    text = to_plain_text(format_plan(dataclasses.replace(sample_results.empty(), actions=(stuck,))))
    assert text.splitlines()[-1] == "No --allow lifts: delete:topic/west/shop:eu:orders"


def test_a_blocked_delete_says_why() -> None:
    gone = sample_results.topic("orders")
    block = Block("data_bearing", "it may hold records", f"delete:{gone.address}")
    delete = Delete(address=gone.address, before=gone, reasons=(Reason.HOLDS_DATA,), blocked=block)
    assert "blocked: it may hold records" in to_plain_text(
        format_plan(dataclasses.replace(sample_results.empty(), actions=(delete,)))
    )


def test_a_comment_names_each_delete_that_counts_and_at_most_twenty_of_them() -> None:
    (first, *_) = sample_results.dangerous()
    assert first.blocked is not None
    names = [f"topic/west/kill:k{number:02}" for number in range(30)]
    deletes = tuple(
        replace(
            first,
            address=Address(name),
            source="manifests/half\udcff.yaml:3",
            reasons=(Reason.NO_LONGER_DECLARED,),
            blocked=replace(first.blocked, allow=f"delete:{name}", instead=None),
        )
        for name in names
    )
    text = format_plan_comment(replace(sample_results.empty(), actions=deletes), FORGE, date(2026, 1, 31))
    allowed = [name for name in names if f'{{action: "delete:{name}", until: 2026-02-14' in text]
    assert (allowed, "# and 10 more" in text) == (names[:20], True)
    assert "manifests/half%FF.yaml#L3" in text


def test_many_blocks_are_lifted_by_one_pattern_that_can_be_pasted() -> None:
    (first, *_) = sample_results.dangerous()
    assert first.blocked is not None
    names = [*(f"topic/west/kill:k{number}" for number in range(30)), "namespace/west/kill", "topic/east/a"]
    blocked = [
        dataclasses.replace(
            first,
            address=Address(name),
            reasons=(Reason.DESTROYED,),
            blocked=dataclasses.replace(first.blocked, allow=f"delete:{name}", instead=None),
        )
        for name in names
    ]
    text = to_plain_text(format_plan(dataclasses.replace(sample_results.empty(), actions=tuple(blocked))))
    assert text.splitlines()[-1] == (
        "Allow once with: --allow delete:namespace/west/kill --allow delete:topic/east/a"
        " --allow 'delete:topic/west/kill:*'"
    )
    # Only of a destroy: elsewhere guards.maxDeletes counts deletes that no name allows.
    counted = [dataclasses.replace(action, reasons=(Reason.NO_LONGER_DECLARED,)) for action in blocked]
    text = to_plain_text(format_plan(dataclasses.replace(sample_results.empty(), actions=tuple(counted))))
    last = text.splitlines()[-1]
    assert "*" not in last
    assert last.endswith(" … and 12 more")
    assert group_allowances([f"delete:topic/west/{name}" for name in "abcdef"]) == ["delete:topic/west/*"]
    assert group_allowances([f"delete:topic/west/kill:{name}" for name in "edcba"])[0] == "delete:topic/west/kill:e"


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_words_that_stay_on_one_line(reason: Reason) -> None:
    assert all("\n" not in format_reason(reason, action) for action in sample_results.everything().actions)


@pytest.mark.thorough
@pytest.mark.parametrize("count", [0, 1, 200, 300, 400, 20_000])
def test_a_comment_is_never_longer_than_a_comment_may_be(count: int) -> None:
    for plan in (sample_results.many(count), sample_results.mostly_dangerous(count)):
        assert len(format_plan_comment(plan).encode()) <= LIMIT


@pytest.mark.parametrize("count", [1_000, 20_000])
def test_of_what_is_ordinary_as_much_as_fits_is_listed_and_the_rest_is_counted_by_kind(count: int) -> None:
    markdown = format_plan_comment(sample_results.many(count))
    listed = len(set(re.findall(r"topic-\d{6}", markdown)))
    rest = re.search(r"\| \+ \| topic \| `west` \| ([\d,]+) \|", markdown)
    assert rest is not None
    assert listed + int(rest[1].replace(",", "")) == count
    assert 0.95 * LIMIT < len(markdown.encode()) <= LIMIT
    assert "irreversible: keys change partitions" in markdown


def test_danger_loses_words_only_when_it_alone_is_too_long_and_rows_only_after_that() -> None:
    brief = format_plan_comment(sample_results.mostly_dangerous(600))
    assert brief.count("**blocked**") == 600
    cut = format_plan_comment(sample_results.mostly_dangerous(20_000))
    told = re.search(r"\*\*([\d,]+) more rows of danger do not fit here", cut)
    assert told is not None
    assert len(set(re.findall(r"topic-\d{6}", cut))) + int(told[1].replace(",", "")) == 20_000


def test_every_dangerous_address_is_named_for_as_long_as_it_fits_the_gravest_first() -> None:
    plan = sample_results.mostly_dangerous(3_000)
    (_, first, *_) = sample_results.dangerous()
    mild = [
        dataclasses.replace(first, address=Address(f"topic/east/mild-{number:06}"), risk=Risk.DISRUPTIVE)
        for number in range(3_000)
    ]
    dense = format_plan_comment(plan)
    assert len(set(re.findall(r"topic-\d{6}", dense))) == 3_000
    assert "do not fit" not in dense
    both = format_plan_comment(dataclasses.replace(plan, actions=(*mild, *plan.actions)))
    assert len(set(re.findall(r"topic-\d{6}", both))) == 3_000
    assert 0 < len(set(re.findall(r"mild-\d{6}", both))) < 3_000
    assert len(both.encode()) <= LIMIT


def test_a_comment_fits_also_where_a_table_of_counts_would_not() -> None:
    ordinary = [Forget(address=Address(f"topic/cluster-{number:06}/t")) for number in range(5_000)]
    danger = sample_results.mostly_dangerous(2_000).actions
    markdown = format_plan_comment(dataclasses.replace(sample_results.empty(), actions=(*danger, *ordinary)))
    assert len(markdown.encode()) <= LIMIT
    assert "5,000 ordinary changes." in markdown
    assert len(set(re.findall(r"topic-\d{6}", markdown))) == 2_000


def test_a_comment_can_be_found_again_by_its_marker() -> None:
    first = format_plan_comment(dataclasses.replace(sample_results.everything(), environment="prod")).splitlines()[0]
    fields = f"workspace=shop environment=prod digest={sample_results.DIGEST} items=16 verdict=blocked"
    assert first == f"<!-- reconciler:plan {fields} -->"


def test_what_is_dangerous_is_what_has_a_risk_a_block_or_differs_where_it_was_adopted() -> None:
    assert all(is_dangerous(action) for action in sample_results.dangerous())
    assert not any(is_dangerous(action) for action in sample_results.ordinary())
    assert {action.risk for action in sample_results.dangerous()} >= {Risk.NONE, Risk.IRREVERSIBLE, Risk.DATA_LOSS}


# A plan reads the same after it was saved.


def adoptions() -> Plan:
    """Return a plan that only changes what is remembered."""
    found = sample_results.topic("shop:eu:found")
    moved = Adopt(address=found.address, observed=found, after=found, moved_from=Address("topic/west/shop:us:found"))
    remembered = dataclasses.replace(
        moved, moved_from=None, changes=(Change("protect", before=True, after=False),), reasons=(Reason.RECORD_ONLY,)
    )
    return dataclasses.replace(sample_results.empty(), actions=(moved, remembered))


def test_a_saved_plan_knows_that_what_it_replaces_was_a_read_replica() -> None:
    spec = {"metadata": {"name": "a", "cluster": "west"}, "spec": {"partitions": 1}}
    topic = read_resource({"kind": "Topic", **spec})
    for reasons, said in (
        ((Reason.REPLACED, Reason.SOURCE_KEPT), "replaced: it was a read replica,"),
        ((Reason.REPLACED, Reason.HOLDS_DATA), "replaced: it was an ordinary topic"),
    ):
        delete = Delete(address=Address("topic/west/a"), before=topic, risk=Risk.IRREVERSIBLE, reasons=reasons)
        plan = dataclasses.replace(sample_results.empty(), actions=(delete,))
        read = read_plan_to_show(encode_saved_plan(dataclasses.replace(plan, digest=compute_digest([delete])), {})).plan
        assert said in to_plain_text(format_plan(read))


@pytest.mark.parametrize(
    "plan",
    [sample_results.everything(), sample_results.empty(), sample_results.refused(), adoptions(), switching(), roles()],
    ids=range(6),
)
def test_a_saved_plan_reads_as_it_did(plan: Plan) -> None:
    plan = dataclasses.replace(plan, digest=compute_digest(plan.actions))
    read = read_plan_to_show(encode_saved_plan(plan, {})).plan
    assert to_plain_text(format_plan(read)) == to_plain_text(format_plan(plan))
    assert format_plan_comment(read) == format_plan_comment(plan)


# What exit 6 shows: an action nobody approved with what it would move, one that moved with both sides.


DAY_MS = 86_400_000
ORDERS = Address("topic/west/shop:orders")


def moves(before: int, after: int) -> Move:
    return Move(str(before * DAY_MS), str(after * DAY_MS), has_before=True)


def told(why: Why, approved: Move | None) -> list[str]:
    field = FieldDifference("configs.retention.ms", approved, moves(7, 3))
    found = Difference(
        id=f"update:{ORDERS}",
        address=ORDERS,
        action="update",
        whys=(why,),
        fields=(field,),
        risk="none",
        approved_risk=None,
        blocked=None,
        source=None,
        is_dangerous=False,
    )
    return to_plain_text(format_differences(ApprovalCheck(SameOrLess((found,))))).splitlines()


def test_an_update_nobody_approved_is_shown_with_what_it_would_move() -> None:
    assert told(Why.NOT_APPROVED, None) == [
        "CHANGES 1",
        f"  update {ORDERS}  not in the approved plan",
        "      retention.ms  7d → 3d",
    ]


def test_an_update_that_rests_on_something_else_is_shown_with_both_sides() -> None:
    assert told(Why.GROUND, moves(6, 3))[1:] == [
        f"  update {ORDERS}  changed on the cluster since",
        "      retention.ms  approved: 6d → 3d;  now: 7d → 3d",
    ]


# What a plan says of a resource that it makes, and of a field that it moves: nothing is left out.


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"quotas": {"topics": 9, "partitions": 90}}, "quotas.topics 9, quotas.partitions 90"),
        ({"quotas": {"bytes": "1GiB"}, "configs": {"retention.ms": "7d"}}, "retention.ms 7d, quotas.bytes 1GiB"),
        ({"encryption": {"kmsKeyId": "key/1"}}, "encrypted under key/1"),
        ({}, ""),
    ],
)
def test_a_namespace_that_is_made_says_its_limits_and_its_key(spec: dict[str, object], said: str) -> None:
    made = read_resource(
        {"apiVersion": "reconciler/v1", "kind": "Namespace", "metadata": {"name": "n", "cluster": "west"}, "spec": spec}
    )
    assert summarize_resource(made) == said


CONFIGS = {"cleanup_policy": "compact", "min_insync_replicas": "2", "retention_ms": "7d", "segment_bytes": "256MiB"}
FORMS = {
    "text": lambda plan: to_plain_text(format_plan(plan)),
    "comment": format_plan_comment,
    "junit": lambda plan: format_junit(list_plan_remarks(plan)).decode(),
}


def creating(*resources: Any) -> Plan:
    actions = tuple(Create(address=each.address, after=each) for each in resources)
    return dataclasses.replace(sample_results.empty(), actions=actions)


@pytest.mark.parametrize("form", FORMS)
def test_whoever_reads_a_plan_sees_each_value_of_what_it_makes(form: str) -> None:
    text = FORMS[form](sample_results.detailed())
    for value in (
        "max.message.bytes 4MiB",
        "acl allow User:checkout on groups: all",
        "properties.log.segment.bytes 256MiB",
        "retryTimeout 600000",
    ):
        assert value in text
    assert text.count("shop:eu:audit") == 1


def test_many_topics_with_the_same_configs_show_them_once() -> None:
    plan = creating(*(sample_results.topic(f"shop:t{number:03}", **CONFIGS) for number in range(200)))
    for text in (to_plain_text(format_plan(plan)), format_plan_comment(plan)):
        assert text.count("retention.ms 7d") == 1
        assert text.count("4 configs, the same as topic/west/shop:t000") == 199
    danger = tuple(dataclasses.replace(action, risk=Risk.DATA_LOSS) for action in plan.actions[:2])
    mixed = dataclasses.replace(plan, actions=(*danger, *plan.actions[2:]))
    assert format_plan_comment(mixed).count("retention.ms 7d") == 2  # A reference never leads out of its own section.


def test_values_of_each_topic_are_shown_where_they_differ_for_as_long_as_they_fit() -> None:
    topics = [
        sample_results.topic(f"shop:t{number:04}", **CONFIGS, segment_ms=str(number + 1)) for number in range(900)
    ]
    markdown = format_plan_comment(creating(*topics))
    assert len(markdown.encode()) <= LIMIT
    listed = len(set(re.findall(r"^\+ topic/west/shop:t\d{4}", markdown, re.MULTILINE)))
    assert markdown.count("retention.ms 7d") == listed
    assert f"| + | topic | `west` | {900 - listed} |" in markdown


def test_one_resource_with_very_many_rules_does_not_hide_the_others() -> None:
    rules = [{"principal": f"User:u{number:04}", "operations": ["read"]} for number in range(3_000)]
    home = read_resource(
        {"kind": "Namespace", "metadata": {"name": "shop", "cluster": "west"}, "spec": {"acls": rules}}
    )
    plan = creating(home, sample_results.topic("shop:orders"))
    for text in (to_plain_text(format_plan(plan)), format_plan_comment(plan)):
        assert "and 2,960 more, see --format json" in text
        assert "topic/west/shop:orders" in text
    assert len(to_plain_text(format_plan(plan)).splitlines()) < 60


def test_a_quota_of_bytes_has_its_unit() -> None:
    assert format_change(Change("quotas.bytes", None, 1024)) == "quotas.bytes unset → 1KiB"
    assert format_change(Change("quotas.topics", 1024, 2048)) == "quotas.topics 1024 → 2048"


# A change inside a list of filters or rules reads value by value, in plans, in `state diff` and at exit 6.


PATH = "autoCreate.filters"
LINK = Address("link/east/twin")


def named(name: str, **more: object) -> dict[str, object]:
    return {"name": name, "patternType": "literal", **more}


def filters(*names: str) -> tuple[dict[str, object], ...]:
    return tuple(map(named, names))


RULE = {"principal": "User:a", "operation": "read", "resource": {"type": "topic", "name": "shop"}}


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        pytest.param(filters(*"abcd"), filters("a", "b", "c", "dd"), ["[3].name: d → dd"], id="one"),
        pytest.param(
            filters(*"abcd"), filters("aa", "b", "c", "dd"), ["[0].name: a → aa", "[3].name: d → dd"], id="two"
        ),
        pytest.param(
            (named("a"),),
            (named("b", patternType="prefixed", filterType="exclude", host="h"), named("c")),
            ["[1].name: a → c", ' +{"filterType": "exclude", "host": "h", "name": "b", "patternType": "prefixed"}'],
            id="the-most-alike",
        ),
        pytest.param(
            filters(*"abcd"),
            filters("b", "c", "dd"),
            ["[2].name: d → dd", ' -{"name": "a", "patternType": "literal"}'],
            id="fewer",
        ),
        pytest.param(
            filters("a", "b"),
            filters("a", "x", "bb"),
            ["[1].name: b → x", ' +{"name": "bb", "patternType": "literal"}'],
            id="more",
        ),
        pytest.param(filters("a", "b"), filters("b", "a"), [" in another order"], id="order"),
        pytest.param(filters("a", "a"), filters("a"), [' -{"name": "a", "patternType": "literal"}'], id="twice"),
        pytest.param(filters("a"), (), [' -{"name": "a", "patternType": "literal"}'], id="none-left"),
        pytest.param(({"name": "a"},), ({"name": "b"},), [' -{"name": "a"}', ' +{"name": "b"}'], id="nothing-alike"),
        pytest.param(
            (RULE,),
            ({**RULE, "resource": {"type": "topic", "name": ""}},),
            ["[0].resource.name: shop → ''"],
            id="inside",
        ),
        pytest.param(
            (RULE,),
            ({**RULE, "host": "10.0.0.1", "operation": True},),
            ["[0].host: unset → 10.0.0.1", "[0].operation: read → true"],
            id="came",
        ),
        pytest.param(
            (RULE,),
            ({"principal": "User:a", "operation": "read"},),
            ['[0].resource: {"name": "shop", "type": "topic"} → unset'],
            id="left",
        ),
        pytest.param(
            ({"who": "a", "may": ["read", "write"]},),
            ({"who": "a", "may": ["read", "alter", "write"]},),
            ["[0].may[1]: unset → alter"],
            id="list-inside",
        ),
        pytest.param(({"who": "a", "a.b[0]": 1},), ({"who": "a", "a.b[0]": 2},), ["[0].a.b[0]: 1 → 2"], id="odd-key"),
        pytest.param({"a": 1, "b": {"c": 2}}, {"a": 1, "b": {"c": 3}}, [".b.c: 2 → 3"], id="mapping"),
        pytest.param(("a", "b"), ("b", "c"), [' -"a" +"c"'], id="plain-list"),
        pytest.param(None, filters("a"), [' unset → [{"name": "a", "patternType": "literal"}]'], id="whole"),
    ],
)
def test_each_value_that_moved_has_a_line(before: Any, after: Any, told: list[str]) -> None:
    assert format_changes(Change(PATH, before, after)) == [f"{PATH}{each}" for each in told]


@pytest.mark.thorough
def test_the_same_change_reads_the_same_in_every_process() -> None:
    program = (
        "from tests.cli.test_plan_text import *; "
        "print(format_changes(Change(PATH, filters(*'abcdef'), filters('x', 'c', 'y', 'a', 'z'))))"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", program],
            check=True,
            capture_output=True,
            text=True,
            env=environment(PYTHONHASHSEED=str(seed)),
        ).stdout
        for seed in range(4)
    }
    assert len(told) == 1


# -- where it is shown


MOVED = Change(PATH, filters(*"abcd"), filters("aa", "b", "c", "dd"))
TWIN = MirrorLink(metadata=OnCluster(name="twin", cluster="east"), spec=MirrorLinkSpec(source="west"))


def plan_with(*changes: Change, drift: tuple[DriftFinding, ...] = ()) -> Plan:
    update = Update(address=LINK, before=TWIN, after=TWIN, changes=changes, reasons=(Reason.CHANGED,))
    return replace(everything(), actions=(update,), drift=drift, waiting=(), unmanaged=(), warnings=())


def shown(plan: Plan, width: int | None = None) -> list[str]:
    lines = to_plain_text(format_plan(plan, width=width)).splitlines()
    first = lines.index("") + 1
    return lines[first : lines.index("", first)]


def test_a_plan_has_a_line_for_each_below_what_else_changes() -> None:
    assert shown(plan_with(MOVED)) == [
        "CHANGES 1",
        "  ~ link/east/twin  autoCreate.filters[0].name: a → aa",
        "                    autoCreate.filters[3].name: d → dd",
    ]
    assert shown(plan_with(Change("prefix", None, "e."), MOVED)) == [
        "CHANGES 1",
        "  ~ link/east/twin  prefix unset → e.",
        "                    autoCreate.filters[0].name: a → aa",
        "                    autoCreate.filters[3].name: d → dd",
    ]
    assert shown(plan_with(MOVED), width=40)[1:] == [
        "  ~ link/east/twin",
        "      autoCreate.filters[0].name: a → aa",
        "      autoCreate.filters[3].name: d → dd",
    ]


def test_an_adoption_that_changes_them_does_likewise() -> None:
    adopted = Adopt(address=LINK, observed=TWIN, after=TWIN, changes=(MOVED,), reasons=(Reason.CHANGED,))
    assert shown(replace(plan_with(), actions=(adopted,)))[1:] == [
        "  = link/east/twin  remembered: autoCreate.filters[0].name: a → aa",
        "                    autoCreate.filters[3].name: d → dd",
    ]


def test_an_adopted_namespace_that_destroy_deletes_says_so() -> None:
    shop = Namespace(metadata=OfNamespace(name="shop", cluster="west"))
    adopted = Adopt(address=shop.address, observed=shop, after=shop, reasons=(Reason.ONLY_A_PREFIX,))
    assert shown(replace(plan_with(), actions=(adopted,)))[1:] == [
        "  = namespace/west/shop  adopt as it is  only a prefix until now; destroy removes it and its access rules",
    ]


@pytest.mark.parametrize(
    ("names", "row"),
    [
        (filters(*"abcd"), "dd → d  set back; changed on the cluster"),
        (filters("a", "b", "c", "x"), "dd → x  set to the files' value; changed on the cluster"),
    ],
)
def test_the_arrow_of_a_drift_points_to_what_apply_does(names: tuple[dict[str, object], ...], row: str) -> None:
    seen = filters("a", "b", "c", "dd")
    finding = DriftFinding(LINK, PATH, filters(*"abcd"), seen, "f", None, None)
    lines = shown(plan_with(Change(PATH, seen, names, drift=True), drift=(finding,)))
    assert lines[1:] == [f"  ! link/east/twin  {PATH}[3].name: {row}"]


def test_markdown_has_them_in_one_row() -> None:
    assert "autoCreate.filters[0].name: a → aa, autoCreate.filters[3].name: d → dd" in format_plan_comment(
        plan_with(MOVED)
    )


def test_what_programs_read_is_as_it_was() -> None:
    assert format_change(MOVED).startswith(f'{PATH} -{{"name": "a", "patternType": "literal"}} -{{"name": "d"')
    assert "filters[" not in format_junit(list_plan_remarks(plan_with(MOVED))).decode()


def test_state_diff_has_a_line_for_each() -> None:
    found = state_diffs.StateDifference(LINK, "changed", (MOVED,), (Change("protect", before=False, after=True),), ())
    lines = to_plain_text(
        format_state_diff(state_diffs.StateDiff(Snapshot("l", 1), Snapshot("l", 2), (found,)))
    ).splitlines()
    assert lines[2:] == [
        "~ link/east/twin",
        "    autoCreate.filters[0].name: a → aa",
        "    autoCreate.filters[3].name: d → dd",
        "    protect false → true",
    ]


def to(*names: str) -> Move:
    """Return a move as a document holds it: lists, not tuples."""
    return Move(list(filters(*"abcd")), list(filters(*names)), has_before=True)


def made(*names: str) -> Move:
    return Move(None, list(filters(*names)), has_before=False)


@pytest.mark.parametrize(
    ("why", "approved", "now", "told"),
    [
        (Why.NOT_APPROVED, None, to("aa", "b", "c", "dd"), ["[0].name  a → aa", "[3].name  d → dd"]),
        (
            Why.RESULT,
            to("aa", "b", "c", "dd"),
            to("aa", "b", "c", "x"),
            ["[3].name  approved: d → dd;  now: d → x"],
        ),
        (
            Why.RESULT,
            to("a", "b", "c", "dd"),
            to("aa", "b", "c", "d"),
            ["[0].name  approved: left alone;  now: a → aa", "[3].name  approved: d → dd;      now: left alone"],
        ),
        (Why.RESULT, to("a", "b", "c", "dd"), None, ["[3].name  approved: d → dd;  now: left alone"]),
        (Why.RESULT, made("a", "b"), made("a", "c"), ["[1].name  approved: b;  now: c"]),
    ],
)
def test_exit_6_shows_what_differs_value_by_value(
    why: Why, approved: Move | None, now: Move | None, told: list[str]
) -> None:
    found = Difference(
        id=f"update:{LINK}",
        address=LINK,
        action="update",
        whys=(why,),
        fields=(FieldDifference(PATH, approved, now),),
        risk="none",
        approved_risk=None,
        blocked=None,
        source=None,
        is_dangerous=False,
    )
    lines = to_plain_text(format_differences(ApprovalCheck(SameOrLess((found,))))).splitlines()
    assert lines[2:] == [f"      {PATH}{each}" for each in told]


@pytest.mark.thorough
def test_lists_that_only_grow_or_shrink_need_no_library() -> None:
    program = (
        "import sys; from tests.cli.test_plan_text import *; "
        "format_changes(Change(PATH, filters('a'), filters('a', 'b'))); print('deepdiff' in sys.modules); "
        "format_changes(Change(PATH, filters('a'), filters('b'))); print('deepdiff' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "True"]
