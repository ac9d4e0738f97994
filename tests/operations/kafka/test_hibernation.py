"""A topic of a real broker put to sleep in object storage, and woken: on an embedded cluster, and on Kafka again."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from reconciler.applying.events import ActionDone, RunRecovered
from reconciler.errors import RetryableError, UserError
from reconciler.operations.clusters.consume import ConsumeOptions, consume
from reconciler.operations.clusters.mount_orders import MountRequest, migrate_topics
from reconciler.operations.clusters.mounts import ClusterMigration, ReleaseRequest, release_topic_ownership
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import SiteOptions, Stop
from reconciler.providers.brokers.admin import configure_topic
from reconciler.providers.brokers.mounts import KafkaMoves
from reconciler.resources.address import address_of
from tests.operations.kafka.deaths import die_after
from tests.operations.kafka.hibernated import SITES, TOPIC, Site, read_all, unnumbered
from tests.servers.kafkatopics import make_topic
from tests.servers.rawrecords import ODD, read_raw, write_raw

if TYPE_CHECKING:
    from reconciler.providers.protocol_moves import MountJob

pytestmark = pytest.mark.thorough


READABLE = 58
"""Of 60 records, two were written in transactions that were aborted."""


@pytest.mark.fact("F-K-090")
def test_what_was_hibernated_from_kafka_is_mounted_on_an_embedded_cluster(site: Site) -> None:
    before = read_all(site.log)
    site.live.groups.commit("readers", {(site.topic, 0): 7, (site.topic, 2): 0})
    site.declare("live", "unmounted")
    site.apply()
    assert site.physical not in site.kafka.names()
    site.declare("cold", "mounted")
    site.apply()
    assert sum(map(len, before.values())) == READABLE
    assert read_all(site.cold.log(site.topic)) == before
    assert site.cold.groups.read_committed_offsets("readers", [site.topic]) == {(site.topic, 0): 7, (site.topic, 2): 0}


@pytest.mark.fact("F-K-090", "F-K-091")
def test_what_was_hibernated_wakes_on_kafka_and_a_stranger_reads_the_same(site: Site) -> None:
    before, told = read_all(site.log), site.seen(READABLE)
    site.live.groups.commit("readers", {(site.topic, number): before[number][7]["offset"] for number in before})
    site.declare("live", "unmounted")
    site.apply()
    site.declare("live", "mounted")
    site.apply()
    after = read_all(site.log)
    assert site.seen(READABLE) == told
    assert unnumbered(after) == unnumbered(before)
    offsets = site.live.groups.read_committed_offsets("readers", [site.topic])
    assert offsets == {(site.topic, number): after[number][7]["offset"] for number in before}
    described = site.kafka.topics("--describe", "--topic", site.physical)
    assert "retention.ms=-1" in described
    assert "message.timestamp" not in described


@pytest.mark.soak
@pytest.mark.fact("F-K-090")
def test_what_an_embedded_cluster_unmounted_is_mounted_on_kafka(site: Site) -> None:
    before = read_all(site.log)
    for cluster, state in (("live", "unmounted"), ("cold", "mounted"), ("cold", "unmounted")):
        site.declare(cluster, state)
        site.apply()
    with_more = site.cold.mounts.list_detached()
    assert [str(each.state) for each in with_more] == ["detached"]
    site.declare("cold", None)
    site.declare("live", "mounted")
    site.apply()
    assert unnumbered(read_all(site.log)) == unnumbered(before)


@pytest.mark.soak
def test_a_topic_goes_back_to_its_place_each_time_it_sleeps(site: Site) -> None:
    places = set()
    for _ in range(2):
        site.declare("live", "unmounted")
        site.apply()
        (mountable,) = site.cold.mounts.list_detached()
        places.add(mountable.location)
        site.declare("live", "mounted")
        site.apply()
        site.produce(30)
    assert len(places) == 1
    assert sum(map(len, read_all(site.log).values())) == READABLE + 2 * 29


def test_what_is_mounted_on_one_platform_is_not_mounted_on_the_other(site: Site) -> None:
    site.declare("live", "unmounted")
    site.apply()
    site.declare("cold", "mounted")
    site.declare("live", "mounted")
    assert all("is taken by mounting/" in each.message for each in site.plan().plan.errors)
    assert len(site.plan().plan.errors) == 2
    site.declare("live", "unmounted")
    site.apply()
    site.declare("live", "mounted")
    refused = " ".join(each.message for each in site.plan().plan.errors)
    assert f"is attached to cluster cold as {site.topic}" in refused
    site.declare("cold", None)
    refused = " ".join(each.message for each in site.plan().plan.errors)
    assert f"is attached to cluster cold as {site.topic}" in refused


def test_what_is_still_to_be_put_to_sleep_has_no_place_to_be_mounted_from(site: Site) -> None:
    site.declare("live", "unmounted")
    site.declare("cold", "mounted")
    (refused,) = site.plan().plan.errors
    assert refused.message.startswith(f"no unmounted topic {site.topic} is in file://bucket yet")
    first = f"It is there once mounting/live/{site.topic} has been applied: apply that without this Mounting"
    assert refused.hint.startswith(first)


def test_a_plan_says_that_producers_are_refused_and_where_it_will_lie(site: Site) -> None:
    site.declare("live", "unmounted")
    planned = site.plan().plan
    (warning,) = (each.message for each in planned.warnings)
    assert warning == f"producers of topic {site.topic} are rejected once most of it is archived"
    (action,) = planned.actions
    assert (action.id, action.risk) == (f"unmount:mounting/live/{site.topic}", "disruptive")


def test_records_that_the_client_library_cannot_read_or_write_come_back_as_they_were(site: Site) -> None:
    write_raw(site.kafka, site.physical, ODD, partition=1)
    site.produce(30, first=100)
    write_raw(site.kafka, site.physical, ODD, partition=2)
    before = {number: read_raw(site.kafka, site.physical, number) for number in range(3)}
    site.declare("live", "unmounted")
    site.apply()
    assert site.physical not in site.kafka.names()
    site.declare("live", "mounted")
    site.apply()
    assert {number: read_raw(site.kafka, site.physical, number) for number in range(3)} == before


def test_a_topic_whose_seal_somebody_broke_is_not_deleted_and_can_be_let_be(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = KafkaMoves.store_job

    def keeping(self: KafkaMoves, move: MountJob) -> None:
        keep(self, move)
        if move.state == "cut_over":
            configure_topic(self.client, site.physical, {"max.message.bytes": None, "compression.type": None})
            site.produce(3, first=90)

    monkeypatch.setattr(KafkaMoves, "store_job", keeping)
    site.declare("live", "unmounted")
    verdict = str(site.bench.apply().verdict)
    assert "producers were allowed to write to it while it was about to be deleted" in verdict
    assert site.physical in site.kafka.names()
    monkeypatch.undo()
    (move,) = site.live.migrations.list_unfinished()
    assert not ClusterMigration("live", move).continues_in_run  # `run` does nothing for it
    assert site.live.migrations.request_verb(move.id, "cancel").state == "cancelled"
    assert site.live.migrations.list_unfinished() == []
    site.apply()
    assert site.physical not in site.kafka.names()
    site.declare("cold", "mounted")
    site.apply()
    assert len(list(site.cold.consume(site.topic))) == READABLE + 3


def test_a_topic_that_could_not_be_deleted_and_took_records_since_is_never_said_to_be_archived(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise UserError("the principal may not delete topics", hint="Allow DELETE on it.")

    monkeypatch.setattr(KafkaMoves, "delete_topic", refused)
    site.declare("live", "unmounted")
    assert "may not delete topics" in str(site.bench.apply().verdict)
    monkeypatch.undo()
    site.produce(3, first=90)
    site.kafka.topics("--delete", "--topic", site.physical)
    verdict = str(site.bench.apply().verdict)
    assert "no longer exists, and was not deleted by this unmount" in verdict
    (move,) = site.live.migrations.list_unfinished()
    assert site.live.migrations.request_verb(move.id, "cancel").state == "cancelled"
    assert site.live.migrations.list_unfinished() == []


def test_a_topic_that_commands_moved_to_another_cluster_is_said_to_be_there_and_not_made_anew(site: Site) -> None:
    later = f"{site.prefix}:later"
    for verb, cluster, name in (("unmount", "live", None), ("mount", "cold", later)):
        request = MountRequest(verb=verb, texts=(f"topic/{cluster}/{site.topic}",), to=name, phase="whole")  # type: ignore[arg-type]  # words of it
        result = migrate_topics(site.bench.acting(f"topic {verb}"), request, confirm=lambda _plan: True)
        assert result.verdict is None, result.verdict
    plan = site.plan().plan
    assert plan.actions == ()
    assert plan.errors == ()
    message = f"it is mounted with its records as topic/cold/{later}, and no Mounting declares it: it is left as it is"
    assert message in [finding.message for finding in plan.warnings]


def test_who_asks_an_embedded_cluster_for_a_topic_that_woke_on_kafka_is_told_its_address_there(site: Site) -> None:
    for cluster, state in (("live", "unmounted"), ("cold", "mounted"), ("cold", "unmounted"), ("live", "mounted")):
        site.declare(cluster, state)
        site.apply()
    reach = SiteOptions(invocation=site.bench.invocation, select=Select())
    address = f"topic/cold/{site.topic}"
    with pytest.raises(UserError, match=r"is mounted on cluster live as ") as refused:
        consume(reach, address, ConsumeOptions(), stdout=io.BytesIO(), stop=Stop())
    assert refused.value.hint == f"Look for it there: topic/live/{site.topic}"


def test_a_topic_that_woke_on_kafka_changes_clusters_in_one_plan_or_is_released_by_the_hint(site: Site) -> None:
    for state in ("unmounted", "mounted"):
        site.declare("live", state)
        site.apply()
    site.declare("live", "unmounted")
    site.declare("cold", "mounted")
    assert [each.message for each in site.plan().plan.errors] == []
    assert site.planned() == [f"unmount:mounting/live/{site.topic}", f"mount:mounting/cold/{site.topic}"]
    site.declare("live", "mounted")
    site.declare("cold", None)
    site.kafka.topics("--delete", "--topic", site.physical)
    (refused,) = site.plan().plan.errors
    _, _, location, _, owner, _, allow = refused.hint.partition(": ")[2].split()[1:]
    reach = SiteOptions(invocation=site.bench.invocation, select=Select())
    asked = ReleaseRequest(location=location, owner=owner, allow=(allow,))
    assert release_topic_ownership(reach, asked, confirm=lambda _: True, stop=Stop()).owner_name == "live"
    (held,) = site.plan().plan.held  # A place that a command gave stays until a command or the files change it.
    assert held.address == f"mounting/live/{site.topic}"
    request = MountRequest(verb="mount", texts=[f"topic/live/{site.topic}"])
    assert migrate_topics(site.bench.acting("topic mount"), request).verdict is None
    assert site.physical in site.kafka.names()
    site.apply()
    assert site.planned() == []


def test_an_unmount_whose_timeout_is_infinite_takes_as_long_as_it_takes(site: Site) -> None:
    site.declare("live", "unmounted", timeout="infinite")
    site.apply()
    assert site.physical not in site.kafka.names()


@pytest.mark.soak
@pytest.mark.fact("F-R-120")
def test_a_mount_that_is_cancelled_gives_the_topic_back(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.declare("live", "unmounted")
    site.apply()
    site.declare("live", "mounted")

    def refused(*_: object) -> None:
        raise RetryableError("the cluster is away", hint="Wait.")

    monkeypatch.setattr(KafkaMoves, "restore_topic_configs", refused)
    assert site.bench.apply().verdict is not None
    monkeypatch.undo()
    assert [each.state for each in site.cold.mounts.list_detached()] == ["claimed"]
    (move,) = site.live.migrations.list_unfinished()
    with pytest.raises(UserError, match="is being mounted from"):
        site.live.open_producer(address_of("topic", "live", site.topic))
    with pytest.raises(UserError, match="cannot cancel in cut_over"):
        site.live.migrations.request_verb(move.id, "cancel")
    site.apply()
    assert site.live.migrations.list_unfinished() == []


def test_a_mount_that_is_cancelled_right_after_its_topic_was_made_leaves_no_topic(site: Site) -> None:
    site.declare("live", "unmounted")
    site.apply()
    site.declare("live", "mounted")
    die_after(site, "reconciler.providers.brokers.mounts", "KafkaMoves.create_topic", 1)
    assert site.physical in site.kafka.names()
    (move,) = site.live.migrations.list_unfinished()
    site.live.migrations.request_verb(move.id, "cancel")
    assert site.physical not in site.kafka.names()
    site.apply()
    assert len(site.seen(40)) == 40


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_mounted_topic_never_keeps_less_than_its_manifest_says(site: Site, *, is_killed: bool) -> None:
    site.write("topic", TOPIC.replace("infinite", "10000d"))
    site.apply()
    site.declare("live", "unmounted")
    site.apply()
    site.declare("live", "mounted")
    site.write("topic", TOPIC.replace("infinite", "20000d"))
    if is_killed:
        die_after(site, "reconciler.providers.brokers.mounts", "KafkaMoves.create_topic", 1)
    seen = []

    def report(event: object) -> None:
        if isinstance(event, RunRecovered) or (isinstance(event, ActionDone) and event.id.startswith("mount:")):
            seen.append(site.live.migrations.job_steps._read_own_configs(site.physical))

    assert site.bench.apply(report=report).verdict is None
    assert seen == [{"retention.ms": str(20_000 * 86_400_000)}]
    assert site.planned() == []


@pytest.mark.soak
@pytest.mark.fact("F-R-120")
@pytest.mark.parametrize(("nth", "state"), [(1, "preparing"), (2, "executing")])
def test_an_unmount_is_cancelled_while_it_is_prepared_and_while_it_is_executed(
    site: Site, nth: int, state: str
) -> None:
    before = read_all(site.log)
    site.declare("live", "unmounted")
    die_after(site, "reconciler.providers.brokers.mounts", "KafkaMoves.store_job", nth)
    (move,) = site.live.migrations.list_unfinished()
    assert move.state == state
    site.live.migrations.request_verb(move.id, "cancel")
    assert site.live.migrations.list_unfinished() == []
    site.declare("live", None)
    site.apply()
    assert read_all(site.log) == before
    site.produce(3, first=100)


def test_another_storage_has_not_what_was_put_to_sleep(site: Site) -> None:
    site.declare("live", "unmounted")
    site.apply()
    site.write("sites", SITES.replace("file://bucket", "file://elsewhere", 1))
    site.declare("live", "mounted")
    (refused,) = (each.message for each in site.plan().plan.errors)
    assert "is in file://bucket, the objectStorage of cluster cold" in refused


# Another topic under the name: a client that was not stopped makes it, where brokers create topics by themselves.


def taken(site: Site) -> None:
    """Create another topic under the name of the unmounted one, and write one record to it."""
    make_topic(site.kafka, site.physical)
    producer = Producer({"bootstrap.servers": site.kafka.bootstrap()})
    producer.produce(site.physical, b"stray")
    assert producer.flush(30) == 0


@pytest.mark.parametrize("is_killed", [False, True], ids=["applied", "killed before it was recorded"])
def test_another_topic_under_an_unmounted_name_is_neither_archived_nor_mounted_over(
    site: Site, *, is_killed: bool
) -> None:
    before = unnumbered(read_all(site.log))
    site.declare("live", "unmounted")
    if is_killed:
        die_after(site, CLUSTER, "KafkaMoves.remove_job", 1)
    else:
        site.apply()
    taken(site)
    assert site.bench.apply().verdict is None
    site.apply()
    (mountable,) = site.cold.mounts.list_detached()
    planned = site.plan().plan
    assert planned.actions == ()
    (warning,) = planned.warnings
    assert warning.message.startswith("another topic has its name on cluster live: 1 record, the newest of 20")
    assert warning.hint.startswith(f"Its own topic is at {mountable.location}. The other one is neither archived")
    site.declare("live", "mounted")
    assert "the name is taken" in site.plan().plan.errors[0].message
    if is_killed:
        site.kafka.topics("--delete", "--topic", site.physical)
    else:  # as the hint says
        request = MountRequest(verb="unmount", texts=(f"topic/live/{site.topic}",), to=None, phase="whole")
        result = migrate_topics(site.bench.acting("topic unmount"), request, confirm=lambda _plan: True)
        assert result.verdict is None, result.verdict
    site.apply()
    assert unnumbered(read_all(site.log)) == before


def test_a_topic_that_is_created_again_while_an_apply_begins_is_not_archived(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = KafkaMoves.load_job

    def recreating(self: KafkaMoves, mounting: str) -> MountJob | None:
        monkeypatch.undo()
        site.kafka.topics("--delete", "--topic", site.physical)
        taken(site)
        return kept(self, mounting)

    monkeypatch.setattr(KafkaMoves, "load_job", recreating)
    site.declare("live", "unmounted")
    assert "was deleted and created again after it was read" in str(site.bench.apply().verdict)
    planned = site.plan().plan
    assert [action.blocked and action.blocked.guard for action in planned.actions] == ["recreated"]
    assert site.live.migrations.list_unfinished() == []


def test_a_topic_that_is_created_again_once_a_mount_has_filled_it_is_not_taken_for_the_mounted_one(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = unnumbered(read_all(site.log))
    for state in ("unmounted", "mounted"):
        site.declare("live", state)
        if state == "unmounted":
            site.apply()
    keep = KafkaMoves.store_job

    def keeping(self: KafkaMoves, move: MountJob) -> None:
        keep(self, move)
        if move.state == "cut_over":
            site.kafka.topics("--delete", "--topic", site.physical)
            taken(site)

    monkeypatch.setattr(KafkaMoves, "store_job", keeping)
    assert "was deleted and created again while its records were copied" in str(site.bench.apply().verdict)
    monkeypatch.undo()
    assert [each.state for each in site.cold.mounts.list_detached()] == ["claimed"]
    (move,) = site.live.migrations.list_unfinished()
    assert site.live.migrations.request_verb(move.id, "cancel").state == "cancelled"
    assert len(site.seen(1)) == 1  # The other topic keeps its record.
    site.kafka.topics("--delete", "--topic", site.physical)
    site.apply()
    assert unnumbered(read_all(site.log)) == before


# Killed between any two steps of a mount or unmount by jobs: the next apply goes on; nothing is lost or doubled.


CLUSTER = "reconciler.providers.brokers.mounts"
WRITING = "reconciler.archives.archive"
TAKING = "reconciler.archives.archive"


def rarely(*step: object) -> object:
    """Be killed after a step that lies between others that are tried always."""
    return pytest.param(*step, marks=pytest.mark.soak)


UNMOUNTING = [
    rarely(CLUSTER, "KafkaMoves.store_job", 1),
    rarely(WRITING, "begin_archive", 1),
    (CLUSTER, "KafkaMoves.store_job", 2),
    rarely("reconciler.embedded.mounts.archive_log", "ArchiveSink.publish", 1),
    ("reconciler.providers.brokers.ledger", "Ledger.change", 4),
    ("reconciler.providers.brokers.admin", "configure_topic", 1),
    rarely("reconciler.providers.brokers.seal", "Seals.seal_topic", 1),
    rarely("reconciler.jobs.archive", "archive_records", 1),
    rarely(WRITING, "describe_archive", 1),
    rarely(CLUSTER, "KafkaMoves.store_job", 3),
    (CLUSTER, "KafkaMoves.delete_topic", 1),
    rarely(WRITING, "delete_unreferenced_objects", 1),
    (WRITING, "detach_archive", 1),
    rarely(CLUSTER, "KafkaMoves.remove_job", 1),
]
MOUNTING = [
    rarely(CLUSTER, "KafkaMoves.store_job", 1),
    rarely(TAKING, "claim_archive", 1),
    (CLUSTER, "KafkaMoves.create_topic", 1),
    rarely(CLUSTER, "KafkaMoves.store_job", 2),
    ("reconciler.jobs.archive", "restore_records", 1),
    rarely(CLUSTER, "KafkaMoves.store_job", 3),
    rarely(CLUSTER, "KafkaMoves.store_job", 4),
    rarely(CLUSTER, "KafkaMoves.restore_topic_configs", 1),
    (TAKING, "settle_claim", 1),
    rarely(CLUSTER, "KafkaMoves.remove_job", 1),
]


@pytest.mark.soak
@pytest.mark.fact("F-R-124")
@pytest.mark.parametrize(("module", "name", "nth"), UNMOUNTING)
def test_an_unmount_that_is_killed_is_completed_by_the_next_apply(site: Site, module: str, name: str, nth: int) -> None:
    before = read_all(site.log)
    site.declare("live", "unmounted")
    die_after(site, module, name, nth)
    site.apply()
    assert site.physical not in site.kafka.names()
    assert site.live.migrations.list_unfinished() == []
    site.declare("cold", "mounted")
    site.apply()
    assert read_all(site.cold.log(site.topic)) == before


def test_a_topic_that_producers_made_anew_after_it_was_deleted_does_not_keep_its_archive_from_its_end(
    site: Site,
) -> None:
    before = read_all(site.log)
    site.declare("live", "unmounted")
    die_after(site, CLUSTER, "KafkaMoves.delete_topic", 1)
    (move,) = site.live.migrations.list_unfinished()
    site.kafka.topics("--create", "--topic", site.physical)
    assert site.bench.apply().verdict is None
    assert site.live.migrations.list_unfinished() == []
    site.declare("cold", "mounted", source=move.topics[0].location)
    site.apply()
    assert read_all(site.cold.log(site.topic)) == before


@pytest.mark.soak
@pytest.mark.fact("F-R-124")
@pytest.mark.parametrize(("module", "name", "nth"), MOUNTING)
def test_a_mount_that_is_killed_is_completed_by_the_next_apply(site: Site, module: str, name: str, nth: int) -> None:
    before = read_all(site.log)
    site.declare("live", "unmounted")
    site.apply()
    site.declare("live", "mounted")
    die_after(site, module, name, nth)
    site.apply()
    assert unnumbered(read_all(site.log)) == unnumbered(before)
    assert site.live.migrations.list_unfinished() == []
    (mountable,) = site.cold.mounts.list_detached()
    assert mountable.state == "mounted"
