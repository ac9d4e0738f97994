"""Plans and applies on the emulated Redpanda: shown against the documented contract, not a live server."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
import yaml
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka import admin as kafka_admin

from reconciler.cli.text.lines import to_plain_text
from reconciler.cli.text.mounts_text import format_migration
from reconciler.errors import LeaseError, NotAuthorizedError, ReconcilerError, RetryableError, UserError
from reconciler.operations.clusters.mount_orders import MountRequest, migrate_topics
from reconciler.operations.clusters.mounts import change_migration, list_mounts, read_mount_status
from reconciler.operations.export import ExportOptions, export
from reconciler.operations.imports import ImportOptions, import_files
from reconciler.operations.run import run_once
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import SiteOptions
from reconciler.planning.actions import Adopt, Create
from reconciler.providers.brokers.client import KafkaClient
from reconciler.providers.brokers.security import build_record_settings, reveal_secrets
from reconciler.providers.protocol import CompletedAction, Edge, FailedAction
from reconciler.providers.redpanda.capabilities import DIALECT
from reconciler.providers.redpanda.client import AdminClient
from reconciler.providers.redpanda.mounts import TopicMove, TopicMover
from reconciler.providers.registry import open_provider
from reconciler.resources.address import Address
from reconciler.resources.cluster import HttpLoginSpec
from tests.contracts.names import own
from tests.contracts.providers import apply, create, done, topic
from tests.contracts.redpanda import SECRETS, declared_on_redpanda, empty
from tests.servers.certificates import Authority
from tests.servers.ports import free_ports
from tests.servers.redpandaexternal import EXTERNAL

if TYPE_CHECKING:
    from conftest import Bench

    from reconciler.operations.plan import PlanResult
    from reconciler.resources.cluster import Cluster, RedpandaConnection
    from tests.servers.redpanda.server import Redpanda

pytestmark = [pytest.mark.thorough, pytest.mark.xdist_group("redpanda")]

ORDERS = own("orders")
TIERED = {"remote.read": "true", "remote.write": "true"}
WORKSPACE = "apiVersion: reconciler/v1\nkind: Workspace\nmetadata: {name: shop}\n"

REPLICA = "redpanda.remote.readreplica"
MODE = "redpanda.storage.mode"
TIERED_BY_DEFAULT = {"cloud_storage_enable_remote_write": True, "cloud_storage_enable_remote_read": True}


@dataclass(frozen=True)
class Desk:
    """A workspace with one Redpanda cluster."""

    bench: Bench
    server: Redpanda
    cluster: Cluster

    def declare(self, *documents: dict[str, object], **cluster: object) -> None:
        """Declare the cluster and these documents, and nothing else."""
        spec = declared_on_redpanda("west", self.server, **cluster).model_dump(by_alias=True, exclude_none=True)
        texts = [yaml.safe_dump(content) for content in (spec, *documents)]
        self.bench.write("manifests/all.yaml", "---\n".join(texts))

    def apply(self, *documents: dict[str, object], select: Select | None = None, **cluster: object) -> None:
        """Declare, apply, and see that nothing is left to do."""
        self.declare(*documents, **cluster)
        assert self.bench.apply(select).verdict is None
        assert ids(self.bench.plan()) == []

    def produce(self, name: str, count: int) -> None:
        producer = Producer(self.settings)
        for number in range(count):
            producer.produce(name, value=b"%d" % number, partition=0)
        assert producer.flush(30) == 0

    def consume(self, name: str, count: int) -> list[tuple[int, bytes | None]]:
        consumer = Consumer({**self.settings, "group.id": own("reader"), "enable.auto.commit": False})
        consumer.assign([TopicPartition(name, 0, OFFSET_BEGINNING)])
        deadline, seen = time.monotonic() + 30, []
        while len(seen) < count and time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                seen.append((message.offset(), message.value()))
        consumer.close()
        return seen

    def detach(self, name: str, records: int) -> None:
        """Create a topic with records and unmount it, as another tool would."""
        made = topic(name, partitions=1, replicationFactor=1, configs=TIERED)
        done(open_provider(self.cluster, self.edge), create(made))
        self.produce(own(name), records)
        move = TopicMove("a", own(name), "", is_mount=False)
        assert [move.error for _ in self.mover.run([move])] == [None]

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of plain clients."""
        return reveal_secrets(build_record_settings(self.cluster, self.edge))

    @property
    def detached(self) -> list[str]:
        """Locations of detached topics that had the name of `ORDERS`, the newest last."""
        entries = [entry.location for entry in self.admin.list_mountable() if entry.name == ORDERS]
        return sorted(entries, key=lambda location: int(location.rpartition("/")[2]))

    @property
    def edge(self) -> Edge:
        return Edge(self.bench.folder, SECRETS, str, lambda: 0)

    @property
    def admin(self) -> AdminClient:
        return AdminClient(self.cluster, self.edge)

    @property
    def mover(self) -> TopicMover:
        return TopicMover(self.admin, KafkaClient.for_cluster(self.cluster, self.edge), lambda: None)

    def begun(self, verb: str) -> int:
        """Return how many migrations were requested."""
        return len(self.nodes_asked("POST", f"/v1/topics/{verb}"))

    def nodes_asked(self, method: str, path: str) -> list[int]:
        """Return the nodes that got this request, in order."""
        return [node for node, *request in self.server.requests if request == [method, path]]


