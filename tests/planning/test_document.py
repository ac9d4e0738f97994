"""The plan as JSON: its shape, its digest, and what is read back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jsonschema
import orjson
import pytest

from reconciler.errors import UserError
from reconciler.planning.plan import Base, Plan
from reconciler.planning.plan_rows import compute_digest, encode_canonical, encode_plan
from reconciler.planning.same_or_less import PlanTarget, refuse_foreign_plan, refuse_other_commit, refuse_other_state
from reconciler.planning.saved_plan import PlanDocument, encode_saved_plan, read_plan_to_apply, read_plan_to_show
from tests.planning.casefile import Case

ROW: dict[str, Any] = {
    "clusters": ["west", "east"],
    "desired": [
        {"topic": "orders", "partitions": 6},
        {"topic": "logs", "configs": {"retention.ms": "3d"}},
        {"link": "l", "where": "east", "source": "west", "mirrors": ["orders"]},
    ],
    "recorded": [
        {"topic": "orders", "partitions": 3},
        {"topic": "logs", "configs": {"retention.ms": "7d"}},
        {"topic": "old"},
    ],
    "observed": [
        {"topic": "orders", "partitions": 3},
        {"topic": "logs", "configs": {"retention.ms": "9d"}},
        {"topic": "old"},
    ],
}


@pytest.fixture
def plan() -> Plan:
    return Case("sample", ROW).world.plan()


def row_of(plan: Plan, options: dict[str, Any] | None = None) -> dict[str, Any]:
    row: dict[str, Any] = orjson.loads(encode_plan(plan) if options is None else encode_saved_plan(plan, options))
    return row


def sealed(row: dict[str, Any]) -> bytes:
    """Return a file with the seal that fits it."""
    seal = hashlib.sha256(encode_canonical({key: row[key] for key in row if key != "seal"})).hexdigest()
    return orjson.dumps({**row, "seal": seal})


def test_the_document_has_the_keys_it_promises(plan: Plan) -> None:
    row = row_of(plan)
    assert row["format"] == "reconciler.plan/1"
    assert list(row) == sorted(row)
    assert {"workspace", "digest", "base", "environment", "tool", "git", "summary", "actions", "drift"} <= row.keys()
    assert {"waiting", "unmanaged", "errors", "warnings"} <= row.keys()
    assert row["git"] is None
    assert row["environment"] is None
    assert not {"options", "stored_actions", "seal"} & row.keys()


def test_the_summary_always_has_all_nine_keys_and_counts_blocked_ones_under_their_own_kind_too(plan: Plan) -> None:
    assert row_of(plan)["summary"] == {
        "create": 2,
        "update": 2,
        "delete": 1,
        "transition": 0,
        "job": 1,
        "adopt": 0,
        "forget": 0,
        "drift": 1,
        "blocked": 2,
    }


def test_an_action_says_all_that_a_reader_needs(plan: Plan) -> None:
    actions = {action["id"]: action for action in row_of(plan)["actions"]}
    update = actions["update:topic/west/orders"]
    assert update["cluster"] == "west"
    assert update["action"] == update["verb"] == "update"
    assert update["changes"] == [{"path": "partitions", "before": 3, "after": 6, "drift": False, "origin": None}]
    assert update["reasons"] == ["changed", "partitions_increase"]
    assert update["risk"] == "irreversible"
    assert update["source"] == "manifests/all.yaml:1"
    assert update["precondition"].startswith("sha256:")
    assert update["after"]["spec"]["partitions"] == 6
    assert actions["delete:topic/west/old"]["blocked"]["allow"] == "delete:topic/west/old"
    assert actions["delete:topic/west/old"]["after"] is None
    job = actions["mirror:mirror/east/orders"]
    assert job["action"] == "job"
    assert job["parameters"] == {"job": "mirror", "source": "topic/west/orders", "sink": "topic/east/orders"}
    assert job["source"] == "manifests/all.yaml:1"
    made = actions["create:mirror/east/orders"]
    assert made["parameters"] == {"partitions": 6, "configs": {}, "incarnation": "topic orders"}


def test_the_document_follows_its_own_schema(plan: Plan) -> None:
    schema = PlanDocument.model_json_schema()
    jsonschema.validate(row_of(plan), schema)
    jsonschema.validate(row_of(plan, {"targets": ["topic/*"]}), schema)


def test_a_saved_plan_keeps_its_options(plan: Plan) -> None:
    saved = read_plan_to_show(encode_saved_plan(plan, {"targets": ["topic/*"]}))
    assert saved.options == {"targets": ["topic/*"]}


@pytest.mark.parametrize(
    "edit",
    [
        lambda row: row["actions"].pop(),
        lambda row: row["actions"][0].update(risk="none" if row["actions"][0]["risk"] != "none" else "data-loss"),
        lambda row: row["actions"][0].update(precondition="sha256:other"),
        lambda row: row["actions"][0].update(grant="--allow everything"),
        lambda row: row["options"].update(targets=["*"]),
        lambda row: row["actions"][0].update(changes=[]) or row["actions"][0].update(wave=7),
        lambda row: row["summary"].update(blocked=0),
        lambda row: row.update(digest="0" * 64),
    ],
)
def test_a_saved_plan_edited_by_hand_is_refused(plan: Plan, edit: Any) -> None:
    row = row_of(plan, {"targets": []})
    edit(row)
    with pytest.raises(UserError, match="changed after it was written") as refused:
        read_plan_to_show(orjson.dumps(row))
    assert "plan --out" in refused.value.hint


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (lambda row: row["actions"].pop(), "the shown plan differs"),
        (lambda row: row["actions"][0].update(wave=7), "the shown plan differs"),
        (lambda row: row["actions"][0].update(more=1), "the shown plan differs"),
        (lambda row: row["stored_actions"].pop(), "the shown plan differs"),
        (lambda row: row["stored_actions"].reverse(), "the shown plan differs"),
        (lambda row: row["stored_actions"][0].update(wave=2**63), "the shown plan differs|cannot be read"),
        (lambda row: row["stored_actions"][0].update(wave=1e300), "the shown plan differs|cannot be read"),
        (lambda row: row["stored_actions"][0].update(action=[]), "cannot be read"),
        (lambda row: row["stored_actions"][0].update(risk="none at all"), "cannot be read"),
        (lambda row: row.update(digest="0" * 64), "the shown plan differs"),
        (lambda row: row.update(workspace=5), "cannot be read: workspace"),
        (lambda row: row.update(more=1), "cannot be read: more"),
        (lambda row: row.update(unmanaged=3), "cannot be read: unmanaged"),
        (lambda row: row.update(options=3), "cannot be read: options"),
        (lambda row: row["drift"][0].update(stays=True), "the shown plan differs"),
        (lambda row: row.update(git={"commit": "a", "applied": {"files": "b"}}), "cannot be read: git"),
    ],
)
def test_a_plan_whose_rows_and_actions_disagree_is_refused_even_with_a_seal_that_fits(
    plan: Plan, edit: Any, why: str
) -> None:
    row = row_of(plan, {})
    edit(row)
    with pytest.raises(UserError, match=why):
        read_plan_to_show(sealed(row))


def test_a_plan_saved_by_another_version_is_told_as_such(plan: Plan) -> None:
    row = row_of(plan, {"targets": []})
    del row["actions"][0]["estimate"]["engine"], row["back_to"]  # fields that came later
    with pytest.raises(UserError, match="the shown plan differs from the actions to apply"):
        read_plan_to_apply(sealed(row))
    for earlier in (
        {**row, "tool": "0.0.9"},
        {**row, "tool": "0.0.9", "seal": None, "digest": "0" * 64},
        {**row, "tool": "0.0.9", "given_up": []},
    ):
        with pytest.raises(
            UserError, match=r"^the saved plan was written by reconciler 0\.0\.9, and this is version 0\.1\.0"
        ) as refused:
            read_plan_to_show(orjson.dumps(earlier))
        assert "plan --out" in refused.value.hint
    with pytest.raises(UserError, match="changed after it was written: its seal does not match"):
        read_plan_to_show(orjson.dumps({**row, "workspace": "other"}))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "there is nothing in it"),
        (b" \n", "there is nothing in it"),
        (b"\x7fELF\x02\x01\x01\x00", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"plan", "not JSON"),
        (b"[]", "format is None"),
        (b"{}", "format is None"),
        (b'{"format": "reconciler.plan/2"}', "its format is 'reconciler.plan/2', of a newer one"),
        (b'{"format": "reconciler.drift/1"}', "its format is 'reconciler.drift/1'"),
        (b'{"format": "reconciler.plan/1"}', "was printed, not saved: it does not hold its actions"),
        (b'{"format": "reconciler.plan/1", "stored_actions": [], "drift": []}', "cannot be read: workspace"),
        (b'{"format": "reconciler.plan/1", "stored_actions": [[]]}', "stored_actions is not a list of objects"),
        (
            b'{"format": "reconciler.plan/1", "stored_actions": [], "x":' + b'{"a":' * 500 + b"1" + b"}" * 501,
            "cannot be read",
        ),
        (b"\xff\xfe", "it is not text"),
    ],
)
def test_what_is_no_saved_plan_is_said_so(body: bytes, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_plan_to_show(body)


@pytest.mark.parametrize(
    ("other", "word"),
    [({"workspace": "x"}, "workspace"), ({"environment": "prod"}, "environment"), ({"tool": "9"}, "version")],
)
def test_a_saved_plan_of_something_else_is_refused(plan: Plan, other: dict[str, str], word: str) -> None:
    here: dict[str, Any] = {"workspace": "shop", "environment": None, "tool": "0.1.0"}
    refuse_foreign_plan(plan, PlanTarget(**here))
    with pytest.raises(UserError, match=word):
        refuse_foreign_plan(plan, PlanTarget(**{**here, **other}))


def test_a_saved_plan_of_another_commit_says_both(plan: Plan) -> None:
    document = replace(plan, git_commit="1f2e9ab")
    refuse_other_commit(document, "1f2e9ab")
    with pytest.raises(UserError, match="is of git commit 1f2e9ab, this is none"):
        refuse_other_commit(document, None)
    with pytest.raises(UserError, match="is of git commit none, this is 5a7c"):
        refuse_other_commit(plan, "5a7c")


def test_a_plan_made_on_another_state_is_refused_and_one_made_on_none_fits_the_first(plan: Plan) -> None:
    document = replace(plan, base=Base("3c2e", 412, "ab"))
    refuse_other_state(document, "3c2e")
    with pytest.raises(UserError, match=r"lineage 3c2e, and another state is there, of lineage 77aa"):
        refuse_other_state(document, "77aa")
    with pytest.raises(UserError, match="no state is there any more"):
        refuse_other_state(document, None)
    refuse_other_state(replace(plan, base=None), "77aa")


def test_a_plan_that_lost_its_seal_is_shown_and_not_applied_and_one_without_its_actions_neither(plan: Plan) -> None:
    with pytest.raises(UserError, match="printed, not saved"):
        read_plan_to_show(encode_plan(plan))
    row = row_of(plan, {})
    del row["seal"]
    assert read_plan_to_show(orjson.dumps(row)).plan == read_plan_to_apply(encode_saved_plan(plan, {})).plan
    with pytest.raises(UserError, match="printed, not saved"):
        read_plan_to_apply(orjson.dumps(row))
    del row["stored_actions"]
    with pytest.raises(UserError, match="was written by an earlier version: it does not hold its actions") as refused:
        read_plan_to_show(sealed(row))
    assert "plan --out" in refused.value.hint
    assert read_plan_to_apply(encode_saved_plan(plan, {})).options == {}


def test_a_plan_of_a_million_wrong_actions_is_refused_by_the_first(plan: Plan) -> None:
    body = encode_saved_plan(replace(plan, actions=()), {})
    row = orjson.loads(body) | {"stored_actions": [0] * 1_000_000}
    with pytest.raises(UserError, match="cannot be read: stored_actions is not a list of objects"):
        read_plan_to_apply(sealed(row))


@pytest.mark.parametrize("kept", [1, 100, 2000, -200, -2, -1])
def test_a_saved_plan_cut_off_anywhere_ends_in_the_middle(plan: Plan, kept: int) -> None:
    with pytest.raises(UserError, match="it ends in the middle"):
        read_plan_to_apply(encode_saved_plan(plan, {})[:kept])


def test_a_saved_plan_may_be_laid_out_anew_and_every_leaf_of_it_is_sealed(plan: Plan) -> None:
    row = row_of(plan, {"target": ["topic/*"], "allow": ["delete:*"]})
    assert read_plan_to_apply(orjson.dumps(row, option=orjson.OPT_INDENT_2)).options == row["options"]
    paths = list(leaves_of(row))
    assert len(paths) > 100
    for path in paths:
        edited = orjson.loads(orjson.dumps(row))
        change(edited, path)
        with pytest.raises(UserError):
            read_plan_to_apply(orjson.dumps(edited))


def leaves_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where every scalar of a document stands."""
    match value:
        case dict():
            for key, item in value.items():
                yield from leaves_of(item, (*path, key))
        case list():
            for position, item in enumerate(value):
                yield from leaves_of(item, (*path, position))
        case _:
            yield path


