"""Requests to a Kafka cluster, each about many things, and access rules on the wire."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Self

from reconciler.errors import UserError
from reconciler.providers.kafka.metadata import BROKER, TOPIC, ClusterSeen, ConfigSeen, TopicSeen
from reconciler.providers.kafka.security import admin_settings
from reconciler.resources.acls import Binding

if TYPE_CHECKING:
    from reconciler.providers.kafka.connection import Described
    from reconciler.providers.protocol import Edge
    from reconciler.resources.cluster import Cluster


# Whether the clients of Kafka are here: an installation without them manages other platforms.


def check_installed(*, cluster: str) -> None:
    """Return if both client libraries can be imported.

    Raises:
        UserError: One is not installed.
    """
    missing = [name for name, module in _CLIENTS.items() if find_spec(module) is None]
    if missing:
        message = f"cluster {cluster}: Apache Kafka needs {' and '.join(missing)}, not installed here"
        raise UserError(message, hint="Install it: pip install 'stream-reconciler[kafka]'.")


_CLIENTS = {"kafka-python": "kafka", "confluent-kafka": "confluent_kafka"}


_COORDINATING: Final = frozenset({14, 15, 16})
"""What brokers answer while nobody, or somebody else, coordinates a group."""
_CONFIGS_AT_ONCE: Final = 5_000
"""Topics whose configs one answer has: about 10 MB."""


class KafkaClient:
    """One connection to one cluster, opened when it is first needed. Safe to share between threads."""

    def __init__(self, name: str, settings: Callable[[], Mapping[str, Any]]) -> None:
        """Take what the cluster is called in the files, and what gives the settings `connection.opened_admin` takes."""
        self.name, self._settings = name, settings
        self._admin: Any = None
        self._opening = threading.Lock()

    @classmethod
    def of(cls, declared: Cluster, edge: Edge) -> Self:
        """Return the client of a declared cluster; secrets are looked up when it is opened."""
        return cls(declared.metadata.name, lambda: admin_settings(declared, edge))

    @property
    def admin(self) -> Any:
        """The client of the library, for what it says well itself. Errors of its calls: `asked`."""
        with self._opening:
            if self._admin is None:
                check_installed(cluster=self.name)
                from reconciler.providers.kafka.connection import let_go, opened_admin

                self._admin = opened_admin(self._settings(), cluster=self.name)
                # Its thread would go on for ever, also when the cluster is gone; the end of a process waits for none.
                weakref.finalize(self, let_go, self._admin).atexit = False
            return self._admin

    def asked(self, doing: str, call: Any, *given: Any, **named: Any) -> Any:
        """Return what a call of the library answers, one that may be made again; its errors in our words."""
        from reconciler.providers.kafka.patience import called

        connections = self.admin._manager  # noqa: SLF001 - as in `send`: what it is shared with waits together
        return called(connections, partial(call, *given, **named), doing=doing, cluster=self.name)

    def asked_of_group(self, doing: str, call: Any, *given: Any) -> Mapping[Any, Any]:
        """Return what the coordinator of a group answers, item by item; one that moves, or begins, is waited for."""

        def answered() -> Mapping[Any, Any]:
            answers: Mapping[Any, Any] = call(*given)
            for answer in answers.values():
                if getattr(answer, "errno", 0) in _COORDINATING:
                    raise answer
            return answers

        found: Mapping[Any, Any] = self.asked(doing, answered)
        return found

    def send(self, request: Any, *, doing: str, node: int | None = None, is_only_once: bool = False) -> Any:
        """Send one request of the protocol, to any broker or to one, and return its answer.

        `is_only_once`: whoever asks looks which broker it is, and asks again.
        """
        from reconciler.providers.kafka.patience import sent

        connections = self.admin._manager  # noqa: SLF001 - the library has no other way to send what it has no method for
        return sent(connections, request, node, doing=doing, cluster=self.name, is_only_once=is_only_once)

    def cluster(self) -> ClusterSeen:
        """Return who answers, and which brokers are alive."""
        found = self.asked("describing the cluster", self.admin.describe_cluster)
        from kafka.admin import ACLOperation

        alive = sorted((each["broker_id"], each["rack"]) for each in found["brokers"] if not each.get("is_fenced"))
        operations = frozenset(ACLOperation[name].value for name in found.get("authorized_operations") or ())
        return ClusterSeen(found["cluster_id"], dict(alive), operations)

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicSeen]:
        """Return topics by name, in one request: those of `names`, or all that may be described."""
        from kafka.protocol.metadata import MetadataRequest

        wanted = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        if wanted == []:
            return {}
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False, min_version=10)
        answer = self.send(request, doing="listing topics")
        return {topic.name: _topic(topic) for topic in answer.topics}

    def configs(
        self, names: Sequence[str], keys: Sequence[str] | None = None, *, node: int | None = None
    ) -> Iterator[tuple[str, Mapping[str, ConfigSeen] | int]]:
        """Yield the configs of topics, all or those of `keys`, as one broker knows them; a code where it refuses."""
        for begin in range(0, len(names), _CONFIGS_AT_ONCE):
            wanted = [(TOPIC, name, None if keys is None else list(keys)) for name in names[begin:][:_CONFIGS_AT_ONCE]]
            for result in self._described(wanted, node=node, doing="reading configs of topics"):
                yield result.resource_name, result.error_code or result.configs

    def broker_configs(self) -> Mapping[str, ConfigSeen]:
        """Return the configs that were set for all brokers at run time."""
        return self._of_brokers([""], None)[""]

    def own_broker_configs(self, broker: int) -> Mapping[str, ConfigSeen]:
        """Return the configs of one broker, those that it sets for itself alone among them."""
        return self._of_brokers([str(broker)], broker)[str(broker)]

    def both_broker_configs(self, broker: int) -> tuple[Mapping[str, ConfigSeen], Mapping[str, ConfigSeen]]:
        """Return the configs of one broker, and those set for all of them at run time: one request."""
        found = self._of_brokers([str(broker), ""], broker)
        return found[str(broker)], found[""]

    def _of_brokers(self, names: Sequence[str], node: int | None) -> Mapping[str, Mapping[str, ConfigSeen]]:
        found = {}
        for result in self._described(
            [(BROKER, name, None) for name in names], node=node, doing="reading configs of brokers"
        ):
            if result.error_code:
                from reconciler.providers.kafka.faults import of_code

                raise of_code(result.error_code, result.error_message or "", what=f"cluster {self.name}")
            found[result.resource_name] = result.configs
        return found

    def close(self) -> None:
        """Close the connection; another call opens it again."""
        with self._opening:
            if self._admin is not None:
                self._admin.close()
                self._admin = None

    def _described(
        self, wanted: Sequence[tuple[int, str, list[str] | None]], *, doing: str, node: int | None = None
    ) -> Sequence[Described]:
        from reconciler.providers.kafka.connection import DescribeAllConfigsRequest

        request = DescribeAllConfigsRequest(wanted)
        # Of one broker that is gone another is asked, or none: waiting for it is of no use.
        answer = self.send(request, doing=doing, node=node, is_only_once=node is not None)
        found: Sequence[Described] = answer.results
        return found


def _topic(topic: Any) -> TopicSeen:
    partitions = sorted(topic.partitions, key=lambda each: each.partition_index)
    return TopicSeen(
        topic.name,
        str(topic.topic_id),
        bool(topic.is_internal),
        tuple(tuple(each.replica_nodes) for each in partitions),
        topic.error_code,
        all(each.leader_id >= 0 for each in partitions) and bool(partitions),
        tuple(each.leader_id for each in partitions),
    )


# Bindings on the wire: all of them read in one request, many made or taken away in one.


# Only who connects pays for the library.

_ANY: Final = 1
_LITERAL, _PREFIXED = 3, 4

_RESOURCES: Final[Mapping[int, str]] = {
    2: "topics",
    3: "groups",
    4: "cluster",
    5: "transactional-ids",
    6: "delegation-token",
    7: "user",
}
_OPERATIONS: Final[Mapping[int, str]] = {
    2: "all",
    3: "read",
    4: "write",
    5: "create",
    6: "delete",
    7: "alter",
    8: "describe",
    9: "cluster-action",
    10: "describe-configs",
    11: "alter-configs",
    12: "idempotent-write",
    13: "create-tokens",
    14: "describe-tokens",
    15: "two-phase-commit",
}
_PERMISSIONS: Final[Mapping[int, str]] = {2: "deny", 3: "allow"}


def _codes(words: Mapping[int, str]) -> dict[str, int]:
    return {word: code for code, word in words.items()}


_RESOURCE_CODES, _OPERATION_CODES, _PERMISSION_CODES = _codes(_RESOURCES), _codes(_OPERATIONS), _codes(_PERMISSIONS)


def read_bindings(client: KafkaClient) -> tuple[list[Binding], int]:
    """Return every binding, or the code of why they cannot be read."""
    answer = _described(client)
    found = [
        Binding(
            _RESOURCES.get(resource.resource_type, "unknown"),
            resource.resource_name,
            resource.pattern_type == _PREFIXED,
            each.principal,
            each.host,
            _OPERATIONS.get(each.operation, "unknown"),
            _PERMISSIONS.get(each.permission_type, "unknown"),
        )
        for resource in answer.resources
        for each in resource.acls
    ]
    return found, answer.error_code


def _described(client: KafkaClient) -> Any:
    from kafka.protocol.admin import DescribeAclsRequest

    request = DescribeAclsRequest(
        resource_type_filter=_ANY,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
        min_version=1,
    )
    return client.send(request, doing="reading access rules")


def create_bindings(client: KafkaClient, bindings: Sequence[Binding]) -> list[tuple[int, str]]:
    """Make bindings and return a code and a message for each, in their order; one that is there stays."""
    from kafka.protocol.admin import CreateAclsRequest

    made = [
        CreateAclsRequest.AclCreation(
            resource_type=_RESOURCE_CODES[each.resource],
            resource_name=each.name,
            resource_pattern_type=_PREFIXED if each.is_prefix else _LITERAL,
            principal=each.principal,
            host=each.host,
            operation=_OPERATION_CODES[each.operation],
            permission_type=_PERMISSION_CODES[each.permission],
        )
        for each in bindings
    ]
    answer = client.send(CreateAclsRequest(creations=made, min_version=1), doing="making access rules")
    return [(each.error_code, each.error_message or "") for each in answer.results]


def delete_bindings(client: KafkaClient, bindings: Sequence[Binding]) -> list[tuple[int, str]]:
    """Take bindings away and return a code and a message for each, in their order; one that is not there is gone."""
    from kafka.protocol.admin import DeleteAclsRequest

    filters: list[Any] = [
        DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=_RESOURCE_CODES[each.resource],
            resource_name_filter=each.name,
            pattern_type_filter=_PREFIXED if each.is_prefix else _LITERAL,
            principal_filter=each.principal,
            host_filter=each.host,
            operation=_OPERATION_CODES[each.operation],
            permission_type=_PERMISSION_CODES[each.permission],
        )
        for each in bindings
    ]
    answer = client.send(DeleteAclsRequest(filters=filters, min_version=1), doing="taking access rules away")
    return [(each.error_code, each.error_message or "") for each in answer.filter_results]