def ids(planned: PlanResult) -> list[str]:
    return [action.id for action in planned.plan.actions]


def read_topics(desk: Desk) -> set[str]:
    return set(KafkaClient.for_cluster(desk.cluster, desk.edge).read_topics())


def reached(cluster: Cluster, **connection: object) -> Cluster:
    """Return a cluster with other fields of its connection."""
    changed = cast("RedpandaConnection", cluster.spec.connection).model_copy(update=connection)
    return cluster.model_copy(update={"spec": cluster.spec.model_copy(update={"redpanda": changed})})


def document(kind: str, name: str, spec: dict[str, object]) -> dict[str, object]:
    return {
        "apiVersion": "reconciler/v1",
        "kind": kind,
        "metadata": {"name": own(name), "cluster": "west"},
        "spec": spec,
    }


def orders(name: str = "orders", **configs: str) -> dict[str, object]:
    return document("Topic", name, {"partitions": 1, "replicationFactor": 1, "configs": {**TIERED, **configs}})


def mounting(state: str, name: str = "orders", **more: str) -> dict[str, object]:
    return document("Mounting", name, {"state": state, **more})


def desk_on(bench: Bench, server: Redpanda) -> Desk:
    for name in ("west", "orders"):
        (bench.folder / f"manifests/{name}.yaml").unlink()
    bench.write("reconciler.yaml", WORKSPACE)
    empty(server)
    return Desk(bench.with_(environ=SECRETS), server, declared_on_redpanda("west", server))


@pytest.fixture
def desk(bench: Bench, redpanda: Redpanda) -> Desk:
    made = desk_on(bench, redpanda)
    if EXTERNAL is None:
        del redpanda.requests[:]
    return made


@pytest.mark.fact("F-R-208", "F-R-209")
def test_values_that_equal_defaults_are_no_difference(desk: Desk) -> None:
    week = str(7 * 24 * 3600 * 1000)
    desk.apply(orders(**{"retention.ms": week}), document("Namespace", "shop", {}))
    desk.apply(orders(**{"retention.ms": "86400000"}))
    desk.apply(orders())
    desk.apply(orders(**{"retention.ms": "3600000"}))


@pytest.mark.emulated("counts requests")
def test_a_plan_sends_few_requests_to_the_admin_api(desk: Desk) -> None:
    desk.apply(orders(), orders("payments"))
    del desk.server.requests[:]
    desk.bench.plan()
    assert len(desk.server.requests) <= 10


@pytest.mark.fact("F-R-208")
def test_a_policy_tiers_topics_that_exist_with_defaults(desk: Desk) -> None:
    plain = document("Topic", "orders", {"partitions": 1, "replicationFactor": 1})
    desk.apply(plain)
    directions = {"remoteWrite": True, "remoteRead": True}
    settings = {**directions, "retention": {"time": "365d"}, "localRetention": {"time": "6h"}}
    policy = {"apiVersion": "reconciler/v1", "kind": "TieringPolicy", "metadata": {"name": "p"}, "spec": settings}
    desk.apply(document("Topic", "orders", {"partitions": 1, "replicationFactor": 1, "tieringPolicy": "p"}), policy)
    configs = dict(KafkaClient.for_cluster(desk.cluster, desk.edge, DIALECT).read_configs([ORDERS]))[ORDERS]
    assert not isinstance(configs, int)
    assert {key: configs[key].value for key in (*TIERED, "retention.local.target.ms")} == {
        **TIERED,
        "retention.local.target.ms": "21600000",
    }


def test_redpandas_own_name_of_a_tiering_config_is_refused_with_the_name_for_files(desk: Desk) -> None:
    desk.declare(orders(**{"redpanda.remote.write": "true"}))
    (problem,) = desk.bench.plan().plan.errors
    assert "configs.redpanda.remote.write is not a config of platform redpanda" in problem.message
    assert problem.hint == "Did you mean remote.write?"


