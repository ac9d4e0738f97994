"""Topics and their configs by REST."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from tests.servers.confluent.api import (
    ACCEPTED,
    CHANGES,
    CONFIGS,
    CONTRACT,
    UNKNOWN_TOPIC,
    ApiError,
    Document,
    Request,
    Route,
    refuse,
)
from tests.servers.emulation.http_front import Answer
from tests.servers.emulation.logs import set_configs
from tests.servers.emulation.wire import BrokerConnection

if TYPE_CHECKING:
    from tests.servers.confluent.server import Confluent

_TOPIC: Final = 2
_OWN_SOURCE, _DEFAULT_SOURCE = 1, 5
_INTERNAL: Final = ("__consumer_offsets", "__transaction_state", "_confluent", "__confluent")
_OPERATIONS: Final = ("SET", "DELETE")
_CREATION: Final = {"topic_name": str, "partitions_count?": int, "replication_factor?": int, "configs?": CONFIGS}

Changes = Mapping[str, str | None]
"""Values by name; `None` resets a config."""


class Topics:
    """The topics of a cluster: at the broker, with replicas and configs of Confluent that are kept here."""

    def __init__(self, server: Confluent) -> None:
        self.server = server
        self.kept: dict[str, dict[str, str]] = {}
        """Configs that the broker does not have, by topic."""
        self.factors: dict[str, int] = {}

    def list_routes(self) -> dict[str, Route]:
        return {
            "GET /topics": self._list,
            "POST /topics": self._create,
            "GET /topics/-/configs": lambda request: self._list_configs(request, "-", self._visible()),
            "GET /topics/{}?include_authorized_operations": lambda request, name: self._show(request, self.find(name)),
            "PATCH /topics/{}": self._grow,
            "DELETE /topics/{}": self._delete,
            "GET /topics/{}/configs": lambda request, name: self._list_configs(request, name, [self.find(name).name]),
            "POST /topics/{}/configs:alter": self._alter,
            "GET /topics/{}/default-configs": self._list_default_configs,
            "GET /topics/{}/configs/{}": self._find_config,
            "PUT /topics/{}/configs/{}": lambda request, name, key: self.change(
                name, {self._find_config(request, name, key)["name"]: request.read({"value": str | None})["value"]}
            ),
            "DELETE /topics/{}/configs/{}": lambda request, name, key: self.change(
                name, {self._find_config(request, name, key)["name"]: None}
            ),
            "GET /topics/{}/partitions": lambda request, name: request.show_list(
                "KafkaPartition",
                ("topics", name, "partitions"),
                [self._show_partition(request, name, number) for number in self._numbers(name)],
            ),
            "GET /topics/{}/partitions/{}": lambda request, name, number: self._show_partition(
                request, name, self._check_number(name, number)
            ),
            "GET /topics/{}/partitions/{}/replicas": self._list_replicas,
        }

    def read(self, names: Iterable[str] | None = None) -> dict[str, Any]:
        """Return the metadata of topics that exist, of all by default."""
        asked = None if names is None else [{"name": name} for name in names]
        with self.server.connect() as broker:
            answer = broker.ask("Metadata", 12, topics=asked, allow_auto_topic_creation=False)
        return {row.name: row for row in answer.topics if not row.error_code}

    def find(self, name: str) -> Any:
        rows = self.read([name])
        if name not in rows or (self.server.is_cloud and _is_internal(name)):
            message = "This server does not host this topic-partition."
            raise ApiError(HTTPStatus.NOT_FOUND, message, UNKNOWN_TOPIC)
        return rows[name]

    def check_factor(self, factor: int | None) -> int:
        """Return the replication factor of a new topic."""
        brokers = self.server.brokers
        if self.server.is_cloud and factor not in {None, -1, brokers}:
            raise refuse(f"Topic replication factor must be {brokers}")
        if factor is not None and factor > brokers:
            raise refuse(f"Replication factor: {factor} larger than available brokers: {brokers}.")
        return brokers if factor in {None, -1} else int(factor or brokers)

    def check(self, changes: Changes) -> None:
        """Raise an error for configs that no topic of this cluster may have."""
        ranges = {**CONTRACT["cloud_ranges"], "max.message.bytes": [0, self.server.limits["message_bytes"]]}
        for name, value in changes.items() if self.server.is_cloud else ():
            if name in CONTRACT["cloud_read_only"] or (name in CONTRACT["own"] and CONTRACT["own"][name][0] is None):
                raise refuse(f"Config property '{name}' is not allowed to be changed.")
            low, high = ranges.get(name, (None, None))
            if low is None or value is None or not value.lstrip("-").isdigit():
                continue
            if not low <= int(value) <= high:
                side = f"exceeded max limit of {high}" if int(value) > high else f"is below min limit of {low}"
                raise refuse(f"Config property '{name}' with value '{value}' {side}.")

    def change(self, name: str, changes: Changes, *, is_trial: bool = False) -> Answer:
        """Change configs of a topic."""
        self.find(name)
        self.check(changes)
        self.server.mirrors.check_configs(name, changes)
        own, at_broker = _split(changes)
        with self.server.connect() as broker:
            rows = [
                {"name": key, "config_operation": int(value is None), "value": value}
                for key, value in at_broker.items()
            ]
            resource = {"resource_type": _TOPIC, "resource_name": name, "configs": rows}
            answer = broker.ask("IncrementalAlterConfigs", 1, resources=[resource], validate_only=is_trial)
        _check(answer.responses[0])
        if not is_trial:
            self.keep(name, own)
        return ACCEPTED

    def keep(self, name: str, changes: Changes) -> None:
        kept = {**self.kept.get(name, {}), **changes}
        self.kept[name] = {key: value for key, value in kept.items() if value is not None}

    def copy_configs(self, broker: BrokerConnection, name: str, configs: Changes) -> None:
        """Set the configs of a mirror, without asking what a user may change."""
        own, at_broker = _split(configs)
        self.keep(name, own)
        set_configs(broker, name, at_broker)

    def forget(self, name: str) -> None:
        self.kept.pop(name, None)
        self.factors.pop(name, None)

    def _visible(self) -> list[str]:
        return sorted(name for name in self.read() if not (self.server.is_cloud and _is_internal(name)))

    def _list(self, request: Request) -> Document:
        rows = self.read()
        return request.show_list(
            "KafkaTopic", ("topics",), [self._show(request, rows[name]) for name in self._visible() if name in rows]
        )

    def _create(self, request: Request) -> Answer:
        document = request.read({**_CREATION, "validate_only?": bool})
        name, is_trial = document["topic_name"], document.get("validate_only", False)
        configs = {row["name"]: row.get("value") for row in document.get("configs", [])}
        self.server.check_right(name)
        rows = self.read()
        if name in rows:
            raise refuse(f"Topic '{name}' already exists.")
        factor, count = self.check_factor(document.get("replication_factor")), document.get("partitions_count")
        count = (6 if self.server.is_cloud else 1) if count is None else count
        self._check_limit(rows, count)
        self.check(configs)
        own, at_broker = _split(configs)
        row = {"name": name, "num_partitions": count, "replication_factor": 1, "assignments": []}
        row["configs"] = [{"name": key, "value": value} for key, value in at_broker.items() if value is not None]
        with self.server.connect() as broker:
            answer = broker.ask("CreateTopics", 5, topics=[row], timeout_ms=30_000, validate_only=is_trial)
            _check(answer.topics[0])
            while not is_trial and name not in self.read([name]):
                pass  # The controller answers before the broker shows the topic.
        if not is_trial:
            self.factors[name] = factor
            self.keep(name, own)
        # As recorded from the service: a new topic is shown without its partitions and replicas.
        shown = self._describe(request, name, replication_factor=0, partitions_count=0, is_internal=False)
        return Answer(HTTPStatus.OK if is_trial else HTTPStatus.CREATED, shown)

    def _check_limit(self, rows: Mapping[str, Any], added: int) -> None:
        used = sum(len(row.partitions) for name, row in rows.items() if not _is_internal(name))
        if used + added > self.server.limits["partitions"]:
            raise refuse("You may not create more than the maximum number of partitions")

    def _grow(self, request: Request, name: str) -> Document:
        count, now = request.read({"partitions_count": int})["partitions_count"], len(self.find(name).partitions)
        self.server.mirrors.check_partitions(name)
        if count <= now:
            raise refuse(f"Topic already has {now} partitions.")
        self._check_limit(self.read(), count - now)
        with self.server.connect() as broker:
            rows = [{"name": name, "count": count, "assignments": None}]
            _check(broker.ask("CreatePartitions", 1, topics=rows, timeout_ms=30_000, validate_only=False).results[0])
        while len(self.find(name).partitions) < count:
            pass  # The controller answers before the broker shows the partitions.
        return self._show(request, self.find(name))

    def _delete(self, _: Request, name: str) -> Answer:
        self.find(name)
        with self.server.network.lock:
            self.server.mirrors.check_deletion(name)
            with self.server.connect() as broker:
                broker.ask("DeleteTopics", 4, topic_names=[name], timeout_ms=30_000)
            while name in self.read([name]):
                pass  # The controller answers before the broker forgets the topic.
            self.forget(name)
            self.server.mirrors.drop(name)
        return ACCEPTED

    def _alter(self, request: Request, name: str) -> Answer:
        document = request.read({"data": CHANGES, "validate_only?": bool})
        changes = read_changes(document["data"])
        known = {row["name"] for row in self._show_configs(request, [name])[name]}
        if unknown := sorted(changes.keys() - known):
            raise self._unknown(name, unknown[0])
        return self.change(name, changes, is_trial=document.get("validate_only", False))

    def _unknown(self, name: str, key: str) -> ApiError:
        message = f"Config {key} cannot be found for TOPIC {name} in cluster {self.server.cluster_id}."
        return ApiError(HTTPStatus.NOT_FOUND, message)

    def _find_config(self, request: Request, name: str, key: str) -> Document:
        self.find(name)
        rows = [row for row in self._show_configs(request, [name])[name] if row["name"] == key]
        if not rows:
            raise self._unknown(name, key)
        return rows[0]

    def _list_configs(self, request: Request, place: str, names: list[str]) -> Document:
        rows = self._show_configs(request, names)
        return request.show_list(
            "KafkaTopicConfig", ("topics", place, "configs"), [row for name in names for row in rows.get(name, ())]
        )

    def _list_default_configs(self, request: Request, name: str) -> Document:
        row = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        with self.server.connect() as broker:
            (answer,) = broker.ask("CreateTopics", 5, topics=[row], timeout_ms=30_000, validate_only=True).topics
        _check(answer)
        configs = [
            SimpleNamespace(name=each.name, value=each.value, config_source=each.config_source, synonyms=())
            for each in answer.configs
        ]
        shown = self._show_topic_configs(request, SimpleNamespace(resource_name=name, configs=configs))
        return request.show_list("KafkaTopicConfig", ("topics", name, "default-configs"), shown)

    def _show_configs(self, request: Request, names: list[str]) -> dict[str, list[Document]]:
        resources = [{"resource_type": _TOPIC, "resource_name": name} for name in names]
        with self.server.connect() as broker:
            answer = broker.ask("DescribeConfigs", 4, resources=resources, include_synonyms=True)
        return {
            row.resource_name: self._show_topic_configs(request, row) for row in answer.results if not row.error_code
        }

    def _show_topic_configs(self, request: Request, row: Any) -> list[Document]:
        topic, shown, position = row.resource_name, {}, 0 if self.server.is_cloud else 1
        for each in row.configs:
            if not each.name.startswith(tuple(CONTRACT["hidden"])):
                rest = [(other.name, other.value, other.source) for other in each.synonyms]
                shown[each.name] = (each.value, each.config_source, rest)
        for name, defaults in CONTRACT["own"].items():
            value, default = self.kept.get(topic, {}).get(name), defaults[position]
            if value is not None or default is not None:
                rows = [(name, value, _OWN_SOURCE)] if value is not None else []
                rows.append((name, default, _DEFAULT_SOURCE))
                shown[name] = (*rows[0][1:], rows)
        return [
            request.show(
                "KafkaTopicConfig",
                ("topics", topic, "configs", name),
                cluster_id=self.server.cluster_id,
                topic_name=topic,
                name=name,
                value=value,
                is_default=source == _DEFAULT_SOURCE,
                is_read_only=self.server.is_cloud and name in CONTRACT["cloud_read_only"],
                is_sensitive=False,
                source=CONTRACT["sources"][source],
                synonyms=[
                    {"name": key, "value": text, "source": CONTRACT["sources"][number]}
                    for key, text, number in synonyms
                ],
            )
            for name, (value, source, synonyms) in sorted(shown.items())
        ]

    def _show(self, request: Request, row: Any) -> Document:
        sizes = {
            "replication_factor": self.factors.get(row.name, self.server.brokers),
            "partitions_count": len(row.partitions),
        }
        return self._describe(request, row.name, is_internal=bool(row.is_internal), **sizes)

    def _describe(self, request: Request, name: str, **fields: Any) -> Document:
        return request.show(
            "KafkaTopic",
            ("topics", name),
            cluster_id=self.server.cluster_id,
            topic_name=name,
            **fields,
            partitions=request.related("topics", name, "partitions"),
            configs=request.related("topics", name, "configs"),
            partition_reassignments=request.related("topics", name, "partitions", "-", "reassignment"),
        )

    def _numbers(self, name: str) -> list[int]:
        return sorted(each.partition_index for each in self.find(name).partitions)

    def _check_number(self, name: str, number: str) -> int:
        if number not in map(str, self._numbers(name)):
            message = "This server does not host this topic-partition."
            raise ApiError(HTTPStatus.NOT_FOUND, message, UNKNOWN_TOPIC)
        return int(number)

    def _show_partition(self, request: Request, name: str, number: int) -> Document:
        place = ("topics", name, "partitions", number)
        return request.show(
            "KafkaPartition",
            place,
            cluster_id=self.server.cluster_id,
            topic_name=name,
            partition_id=number,
            leader=request.related(*place, "replicas", 1),
            replicas=request.related(*place, "replicas"),
            reassignment=request.related(*place, "reassignment"),
        )

    def _list_replicas(self, request: Request, name: str, number: str) -> Document:
        place = ("topics", name, "partitions", self._check_number(name, number), "replicas")
        rows = [
            request.show(
                "KafkaReplica",
                (*place, broker),
                cluster_id=self.server.cluster_id,
                topic_name=name,
                partition_id=int(number),
                broker_id=broker,
                is_leader=broker == 1,
                is_in_sync=True,
                broker=request.related("brokers", broker),
            )
            for broker in range(1, self.factors.get(name, self.server.brokers) + 1)
        ]
        return request.show_list("KafkaReplica", place, rows)


def read_changes(rows: list[Document]) -> dict[str, str | None]:
    """Return the changes of an `alter` request."""
    for row in rows:
        if (row.get("operation") or "SET") not in _OPERATIONS:
            raise refuse(f"Unknown operation {row['operation']}", HTTPStatus.BAD_REQUEST)
    return {row["name"]: row.get("value") if row.get("operation") != "DELETE" else None for row in rows}


def _split(configs: Changes) -> tuple[Changes, Changes]:
    """Return configs that are kept here, and those of the broker."""
    own = {name: value for name, value in configs.items() if name in CONTRACT["own"]}
    return own, {name: value for name, value in configs.items() if name not in own}


def _is_internal(name: str) -> bool:
    return name.startswith(_INTERNAL)


def _check(row: Any) -> None:
    if row.error_code:
        raise refuse(row.error_message or f"Kafka error {row.error_code}")
