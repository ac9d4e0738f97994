"""Requests to a Kafka cluster with retries, and access rules."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from importlib.util import find_spec
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from reconciler.errors import NotAuthorizedError, ReconcilerError, RetryableError, UnansweredError, UserError
from reconciler.providers.brokers.faults import UNDONE, translate_code, translate_error
from reconciler.providers.brokers.security import build_admin_settings
from reconciler.providers.brokers.translate import (
    BROKER,
    KAFKA,
    TOPIC,
    ClusterDescription,
    ConfigState,
    Dialect,
    TopicMetadata,
)
from reconciler.resources.acls import AccessBinding
from reconciler.runtime.retry import Backoff, Tries, pause
from reconciler.runtime.threads import Workers

if TYPE_CHECKING:
    from reconciler.providers.brokers.connection import ConfigDescription
    from reconciler.providers.protocol import Edge
    from reconciler.resources.cluster import Cluster


# A request is retried if it only reads or was not sent. If the response to a change is lost, the caller checks its
# effect. Items that brokers have not done (`faults.UNDONE`) are sent again.


T = TypeVar("T")
A = TypeVar("A")

READ_MS: Final = 30_000
WRITE_MS: Final = 90_000
"""Timeout of a change in ms, longer than the brokers' own, so brokers report theirs."""
_RETRY_SECONDS: Final = 30.0
"""Limit of retries without a response. Dead leaders are replaced within ten seconds."""
_THROTTLED_SECONDS: Final = 120.0
_STALLED_SECONDS: Final = 60.0
_LAG_SECONDS: Final = 3.0
"""Limit of retries for topics that a broker does not know."""
_TRIES: Final = 8
_BACKOFF: Final = Backoff(first_s=0.2, longest_s=2.0)
_READING: Final = ("Describe", "List", "Metadata", "Find", "Fetch", "OffsetFetch", "ApiVersions")


def send_request(
    connections: Any, request: Any, node: int | None, *, doing: str, cluster: str, is_only_once: bool = False
) -> Any:
    """Send a request to broker `node`, or to any broker, and return the response.

    `is_only_once` disables retries.

    Raises:
        UnansweredError: The response to a change was lost, so its effect is unknown.
        ReconcilerError: All retries failed.
    """
    reads = _is_read_only(request)
    limit = READ_MS if reads else WRITE_MS

    def may_repeat(error: BaseException) -> bool:
        return reads or _is_unsent(error)

    try:
        return _retry(
            connections,
            lambda: connections.run(connections.send, request, node, limit),
            may_repeat,
            lambda error: translate_error(error, doing=doing, cluster=cluster),
            is_only_once=is_only_once,
        )
    except RetryableError as error:
        if error.__cause__ is None or may_repeat(error.__cause__):
            raise
        message = f"{error.message}; whether it was done is not known"
        raise UnansweredError(message, hint=error.hint) from error.__cause__


def call_library(connections: Any, call: Callable[[], T], *, doing: str, cluster: str) -> T:
    """Call an idempotent method of the library with retries."""

    def translate(error: Exception) -> ReconcilerError:
        connections.cluster._coordinators.clear()  # noqa: SLF001 - the library keeps coordinators that have moved
        return translate_error(error, doing=doing, cluster=cluster)

    return _retry(connections, call, lambda _error: True, translate)


def _retry(
    connections: Any,
    call: Callable[[], T],
    may_repeat: Callable[[BaseException], bool],
    translate: Callable[[Exception], ReconcilerError],
    *,
    is_only_once: bool = False,
) -> T:
    tries = 0
    while True:
        if connections.rate is not None:
            connections.rate.wait()
        try:
            answer = call()
        except Exception as error:
            translated_error = translate(error)
            tries += not _is_throttled(error)
            connections.silent_since = connections.silent_since or monotonic()
            patience = _THROTTLED_SECONDS if _is_throttled(error) else _RETRY_SECONDS
            if not isinstance(translated_error, RetryableError) or not may_repeat(error) or is_only_once:
                raise translated_error from error
            is_down = tries >= _TRIES and not connections.route.is_any_up()
            if is_down or monotonic() - connections.silent_since > patience:
                raise translated_error from error
        else:
            connections.silent_since = None
            return answer
        pause(_BACKOFF.compute_pause(tries))