def test_what_terraform_wrote_of_topics_and_rules_is_adopted_and_the_missing_topic_created(desk: Desk) -> None:
    def resource(kind: str, **attributes: object) -> dict[str, object]:
        instance = {"attributes": {"cluster_api_url": "https://api.example.com", "allow_deletion": True, **attributes}}
        return {"type": f"redpanda_{kind}", "name": "b", "instances": [instance]}

    configs = {"redpanda.remote.read": "true", "redpanda.remote.write": "true", "retention.ms": "3600000"}
    shape = {"partition_count": 1, "replication_factor": 1, "configuration": configs}
    names = {"resource_type": "TOPIC", "resource_name": "orders", "resource_pattern_type": "LITERAL"}
    rule = {**names, "principal": "User:a", "host": "*", "operation": "READ", "permission_type": "ALLOW"}
    resources = [*(resource("topic", name=name, **shape) for name in ("orders", "missing")), resource("acl", **rule)]
    desk.bench.write("a.tfstate", json.dumps({"version": 4, "terraform_version": "1.11.4", "resources": resources}))
    client = kafka_admin.AdminClient({"bootstrap.servers": desk.server.kafka})
    client.create_topics([kafka_admin.NewTopic("orders", 1, 1, config=configs)])["orders"].result()
    binding = kafka_admin.AclBinding(
        kafka_admin.ResourceType.TOPIC,
        "orders",
        kafka_admin.ResourcePatternType.LITERAL,
        "User:a",
        "*",
        kafka_admin.AclOperation.READ,
        kafka_admin.AclPermissionType.ALLOW,
    )
    client.create_acls([binding])[binding].result()
    desk.declare()
    options = ImportOptions(tool="terraform", path=Path("a.tfstate"), out=Path("manifests/imported"))
    imported = import_files(desk.bench.invocation, Select(), options)
    assert (imported.verdict, imported.lost) == (None, ())
    planned = desk.bench.plan().plan
    assert planned.errors == ()
    assert {action.address: type(action) for action in planned.actions} == {
        "cluster/west": Adopt,
        "topic/west/missing": Create,
        "topic/west/orders": Adopt,
    }
    assert [action.changes for action in planned.actions if isinstance(action, Adopt)] == [(), ()]
    assert desk.bench.apply().verdict is None
    assert ids(desk.bench.plan()) == []


@pytest.mark.fact("F-R-209")
def test_a_config_that_is_ignored_at_creation_is_told(desk: Desk) -> None:
    provider = open_provider(desk.cluster, desk.edge)
    made = apply(provider, create(topic("odd", replicationFactor=1, configs={"min.insync.replicas": "2"})))
    (outcome,) = made.values()
    assert isinstance(outcome, FailedAction)
    assert outcome.error.message == f"topic {own('odd')} was created, and its brokers ignored min.insync.replicas"


def test_names_of_other_versions_and_aliases_are_explained(desk: Desk) -> None:
    properties = {"delete_retention_ms": "3600000", "default_topic_replications": "2"}
    desk.declare(orders(**{MODE: "tiered", "delete_retention_ms": "3600000"}), properties=properties)
    problems = {f"{error.message}. {error.hint}" for error in desk.bench.plan().plan.errors}
    platform, replicas = "is not a config of platform redpanda", "properties.default_topic_replications"
    unknown = "is not a cluster property that these brokers accept"
    factor = "replication factor 2 is not one that platform redpanda permits: 1, 3"
    assert problems == {
        f"configs.{MODE} {platform}: it exists from Redpanda 26.1. Remove it, or upgrade the cluster.",
        f"configs.delete_retention_ms {platform}. Did you mean retention.ms?",
        f"properties.delete_retention_ms {unknown}. Did you mean log_retention_ms?",
        f"{replicas}: {factor}. Set spec.{replicas} to 3.",
    }


@pytest.mark.fact("F-R-211")
def test_a_storage_mode_is_applied_kept_when_it_is_no_longer_declared(
    bench: Bench, start_redpanda: Callable[..., Redpanda]
) -> None:
    desk = desk_on(bench, start_redpanda(versions=["26.1.2"] * 3, properties=TIERED_BY_DEFAULT))
    local = document("Topic", "orders", {"partitions": 1, "replicationFactor": 3, "configs": {MODE: "local"}})
    desk.apply(local)
    desk.declare(orders(**{MODE: "local"}))
    problems = [error.message for error in desk.bench.plan().plan.errors]
    assert f"configs.remote.write cannot be set while {MODE} is local" in problems
    tiered = document("Topic", "orders", {"partitions": 1, "replicationFactor": 3, "configs": {MODE: "tiered"}})
    desk.apply(tiered)
    plain = document("Topic", "orders", {"partitions": 1, "replicationFactor": 3})
    desk.apply(plain)
    described = KafkaClient.for_cluster(desk.cluster, desk.edge).read_configs(["orders"], [MODE])
    ((_, configs),) = described
    assert not isinstance(configs, int)
    assert configs[MODE].value == "tiered"
    desk.apply(mounting("unmounted"))


