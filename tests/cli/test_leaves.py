"""A change inside a list of filters or rules reads value by value, in plans, in `state diff` and at exit 6."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from reconciler.cli.text.amounts import change_text, change_texts
from reconciler.cli.text.lines import text_of
from reconciler.cli.text.markdown import plan_markdown
from reconciler.cli.text.plan_text import plan_text
from reconciler.cli.text.remarks import junit, plan_remarks
from reconciler.cli.text.states_text import diff_text, difference_lines
from reconciler.operations import state_views as state_diffs
from reconciler.operations.steps.approval import ApprovalCheck
from reconciler.planning.actions import Adopt, Change, Reason, Update
from reconciler.planning.plan import DriftFinding, Plan
from reconciler.planning.same_or_less import Difference, FieldDifference, Move, SameOrLess, Why
from reconciler.resources.address import Address
from reconciler.resources.base import OnCluster
from reconciler.resources.mirror_link import MirrorLink, MirrorLinkSpec
from reconciler.state.snapshots import Snapshot
from tests.cli.conftest import environment
from tests.cli.sample_plans import everything

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
    assert change_texts(Change(PATH, before, after)) == [f"{PATH}{each}" for each in told]


def test_the_same_change_reads_the_same_in_every_process() -> None:
    program = (
        "from tests.cli.test_leaves import *; "
        "print(change_texts(Change(PATH, filters(*'abcdef'), filters('x', 'c', 'y', 'a', 'z'))))"
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
    lines = text_of(plan_text(plan, width=width)).splitlines()
    return lines[2 : lines.index("", 2)]


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


@pytest.mark.parametrize(
    ("names", "ends"),
    [
        (filters(*"abcd"), "will be set back"),
        (filters("a", "b", "c", "x"), f"the files say {PATH}[3].name: dd → x"),
    ],
)
def test_drift_is_told_likewise(names: tuple[dict[str, object], ...], ends: str) -> None:
    seen = filters("a", "b", "c", "dd")
    finding = DriftFinding(LINK, PATH, filters(*"abcd"), seen, "f", None, None)
    (row,) = shown(plan_with(Change(PATH, seen, names, drift=True), drift=(finding,)))[1:]
    assert row == f"  ! link/east/twin  {PATH}[3].name: d → dd on the cluster ({ends})"


def test_markdown_has_them_in_one_row() -> None:
    assert "autoCreate.filters[0].name: a → aa, autoCreate.filters[3].name: d → dd" in plan_markdown(plan_with(MOVED))


def test_what_programs_read_is_as_it_was() -> None:
    assert change_text(MOVED).startswith(f'{PATH} -{{"name": "a", "patternType": "literal"}} -{{"name": "d"')
    assert "filters[" not in junit(plan_remarks(plan_with(MOVED))).decode()


def test_state_diff_has_a_line_for_each() -> None:
    found = state_diffs.StateDifference(LINK, "changed", (MOVED,), (Change("protect", before=False, after=True),), ())
    lines = text_of(diff_text(state_diffs.StateDiff(Snapshot("l", 1), Snapshot("l", 2), (found,)))).splitlines()
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
    lines = text_of(difference_lines(ApprovalCheck(SameOrLess((found,))))).splitlines()
    assert lines[2:] == [f"      {PATH}{each}" for each in told]


def test_lists_that_only_grow_or_shrink_need_no_library() -> None:
    program = (
        "import sys; from tests.cli.test_leaves import *; "
        "change_texts(Change(PATH, filters('a'), filters('a', 'b'))); print('deepdiff' in sys.modules); "
        "change_texts(Change(PATH, filters('a'), filters('b'))); print('deepdiff' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "True"]
