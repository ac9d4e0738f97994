"""The Kafka API: a proxy before a broker, with Redpanda's versions, configs and refusals."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from tests.servers.emulation import wire
from tests.servers.emulation.faults import Faults
from tests.servers.emulation.kafka_front import Exchange, KafkaFront
from tests.servers.redpanda.cluster import Cluster, load_table, parse_version
from tests.servers.redpanda.topics import (
    DELETE_RETENTION,
    RECOVERY,
    REPLICA_BUCKET,
    REPLICATION,
    Configs,
    TopicStore,
    clamp,
)

_BROKER: Final = 1
"""The id of the real broker; the other nodes lead to it and show replicas only."""
_TOPIC, _NODE = 2, 4
"""Kinds of config resources."""
_TOPIC_SOURCE, _DEFAULT_SOURCE = 1, 5
_SET, _RESET = 0, 1
_HELD: Final = (wire.POLICY_VIOLATION, "The topic is held by a data migration, a shadow link or a recovery")
_LEGACY: Final = (wire.INVALID_REQUEST, "AlterConfigs is refused here: use IncrementalAlterConfigs")
MIGRATIONS, LINKS, RECOVERIES = "migrations", "links", "recoveries"
_NO_SESSION: Final = b"\x00\x00\x00\x00\xff\xff\xff\xff"
_KNOWN_SECONDS: Final = 30.0


class RedpandaFront(KafkaFront):
    """The Kafka API with Redpanda's versions, configs and refusals."""

    def __init__(self, broker_port: int, cluster: Cluster, topics: TopicStore, faults: Faults) -> None:
        super().__init__(broker_port, len(cluster.nodes), faults)
        self._cluster, self._topics = cluster, topics
        self.held: dict[str, dict[str, frozenset[str]]] = {MIGRATIONS: {}, LINKS: {}, RECOVERIES: {}}
        """By who holds topics: what is refused for each name, of `change`, `produce` and `fetch`."""
        self.offload: Callable[[str], None]
        """Called before a topic is deleted."""
        self.recover: Callable[[str, Configs, int], int | None]
        """Called to create a topic from the bucket; returns its partitions, or `None` if the bucket has none."""
        self._read_replicas: set[str] = set()
        self._versions = self._read_versions()

    def _answer(self, exchange: Exchange) -> bytes | None:
        header = exchange.header
        offered = self._versions.get(exchange.name)
        if exchange.name == "ApiVersions":
            return self._answer_versions(exchange)
        if offered is None or header.version > offered[1]:
            raise ConnectionAbortedError(f"Redpanda has no version {header.version} of {exchange.name}")
        return super()._answer(exchange)

    def _read_versions(self) -> dict[str, tuple[int, int]]:
        with wire.BrokerConnection(self._broker_port) as broker:
            answer = broker.ask("ApiVersions", 3, client_software_name="tests", client_software_version="1")
        known = {wire.NAMES[row.api_key]: row for row in answer.api_keys if row.api_key in wire.NAMES}
        offered = {}
        for name, limit in load_table("api_versions.yaml").items():
            limits = limit if isinstance(limit, dict) else {"0.0": limit}
            highest = [top for since, top in limits.items() if parse_version(since) <= self._cluster.version][-1]
            offered[name] = (known[name].min_version, min(highest, known[name].max_version))
        return offered

    def _answer_versions(self, exchange: Exchange) -> bytes:
        is_known = exchange.header.version <= self._versions["ApiVersions"][1]
        rows = [
            {"api_key": wire.REQUESTS[name].API_KEY, "min_version": low, "max_version": high}
            for name, (low, high) in self._versions.items()
        ]
        answer = exchange.respond(error_code=0 if is_known else wire.UNSUPPORTED_VERSION, api_keys=rows)
        return wire.encode(answer, exchange.header.version if is_known else 0, exchange.header.correlation)

    def _refuses(self, topic: str | None, access: str) -> bool:
        is_held = any(access in held.get(topic or "", ()) for held in self.held.values())
        return is_held or (access == "produce" and topic in self._read_replicas)

    def _refuses_any(self, access: str) -> bool:
        names = [name for held in self.held.values() for name in held]
        return any(self._refuses(topic, access) for topic in [*names, *self._read_replicas])

    # The methods below answer the API of their name: with a response, the bytes of a request to pass on, or `None`.

    def _produce(self, exchange: Exchange) -> Any:
        names = [name for held in self.held.values() for name in held if self._refuses(name, "produce")]
        codes = dict.fromkeys([*names, *self._read_replicas], wire.INVALID_TOPIC)
        return self._pass_produce(exchange, codes | dict.fromkeys(self.held[LINKS], wire.POLICY_VIOLATION))

    def _fetch(self, exchange: Exchange) -> Any:
        if exchange.header.version >= 7:  # Without sessions every request names all its topics.
            at, frame = exchange.body_start + 17, exchange.frame
            exchange.frame = frame[:at] + _NO_SESSION + frame[at + 8 :]
        if not self._refuses_any("fetch"):
            return exchange.frame
        topics = exchange.request.topics
        refused = [topic for topic in topics if self._refuses(topic.topic, "fetch")]
        response = exchange.ask_for("topics", [topic for topic in topics if topic not in refused])
        error = {"error_code": wire.INVALID_TOPIC, "high_watermark": -1, "aborted_transactions": [], "records": b""}
        rows = [
            (topic.topic, [{"partition_index": each.partition, **error} for each in topic.partitions])
            for topic in refused
        ]
        return exchange.extend(response, "responses", [{"topic": name, "partitions": row} for name, row in rows])

    def _create_topics(self, exchange: Exchange) -> Any:
        forwarded, added, configs, factors = [], [], {}, {}
        for topic in exchange.request.topics:
            factor = len(topic.assignments[0].broker_ids) if topic.assignments else topic.replication_factor
            factors[topic.name] = int(self._cluster.get("default_topic_replications")) if factor == -1 else factor
            configs[topic.name] = {each.name: each.value for each in topic.configs if each.name != REPLICATION}
            refusal = self._refuse_creation(topic.name, configs[topic.name], factors[topic.name])
            if refusal is not None:
                added.append(_refusal(topic.name, refusal))
                continue
            if configs[topic.name].get(RECOVERY) == "true" and not exchange.request.validate_only:
                count = self.recover(topic.name, configs[topic.name], factors[topic.name])
                if count is not None:
                    added.append(self._describe_recovered(exchange.broker, topic.name, count, factors[topic.name]))
                    continue
            topic.replication_factor = -1 if topic.assignments else 1
            for each in topic.assignments:
                each.broker_ids = [_BROKER]
            topic.configs = [
                each for each in topic.configs if each.name in self._topics.broker_keys and not _is_none(each)
            ]
            for each in topic.configs:
                each.value = clamp(each.name, each.value)
            forwarded.append(topic)
        response = exchange.ask_for("topics", forwarded)
        created = [
            result for result in response.topics or () if not result.error_code and not exchange.request.validate_only
        ]
        for result in created:
            result.replication_factor, result.configs = factors[result.name], []
            kept = self._topics.initial(configs[result.name])
            self._topics.kept[result.name] = {**kept, REPLICATION: str(factors[result.name])}
            (self._read_replicas.add if kept.get(REPLICA_BUCKET) else self._read_replicas.discard)(result.name)
        self._wait_until_known(exchange.broker, [result.name for result in created])
        return exchange.extend(response, "topics", added)

    def _describe_recovered(self, broker: wire.BrokerConnection, name: str, count: int, factor: int) -> dict[str, Any]:
        answer = broker.ask("Metadata", 12, topics=[{"name": name}], allow_auto_topic_creation=False)
        sizes = {"num_partitions": count, "replication_factor": factor, "configs": []}
        return {"name": name, "topic_id": answer.topics[0].topic_id, "error_code": 0, **sizes}

    def _refuse_creation(self, name: str, configs: Configs, factor: int) -> tuple[int, str] | None:
        if self._refuses(name, "change"):
            return _HELD
        if error := self._topics.check_replication(factor):
            return wire.INVALID_REPLICATION_FACTOR, error
        error = self._topics.check_creation(configs)
        return None if error is None else (wire.INVALID_CONFIG, error)

    def _wait_until_known(self, broker: wire.BrokerConnection, names: list[str]) -> None:
        """Wait until the broker shows what its controller created, as Redpanda does before it answers."""
        deadline = time.monotonic() + _KNOWN_SECONDS
        while names and time.monotonic() < deadline:
            answer = broker.ask(
                "Metadata", 9, topics=[{"name": name} for name in names], allow_auto_topic_creation=False
            )
            names = [each.name for each in answer.topics if each.error_code]

    def _delete_topics(self, exchange: Exchange) -> Any:
        request, names = exchange.request, {}
        if exchange.header.version < 6:
            part, rows = "topic_names", [(name, name, {}) for name in request.topic_names]
        else:
            ids = [{"topic_id": each.topic_id, "name": None} for each in request.topics if each.name is None]
            if ids:
                answer = exchange.broker.ask("Metadata", 12, topics=ids, allow_auto_topic_creation=False)
                names = {each.topic_id: each.name for each in answer.topics}
            part = "topics"
            rows = [
                (each, each.name or names.get(each.topic_id), {"topic_id": each.topic_id}) for each in request.topics
            ]
        deleted = [(row, name) for row, name, _ in rows if not self._refuses(name, "change")]
        for _, name in deleted:
            self.offload(name or "")
        response = exchange.ask_for(part, [row for row, _ in deleted])
        for result in response.responses or ():
            if not result.error_code:
                self._topics.forget(result.name)
        refused = [{**_refusal(name, _HELD), **ids} for _, name, ids in rows if self._refuses(name, "change")]
        return exchange.extend(response, "responses", refused)

    def _create_partitions(self, exchange: Exchange) -> Any:
        topics = exchange.request.topics
        for each in [each for topic in topics for each in topic.assignments or ()]:
            each.broker_ids = [_BROKER]
        response = exchange.ask_for("topics", [topic for topic in topics if not self._refuses(topic.name, "change")])
        held = [_refusal(topic.name, _HELD) for topic in topics if self._refuses(topic.name, "change")]
        return exchange.extend(response, "results", held)

    def _describe_configs(self, exchange: Exchange) -> Any:
        resources = exchange.request.resources
        wanted = {(each.resource_type, each.resource_name): each.configuration_keys for each in resources}
        for each in resources:
            if each.resource_type == _TOPIC:
                keys = [key for key in self._topics.broker_keys if key in (each.configuration_keys or [key])]
                each.configuration_keys = keys or ["cleanup.policy"]
            elif each.resource_name:
                each.resource_name = str(_BROKER)
        response = exchange.ask_for("resources", resources)
        nodes = [name for kind, name in wanted if kind == _NODE]
        for result in response.results:
            if result.resource_type == _NODE:
                result.resource_name = nodes.pop(0)
            elif not result.error_code:
                self._add_configs(result, wanted[_TOPIC, result.resource_name])
        return response

    def _add_configs(self, result: Any, keys: list[str] | None) -> None:
        for config in result.configs:
            config.value = clamp(config.name, config.value)
            if config.config_source != _TOPIC_SOURCE:
                config.config_source = _DEFAULT_SOURCE
                config.value = "-1" if config.name == DELETE_RETENTION else config.value
        for name, value, is_default in self._topics.describe(result.resource_name):
            source = _DEFAULT_SOURCE if is_default else _TOPIC_SOURCE
            row = {"name": name, "value": value, "config_source": source, "config_type": 2, "synonyms": []}
            flags = {"read_only": False, "is_sensitive": False, "documentation": None}
            result.configs.append(wire.build(result.DescribeConfigsResourceResult, **row, **flags))
        result.configs = [config for config in result.configs if not keys or config.name in keys]

    def _alter_configs(self, exchange: Exchange) -> Any:
        rows = [_resource_refusal(each, _LEGACY) for each in exchange.request.resources]
        return exchange.respond(responses=rows)

    def _incremental_alter_configs(self, exchange: Exchange) -> Any:
        refused, forwarded, changes = [], [], {}
        for resource in exchange.request.resources:
            name = resource.resource_name
            changes[name] = {
                each.name: each.value if each.config_operation == _SET else None for each in resource.configs
            }
            refusal = self._refuse_change(resource, changes[name], is_trial=exchange.request.validate_only)
            if refusal is not None:
                refused.append(_resource_refusal(resource, refusal))
                continue
            resource.configs = [each for each in resource.configs if each.name in self._topics.broker_keys]
            for each in resource.configs:
                each.config_operation = _RESET if _is_none(each) else each.config_operation
                each.value = clamp(each.name, each.value)
            forwarded.append(resource)
        response = exchange.ask_for("resources", forwarded)
        for result in response.responses or ():
            if not result.error_code and not exchange.request.validate_only:
                self._topics.change(result.resource_name, changes[result.resource_name])
        return exchange.extend(response, "responses", refused)

    def _refuse_change(self, resource: Any, changes: Configs, *, is_trial: bool) -> tuple[int, str | None] | None:
        """Return an error, or code 0 for what is done already; `None` if the broker is to be asked."""
        if any(each.config_operation not in {_SET, _RESET} for each in resource.configs):
            return wire.INVALID_CONFIG, "append and subtract are not supported"
        if resource.resource_type == _NODE and resource.resource_name:
            return wire.INVALID_REQUEST, "configs of single brokers cannot be changed"
        if resource.resource_type == _NODE:
            upsert = {name: _parse(value) for name, value in changes.items() if value is not None}
            errors = self._cluster.write(upsert, [*(changes.keys() - upsert.keys())], dry_run=is_trial)
            return (wire.INVALID_CONFIG, str(errors)) if errors else (0, None)
        if self._refuses(resource.resource_name, "change"):
            return _HELD
        error = self._topics.check_change(resource.resource_name, changes)
        return None if error is None else (wire.INVALID_CONFIG, error)

    def _metadata(self, exchange: Exchange) -> Any:
        response = self._name_cluster(exchange, "node_id")
        for topic in response.topics:
            nodes = list(range(1, self._topics.count_replicas(topic.name) + 1))
            for partition in topic.partitions if len(nodes) > 1 else ():
                partition.replica_nodes = partition.isr_nodes = nodes
        return response

    def _describe_cluster(self, exchange: Exchange) -> Any:
        return self._name_cluster(exchange, "broker_id")

    def _name_cluster(self, exchange: Exchange, number: str) -> Any:
        response = exchange.ask()
        response.cluster_id, response.brokers = f"redpanda.{self._cluster.uuid}", []
        places = [{"host": "127.0.0.1", "port": port, "rack": None} for port in self.ports]
        return exchange.extend(response, "brokers", [{number: node, **place} for node, place in enumerate(places, 1)])

    def _find_coordinator(self, exchange: Exchange) -> Any:
        response = exchange.ask()
        for each in response.coordinators if exchange.header.version >= 4 else [response]:
            if not each.error_code:
                each.host, each.port = "127.0.0.1", self.ports[0]
        return response

    def _describe_log_dirs(self, exchange: Exchange) -> Any:
        response, remote = exchange.ask(), []
        for result in response.results:
            result.topics = [each for each in result.topics if self._topics.count_replicas(each.name) >= exchange.node]
            remote += [each for each in result.topics if self._topics.is_written(each.name)]
        if not remote or not self._cluster.get("kafka_enable_describe_log_dirs_remote_storage"):
            return response
        folder = f"remote://{self._cluster.get('cloud_storage_bucket')}"
        return exchange.extend(response, "results", [{"error_code": 0, "log_dir": folder, "topics": remote}])

    def _list_groups(self, exchange: Exchange) -> Any:
        return exchange.frame if exchange.node == _BROKER else exchange.respond(groups=[])

    def _list_transactions(self, exchange: Exchange) -> Any:
        return (
            exchange.frame
            if exchange.node == _BROKER
            else exchange.respond(transaction_states=[], unknown_state_filters=[])
        )


def _refusal(name: str | None, refusal: tuple[int, str | None]) -> dict[str, Any]:
    return {"name": name, "error_code": refusal[0], "error_message": refusal[1]}


def _resource_refusal(resource: Any, refusal: tuple[int, str | None]) -> dict[str, Any]:
    place = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
    return {"error_code": refusal[0], "error_message": refusal[1], **place}


def _is_none(config: Any) -> bool:
    """Whether a value means "none" to Redpanda and nothing to Kafka."""
    return config.name == DELETE_RETENTION and config.value == "-1"


def _parse(value: str) -> Any:
    return value == "true" if value in {"true", "false"} else int(value) if value.lstrip("-").isdigit() else value