def test_a_read_replica_is_declared_by_its_bucket_and_does_not_change(desk: Desk) -> None:
    replica = document("Topic", "shown", {"partitions": 1, "replicationFactor": 1, "configs": {REPLICA: "archive"}})
    desk.apply(replica)
    plain = document("Topic", "shown", {"partitions": 1, "replicationFactor": 1})
    desk.declare(plain)
    (problem,) = desk.bench.plan().plan.errors
    assert problem.message == f"configs.{REPLICA} never changes, and the topic was created with archive"
    desk.declare(replica)
    assert ids(desk.bench.plan()) == []


def test_a_topic_that_another_tool_unmounted_is_not_created_again(desk: Desk) -> None:
    desk.apply(orders())
    desk.produce(ORDERS, 3)
    (unmounted,) = desk.mover.run([TopicMove("a", ORDERS, "", is_mount=False)])
    assert isinstance(unmounted, CompletedAction)
    plan = desk.bench.plan().plan
    assert (plan.actions, plan.errors) == ((), ())
    assert any(f"it is detached at {desk.detached[-1]}" in each.message for each in plan.warnings)


@pytest.mark.fact("F-R-208")
def test_an_exported_cluster_is_adopted_and_nothing_is_left_to_do(
    bench: Bench, start_redpanda: Callable[..., Redpanda]
) -> None:
    desk = desk_on(bench, start_redpanda(versions=["26.1.2"] * 3))
    for name, configs in (("plain", {}), ("tiered", TIERED), ("local", {MODE: "local", "retention.ms": "1000"})):
        made = topic(name, partitions=2, replicationFactor=1, configs=configs)
        done(open_provider(desk.cluster, desk.edge), create(made))
    desk.declare()
    export(desk.bench.invocation, Select(), "west", ExportOptions(out=bench.folder / "manifests" / "west"))
    assert f"{MODE}: local" in (bench.folder / "manifests" / "west" / "topics.yaml").read_text()
    assert {action.verb for action in desk.bench.plan().plan.actions} == {"adopt"}
    assert desk.bench.apply().verdict is None
    assert ids(desk.bench.plan()) == []


@pytest.mark.fact("F-R-201", "F-R-202", "F-R-206")
def test_an_unmounted_topic_is_mounted_by_another_name_with_its_records_and_the_declared_configs(desk: Desk) -> None:
    desk.apply(orders())
    desk.produce(ORDERS, 20)
    desk.apply(mounting("unmounted"))
    again = own("again")
    assert ORDERS not in read_topics(desk)
    desk.apply(mounting("mounted", **{"as": again}), orders("again", **{"retention.ms": "3600000"}))
    assert desk.consume(again, 20) == [(number, b"%d" % number) for number in range(20)]
    configs = dict(KafkaClient.for_cluster(desk.cluster, desk.edge).read_configs([again], ["retention.ms"]))[again]
    assert not isinstance(configs, int)
    assert configs["retention.ms"].value == "3600000"


@pytest.mark.fact("F-R-202")
@pytest.mark.parametrize("verb", ["mount", "unmount"])
@pytest.mark.emulated("injects a fault")
def test_a_lost_answer_is_settled_by_what_is_there(desk: Desk, verb: str) -> None:
    desk.apply(orders())
    if verb == "mount":
        desk.apply(mounting("unmounted"))
    desk.server.faults.add("lost", "POST", f"/v1/topics/{verb}")
    desk.apply(mounting(f"{verb}ed"), *([orders()] if verb == "mount" else []))
    assert desk.begun(verb) == 1


@pytest.mark.fact("F-R-201")
@pytest.mark.emulated("counts requests")
def test_topics_of_one_apply_are_one_migration(desk: Desk) -> None:
    names = ("orders", "payments")
    desk.apply(*(orders(name) for name in names))
    desk.apply(*(mounting("unmounted", name) for name in names))
    desk.apply(*(mounting("mounted", name) for name in names), *(orders(name) for name in names))
    assert (desk.begun("unmount"), desk.begun("mount")) == (1, 1)
    assert read_topics(desk) >= {own(name) for name in names}


def test_one_topic_that_cannot_be_unmounted_does_not_keep_the_others(desk: Desk) -> None:
    local = own("local")
    for name, configs in (("orders", TIERED), ("local", {})):
        done(open_provider(desk.cluster, desk.edge), create(topic(name, replicationFactor=1, configs=configs)))
    moves = [TopicMove(name, name, "", is_mount=False) for name in (ORDERS, local)]
    outcomes = {outcome.id: outcome for outcome in desk.mover.run(moves)}
    assert isinstance(outcomes[ORDERS], CompletedAction)
    assert isinstance(outcomes[local], FailedAction)
    assert "only topics of namespace kafka with remote.write on" in outcomes[local].error.message
    assert read_topics(desk) & {ORDERS, local} == {local}


