"""Kafka requests about topics, configs and access rules, answered by Confluent's REST API (confluent.md, 6)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID, uuid5

from reconciler.errors import UserError
from reconciler.providers.brokers.client import KafkaClient
from reconciler.providers.brokers.security import build_admin_settings
from reconciler.providers.brokers.translate import ClusterDescription, ConfigState, Dialect, TopicMetadata
from reconciler.providers.confluent.client import Json, RestClient, check
from reconciler.runtime.threads import map_in_parallel

if TYPE_CHECKING:
    from reconciler.providers.http import HttpAnswer
    from reconciler.providers.protocol import Edge
    from reconciler.resources.cluster import Cluster

A = TypeVar("A")
R = TypeVar("R")

_FEW: Final = 20
"""Topics that are read one by one instead of all."""
_RULES_AT_ONCE: Final = 100
_EXISTS, _UNKNOWN, _FORBIDDEN, _TIMED_OUT, _REQUEST, _POLICY, _CONFIG = 36, 3, 29, 7, 42, 44, 40
"""Kafka's error codes of what the API refuses."""
_SOURCES: Final = {
    "DYNAMIC_TOPIC_CONFIG": 1,
    "DYNAMIC_BROKER_CONFIG": 2,
    "DYNAMIC_DEFAULT_BROKER_CONFIG": 3,
    "DYNAMIC_CLUSTER_LINK_CONFIG": 3,
    "STATIC_BROKER_CONFIG": 4,
    "DEFAULT_CONFIG": 5,
}
_RESOURCES: Final = ("UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER")
_PATTERNS: Final = ("UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED")
_OPERATIONS: Final = (
    *("UNKNOWN", "ANY", "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION"),
    *("DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS"),
)
_PERMISSIONS: Final = ("UNKNOWN", "ANY", "DENY", "ALLOW")
"""Words of access rules, at the index of Kafka's number."""
TIER_NAMES: Final[Mapping[str, str]] = {
    "remote.storage.enable": "confluent.tier.enable",
    "local.retention.ms": "confluent.tier.local.hotset.ms",
    "local.retention.bytes": "confluent.tier.local.hotset.bytes",
}
"""Platform's name of a config of tiered storage, by Kafka's, which files have."""
_OURS: Final = {theirs: ours for ours, theirs in TIER_NAMES.items()}
_PROBE_TOPIC: Final = "reconciler-defaults"
"""Name of no topic, for which the API reports the configs of a new one."""