def change(row: Any, path: tuple[Any, ...]) -> None:
    """Put another value of the same type where `path` leads."""
    *outer, last = path
    for part in outer:
        row = row[part]
    match row[last]:
        case bool() as value:
            row[last] = not value
        case int() as value:
            row[last] = value + 1
        case str() as value:
            row[last] = value + "x"
        case _:
            row[last] = "x"


def test_the_digest_does_not_change_with_what_is_only_shown(plan: Plan) -> None:
    moved = replace(plan, git_commit="1f2e9ab", tool="9", actions=plan.actions)
    assert compute_digest(moved.actions) == plan.digest == row_of(moved)["digest"]
    elsewhere = Case("sample", {**ROW, "desired": [{**item, "at": "other.yaml:9"} for item in ROW["desired"]]})
    assert elsewhere.world.plan().digest == plan.digest


def test_the_digest_changes_with_what_is_done(plan: Plan) -> None:
    other = [{**item, "partitions": 7} if item.get("topic") == "orders" else item for item in ROW["desired"]]
    assert Case("sample", {**ROW, "desired": other}).world.plan().digest != plan.digest
    allowed = Case("sample", {**ROW, "given": {"allow": ["delete:topic/west/old"]}}).world.plan()
    assert allowed.digest != plan.digest