def test_a_mount_by_the_name_of_another_topic_is_refused(desk: Desk) -> None:
    desk.detach("orders", 1)
    location = desk.detached[-1]
    done(open_provider(desk.cluster, desk.edge), create(topic("taken", replicationFactor=1, configs=TIERED)))
    (outcome,) = desk.mover.run([TopicMove("a", own("taken"), location, is_mount=True)])
    assert isinstance(outcome, FailedAction)
    assert outcome.error.message == f"topic {own('taken')} exists, and is not the one at {location}"
    assert location in desk.detached


@pytest.mark.parametrize("held", [1, 2], ids=["while it waits", "before it cancels"])
@pytest.mark.emulated("injects a fault")
def test_a_lost_lease_ends_a_mount_and_cancels_nothing(desk: Desk, held: int) -> None:
    desk.detach("orders", 1)
    location = desk.detached[-1]
    desk.server.faults.pace = "told"
    checks = iter([True] * held)

    def lose_lease() -> None:
        if not next(checks, False):
            raise LeaseError("another run has the lease", hint="Plan again.")

    mover = replace(desk.mover, may_go_on=lose_lease)
    with pytest.raises(LeaseError):
        list(mover.run([TopicMove("a", ORDERS, location, is_mount=True, timeout_s=0.0)]))
    assert [task.state for task in desk.admin.list_tasks() if task.is_mount] == ["planned"]


@pytest.mark.emulated("injects a fault")
def test_a_migration_in_an_unknown_state_is_told(desk: Desk) -> None:
    desk.detach("orders", 1)
    location = desk.detached[-1]
    desk.server.faults.pace = "told"
    desk.admin.mount({ORDERS: location})
    desk.server.faults.add("state", "GET", "/v1/migrations", message="hovering", times=99)
    with pytest.raises(UserError, match=r"migration \d+ is in the unknown state 'hovering'"):
        open_provider(desk.cluster, desk.edge).migrations.list_unfinished()


@pytest.mark.fact("F-R-207")
def test_tiering_waits_for_the_restart_of_brokers(bench: Bench, start_redpanda: Callable[..., Redpanda]) -> None:
    desk = desk_on(bench, start_redpanda(properties={"cloud_storage_enabled": False}))
    desk.admin.set_properties({"cloud_storage_enabled": True}, [])
    desk.declare(orders(), mounting("unmounted", "other"))
    problems = [error.message for error in desk.bench.plan().plan.errors]
    assert len(problems) == 3
    assert all("brokers 1, 2, 3 wait for a restart that activates changed properties" in each for each in problems)
    desk.server.restart()
    desk.apply(orders())
    desk.admin.set_properties({"cloud_storage_enabled": False}, [])
    assert desk.bench.plan().plan.errors == (), "nothing of it changes"


@pytest.mark.fact("F-R-204")
def test_a_mount_of_what_is_not_there_is_cancelled_and_deleted(desk: Desk) -> None:
    location = f"{ORDERS}/00000000-0000-4000-8000-000000000000/7"
    move = TopicMove("a", ORDERS, location, is_mount=True, timeout_s=1.0)
    (outcome,) = desk.mover.run([move])
    assert isinstance(outcome, FailedAction)
    assert outcome.error.message.endswith("was still preparing after 1 s and was cancelled")
    assert "reconciler mount list" in outcome.error.hint
    assert [task for task in desk.admin.list_tasks() if ORDERS in task.topics] == []


@pytest.mark.fact("F-R-204")
def test_a_mount_that_a_killed_apply_left_is_continued_and_given_up_after_its_time(desk: Desk) -> None:
    nowhere = f"{ORDERS}/00000000-0000-4000-8000-000000000000/7"
    desk.apply()
    desk.admin.mount({ORDERS: nowhere})
    desk.declare(mounting("mounted", source=nowhere, timeout="1s"))
    assert ids(desk.bench.plan()) == ["mount:mounting/west/orders"]
    result = desk.bench.apply().result
    assert result is not None
    assert ["was still preparing after 1 s and was cancelled" in each.error.message for each in result.failed] == [True]
    assert [task for task in desk.admin.list_tasks() if ORDERS in task.topics] == []


@pytest.mark.emulated("injects a fault")
def test_a_refused_cancel_fails_its_own_topic_alone(desk: Desk) -> None:
    nowhere = f"{ORDERS}/00000000-0000-4000-8000-000000000000/7"
    refusal = "Invalid data migration state transition requested"
    desk.server.faults.add("status", "POST", "action=cancel", status=400, message=refusal)
    (outcome,) = desk.mover.run([TopicMove("a", ORDERS, nowhere, is_mount=True, timeout_s=0.5)])
    assert isinstance(outcome, FailedAction)
    assert refusal in outcome.error.message
    assert outcome.error.hint == "See its state: reconciler mount status"


@pytest.mark.emulated("moves migrations by steps")
def test_a_mount_that_never_began_is_deleted_after_its_time(desk: Desk) -> None:
    desk.detach("orders", 1)
    desk.server.faults.pace = "told"
    (outcome,) = desk.mover.run([TopicMove("a", ORDERS, desk.detached[-1], is_mount=True, timeout_s=0.5)])
    assert isinstance(outcome, FailedAction)
    assert re.search(r"was still planned after \d s and was deleted", outcome.error.message)
    assert not [task for task in desk.admin.list_tasks() if task.is_mount]