class RestKafkaClient(KafkaClient):
    """Kafka client of a Confluent cluster: REST for topics, configs and rules, and brokers, if declared, for the rest.

    REST reports no topic ids. Without brokers, an id that depends on the name only takes their place, so a topic that
    was deleted and created again looks like the same topic.
    """

    def __init__(self, declared: Cluster, edge: Edge, dialect: Dialect, rest: RestClient) -> None:
        super().__init__(declared.metadata.name, lambda: build_admin_settings(declared, edge), dialect)
        connection = declared.spec.confluent
        self.rest, self.has_brokers = rest, bool(connection and connection.bootstrap_servers)
        self._is_cloud = connection is None or connection.type == "cloud"

    @property
    def admin(self) -> Any:
        """The library's client; raise if no brokers are declared."""
        if not self.has_brokers:
            raise self.build_missing_brokers_error()
        return super().admin

    def build_missing_brokers_error(self) -> UserError:
        """Return the error for what the REST API does not have."""
        message = f"cluster {self.name}: records, consumer groups and offsets need its brokers"
        return UserError(message, hint="Declare bootstrapServers, and security if they need another login.")

    def describe_cluster(self) -> ClusterDescription:
        """Return the cluster's id, the brokers of Platform, and operations that the brokers report as allowed.

        Raises:
            UserError: The declared brokers are those of another cluster.
        """
        if self.has_brokers:
            described = super().describe_cluster()
            if described.id != self.rest.cluster_id:
                message = f"cluster {self.name}: clusterId is {self.rest.cluster_id}, and its brokers are those of"
                raise UserError(f"{message} {described.id}", hint="Correct bootstrapServers of the Cluster.")
            return replace(described, racks={}) if self._is_cloud else described
        rows = [] if self._is_cloud else self.rest.list_rows("brokers")
        racks = {int(row["broker_id"]): row.get("rack") for row in rows if "broker_id" in row}
        return ClusterDescription(self.rest.cluster_id, racks, frozenset())

    def read_topics(self, names: Iterable[str] | None = None) -> dict[str, TopicMetadata]:
        """Return topics by name, from brokers if declared."""
        if self.has_brokers:
            return super().read_topics(names)
        wanted = None if names is None else sorted(names)
        if wanted is not None and len(wanted) <= _FEW:
            answers = zip(wanted, _run_each(self._read_topic, wanted), strict=True)
            return {name: self._parse_topic(name, answer) for name, answer in answers}
        topics = {row["topic_name"]: self._parse_topic(row["topic_name"], row) for row in self.rest.list_rows("topics")}
        if wanted is None:
            return topics
        return {name: topics.get(name) or self._parse_topic(name, _UNKNOWN) for name in wanted}

    def read_configs(
        self, names: Sequence[str], keys: Sequence[str] | None = None, *, node: int | None = None
    ) -> Iterator[tuple[str, Mapping[str, ConfigState] | int]]:
        """Yield each topic's name with its configs, or with an error code."""
        del keys, node  # The API reports all configs, and those of all brokers.
        if len(names) <= _FEW:
            yield from zip(names, _run_each(self._read_topic_configs, names), strict=True)
            return
        by_topic: defaultdict[str, list[Json]] = defaultdict(list)
        for row in self.rest.list_rows("topics", "-", "configs"):
            by_topic[str(row.get("topic_name"))].append(row)
        for name in names:
            yield name, _parse_configs(by_topic[name]) if name in by_topic else _UNKNOWN

    def read_default_configs(self) -> Mapping[str, ConfigState]:
        """Return the configs that a new topic would have."""
        return _parse_configs(self.rest.list_rows("topics", _PROBE_TOPIC, "default-configs"))

    def send(self, request: Any, *, doing: str, node: int | None = None, is_only_once: bool = False) -> Any:
        """Answer a request about topics and rules by REST; send any other to the brokers."""
        answer = _ANSWERS.get(type(request).__name__)
        if answer is not None:
            return answer(self, request)
        return super().send(request, doing=doing, node=node, is_only_once=is_only_once)

    def _read_topic(self, name: str) -> Json | int:
        answer = self.rest.ask("topics", name)
        return answer.json() if answer.is_success else _to_kafka_code(answer)

    def _read_topic_configs(self, name: str) -> Mapping[str, ConfigState] | int:
        answer = self.rest.ask("topics", name, "configs")
        return _parse_configs(answer.json().get("data", ())) if answer.is_success else _to_kafka_code(answer)

    def _parse_topic(self, name: str, row: Json | int) -> TopicMetadata:
        topic_id = str(uuid5(_NAMES, f"{self.rest.cluster_id}/{name}"))
        if isinstance(row, int):
            return TopicMetadata(name, topic_id, is_internal=False, replicas=(), error=row)
        replicas = tuple(range(int(row.get("replication_factor") or 1)))
        count = int(row.get("partitions_count") or 0)
        return TopicMetadata(name, topic_id, bool(row.get("is_internal")), (replicas,) * count, is_led=count > 0)

    def create_topics(self, request: Any) -> Any:
        """Create topics one by one, in parallel."""
        answers = _run_each(lambda topic: self._create_topic(topic, is_trial=request.validate_only), request.topics)
        created = [topic.name for topic, (code, _) in zip(request.topics, answers, strict=True) if not code]
        seen = {} if request.validate_only else self.read_topics(created)
        ids = {name: topic.id for name, topic in seen.items()}
        rows = [
            _answer(name=topic.name, topic_id=ids.get(topic.name), error_code=code, error_message=message)
            for topic, (code, message) in zip(request.topics, answers, strict=True)
        ]
        return _answer(topics=rows)

    def _create_topic(self, topic: Any, *, is_trial: bool) -> tuple[int, str]:
        content: Json = {
            "topic_name": topic.name,
            "configs": [{"name": config.name, "value": config.value} for config in topic.configs],
        }
        if topic.num_partitions > 0:
            content["partitions_count"] = topic.num_partitions
        if topic.replication_factor > 0 and not self._is_cloud:
            content["replication_factor"] = topic.replication_factor
        if is_trial:
            content["validate_only"] = True
        # A creation whose answer was lost is repeated: that it exists shows below, and it is compared.
        return _judge(self.rest.request("POST", "topics", content=content, is_repeatable=True))

    def delete_topics(self, request: Any) -> Any:
        """Delete topics, given by ids, by their names."""
        names = {topic.id: name for name, topic in self.read_topics().items() if not topic.error}

        def delete(topic: Any) -> Any:
            name = names.get(str(topic.topic_id))
            if name is None:
                return _answer(topic_id=topic.topic_id, name=None, error_code=_UNKNOWN, error_message="")
            code, message = _judge(self.rest.request("DELETE", "topics", name, is_repeatable=True))
            return _answer(topic_id=topic.topic_id, name=name, error_code=code, error_message=message)

        return _answer(responses=_run_each(delete, request.topics))

    def add_partitions(self, request: Any) -> Any:
        """Grow topics. The API has no trial, so a trial accepts all."""

        def grow(topic: Any) -> Any:
            content = {"partitions_count": topic.count}
            code, message = _judge(
                self.rest.request("PATCH", "topics", topic.name, content=content, is_repeatable=True)
            )
            if code:  # A repeated request may find it grown.
                seen = self._read_topic(topic.name)
                code = 0 if isinstance(seen, dict) and seen.get("partitions_count") == topic.count else code
            return _answer(name=topic.name, error_code=code, error_message=message)

        if request.validate_only:
            return _answer(
                results=[_answer(name=topic.name, error_code=0, error_message="") for topic in request.topics]
            )
        return _answer(results=_run_each(grow, request.topics))

    def alter_configs(self, request: Any) -> Any:
        """Set and reset configs of topics, in parallel."""

        def alter(resource: tuple[int, str, Sequence[tuple[str, int, str | None]]]) -> Any:
            _, name, configs = resource
            content: Json = {
                "data": [
                    {"name": key, "operation": "DELETE"} if operation else {"name": key, "value": value}
                    for key, operation, value in configs
                ]
            }
            if request.validate_only:
                content["validate_only"] = True
            place = ("topics", name, "configs:alter")
            code, message = _judge(self.rest.request("POST", *place, content=content, is_repeatable=True))
            return _answer(resource_name=name, error_code=code, error_message=message)

        return _answer(responses=_run_each(alter, request.resources))

    def describe_rules(self, _: Any) -> Any:
        """Return all access rules; an error code if they may not be read."""
        answer = self.rest.ask("acls")
        if answer.status == HTTPStatus.FORBIDDEN:
            return _answer(error_code=_TO_CLUSTER, resources=[])
        rows = check(answer, "read access rules").json().get("data") or ()
        return _answer(error_code=0, resources=[_parse_rule(row) for row in rows])

    def create_rules(self, request: Any) -> Any:
        """Create access rules in batches. The rules of a refused batch are sent one by one, to find the refused one."""
        results: list[Any] = []
        rules = [_build_rule(binding) for binding in request.creations]
        for begin in range(0, len(rules), _RULES_AT_ONCE):
            some = rules[begin:][:_RULES_AT_ONCE]
            judged = _judge(self.rest.request("POST", "acls:batch", content={"data": some}, is_repeatable=True))
            if judged[0] and len(some) > 1:
                answers = _run_each(
                    lambda rule: self.rest.request("POST", "acls", content=rule, is_repeatable=True), some
                )
                results += map(_judge, answers)
            else:
                results += [judged] * len(some)
        return _answer(results=[_answer(error_code=code, error_message=message) for code, message in results])

    def delete_rules(self, request: Any) -> Any:
        """Delete access rules one by one, in parallel."""

        def delete(binding: tuple[Any, ...]) -> Any:
            rule = _build_rule(binding)
            code, message = _judge(self.rest.request("DELETE", "acls", is_repeatable=True, **rule))
            return _answer(error_code=code, error_message=message, matching_acls=[])

        return _answer(filter_results=_run_each(delete, request.filters))


