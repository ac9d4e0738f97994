"""Roles of mirrors by files and by commands: what is done to records, and what the next plan and drift say."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.applying.events import ActionDone
from reconciler.cli.json.checks_json import DRIFT
from reconciler.cli.text.drift_text import format_drift
from reconciler.cli.text.lines import to_plain_text
from reconciler.errors import BlockedError, UserError
from reconciler.operations.apply import ApplyOptions
from reconciler.operations.drift import drift
from reconciler.operations.mirrors.mirror_views import describe_mirrors
from reconciler.operations.plan import BlockedPlanError
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import SiteOptions
from tests.embedded.links.linked import Linked, mirrored
from tests.operations.stage import (
    BACK,
    CLUSTER,
    COPY,
    LINK,
    MIRROR,
    ORDERS,
    SOURCE,
    TOPIC,
    give_roles,
    lose,
    mirroring,
    opened,
    planned,
    produce,
    status,
    take_in,
    upkeep,
    values,
    want,
)

if TYPE_CHECKING:
    from conftest import Bench

    from reconciler.planning.orders import RoleVerb
    from reconciler.resources.mirrors import ObservedMirror


OLD = [f"a{number}" for number in range(5)]


@pytest.fixture
def shop(bench: Bench) -> Bench:
    """Ten records on `west`, mirrored to `east` over a link that goes both ways."""
    return mirroring(bench)


def applied(shop: Bench, *allow: str) -> list[str]:
    """Apply what is declared, and return what was done; nothing is left to do after it."""
    done = shop.apply(Select(allow=allow))
    assert done.verdict is None
    assert planned(shop) == []
    return list(done.result.done) if done.result else []


@pytest.mark.fact("F-C-063")
def test_a_promotion_waits_until_nothing_lags_and_frees_a_topic_with_all_records(shop: Bench) -> None:
    produce(shop, "west", "late")
    want(shop, "promoted")
    assert applied(shop) == [f"catch-up:{MIRROR}", f"promote:{MIRROR}"]
    copied = {event.id: event.records for event in shop.events if isinstance(event, ActionDone)}
    assert (copied[f"catch-up:{MIRROR}"], copied[f"promote:{MIRROR}"]) == (1, 0)
    assert (status(shop), values(shop, "east")) == ("STOPPED", [*OLD, "late"])
    produce(shop, "east", "its own")
    assert values(shop, "east")[-1] == "its own"
    assert "its own" not in values(shop, "west")


def test_the_topic_it_becomes_is_owned_by_the_same_run(shop: Bench) -> None:
    want(shop, "promoted")
    shop.write("manifests/copy.yaml", TOPIC.replace("west", "east"))
    assert applied(shop) == [f"catch-up:{MIRROR}", f"promote:{MIRROR}", f"adopt:{COPY}"]
    (shop.folder / "manifests/link.yaml").unlink()
    assert applied(shop)
    assert opened(shop, "east").catalog.read().links == {}
    assert values(shop, "east") == OLD


@pytest.mark.fact("F-C-063")
def test_a_mirror_whose_lag_does_not_shrink_is_not_promoted_and_the_open_transaction_is_named(shop: Bench) -> None:
    shop.write(
        "manifests/link.yaml",
        LINK.replace("ROLE", "promoted")
        .replace("MODE", "bidirectional")
        .replace("spec:\n", "spec:\n  retryTimeout: 0s\n"),
    )
    with opened(shop, "west").producer(transactional_id="payments") as producer:
        producer.init_transactions()
        producer.begin()
        producer.send(ORDERS, "open", partition=1)
        producer.flush()
        done = shop.apply()
        assert done.result is not None
        (failed,) = done.result.failed
        assert failed.id == f"catch-up:{MIRROR}"
        assert failed.error.message == (
            f"the lag of {MIRROR} did not shrink for 0 s: partition 1 lacks 1 record: a transaction is open there "
            "since offset 5; nothing was changed"
        )
        assert [each.id for each in done.result.skipped] == [f"promote:{MIRROR}"]
        assert status(shop) == "ACTIVE"
        with pytest.raises(UserError, match="mirror"):
            produce(shop, "east", "refused")
        producer.commit()
    assert applied(shop) == [f"catch-up:{MIRROR}", f"promote:{MIRROR}"]
    assert values(shop, "east", 1)[-1] == "open"


@pytest.mark.fact("F-C-063")
def test_a_paused_mirror_that_lags_is_promoted_with_all_records(shop: Bench) -> None:
    want(shop, "paused")
    applied(shop)
    produce(shop, "west", "late")
    want(shop, "promoted")
    assert applied(shop) == [f"catch-up:{MIRROR}", f"promote:{MIRROR}"]
    assert values(shop, "east") == [*OLD, "late"]


@pytest.mark.fact("F-C-074", "F-C-075")
def test_roles_are_swapped_there_and_back_and_nothing_is_lost(shop: Bench) -> None:
    produce(shop, "west", "late")
    want(shop, "reversed")
    assert applied(shop) == [f"reverse-and-start:{MIRROR}"]
    assert (status(shop), status(shop, "west")) == ("STOPPED", "ACTIVE")
    produce(shop, "east", "over there")
    assert upkeep(shop, "mirror").verdict is None
    assert values(shop, "west") == values(shop, "east") == [*OLD, "late", "over there"]
    want(shop, "mirroring")
    assert applied(shop) == [f"reverse-and-start:{BACK}"]
    assert (status(shop), status(shop, "west")) == ("ACTIVE", "STOPPED")
    produce(shop, "west", "home")
    upkeep(shop, "mirror")
    assert values(shop, "east") == [*OLD, "late", "over there", "home"]


@pytest.mark.fact("F-C-065", "F-C-079", "F-C-080")
def test_what_failed_over_is_restored_and_brought_home(shop: Bench) -> None:
    produce(shop, "west", "lost")
    want(shop, "failed-over")
    with pytest.raises(BlockedError, match=f"failover:{MIRROR}"):
        shop.apply()
    assert applied(shop, f"failover:{MIRROR}") == [f"failover:{MIRROR}"]
    produce(shop, "east", "since then")
    produce(shop, "west", "where nobody looks")
    want(shop, "reversed")
    assert applied(shop, f"truncate-and-restore:{BACK}") == [f"truncate-and-restore:{BACK}"]
    assert (status(shop), status(shop, "west")) == ("STOPPED", "ACTIVE")
    assert values(shop, "west") == OLD
    upkeep(shop, "mirror")
    assert values(shop, "west") == values(shop, "east") == [*OLD, "since then"]
    want(shop, "mirroring")
    assert applied(shop) == [f"reverse-and-start:{BACK}"]
    assert (status(shop), status(shop, "west")) == ("ACTIVE", "STOPPED")


def test_jobs_left_to_another_leave_the_promotion_to_it_too(shop: Bench) -> None:
    want(shop, "promoted")
    done = shop.apply(options=ApplyOptions(yes=True, leaves_jobs=True))
    assert done.result is not None
    assert done.result.not_started == (f"catch-up:{MIRROR}", f"promote:{MIRROR}")
    assert status(shop) == "ACTIVE"
    assert shop.apply(options=ApplyOptions(yes=True, resumes=True)).verdict is None
    assert status(shop) == "STOPPED"
    assert planned(shop) == []


@pytest.mark.fact("F-C-090")
def test_destroy_takes_mirrors_before_their_link_and_leaves_nothing(shop: Bench) -> None:
    with pytest.raises(BlockedPlanError) as refused:
        shop.destroy(recursive=True)
    blocks = [each.blocked for each in refused.value.planned.plan.blocked]
    allows = tuple(block.allow for block in blocks if block is not None and block.allow is not None)
    done = shop.destroy(Select(allow=allows), recursive=True)
    assert done.verdict is None
    ids = [action.id for action in done.planned.plan.actions]
    assert ids.index(f"delete:{MIRROR}") < ids.index("delete:link/east/dr")
    for name in ("west", "east"):
        catalog = opened(shop, name).catalog.read()
        assert (catalog.links, catalog.topics) == ({}, {})


@pytest.mark.parametrize("is_away", [False, True], ids=["which-answers", "which-does-not"])
def test_a_run_that_does_not_know_the_source_says_so_and_marks_nothing_for_those_who_do(
    shop: Bench, *, is_away: bool
) -> None:
    if is_away:
        (shop.folder / ".clusters/west").rename(shop.folder / "away")
        upkeep(shop)
    before = opened(shop, "east").catalog.read().links["dr"]
    assert (before.trouble is not None) == is_away
    for name in ("west", "orders", "link"):
        (shop.folder / f"manifests/{name}.yaml").unlink()
    found = upkeep(shop)
    assert f"{MIRROR}, link:east" in str(found.verdict)
    assert status(shop) == "ACTIVE"
    assert opened(shop, "east").catalog.read().links["dr"] == before


# Transitions of mirrors over two clusters: promote, fail over, reverse, restore, and failing back.


@pytest.fixture
def linked() -> Linked:
    return mirrored()


def refused_writes(linked: Linked, cluster: str) -> bool:
    with pytest.raises(UserError, match="Cannot append records to read-only mirror topic"):
        linked.produce(cluster, "no")
    return True


def test_a_reversal_copies_what_it_can_before_it_shuts_anybody_out(linked: Linked) -> None:
    linked.produce("west", "late")

    def cannot(_mirror: ObservedMirror, _ends: Mapping[int, int] | None) -> None:
        raise UserError("Data jobs run on Spark, which needs Java 17 or newer", hint="Install it.")

    with pytest.raises(UserError, match="Java"):
        replace(linked.driver(), copy=cannot).reverse("east", ORDERS)
    assert linked.status("east") == "ACTIVE"
    linked.produce("west", "later")
    assert linked.driver().reverse("east", ORDERS).status == "ACTIVE"
    assert [value for _, value in linked.read("east")][-2:] == ["late", "later"]


@pytest.mark.fact("F-C-078", "F-C-079")
def test_after_a_promotion_the_source_is_cut_to_where_the_two_parted_and_mirrors(linked: Linked) -> None:
    linked.driver().promote("east", ORDERS)
    linked.produce("east", "own", "own too")
    linked.produce("west", "parted")
    seen, cut = linked.driver().restore("west", ORDERS)
    assert (seen.cluster, seen.status, seen.source_cluster) == ("west", "ACTIVE", "east")
    assert {partition: (one.offset, one.records) for partition, one in cut.items()} == {0: (10, 1)}
    linked.catch_up("west")
    assert linked.read("west") == linked.read("east")
    assert refused_writes(linked, "west")


@pytest.mark.fact("F-C-073")
@pytest.mark.parametrize(
    ("own", "other", "copied", "why"),
    [
        ({"prefix": "w."}, {}, "shop:w.orders", "link dr of cluster east has the prefix w."),
        ({}, {"prefix": "e."}, ORDERS, "link dr of cluster west has the prefix e."),
        ({}, {"mode": "destination"}, ORDERS, "link dr of cluster west is not bidirectional"),
        ({}, {"source": "south"}, ORDERS, "link dr has no half on cluster west"),
    ],
)
def test_roles_never_begin_to_change_over_a_link_that_cannot_bring_them_back(
    own: dict[str, str], other: dict[str, str], copied: str, why: str
) -> None:
    linked = Linked()
    linked.west.create_topic(ORDERS)
    linked.half("east", "west", **own)
    linked.half("west", **{"there": "east", **other})
    linked.mirror("east", "west", name=copied)
    with pytest.raises(UserError, match=f"mirror {copied} cannot be reversed: {why}"):
        linked.driver().reverse("east", copied)
    linked.catch_up("east", copied)
    linked.produce("west", "as ever")
    linked.provider("east").links.request_verb(copied, "failover")
    with pytest.raises(UserError, match="cannot be restored"):
        linked.driver().restore("west", ORDERS)
    linked.produce("west", "still")
    assert [value for _, value in linked.read("west")] == ["as ever", "still"]


@pytest.mark.fact("F-C-078")
@pytest.mark.parametrize("place", ["east", "west"])
def test_a_restore_runs_on_the_original_source_of_a_stopped_mirror_and_nowhere_else(linked: Linked, place: str) -> None:
    if place == "east":
        linked.driver().promote("east", ORDERS)  # It is the mirror that was stopped, not its source.
    with pytest.raises(UserError):
        linked.driver().restore(place, ORDERS)
    assert linked.status("east") == ("STOPPED" if place == "east" else "ACTIVE")
    assert len(linked.read(place)) == 10


# What commands did to mirrors, and the files do not say yet: no plan undoes it, drift tells it, accepting ends it.


WITHOUT = Select(excludes=("*/west/*",))
"""On the day when the source is gone."""


PREFIXED_HALF = """\
apiVersion: reconciler/v1
kind: MirrorLink
metadata: {name: dr, cluster: west}
spec: {source: east, mode: bidirectional, prefix: "e."}
"""


def command(shop: Bench, verb: RoleVerb, address: str = MIRROR) -> None:
    """Apply a verb now, as its command does."""
    assert give_roles(shop.acting(f"mirror {verb}"), verb, address).verdict is None


def findings(shop: Bench, select: Select | None = None) -> list[tuple[str, str, str]]:
    found = drift(shop.invocation, select or Select())
    assert found.verdict is None
    assert found.obstacles == ()
    return [(each.kind, each.address, each.message) for each in found.findings]


def told(shop: Bench) -> list[str]:
    """Return what a plan warns of at the mirror."""
    return [each.message for each in shop.plan().plan.warnings if each.address == MIRROR]


@pytest.mark.fact("F-C-074")
def test_a_topic_that_a_command_made_a_mirror_is_not_said_to_be_declared_so(shop: Bench) -> None:
    command(shop, "reverse-and-start")
    (told,) = [each for each in shop.plan().plan.warnings if each.address == SOURCE]
    assert told.message.startswith(f"it is a mirror of {COPY}: ")
    made = f"{MIRROR} was made reversed by a command, and the files say mirroring"
    assert told.hint == f"{made}. To swap the roles back: reconciler mirror reverse {BACK}"
    command(shop, "reverse-and-start", BACK)
    assert [each for each in shop.plan().plan.warnings if each.address == SOURCE] == []


def test_files_that_say_something_new_are_followed(shop: Bench) -> None:
    command(shop, "pause")
    produce(shop, "west", "late")
    want(shop, "promoted")
    assert planned(shop) == [f"catch-up:{MIRROR}", f"promote:{MIRROR}"]
    assert shop.apply().verdict is None
    assert values(shop, "east")[-1] == "late"
    assert planned(shop) == []


def test_drift_says_which_cluster_it_could_not_read_though_the_plan_does_without(shop: Bench, tmp_path: Path) -> None:
    known = tmp_path / "known"
    (shop.folder / ".clusters/west").rename(shop.folder / "lost")
    command(shop, "failover")
    assert shop.plan().plan.errors == ()
    found = drift(shop.invocation, Select(), known=known)
    assert [each.kind for each in found.findings] == ["pending"]
    assert found.verdict is not None
    assert found.verdict.exit_code == UserError.exit_code
    assert found.verdict.message.startswith("cannot read cluster west: ")
    assert found.verdict.hint.endswith("To continue without: --exclude '*/west/*'")
    (error,) = DRIFT.build_row(found)["errors"]
    assert error.startswith("cannot read cluster west: ")
    first, *_ = to_plain_text(format_drift(found)).splitlines()
    assert first.startswith("manifests/west.yaml:1: cluster/west: cannot read cluster west: ")
    found = drift(shop.invocation, WITHOUT)
    assert (found.verdict, found.errors, [each.kind for each in found.findings]) == (None, (), ["pending"])


def test_a_failover_without_state_or_source_leaves_the_rest_to_be_applied(shop: Bench) -> None:
    (shop.folder / ".clusters/west").rename(shop.folder / "lost")
    assert give_roles(shop.acting(no_state=True), "failover", MIRROR).verdict is None
    shop.write("manifests/more.yaml", TOPIC.replace("orders", "more").replace("west", "east"))
    assert planned(shop) == ["create:topic/east/shop:more"]
    assert shop.apply().verdict is None
    assert [kind for kind, _, _ in findings(shop, WITHOUT)] == ["pending"]
    assert take_in(shop, MIRROR).left_out == 0
    assert shop.apply().verdict is None
    (shop.folder / "lost").rename(shop.folder / ".clusters/west")
    assert (planned(shop), findings(shop)) == ([], [])


# -- mirrors that their link made by itself: no file names them, before a command and after it


MADE = LINK[: LINK.index("  mirrorTopics")].replace("MODE", "bidirectional")
MADE += '  autoCreate: {enabled: true, filters: [{name: "*"}]}\n'


@pytest.fixture
def automatic(bench: Bench) -> Bench:
    """A mirror of ten records that its link made by itself."""
    for name in ("west", "east"):
        bench.write(f"manifests/{name}.yaml", CLUSTER.replace("NAME", name))
    bench.write("manifests/orders.yaml", TOPIC)
    bench.write("manifests/link.yaml", MADE)
    bench = bench.with_(environ=dict(os.environ))
    assert bench.apply().verdict is None
    produce(bench, "west", *map(str, range(10)))
    assert upkeep(bench).verdict is None
    assert (status(bench), planned(bench)) == ("ACTIVE", [])
    return bench


@pytest.mark.parametrize(
    ("asked", "left", "role"),
    [
        ([("pause", MIRROR)], "PAUSED", None),
        ([("pause", MIRROR), ("resume", MIRROR)], "ACTIVE", None),
        ([("promote", MIRROR)], "STOPPED", "promoted"),
        ([("failover", MIRROR)], "STOPPED", "failed-over"),
        ([("pause", MIRROR), ("failover", MIRROR)], "STOPPED", "failed-over"),
        ([("reverse-and-start", MIRROR), ("reverse-and-start", BACK)], "ACTIVE", None),
    ],
)
def test_what_a_command_does_to_a_mirror_that_its_link_made_is_not_recorded(
    automatic: Bench, asked: list[tuple[RoleVerb, str]], left: str, role: str | None
) -> None:
    for verb, address in asked:
        command(automatic, verb, address)
    assert status(automatic) == left
    said = f"it was made {role} by a command, and no longer follows its source: no file declares that"
    assert (planned(automatic), findings(automatic)) == ([], [("pending", MIRROR, said)] if role else [])


@pytest.mark.fact("F-C-073")
@pytest.mark.parametrize("is_dry_run", [True, False])
def test_nothing_is_asked_of_mirrors_whose_link_has_a_prefix_on_the_other_cluster(
    bench: Bench, *, is_dry_run: bool
) -> None:
    bench.write("manifests/half.yaml", PREFIXED_HALF)
    shop = mirroring(bench)
    answers = []
    asked: list[tuple[RoleVerb, str]]
    asked = [("reverse-and-start", MIRROR), ("failover", MIRROR), ("truncate-and-restore", BACK)]
    for verb, address in asked:
        result = give_roles(shop.acting(f"mirror {verb}"), verb, address, is_dry_run=is_dry_run and verb != "failover")
        answers += [str(error) for error in result.failed.values()]
    why = "link dr of cluster west has the prefix e."
    assert [answer.partition(". ")[0] for answer in answers] == [
        f"{MIRROR} cannot be reversed: {why}",
        f"{BACK} cannot be restored: {why}",
    ]
    assert status(shop, "west") == ""


def test_over_a_link_that_goes_one_way_no_way_back_is_offered_and_its_refusal_names_the_link(bench: Bench) -> None:
    shop = mirroring(bench, mode="destination")
    reach = SiteOptions(invocation=shop.invocation, select=Select())
    (live,) = describe_mirrors(reach, [MIRROR])
    assert live.legal == ("pause", "promote", "failover", "delete")
    command(shop, "failover")
    (stopped,) = describe_mirrors(reach, [MIRROR])
    assert stopped.legal == ("delete",)
    said = {
        BACK: "link dr has no half on cluster west, its mode on cluster east is destination",
        MIRROR: "link dr of cluster east is not bidirectional",
    }
    for address, why in said.items():
        (error,) = give_roles(shop.acting("restore"), "truncate-and-restore", address).failed.values()
        assert error.message == f"{address} cannot be restored: {why}"


# A source that is gone, and what a plan does without it.


ALLOWED = Select(allow=(f"failover:{MIRROR}",))


@pytest.mark.fact("F-C-065")
def test_a_failover_is_planned_and_done_while_its_source_is_gone_with_one_warning(shop: Bench) -> None:
    lose(shop)
    want(shop, "failed-over")
    plan = shop.plan().plan
    assert [(action.id, bool(action.blocked)) for action in plan.actions] == [(f"failover:{MIRROR}", True)]
    assert [(each.address, each.source) for each in plan.warnings] == [("cluster/west", "manifests/west.yaml:1")]
    assert "cannot be read, and nothing on it is planned: it is recorded in the state, but its location is empty" in (
        plan.warnings[0].message
    )
    assert shop.apply(ALLOWED).verdict is None
    assert status(shop) == "STOPPED"
    produce(shop, "east", "written where it failed over to")
    assert planned(shop) == []


@pytest.mark.fact("F-C-065")
def test_its_topic_is_owned_by_the_run_that_fails_over(shop: Bench) -> None:
    lose(shop)
    want(shop, "failed-over")
    shop.write("manifests/copy.yaml", TOPIC.replace("west", "east").replace("{partitions: 2}", "{partitions: 3}"))
    done = shop.apply(ALLOWED)
    assert done.verdict is None
    address = "topic/east/shop:orders"
    ids = [action.id for action in done.planned.plan.actions]
    assert ids == [f"failover:{MIRROR}", f"adopt:{address}", f"update:{address}"]
    assert opened(shop, "east").catalog.read().topics[ORDERS].partitions == 3
    assert planned(shop) == []


def test_another_cluster_that_is_gone_is_named_though_one_is_given_up(shop: Bench) -> None:
    want(shop, "failed-over")
    (shop.folder / ".clusters/east").rename(shop.folder / "lost")
    planned = shop.plan()
    assert planned.plan.is_empty
    assert "cannot read cluster east" in str(planned.verdict())


# A source cluster that is there and cannot be read: what fails over from it is planned as if it were gone.


@pytest.fixture
def unreadable(bench: Bench) -> Bench:
    """Ten records on `west`, mirrored to `east`; where `west` says who it is, nobody can read any more."""
    unreadable = mirroring(bench)
    identity = unreadable.folder / ".clusters/west/cluster.json"
    identity.rename(unreadable.folder / "cluster.json")
    identity.mkdir()
    return unreadable


def mend(unreadable: Bench) -> None:
    identity = unreadable.folder / ".clusters/west/cluster.json"
    identity.rmdir()
    (unreadable.folder / "cluster.json").rename(identity)


def test_while_it_is_mirrored_the_plan_says_which_cluster_and_how_to_go_on_without(unreadable: Bench) -> None:
    with pytest.raises(UserError, match=r"cannot read cluster west: .*cluster\.json") as caught:
        unreadable.plan()
    assert caught.value.hint.endswith("To continue without: --exclude '*/west/*'")


@pytest.mark.fact("F-C-065")
@pytest.mark.parametrize("by", ["files", "command"])
def test_after_a_failover_the_rest_is_planned_and_told(unreadable: Bench, by: str) -> None:
    if by == "files":
        want(unreadable, "failed-over")
        assert unreadable.apply(ALLOWED, ApplyOptions(yes=True)).verdict is None
    else:
        assert give_roles(unreadable.acting("mirror failover"), "failover", MIRROR).verdict is None
    unreadable.write("manifests/more.yaml", TOPIC.replace("orders", "more").replace("west", "east"))
    assert planned(unreadable) == ["create:topic/east/shop:more"]
    (lost,) = [each for each in unreadable.plan().plan.warnings if each.address == "cluster/west"]
    assert lost.message.startswith("cluster west cannot be read, and nothing on it is planned: ")
    assert unreadable.apply().verdict is None
    found = drift(unreadable.invocation, Select())
    assert [each.kind for each in found.findings] == (["pending"] if by == "command" else [])
    assert found.verdict is not None
    assert found.verdict.message.startswith("cannot read cluster west: ")
    produce(unreadable, "east", "its own")
    assert values(unreadable, "east")[-1] == "its own"
    mend(unreadable)
    assert planned(unreadable) == []