@pytest.mark.emulated("moves migrations by steps")
def test_a_migration_is_shown_cancelled_and_its_record_deleted_by_its_id(desk: Desk) -> None:
    desk.detach("orders", 1)
    desk.declare()
    desk.server.faults.pace = "told"
    nowhere = f"{ORDERS}/00000000-0000-4000-8000-000000000000/7"  # so that it stays in preparing
    number = desk.admin.mount({ORDERS: nowhere})
    reach, stop = SiteOptions(invocation=desk.bench.invocation, select=Select()), desk.bench.stop
    (seen,) = [each for each in read_mount_status(reach).migrations if each.migration.id == number]
    assert (seen.migration.state, seen.migration.direction) == ("planned", "inbound")
    with pytest.raises(UserError, match="planned"):
        change_migration(reach, number, "cancel", None, confirm=lambda _: True, stop=stop)
    desk.server.advance(number)
    desk.server.faults.pace = "steady"
    ended = change_migration(reach, number, "cancel", None, confirm=lambda _: True, stop=stop)
    assert ended.migration.state == "cancelled"
    assert [each.migration.id for each in read_mount_status(reach).migrations] == [number]
    change_migration(reach, number, "delete", None, confirm=lambda _: True, stop=stop)
    assert not read_mount_status(reach).migrations
    assert [row.location for row in list_mounts(reach, ["west"], ["mountable"]).rows] == desk.detached
    passed = run_once(reach, only=["migrations"], report=desk.bench.events.append, stop=stop)
    assert passed.verdict is None


@pytest.mark.emulated("moves migrations by steps")
def test_a_mount_under_another_name_is_that_of_its_mounting_and_continues_by_itself(desk: Desk) -> None:
    desk.detach("orders", 1)
    desk.apply()
    desk.declare(mounting("mounted", **{"as": own("again")}))
    desk.server.faults.pace = "told"
    desk.admin.mount({own("again"): desk.detached[-1]})
    assert desk.bench.plan().plan.unmanaged == ()
    (seen,) = read_mount_status(SiteOptions(invocation=desk.bench.invocation, select=Select())).migrations
    assert [topic.mounting for topic in seen.migration.topics] == [ORDERS]
    assert "next: its cluster continues it by itself, `reconciler mount delete" in to_plain_text(format_migration(seen))


def test_an_unmount_records_the_location_of_its_own_topic(desk: Desk) -> None:
    for records in (5, 2):
        desk.detach("orders", records)
    first, second = desk.detached
    desk.apply(mounting("mounted", source=first), orders())
    (other,) = desk.mover.run([TopicMove("a", own("other"), second, is_mount=True)])
    assert isinstance(other, CompletedAction)
    (unmounted,) = desk.mover.run([TopicMove("a", own("other"), "", is_mount=False)])
    assert isinstance(unmounted, CompletedAction)
    assert unmounted.physical_name == second
    desk.apply(mounting("unmounted"))
    desk.apply(mounting("mounted"), orders())
    assert len(desk.consume(ORDERS, 5)) == 5


@pytest.mark.emulated("moves migrations by steps")
def test_a_mount_by_a_bare_name_is_listed(desk: Desk) -> None:
    desk.detach("orders", 1)
    desk.declare()
    desk.server.faults.pace = "told"
    desk.admin.mount({own("again"): ORDERS})
    reach = SiteOptions(invocation=desk.bench.invocation, select=Select())
    assert {row.location for row in list_mounts(reach, ["west"]).rows} == {ORDERS, *desk.detached}


def test_a_command_mounts_by_a_location_in_capitals_and_says_where_an_alias_was_unmounted(desk: Desk) -> None:
    desk.detach("orders", 1)
    desk.apply()
    location, again = desk.detached[-1], Address(f"topic/west/{own('again')}")
    name, uuid, revision = location.split("/")
    mount = MountRequest(verb="mount", texts=[f"topic/west/{name}/{uuid.upper()}/{revision}"], to=own("again"))
    assert migrate_topics(desk.bench.acting("topic mount"), mount, confirm=lambda _: True).verdict is None
    unmount = MountRequest(verb="unmount", texts=[again])
    assert migrate_topics(desk.bench.acting("topic unmount"), unmount, confirm=lambda _: True).states == {
        again: location
    }


def test_an_unknown_location_is_refused_without_a_command_that_redpanda_lacks(desk: Desk) -> None:
    uuid = "00000000-0000-4000-8000-000000000000"
    desk.declare(mounting("mounted", source=f"{ORDERS}/{uuid}/7"))
    (problem,) = desk.bench.plan().plan.errors
    assert problem.hint.endswith(f"created it, {uuid}: unmount it there. If that cluster is lost, restore it first.")