_ANSWERS: Final[Mapping[str, Callable[[RestKafkaClient, Any], Any]]] = {
    "CreateTopicsRequest": RestKafkaClient.create_topics,
    "DeleteTopicsRequest": RestKafkaClient.delete_topics,
    "CreatePartitionsRequest": RestKafkaClient.add_partitions,
    "IncrementalAlterConfigsRequest": RestKafkaClient.alter_configs,
    "DescribeAclsRequest": RestKafkaClient.describe_rules,
    "CreateAclsRequest": RestKafkaClient.create_rules,
    "DeleteAclsRequest": RestKafkaClient.delete_rules,
    "ListPartitionReassignmentsRequest": lambda *_: _answer(error_code=0, topics=[]),
}
_NAMES: Final = UUID("6f4f1c0e-4c4d-5b0f-9a5e-0d2f4e9b7a10")
_TO_CLUSTER: Final = 31
_MEANINGS: Final = {
    "already exists": _EXISTS,
    "does not host this topic-partition": _UNKNOWN,
    "maximum number of partitions": _POLICY,
    "not allowed to be changed": _CONFIG,
    "Config property": _CONFIG,
}
"""Part of a message → Kafka's error code."""


def _run_each(do: Callable[[A], R], items: Sequence[A]) -> list[R]:
    """Run `do` in parallel, and return the results in order."""
    return list(map_in_parallel(do, items, name="rest"))