def repeat_undone(
    items: Sequence[T],
    ask: Callable[[Sequence[T]], Iterable[tuple[T, A]]],
    code: Callable[[A], int],
    may_go_on: Callable[[], None],
) -> Iterator[tuple[T, A]]:
    """Send items, repeat those that brokers report as not done, and yield each with its last response."""
    left, changed, tries = list(items), monotonic(), 0
    while left:
        undone: list[tuple[T, A]] = []
        for item, answer in ask(left):
            if code(answer) in UNDONE:
                undone.append((item, answer))
            else:
                yield item, answer
        if len(undone) < len(left):
            changed, tries = monotonic(), 0
        if undone and monotonic() - changed > _STALLED_SECONDS:
            yield from undone
            return
        left = [item for item, _ in undone]
        if left:
            tries += 1
            pause(_BACKOFF.compute_pause(tries))
            may_go_on()


def _is_read_only(request: Any) -> bool:
    return type(request).__name__.startswith(_READING) or bool(getattr(request, "validate_only", False))


def _is_throttled(error: BaseException) -> bool:
    return "throttle" in str(error) and type(error).__name__ == "NodeNotReadyError"


def _is_unsent(error: BaseException) -> bool:
    """`connection.py` marks errors raised before sending."""
    return type(error).__name__ == "NodeNotReadyError" or getattr(error, "is_unsent", False)


def check_clients_installed(*, cluster: str) -> None:
    """Raise if a client library is missing."""
    missing = [name for name, module in _CLIENTS.items() if find_spec(module) is None]
    if missing:
        message = f"cluster {cluster}: Apache Kafka needs {' and '.join(missing)}, not installed here"
        raise UserError(message, hint="Install it: pip install 'stream-reconciler[kafka]'.")


_CLIENTS = {"kafka-python": "kafka", "confluent-kafka": "confluent_kafka"}


_COORDINATING: Final = frozenset({14, 15, 16})
"""Error codes of a loading, missing or moving group coordinator."""
ABSENT: Final = frozenset({3, 100})
UNAUTHORIZED: Final = 29
"""Error code of a topic that may not be described, and may not exist."""
_BATCHES_AT_ONCE: Final = 2
_CONFIGS_AT_ONCE: Final = 5_000
"""Topics per config request, whose response has about 10 MB."""