@pytest.mark.fact("F-R-205")
def test_of_several_topics_of_one_name_the_location_decides(desk: Desk) -> None:
    before = set(desk.detached)
    for count in (3, 5):
        desk.detach("orders", count)
    desk.declare(mounting("mounted"))
    (problem,) = desk.bench.plan().plan.errors
    first, second = sorted(set(desk.detached) - before)
    assert first in problem.message + problem.hint
    assert second in problem.message + problem.hint
    desk.apply(mounting("mounted", source=first), orders())
    assert len(desk.consume(ORDERS, 3)) == 3


@pytest.mark.fact("F-R-203")
@pytest.mark.parametrize("words", ["old", "new"])
def test_a_refusal_is_known_by_its_message_whatever_its_status(
    bench: Bench, start_redpanda: Callable[..., Redpanda], words: str
) -> None:
    desk = desk_on(bench, start_redpanda(words=words))
    desk.detach("orders", 1)
    (entry,) = desk.admin.list_mountable()
    done(open_provider(desk.cluster, desk.edge), create(topic("orders", replicationFactor=1, configs=TIERED)))
    with pytest.raises(UserError, match="a topic of that name exists on this cluster"):
        desk.admin.mount({"orders": entry.location})


@pytest.mark.emulated("injects a fault")
def test_a_node_that_answers_503_is_left_for_the_next(desk: Desk) -> None:
    desk.server.faults.add("status", "GET", "/v1/brokers", node=1, status=503, message="Service unavailable")
    assert len(desk.admin.list_nodes()) == 3
    assert desk.nodes_asked("GET", "/v1/brokers") == [1, 2]


@pytest.mark.emulated("injects a fault")
def test_a_node_that_gives_no_answer_is_left_for_the_next(desk: Desk) -> None:
    desk.server.faults.add("lost", "GET", "/v1/brokers", node=1)
    assert len(desk.admin.list_nodes()) == 3
    assert desk.nodes_asked("GET", "/v1/brokers") == [1, 2]


@pytest.mark.emulated("injects a fault")
def test_a_node_that_hangs_leaves_time_for_the_others(desk: Desk) -> None:
    desk.server.faults.add("slow", "GET", "/v1/brokers", node=1, seconds=30)
    assert len(AdminClient(reached(desk.cluster, admin_timeout=3000), desk.edge).list_nodes()) == 3
    assert desk.nodes_asked("GET", "/v1/brokers") == [1, 2]


@pytest.mark.emulated("injects a fault")
def test_a_change_that_may_be_repeated_is_repeated_after_a_lost_answer(desk: Desk) -> None:
    desk.server.faults.add("lost", "DELETE", "/v1/migrations/7", node=1)
    assert desk.admin.delete_task(7) is False
    assert desk.nodes_asked("DELETE", "/v1/migrations/7") == [1, 2]


@pytest.mark.emulated("injects a fault")
def test_a_redirect_is_followed_to_declared_addresses_only(desk: Desk) -> None:
    desk.server.faults.add("redirect", "GET", "/v1/brokers", node=1, times=2, to=3)
    assert len(desk.admin.list_nodes()) == 3
    alone = reached(desk.cluster, admin_urls=desk.server.admin[:1])
    with pytest.raises(UserError, match=f"redirects to {desk.server.admin[2]}/v1/brokers, which is not declared") as e:
        AdminClient(alone, desk.edge).list_nodes()
    assert "adminUrls" in e.value.hint
    assert desk.nodes_asked("GET", "/v1/brokers") == [1, 3, 1]