def _judge(answer: HttpAnswer) -> tuple[int, str]:
    """Return Kafka's error code, 0 for success, and the message of a response."""
    return (0, "") if answer.is_success else (_to_kafka_code(answer), answer.message)


def _to_kafka_code(answer: HttpAnswer) -> int:
    for part, code in _MEANINGS.items():
        if part in answer.message:
            return code
    status = answer.status
    if status == HTTPStatus.NOT_FOUND:
        return _UNKNOWN
    if status == HTTPStatus.FORBIDDEN:
        return _FORBIDDEN
    is_transient = status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.REQUEST_TIMEOUT
    return _TIMED_OUT if is_transient else _REQUEST


def _parse_configs(rows: Iterable[Json]) -> dict[str, ConfigState]:
    # Older versions of Platform leave out `is_`.
    return {
        _OURS.get(str(row["name"]), str(row["name"])): ConfigState(
            row.get("value"),
            _SOURCES.get(str(row.get("source")), 5 if row.get("is_default", row.get("default")) else 1),
            bool(row.get("is_read_only", row.get("read_only"))),
            bool(row.get("is_sensitive", row.get("sensitive"))),
        )
        for row in rows
        if "name" in row
    }


def _parse_rule(row: Json) -> Any:
    operation, permission = _find(_OPERATIONS, row.get("operation")), _find(_PERMISSIONS, row.get("permission"))
    rule = {"principal": str(row.get("principal")), "host": str(row.get("host"))}
    return _answer(
        resource_type=_find(_RESOURCES, row.get("resource_type")),
        resource_name=str(row.get("resource_name")),
        pattern_type=_find(_PATTERNS, row.get("pattern_type")),
        acls=[_answer(**rule, operation=operation, permission_type=permission)],
    )


def _build_rule(binding: tuple[Any, ...]) -> dict[str, str]:
    resource, name, pattern, principal, host, operation, permission = binding
    return {
        "resource_type": _RESOURCES[resource],
        "resource_name": name,
        "pattern_type": _PATTERNS[pattern],
        "principal": principal,
        "host": host,
        "operation": _OPERATIONS[operation],
        "permission": _PERMISSIONS[permission],
    }


def _find(words: Sequence[str], word: object) -> int:
    return words.index(str(word)) if word in words else len(words)


def _answer(**fields: Any) -> Any:
    return SimpleNamespace(**fields)