class KafkaClient:
    """Connection to a cluster, opened on first use. Thread-safe."""

    has_brokers = True
    """Whether brokers are declared, which records, groups and offsets need."""

    def __init__(self, name: str, settings: Callable[[], Mapping[str, Any]], dialect: Dialect = KAFKA) -> None:
        self.name, self.dialect, self._settings = name, dialect, settings
        self._admin: Any = None
        self._opening = threading.Lock()

    @classmethod
    def for_cluster(cls, declared: Cluster, edge: Edge, dialect: Dialect = KAFKA) -> Self:
        """Return a cluster's client; it resolves secrets when it connects."""
        return cls(declared.metadata.name, lambda: build_admin_settings(declared, edge), dialect)

    @property
    def admin(self) -> Any:
        """The library's client. Call its methods through `call_admin`, which translates errors."""
        with self._opening:
            if self._admin is None:
                check_clients_installed(cluster=self.name)
                from reconciler.providers.brokers.connection import close_admin, open_admin

                self._admin = open_admin(self._settings(), cluster=self.name)
                # The library's thread would outlive this client, so a finalizer stops it.
                weakref.finalize(self, close_admin, self._admin).atexit = False
            return self._admin

    def call_admin(self, doing: str, call: Any, *arguments: Any, **options: Any) -> Any:
        """Call an idempotent method of the library with retries, and translate errors."""
        connections = self.admin._manager  # noqa: SLF001 - retries share its state
        return call_library(connections, partial(call, *arguments, **options), doing=doing, cluster=self.name)

    def call_coordinator(self, doing: str, call: Any, *arguments: Any) -> Mapping[Any, Any]:
        """Call a method that queries group coordinators; return results or library error classes by item."""

        def read_answers() -> Mapping[Any, Any]:
            answers = {item: _to_error_class(answer) for item, answer in call(*arguments).items()}
            for answer in answers.values():
                if getattr(answer, "errno", 0) in _COORDINATING:
                    raise answer
            return answers

        by_item: Mapping[Any, Any] = self.call_admin(doing, read_answers)
        return by_item

    def send(self, request: Any, *, doing: str, node: int | None = None, is_only_once: bool = False) -> Any:
        """Send a request as `send_request` does."""
        connections = self.admin._manager  # noqa: SLF001 - no public method
        return send_request(connections, request, node, doing=doing, cluster=self.name, is_only_once=is_only_once)

    def supports_version(self, request: type, version: int) -> bool:
        """Return whether the brokers support a version of a request."""
        return bool(self.admin._manager.broker_version_data.api_version(request) >= version)  # noqa: SLF001 - as above

    def describe_cluster(self) -> ClusterDescription:
        """Return the cluster's id, live brokers, and operations allowed to this principal."""
        check_clients_installed(cluster=self.name)
        from kafka.protocol.admin import DescribeClusterRequest

        # The library's own method requires version 1 of this request, which Redpanda lacks.
        request = DescribeClusterRequest(include_cluster_authorized_operations=True, include_fenced_brokers=True)
        answer = self.send(request, doing="describing the cluster")
        if answer.error_code:
            raise translate_code(answer.error_code, answer.error_message or "", what=f"cluster {self.name}")
        alive = sorted(
            (broker.broker_id, broker.rack) for broker in answer.brokers if not getattr(broker, "is_fenced", False)
        )
        operations = (_OPERATIONS[code] for code in answer.authorized_operations or () if code in _OPERATIONS)
        return ClusterDescription(answer.cluster_id, dict(alive), frozenset(operations))

    def read_topics(self, names: Iterable[str] | None = None) -> dict[str, TopicMetadata]:
        """Return topics by name; `None` reads all visible topics."""
        from kafka.protocol.metadata import MetadataRequest

        wanted = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        if wanted == []:
            return {}
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False, min_version=10)
        answer = self.send(request, doing="listing topics")
        return {topic.name: _parse_topic(topic) for topic in answer.topics}

    def read_topic(self, name: str) -> TopicMetadata | None:
        """Return a topic; `None` if missing or being deleted.

        Raises:
            NotAuthorizedError: The topic may not be described.
            ReconcilerError: The brokers cannot respond, or the name is invalid.
        """
        seen = self.read_topics([name]).get(name)
        if seen is None or seen.error in ABSENT:
            return None
        if seen.error == UNAUTHORIZED:
            raise self.build_hidden_error(name)
        if seen.error:
            raise translate_code(seen.error, "", what=f"topic {name} of cluster {self.name}")
        return seen

    def build_hidden_error(self, name: str) -> NotAuthorizedError:
        """Return the error for a hidden topic."""
        message = f"cluster {self.name}: the principal of reconciler may not describe topic {name}"
        return NotAuthorizedError(message, hint="Allow DESCRIBE on it, then run the same command again.")

    def read_configs(
        self, names: Sequence[str], keys: Sequence[str] | None = None, *, node: int | None = None
    ) -> Iterator[tuple[str, Mapping[str, ConfigState] | int]]:
        """Yield each topic's name with its configs, or with an error code if unreadable.

        `keys` limits the configs. `node` is the broker to ask. Without it, topics that the broker does not know are
        requested again for some seconds, because a broker that lags behind the controller misses new topics.
        """
        tries = Tries(_BACKOFF, within_s=_LAG_SECONDS)
        left: Sequence[str] = names
        while left:
            unknown = []
            for name, configs in self._read_configs_once(left, keys, node):
                if isinstance(configs, int) and configs in ABSENT and node is None:
                    unknown.append((name, configs))
                else:
                    yield name, configs
            if unknown and tries.has_ended:
                yield from unknown
                return
            left = [name for name, _ in unknown]
            if left:
                tries.wait()

    def _read_configs_once(
        self, names: Sequence[str], keys: Sequence[str] | None, node: int | None
    ) -> Iterator[tuple[str, Mapping[str, ConfigState] | int]]:
        wire_keys = None if keys is None else [self.dialect.to_wire(key) for key in keys]
        ours = self.dialect.map_wire_names()
        # A request to a named broker is not retried, because that broker may be down.
        describe = partial(
            self._describe_configs, node=node, doing="reading configs of topics", is_only_once=node is not None
        )
        batches = [names[begin:][:_CONFIGS_AT_ONCE] for begin in range(0, len(names), _CONFIGS_AT_ONCE)]
        # Brokers work on a batch while the one before is parsed.
        with closing(Workers(_BATCHES_AT_ONCE, name="configs")) as workers:
            answers = [
                workers.submit(partial(describe, [(TOPIC, name, wire_keys) for name in batch])) for batch in batches
            ]
            for result in (result for answer in answers for result in answer.result()):
                configs = result.configs
                if ours:
                    configs = {ours.get(key, key): state for key, state in configs.items()}
                yield result.resource_name, result.error_code or configs

    def read_dynamic_configs(self) -> Mapping[str, ConfigState]:
        """Return the cluster-wide dynamic configs of brokers."""
        return self._describe_brokers([""])[""]

    def read_broker_configs(self, broker: int) -> Mapping[str, ConfigState]:
        """Return one broker's configs, with its own dynamic ones."""
        return self._describe_brokers([str(broker)], broker, is_only_once=True)[str(broker)]

    def read_both_broker_configs(
        self, broker: int, *, is_only_once: bool = True
    ) -> tuple[Mapping[str, ConfigState], Mapping[str, ConfigState]]:
        """Return one broker's configs, and the cluster-wide dynamic configs."""
        by_name = self._describe_brokers([str(broker), ""], broker, is_only_once=is_only_once)
        return by_name[str(broker)], by_name[""]

    def _describe_brokers(
        self, names: Sequence[str], node: int | None = None, *, is_only_once: bool = False
    ) -> Mapping[str, Mapping[str, ConfigState]]:
        by_name = {}
        wanted = [(BROKER, name, None) for name in names]
        for result in self._describe_configs(
            wanted, node, doing="reading configs of brokers", is_only_once=is_only_once
        ):
            if result.error_code:
                raise translate_code(result.error_code, result.error_message or "", what=f"cluster {self.name}")
            by_name[result.resource_name] = result.configs
        return by_name

    def close(self) -> None:
        """Close the connection until the next call."""
        with self._opening:
            if self._admin is not None:
                self._admin.close()
                self._admin = None

    def _describe_configs(
        self, wanted: Sequence[tuple[int, str, list[str] | None]], node: int | None, *, doing: str, is_only_once: bool
    ) -> Sequence[ConfigDescription]:
        from reconciler.providers.brokers.connection import DescribeAllConfigsRequest

        request = DescribeAllConfigsRequest(wanted)
        answer = self.send(request, doing=doing, node=node, is_only_once=is_only_once)
        results: Sequence[ConfigDescription] = answer.results
        return results