def test_the_admin_api_is_reached_over_tls_with_the_declared_certificates(
    bench: Bench, start_redpanda: Callable[..., Redpanda], tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    desk = desk_on(bench, start_redpanda(certificate=authority.issued("server"), client_ca=authority.ca))
    certificate, key = authority.issued("client")
    login = {"username": desk.server.user, "password": "${env:RECONCILER_REDPANDA}"}
    trusting = {**login, "caFile": str(authority.ca)}
    ours = {**trusting, "certFile": str(certificate), "keyFile": str(key)}
    for admin, refusal in (
        (login, "is not trusted: self-signed certificate in certificate chain"),
        (trusting, "does not answer"),
    ):
        with pytest.raises(ReconcilerError, match=refusal):
            AdminClient(reached(desk.cluster, admin=HttpLoginSpec(**admin), admin_timeout=1000), desk.edge).list_nodes()
    assert len(AdminClient(reached(desk.cluster, admin=HttpLoginSpec(**ours)), desk.edge).list_nodes()) == 3


@pytest.mark.fact("F-R-207", "F-R-210")
@pytest.mark.emulated("changes properties of the whole cluster, and injects a fault")
def test_properties_are_waited_for_on_every_node_and_secrets_are_no_drift(desk: Desk) -> None:
    properties = {"log_segment_ms": "3600000", "cloud_storage_segment_max_upload_interval_sec": "120"}
    desk.server.lag(2, 3)
    desk.apply(properties=properties)
    assert all(node.version == desk.admin.list_node_configs()[0].version for node in desk.admin.list_node_configs())
    desk.apply()


@pytest.mark.emulated("counts requests")
def test_a_wrong_password_is_said_once_and_not_shown(desk: Desk) -> None:
    with pytest.raises(NotAuthorizedError, match="refuses the login") as caught:
        AdminClient(desk.cluster, Edge(desk.bench.folder, {"RECONCILER_REDPANDA": "hunter2"}, str, int)).list_nodes()
    assert "hunter2" not in str(caught.value)
    assert len(desk.server.requests) == 1


@pytest.mark.emulated("injects a fault")
def test_topics_go_on_without_the_admin_api_and_what_needs_it_says_why(desk: Desk) -> None:
    week = str(7 * 24 * 3600 * 1000)
    connection = cast("RedpandaConnection", desk.cluster.spec.connection).model_copy(update={"admin_timeout": 1000})
    quick = {"redpanda": connection.model_dump(by_alias=True, exclude_none=True)}
    desk.apply(orders("archived"), **quick)
    archived = mounting("unmounted", "archived")
    desk.apply(orders(**{"retention.ms": week}), orders("payments"), archived, **quick)
    desk.server.faults.add("status", path="/v1", status=503, message="Service unavailable", times=10_000)
    desk.apply(orders(**{"retention.ms": week}), orders("payments", **{"retention.ms": "3600000"}), archived, **quick)
    desk.apply(orders(**{"retention.ms": week}), orders("payments", **{"retention.ms": "3600000"}), archived, **quick)
    desk.declare(orders(), orders("payments"), mounting("unmounted", "payments"), properties={"x": "1"}, **quick)
    problems = {str(error.address): error.message for error in desk.bench.plan().plan.errors}
    assert problems.keys() == {"cluster/west", "mounting/west/payments"}
    assert all("Admin API" in message and "503: Service unavailable" in message for message in problems.values())
    assert any("Topics are planned without it" in warning for warning in desk.bench.warned)


@pytest.mark.emulated("injects a fault")
def test_an_outage_of_the_admin_api_is_warned_of_once_by_a_command(desk: Desk) -> None:
    connection = cast("RedpandaConnection", desk.cluster.spec.connection).model_copy(update={"admin_timeout": 1000})
    desk.declare(redpanda=connection.model_dump(by_alias=True, exclude_none=True))
    desk.server.faults.add("status", path="/v1", status=503, message="Service unavailable", times=10_000)
    assert list_mounts(SiteOptions(invocation=desk.bench.invocation, select=Select()), ["west"]).verdict is not None
    assert len([text for text in desk.bench.warned if "Service unavailable" in text]) == 1


def test_addresses_that_refuse_connections_are_not_tried_for_the_whole_timeout(desk: Desk) -> None:
    closed = [f"http://127.0.0.1:{port}" for port in free_ports(2)]
    began = time.monotonic()
    with pytest.raises(RetryableError, match="Connection refused"):
        AdminClient(reached(desk.cluster, admin_urls=closed, admin_timeout=60_000), desk.edge).list_nodes()
    assert time.monotonic() - began < 30


@pytest.mark.emulated("injects a fault")
def test_what_is_no_json_is_told(desk: Desk) -> None:
    desk.server.faults.add("text", "GET", "/v1/brokers", message="<html>")
    with pytest.raises(UserError, match="the answer is no JSON"):
        desk.admin.list_nodes()


def test_a_version_below_the_floor_is_refused_with_what_was_found(
    bench: Bench, start_redpanda: Callable[..., Redpanda]
) -> None:
    desk = desk_on(bench, start_redpanda(versions=["25.3.1", "24.3.2", "25.3.1"]))
    desk.declare(orders())
    with pytest.raises(ReconcilerError, match=r"runs Redpanda v24\.3\.2, and reconciler needs 25\.3 or later"):
        desk.bench.plan()


def test_without_a_licence_a_mounting_is_refused(bench: Bench, start_redpanda: Callable[..., Redpanda]) -> None:
    desk = desk_on(bench, start_redpanda(license_status="expired"))
    desk.declare(mounting("unmounted"))
    assert any("its licence is expired" in error.message for error in desk.bench.plan().plan.errors)


def test_the_admin_api_of_another_cluster_is_refused(desk: Desk, start_redpanda: Callable[..., Redpanda]) -> None:
    mixed = reached(desk.cluster, admin_urls=start_redpanda().admin)
    with pytest.raises(UserError, match=r"the brokers are those of redpanda\..*, and the Admin API is that of"):
        open_provider(mixed, desk.edge).identify()
