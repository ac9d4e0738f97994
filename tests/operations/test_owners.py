"""Who owns what: two workspaces and one cluster."""

from __future__ import annotations

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.cli.json.inventory_json import SHOWN
from reconciler.cli.text.runs_text import format_upkeep
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import (
    BlockedError,
    InterruptedRunError,
    RetryableError,
    StalePlanError,
    UnansweredError,
    UserError,
)
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.apply import ApplyOptions
from reconciler.operations.drift import drift
from reconciler.operations.drift_patch import accept
from reconciler.operations.show import show
from reconciler.operations.state_edit import RecordEdit, state_rm
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import Stop
from reconciler.providers.embedded.provider import EmbeddedProvider
from reconciler.providers.protocol import FailedAction, Outcome
from reconciler.resources.owners import OwnerChange, ResourceOwner
from reconciler.state.snapshots import read_snapshot
from tests.operations.stage import ORDERS as MIRRORED
from tests.operations.stage import mirroring, opened, produce, upkeep, values

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from conftest import Bench

    from reconciler.embedded.catalog.tables import Draft
    from reconciler.operations.plan import PlanResult
    from reconciler.planning.actions import ControlAction


TOPIC = "topic/west/shop:orders"
WORKSPACE = "apiVersion: reconciler/v1\nkind: Workspace\nmetadata: {name: shop}\n"
NAMESPACE = "apiVersion: reconciler/v1\nkind: Namespace\nmetadata: {name: %s, cluster: west}\n"
ORDERS = """\
apiVersion: reconciler/v1
kind: Topic
metadata: {name: orders, namespace: shop, cluster: west}
spec: {partitions: 3, configs: {retention.ms: 7d}}
"""
STOLEN = ORDERS.replace("7d", "1d")
CLUSTER = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: west}
spec:
  embedded: {root: "file://%s/.clusters/west"}