def _to_error_class(answer: Any) -> Any:
    from kafka import errors

    return getattr(errors, answer, answer) if isinstance(answer, str) else answer


def _parse_topic(topic: Any) -> TopicMetadata:
    partitions = sorted(topic.partitions, key=lambda partition: partition.partition_index)
    return TopicMetadata(
        topic.name,
        str(topic.topic_id),
        bool(topic.is_internal),
        tuple(tuple(partition.replica_nodes) for partition in partitions),
        topic.error_code,
        all(partition.leader_id >= 0 for partition in partitions) and bool(partitions),
        tuple(partition.leader_id for partition in partitions),
        tuple(tuple(partition.isr_nodes) for partition in partitions),
    )


_ANY: Final = 1
_LITERAL, _PREFIXED = 3, 4
_DELETED_AT_ONCE: Final = 1_000

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


def _invert(words: Mapping[int, str]) -> dict[str, int]:
    return {word: code for code, word in words.items()}


_RESOURCE_CODES, _OPERATION_CODES, _PERMISSION_CODES = _invert(_RESOURCES), _invert(_OPERATIONS), _invert(_PERMISSIONS)


def read_bindings(client: KafkaClient) -> tuple[list[AccessBinding], int]:
    """Return all bindings, and Kafka's error code: 0 unless unreadable."""
    answer = _describe_acls(client)
    return list(parse_bindings(answer)), answer.error_code


def parse_bindings(answer: Any) -> Iterator[AccessBinding]:
    """Yield the bindings of a response. Unknown codes become words such as `unknown-16`."""
    for resource in answer.resources:
        kind = _name_code(_RESOURCES, resource.resource_type)
        if resource.pattern_type not in {_LITERAL, _PREFIXED}:
            kind = f"{kind} by pattern type {resource.pattern_type}"
        for acl in resource.acls:
            yield AccessBinding(
                kind,
                resource.resource_name,
                resource.pattern_type == _PREFIXED,
                acl.principal,
                acl.host,
                _name_code(_OPERATIONS, acl.operation),
                _name_code(_PERMISSIONS, acl.permission_type),
            )


def _name_code(words: Mapping[int, str], code: int) -> str:
    return words.get(code, f"unknown-{code}")


def _describe_acls(client: KafkaClient) -> Any:
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


def create_bindings(client: KafkaClient, bindings: Sequence[AccessBinding]) -> list[tuple[int, str]]:
    """Create bindings; return (error code, message) for each, in order. The code of an existing binding is 0."""
    return [
        answer
        for some in _split_bindings(bindings, client.dialect.records_at_once)
        for answer in _send_acl_creations(client, some)
    ]


def delete_bindings(client: KafkaClient, bindings: Sequence[AccessBinding]) -> list[tuple[int, str]]:
    """Delete bindings; return (error code, message) for each, in order. The code of a missing binding is 0."""
    return [
        answer for some in _split_bindings(bindings, _DELETED_AT_ONCE) for answer in _send_acl_deletions(client, some)
    ]


def _split_bindings(bindings: Sequence[AccessBinding], limit: int | None) -> Iterator[Sequence[AccessBinding]]:
    most = limit or len(bindings) or 1
    for begin in range(0, len(bindings), most):
        yield bindings[begin : begin + most]


def _send_acl_creations(client: KafkaClient, bindings: Sequence[AccessBinding]) -> list[tuple[int, str]]:
    from kafka.protocol.admin import CreateAclsRequest

    request = CreateAclsRequest(creations=list(map(_encode_binding, bindings)), min_version=1)
    answer = client.send(request, doing="making access rules")
    return [(binding.error_code, binding.error_message or "") for binding in answer.results]


def _send_acl_deletions(client: KafkaClient, bindings: Sequence[AccessBinding]) -> list[tuple[int, str]]:
    from kafka.protocol.admin import DeleteAclsRequest

    request = DeleteAclsRequest(filters=list(map(_encode_binding, bindings)), min_version=1)
    answer = client.send(request, doing="taking access rules away")
    return list(parse_deletions(answer))


def _encode_binding(binding: AccessBinding) -> tuple[int, str, int, str, str, int, int]:
    return (
        _RESOURCE_CODES[binding.resource],
        binding.name,
        _PREFIXED if binding.is_prefix else _LITERAL,
        binding.principal,
        binding.host,
        _OPERATION_CODES[binding.operation],
        _PERMISSION_CODES[binding.permission],
    )


def parse_deletions(answer: Any) -> Iterator[tuple[int, str]]:
    """Yield (error code, message) per filter. A filter fails if any binding that matches it was not deleted."""
    for result in answer.filter_results:
        refused = next((one for one in (result, *result.matching_acls) if one.error_code), result)
        yield refused.error_code, refused.error_message or ""