"""
TAKE = Select(allow=(f"adopt:{TOPIC}", "update:*"))


def west(bench: Bench) -> EmbeddedCluster:
    store = DirectoryStore(bench.folder / ".clusters/west")
    return EmbeddedCluster.open(store, now_ms=bench.invocation.now_ms, new_id=bench.invocation.new_id)


def workspace(shop: Bench, name: str, document: str = STOLEN) -> Bench:
    """Return another workspace that declares the same cluster, and something on it."""
    folder = shop.folder / name
    other = replace(shop, folder=folder, invocation=replace(shop.invocation, cwd=folder))
    other.write("reconciler.yaml", WORKSPACE.replace("shop", name))
    other.write("manifests/west.yaml", CLUSTER % shop.folder)
    other.write("manifests/document.yaml", document)
    return other


def owners_in_full(bench: Bench) -> dict[str, ResourceOwner]:
    """Return who owns what, by key, as the cluster has it."""
    catalog = west(bench).catalog.read()
    return {key: catalog.workspaces[lineage] for key, lineage in catalog.owners.items()}


def owners(bench: Bench) -> dict[str, str]:
    return {key: owner.workspace for key, owner in owners_in_full(bench).items()}


def free_all(bench: Bench) -> None:
    """Let the cluster say nothing of owners, as an older version left it."""

    def forget(draft: Draft) -> None:
        for key in tuple(draft.owners):
            draft.put_owner(key, None)
        for lineage in tuple(draft.workspaces):
            draft.put_workspace(lineage, None)

    west(bench).catalog.commit(forget)


def made_by_nobody(bench: Bench) -> None:
    """Make the topic, and let nobody own it."""
    assert bench.apply().verdict is None
    free_all(bench)


@pytest.fixture
def thief(applied: Bench) -> Bench:
    """A second workspace that declares the topic of the first one, with another retention."""
    return workspace(applied, "thief")


def test_what_another_workspace_owns_is_neither_adopted_nor_changed(applied: Bench, thief: Bench) -> None:
    with pytest.raises(BlockedError, match=r"owned by workspace 'shop' \(state file://.*/\.reconciler.*\)") as caught:
        thief.apply()
    assert f"--allow adopt:{TOPIC}" in caught.value.hint
    assert applied.plan().plan.is_empty


def test_what_another_workspace_owns_is_named_by_drift_and_left_out_of_a_patch_that_accepts(applied: Bench) -> None:
    other = workspace(applied, "other", ORDERS.replace("orders", "clicks"))
    assert other.apply().verdict is None
    west(applied).create_topic("legacy", partitions=1)
    said = {found.address: found.message for found in drift(applied.invocation, Select()).findings}
    owner = owners_in_full(applied)["topic/shop:clicks"]
    assert said == {
        "topic/west/legacy": "exists, but no file declares it",
        "topic/west/shop:clicks": f"is owned by {owner}, and no file declares it",
    }
    found = accept(applied.invocation, Select(), ["*"])
    assert [line for line in found.patch.splitlines() if line.startswith("+++")] == [
        "+++ b/manifests/accepted/topic-west-legacy.yaml"
    ]
    assert (found.notes, found.left_out) == ((f"topic/west/shop:clicks: left out, owned by {owner}",), 0)


def test_who_is_allowed_by_name_takes_it_and_the_first_owner_is_told(applied: Bench, thief: Bench) -> None:
    assert thief.apply(TAKE).verdict is None
    assert owners(applied)["topic/shop:orders"] == "thief"
    plan = applied.plan().plan
    assert [(action.id, action.blocked and action.blocked.guard) for action in plan.actions] == [
        (f"update:{TOPIC}", "owner")
    ]
    assert "owned by workspace 'thief'" in plan.blocked[0].blocked.message
    (finding,) = [found for found in drift(applied.invocation, Select()).findings if found.path == "owner"]
    assert (finding.kind, finding.address) == ("drift", TOPIC)
    assert "workspace 'thief'" in str(finding.observed)


def test_everything_that_was_taken_over_is_taken_back_by_one_command(applied: Bench, thief: Bench) -> None:
    thief.write("manifests/document.yaml", (NAMESPACE % "shop") + "---\n" + ORDERS)
    thief.apply(Select(allow=("adopt:*",)))
    (warning,) = applied.plan().plan.warnings
    assert f"--allow adopt:namespace/west/shop --allow adopt:{TOPIC}" in warning.hint
    assert f"reconciler state rm namespace/west/shop {TOPIC}" in warning.hint
    verdict = drift(applied.invocation, Select()).verdict
    assert verdict is not None
    assert f"--allow adopt:namespace/west/shop --allow adopt:{TOPIC}" in verdict.hint


def test_a_namespace_that_another_workspace_declares_is_shared_without_a_word(applied: Bench) -> None:
    document = ORDERS.replace("orders", "pays")
    other = workspace(applied, "other", document)
    assert not other.plan().warnings
    assert other.apply().verdict is None
    for bench in (applied, other):
        planned = bench.plan()
        assert planned.plan.is_empty
        assert not planned.warnings
        assert not planned.plan.warnings


def test_a_plan_and_show_name_the_owner_and_where_its_state_lies(
    applied: Bench, applied_once: Bench, thief: Bench
) -> None:
    *_, updated = thief.plan().plan.actions
    assert updated.id == f"update:{TOPIC}"
    lineage = json.loads((applied.folder / ".reconciler/lockfile.json").read_bytes())["lineage"]
    named = {
        "workspace": "shop",
        "environment": None,
        "lineage": lineage,
        "state": f"file://{applied_once.folder}/.reconciler",
    }
    assert updated.owner is not None
    assert updated.owner.to_json() == named
    assert SHOWN.build_row(show(thief.invocation, Select(), TOPIC)[0])["owner"] == {**named, "ours": False}
    assert SHOWN.build_row(show(applied.invocation, Select(), TOPIC)[0])["owner"] == {**named, "ours": True}


@pytest.mark.parametrize("how", ["destroy", "state rm", "out of the files"])
def test_who_lets_go_of_a_topic_does_not_own_it_any_more(applied: Bench, thief: Bench, how: str) -> None:
    match how:
        case "destroy":
            assert applied.destroy(Select(allow=("delete:*",))).verdict is None
        case "state rm":
            surgery = RecordEdit(
                invocation=applied.invocation, select=Select(), command=how, lock_timeout_s=5, stop=applied.stop
            )
            state_rm(surgery, ["*"], recursive=True, confirm=lambda _rows: True)
        case _:
            (applied.folder / "manifests/orders.yaml").unlink()
            assert applied.apply(Select(allow=("delete:*",))).verdict is None
    assert "topic/shop:orders" not in owners(applied)
    if how == "destroy":
        (applied.folder / "manifests/orders.yaml").unlink()
        assert applied.apply().verdict is None
    assert thief.apply(Select(allow=("update:*",))).verdict is None
    assert owners(applied)["topic/shop:orders"] == "thief"


def test_of_two_that_adopt_one_topic_at_once_one_wins_and_the_other_is_told(bench: Bench) -> None:
    first, second = workspace(bench, "first"), workspace(bench, "second")
    made_by_nobody(bench)

    def take_first(_planned: PlanResult) -> bool:
        assert first.apply().verdict is None
        return True

    with pytest.raises((BlockedError, StalePlanError), match="owned by workspace 'first'"):
        second.apply(options=ApplyOptions(), confirm=take_first)
    assert owners(bench) == {"topic/shop:orders": "first"}
    assert first.plan().plan.is_empty


def test_whoever_is_faster_between_the_last_look_and_the_first_change_wins(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = workspace(bench, "first"), workspace(bench, "second")
    made_by_nobody(bench)
    own, is_first = EmbeddedProvider.record_owners, [True]

    def own_late(self: EmbeddedProvider, change: OwnerChange) -> object:
        if is_first.pop() if is_first else False:
            assert first.apply().verdict is None
        return own(self, change)

    monkeypatch.setattr(EmbeddedProvider, "record_owners", own_late)
    with pytest.raises(StalePlanError, match=f"{TOPIC} is owned by workspace 'first'"):
        second.apply()
    assert owners(bench) == {"topic/shop:orders": "first"}
    with pytest.raises(BlockedError):
        second.apply()


MAKING = CLUSTER + "---\n" + NAMESPACE % "shop" + "---\n"


def first_applies(bench: Bench, *names: str) -> list[Bench]:
    """Return workspaces that all make the same cluster, the same namespace and a topic that each wants otherwise."""
    made = [workspace(bench, name, ORDERS.replace("7d", f"{number + 1}d")) for number, name in enumerate(names)]
    for each in made:
        each.write("manifests/west.yaml", MAKING % bench.folder)
    return made


OWNED = ("namespace/shop", "topic/shop:orders")


@pytest.mark.parametrize("until", ["record_owners", "apply"])
def test_of_two_that_make_a_cluster_at_once_one_owns_all_and_the_other_changes_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, until: str
) -> None:
    first, second = first_applies(bench, "first", "second")
    step, between = getattr(EmbeddedProvider, until), ["once"]
    ended: list[str] = []

    def late(self: EmbeddedProvider, *given: Any, **named: Any) -> object:
        if between:
            between.clear()
            try:
                assert first.apply().verdict is None
                ended.append("first")
            except BlockedError as error:
                ended.append(str(error))
        return step(self, *given, **named)

    monkeypatch.setattr(EmbeddedProvider, until, late)
    if until == "record_owners":  # the first is faster: the second has taken nothing yet
        with pytest.raises(StalePlanError, match="shop is owned by workspace 'first'"):
            second.apply()
        assert ended == ["first"]
        winner = "first"
    else:  # the second has taken what it makes
        assert second.apply().verdict is None
        assert "owned by workspace 'second'" in ended[0]
        winner = "second"
    assert owners(bench) == dict.fromkeys(OWNED, winner)
    retention = west(bench).topics()["shop:orders"].configs["retention.ms"]
    assert retention == {"first": "86400000", "second": "172800000"}[winner]


def test_two_that_make_a_cluster_at_once_share_it_and_the_properties_of_the_first_stay(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (workspace(bench, name, NAMESPACE % name) for name in ("first", "second", "third"))
    for each, retention in ((first, "1d"), (third, "2d")):
        text = (CLUSTER % bench.folder) + f"  properties: {{log_retention_ms: {retention}}}\n"
        each.write("manifests/west.yaml", text)
    step, between = EmbeddedProvider.apply, ["once"]

    def late(self: EmbeddedProvider, *given: Any, **named: Any) -> object:
        if between:
            between.clear()
            assert first.apply().verdict is None
            assert second.apply().verdict is None
        return step(self, *given, **named)

    monkeypatch.setattr(EmbeddedProvider, "apply", late)
    verdict = third.apply().verdict
    assert "properties.log_retention_ms is '86400000' now, not unset" in str(verdict)
    assert owners(bench) == {"namespace/first": "first", "namespace/second": "second"}
    assert third.apply(Select(allow=("update:*",))).verdict is None
    assert owners(bench)["namespace/third"] == "third"


def test_who_may_not_make_a_cluster_is_told_once_and_leaves_nothing(bench: Bench) -> None:
    stranger = workspace(bench, "stranger", NAMESPACE % "shop").with_(principal="User:stranger")
    applied = stranger.apply()
    assert "create cluster/west" in str(applied.verdict)
    assert stranger.warned == []
    assert not (bench.folder / ".clusters/west").exists()


def test_of_several_that_make_a_cluster_at_once_one_owns_all_each_time(bench: Bench) -> None:
    names = ("anna", "bob", "carol")
    for race in range(14):
        shutil.rmtree(bench.folder / ".clusters", ignore_errors=True)
        racers = first_applies(replace(bench), *(f"{name}-{race}" for name in names))
        start = threading.Barrier(len(racers))

        def run(racer: Bench, start: threading.Barrier = start) -> int:
            try:
                applied = racer.apply(options=ApplyOptions(), confirm=lambda _planned: bool(start.wait(30) + 1))
            except (StalePlanError, BlockedError) as error:
                return error.exit_code
            return 0 if applied.verdict is None else applied.verdict.exit_code

        with ThreadPoolExecutor(len(racers)) as threads:
            codes = list(threads.map(run, racers))
        (winner,) = [racer for racer, code in zip(racers, codes, strict=True) if code == 0]
        assert set(codes) <= {0, 6, 7}, codes
        assert owners(bench) == dict.fromkeys(OWNED, winner.folder.name)
        assert winner.plan().plan.is_empty
        for loser in (each for each in racers if each is not winner):
            snapshot = read_snapshot(DirectoryStore(loser.folder / ".reconciler"))
            assert snapshot is None or snapshot.serial == 0, "it has changed nothing"
            assert {action.blocked.guard for action in loser.plan().plan.blocked if action.blocked} == {"owner"}


def test_who_is_too_late_on_one_cluster_gives_back_what_it_took_on_another(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = workspace(bench, "first"), workspace(bench, "second")
    east = CLUSTER.replace("west", "east") % bench.folder
    topic = ORDERS.replace("west", "east").replace(", namespace: shop", "")
    for each in (bench, second):
        each.write("manifests/east.yaml", f"{east}---\n{topic}")
    made_by_nobody(bench)
    on_east = DirectoryStore(bench.folder / ".clusters/east")
    cluster = EmbeddedCluster.open(on_east, now_ms=bench.invocation.now_ms, new_id=bench.invocation.new_id)
    cluster.catalog.commit(lambda draft: draft.put_owner("topic/orders", None))
    own = EmbeddedProvider.record_owners
    calls: list[OwnerChange] = []

    def own_late(self: EmbeddedProvider, change: OwnerChange) -> object:
        calls.append(change)
        if len(calls) == 2:  # the first is about east: clusters come by their names
            assert first.apply().verdict is None
        return own(self, change)

    monkeypatch.setattr(EmbeddedProvider, "record_owners", own_late)
    with pytest.raises(StalePlanError, match=f"{TOPIC} is owned by workspace 'first'"):
        second.apply()
    assert "topic/orders" not in cluster.catalog.read().owners


def test_who_does_not_reach_one_cluster_any_more_gives_back_what_it_took_and_waits_once_for_one_that_is_down(
    applied: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied.write("manifests/east.yaml", CLUSTER.replace("west", "east") % applied.folder)
    assert applied.apply().verdict is None
    more = ORDERS.replace("orders", "more")
    applied.write("manifests/more.yaml", f"{more}---\n{more.replace('west', 'east').replace(', namespace: shop', '')}")
    own = EmbeddedProvider.record_owners
    on_west: list[OwnerChange] = []

    def own_until_gone(self: EmbeddedProvider, change: OwnerChange) -> object:
        if "topic/shop:orders" in change.keep:
            on_west.append(change)
        if "topic/shop:more" in change.take:  # the one about east was before: clusters come by their names
            raise RetryableError("its store does not answer", hint="Try again.")
        return own(self, change)

    monkeypatch.setattr(EmbeddedProvider, "record_owners", own_until_gone)
    with pytest.raises(RetryableError):
        applied.apply()
    on_east = DirectoryStore(applied.folder / ".clusters/east")
    cluster = EmbeddedCluster.open(on_east, now_ms=applied.invocation.now_ms, new_id=applied.invocation.new_id)
    assert "topic/more" not in cluster.catalog.read().owners
    assert len(on_west) == 1


@pytest.mark.parametrize("options", [ApplyOptions(yes=True), ApplyOptions()], ids=["yes", "asked"])
def test_a_state_of_before_says_what_it_owns_at_its_next_apply_though_nothing_else_is_to_do(
    applied: Bench, options: ApplyOptions
) -> None:
    free_all(applied)
    applied.asked.clear()
    plan = applied.plan().plan
    assert (plan.is_empty, plan.warnings) == (True, ())
    assert applied.apply(options=options).verdict is None
    assert owners(applied) == {"namespace/shop": "shop", "topic/shop:orders": "shop"}
    assert not applied.asked


def test_who_comes_second_before_that_apply_is_the_owner_and_the_first_is_told(applied: Bench, thief: Bench) -> None:
    free_all(applied)
    assert thief.apply().verdict is None
    assert owners(applied)["topic/shop:orders"] == "thief"
    assert [action.blocked.guard for action in applied.plan().plan.blocked if action.blocked] == ["owner"]


def test_a_state_that_is_moved_stays_the_owner_and_says_where_it_lies_now(applied: Bench) -> None:
    shutil.move(applied.folder / ".reconciler", applied.folder / "moved")
    applied.write("reconciler.yaml", WORKSPACE + "spec: {state: 'file://moved'}\n")
    applied.write("manifests/orders.yaml", STOLEN)
    assert applied.apply(Select(allow=("update:*",))).verdict is None
    assert owners_in_full(applied)["topic/shop:orders"].state == f"file://{applied.folder}/moved"


def test_a_copied_folder_and_its_original_are_told_of_each_other_once_one_of_them_was_applied(bench: Bench) -> None:
    original = workspace(bench, "original", ORDERS)
    original.write("manifests/west.yaml", MAKING % bench.folder)
    assert original.apply().verdict is None
    shutil.copytree(original.folder, bench.folder / "copy")
    copy = replace(original, folder=bench.folder / "copy")
    copy = copy.with_(cwd=copy.folder)
    assert copies_told(original) == copies_told(copy) == []
    original.write("manifests/document.yaml", NAMESPACE % "more" + "---\n" + ORDERS)
    assert original.apply().verdict is None
    (told,) = copies_told(copy)
    assert f"state file://{original.folder}/.reconciler has the same lineage" in told
    assert copies_told(original) == []
    assert copy.apply(Select(allow=("delete:*",))).verdict is None
    (told,) = copies_told(original)
    assert f"state file://{copy.folder}/.reconciler has the same lineage" in told
    shutil.rmtree(copy.folder)
    assert copies_told(original) == []
    assert not copy.folder.exists()


def copies_told(bench: Bench) -> list[str]:
    return [each.message for each in bench.plan().plan.warnings if "lineage" in each.message]


def test_a_state_made_anew_at_its_place_takes_over_what_was_its_own(applied_here: Bench) -> None:
    before = owners_in_full(applied_here)["topic/shop:orders"].lineage
    shutil.rmtree(applied_here.folder / ".reconciler")
    assert applied_here.apply().verdict is None
    assert owners_in_full(applied_here)["topic/shop:orders"].lineage != before
    assert set(owners_in_full(applied_here)) == {"namespace/shop", "topic/shop:orders"}


def test_a_renamed_workspace_takes_over_by_a_pattern(applied: Bench) -> None:
    applied.write("reconciler.yaml", WORKSPACE.replace("shop", "store") + "spec: {state: 'file://store'}\n")
    with pytest.raises(BlockedError, match="owned by workspace 'shop'"):
        applied.apply()
    assert applied.apply(Select(allow=("adopt:*",))).verdict is None
    assert owners(applied) == {"namespace/shop": "store", "topic/shop:orders": "store"}


def test_an_owner_never_names_credentials(applied: Bench) -> None:
    found = ResourceOwner.create("shop", None, "id", "s3://key:secret@bucket/state?token=x")
    assert found.state == "s3://bucket/state"
    assert "secret" not in str(found)
    assert applied.plan().plan.is_empty


def test_what_a_killed_apply_took_and_did_not_make_is_let_go_by_the_next(applied: Bench, thief: Bench) -> None:
    me = owners_in_full(applied)["topic/shop:orders"]

    def take_more(draft: Draft) -> None:
        draft.put_owner("topic/shop:more", me.lineage)

    west(applied).catalog.commit(take_more)
    more = ORDERS.replace("orders", "more")
    thief.write("manifests/document.yaml", more)
    with pytest.raises(BlockedError):
        thief.apply()
    assert applied.apply().verdict is None
    assert thief.apply().verdict is None
    assert owners(applied)["topic/shop:more"] == "thief"


def test_what_an_apply_took_and_could_not_make_is_let_go_at_its_end(
    applied: Bench, thief: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = ORDERS.replace("orders", "more")
    applied.write("manifests/more.yaml", more)

    def refusing(_self: EmbeddedProvider, actions: Sequence[ControlAction], **_how: Any) -> Iterator[Outcome]:
        assert owners(applied)["topic/shop:more"] == "shop"
        return iter([FailedAction(action.id, UserError("it is refused", hint="Ask.")) for action in actions])

    with monkeypatch.context() as patched:
        patched.setattr(EmbeddedProvider, "apply", refusing)
        assert applied.apply().verdict is not None
    assert owners(applied) == {"topic/shop:orders": "shop", "namespace/shop": "shop"}
    thief.write("manifests/document.yaml", more)
    assert thief.apply().verdict is None


@pytest.mark.parametrize("end", ["a stop", "no answer"])
def test_what_an_apply_took_and_did_not_begin_to_make_is_let_go(
    applied: Bench, thief: Bench, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = ORDERS.replace("orders", "more")
    applied.write("manifests/more.yaml", more)
    own, taken = EmbeddedProvider.record_owners, list[OwnerChange]()

    def taking(self: EmbeddedProvider, change: OwnerChange) -> Mapping[str, ResourceOwner]:
        refused = own(self, change)
        if change.take and not taken:
            taken.append(change)
            assert owners(applied)["topic/shop:more"] == "shop"
            if end == "no answer":
                raise UnansweredError("no answer came", hint="Wait.")
            applied.stop.request()
        return refused

    with monkeypatch.context() as patched:
        patched.setattr(EmbeddedProvider, "record_owners", taking)
        with pytest.raises(InterruptedRunError if end == "a stop" else RetryableError):
            applied.apply()
    assert owners(applied) == {"topic/shop:orders": "shop", "namespace/shop": "shop"}
    thief.write("manifests/document.yaml", more)
    assert replace(thief, stop=Stop()).apply().verdict is None


def test_a_cluster_that_is_gone_keeps_nobody_from_forgetting_it(applied: Bench) -> None:
    shutil.rmtree(applied.folder / ".clusters/west")
    surgery = RecordEdit(
        invocation=applied.invocation, select=Select(), command="state rm", lock_timeout_s=5, stop=applied.stop
    )
    assert len(state_rm(surgery, ["*"], recursive=True, confirm=lambda _rows: True)) == 3


@pytest.mark.parametrize(
    ("clusters", "why"),
    [
        ({"east": "east"}, "cluster west is not declared here"),
        ({"east": "east", "west": "other"}, "cluster west is another one here"),
    ],
)
def test_a_run_leaves_a_link_to_its_owner_where_it_does_not_reach_its_source(
    bench: Bench, clusters: dict[str, str], why: str
) -> None:
    shop = mirroring(bench)
    assert upkeep(shop, "mirror").verdict is None
    other = CLUSTER % shop.folder
    documents = [other.replace("/west", f"/{root}").replace("west", name) for name, root in clusters.items()]
    guest = workspace(shop, "guest", "---\n".join(documents))
    (guest.folder / "manifests/west.yaml").unlink()
    assert guest.apply().verdict is None
    produce(shop, "west", "new")
    before = opened(shop, "east").catalog.read()
    done = upkeep(guest, "mirror")
    assert done.verdict is None
    assert [span.text for span in format_upkeep(done)[-1]] == [
        f"Left to the workspaces that own them: link/east/dr to 'shop' ({why})"
    ]
    assert opened(shop, "east").catalog.read() == before
    assert upkeep(shop, "mirror").verdict is None
    assert values(shop, "east")[-1] == "new"


def test_a_run_writes_nothing_down_of_a_mirror_of_another_workspace_whose_source_it_does_not_see(bench: Bench) -> None:
    shop = mirroring(bench)
    assert upkeep(shop, "mirror").verdict is None
    east = (CLUSTER % shop.folder).replace("west", "east")
    guest = workspace(shop, "guest", east)
    assert guest.apply().verdict is None
    opened(shop, "west").delete_topic(MIRRORED)
    done = upkeep(guest, "mirror")
    assert (done.verdict, done.left) == (None, {"SOURCE_UNAVAILABLE": 1})
    mirror = opened(shop, "east").catalog.read().topics[MIRRORED].mirror
    assert mirror is not None
    assert mirror.trouble is None
    assert upkeep(shop, "mirror").verdict is not None
