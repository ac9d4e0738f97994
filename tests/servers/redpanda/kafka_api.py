"""The Kafka API: a proxy before a broker, with Redpanda's versions, configs and refusals."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from typing import Any, Final

from tests.servers.redpanda import wire
from tests.servers.redpanda.cluster import Cluster, load_table, parse_version
from tests.servers.redpanda.faults import KAFKA, Faults
from tests.servers.redpanda.topics import DELETE_RETENTION, REPLICA_BUCKET, REPLICATION, TopicStore

_BROKER: Final = 1
"""The id of the real broker; the other nodes lead to it and show replicas only."""
_TOPIC, _NODE = 2, 4
_TOPIC_SOURCE, _DEFAULT_SOURCE = 1, 5
_SET, _RESET = 0, 1
_HELD: Final = "The topic is held by a data migration"
_SESSION_VERSION: Final = 7
_COORDINATORS_VERSION: Final = 4
_IDS_VERSION: Final = 6
_METADATA_WITH_IDS: Final = 12
_NO_SESSION: Final = b"\x00\x00\x00\x00\xff\xff\xff\xff"

Handler = Callable[["KafkaFront", bytes, wire.Header, int, wire.BrokerLine], Any]


class KafkaFront:
    """Listens once for every node and passes requests on to one broker."""

    def __init__(self, broker_port: int, cluster: Cluster, topics: TopicStore, faults: Faults) -> None:
        self._broker_port = broker_port
        self._cluster = cluster
        self._topics = topics
        self._faults = faults
        self.refused: dict[str, frozenset[str]] = {}
        """What migrations refuse for a topic name: `change`, `produce`, `fetch`."""
        self._versions = self._offered_versions()
        self._listening = [socket.create_server(("127.0.0.1", 0)) for _ in cluster.nodes]
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []

    @property
    def ports(self) -> list[int]:
        return [listening.getsockname()[1] for listening in self._listening]

    def start(self) -> None:
        for node, listening in enumerate(self._listening, 1):
            self._run(self._accept, listening, node)

    def close(self) -> None:
        for connection in [*self._listening, *self._open]:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for listening in self._listening:
            listening.close()

    def _run(self, target: Callable[..., None], *arguments: Any) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        self._threads.append(threading.Thread(target=target, args=arguments, daemon=True))
        self._threads[-1].start()

    def _accept(self, listening: socket.socket, node: int) -> None:
        with suppress(OSError):
            while True:
                client, _ = listening.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._open.add(client)
                self._run(self._serve, client, node)

    def _serve(self, client: socket.socket, node: int) -> None:
        with closing(client), suppress(OSError), wire.BrokerLine(self._broker_port) as line:
            while (frame := wire.read_frame(client)) is not None:
                header = wire.read_header(frame)
                fault = self._faults.take(KAFKA, wire.API_NAMES.get(header.key, ""), node)
                response = self._answer(frame, header, node, line)
                if fault is not None and fault.kind == "lost":
                    break
                if fault is not None:
                    time.sleep(fault.seconds)
                if response is not None:
                    wire.write_frame(client, response)
        self._open.discard(client)

    def _answer(self, frame: bytes, header: wire.Header, node: int, line: wire.BrokerLine) -> bytes | None:
        if header.key == wire.API_VERSIONS:
            return self._answer_versions(header)
        if header.key not in self._versions or header.version > self._versions[header.key][1]:
            raise ConnectionAbortedError(f"Redpanda does not know version {header.version} of API {header.key}")
        handler = _HANDLERS.get(header.key)
        answer = frame if handler is None else handler(self, frame, header, node, line)
        if answer is None:
            return None
        if isinstance(answer, bytes):
            return _require(line.forward(answer))
        return wire.encode_response(answer, header)

    def _offered_versions(self) -> dict[int, tuple[int, int]]:
        with wire.BrokerLine(self._broker_port) as line:
            asked = wire.REQUESTS[wire.API_VERSIONS](client_software_name="tests", client_software_version="1")
            known = {row.api_key: row for row in line.ask(asked, 3).api_keys}
        limits = load_table("api_versions.yaml")
        offered = {}
        for key, name in wire.API_NAMES.items():
            limit = limits.get(name)
            if isinstance(limit, dict):
                limit = [top for since, top in limit.items() if parse_version(since) <= self._cluster.version][-1]
            if limit is not None and key in known:
                offered[key] = (known[key].min_version, min(limit, known[key].max_version))
        return offered

    def _answer_versions(self, header: wire.Header) -> bytes:
        response = wire.RESPONSES[wire.API_VERSIONS]
        is_known = header.version <= self._versions[wire.API_VERSIONS][1]
        rows = [
            response.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in self._versions.items()
        ]
        answer = response(error_code=0 if is_known else wire.UNSUPPORTED_VERSION, api_keys=rows, throttle_time_ms=0)
        return wire.encode_response(answer, header, header.version if is_known else 0)

    def _refuses(self, topic: str, access: str) -> bool:
        if access == "produce" and self._topics.kept.get(topic, {}).get(REPLICA_BUCKET):
            return True
        return access in self.refused.get(topic, ())

    def _has_refusals(self, access: str) -> bool:
        replicas = any(kept.get(REPLICA_BUCKET) for kept in list(self._topics.kept.values()))
        return (access == "produce" and replicas) or any(access in each for each in self.refused.values())

    # Records

    def _produce(self, frame: bytes, header: wire.Header, _: int, line: wire.BrokerLine) -> Any:
        at = _body_start(frame)
        at += 2 + max(0, int.from_bytes(frame[at : at + 2], "big", signed=True))
        is_answered = frame[at : at + 2] != b"\x00\x00"
        if not self._has_refusals("produce"):
            return frame if is_answered else line.forward(frame, is_answered=False)
        request = _decode(frame, header)
        refused = [topic for topic in request.topic_data if self._refuses(topic.name, "produce")]
        request.topic_data = [topic for topic in request.topic_data if topic not in refused]
        if not is_answered:
            line.forward(_encode(request, header), is_answered=False)
            return None
        answer = wire.RESPONSES[wire.PRODUCE]
        response = _ask(line, request, header) if request.topic_data else answer(responses=[], throttle_time_ms=0)
        part = answer.TopicProduceResponse.PartitionProduceResponse
        response.responses += [
            answer.TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    part(index=each.index, error_code=wire.INVALID_TOPIC, base_offset=-1)
                    for each in topic.partition_data
                ],
            )
            for topic in refused
        ]
        return response

    def _fetch(self, frame: bytes, header: wire.Header, _: int, line: wire.BrokerLine) -> Any:
        if header.version >= _SESSION_VERSION:  # Without sessions every request names all its topics.
            at = _body_start(frame) + 17
            frame = frame[:at] + _NO_SESSION + frame[at + 8 :]
        if not self._has_refusals("fetch"):
            return frame
        request = _decode(frame, header)
        refused = [topic for topic in request.topics if self._refuses(topic.topic, "fetch")]
        request.topics = [topic for topic in request.topics if topic not in refused]
        answer = wire.RESPONSES[wire.FETCH]
        response = _ask(line, request, header) if request.topics else answer(responses=[], throttle_time_ms=0)
        part = answer.FetchableTopicResponse.PartitionData
        response.responses += [
            answer.FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    part(
                        partition_index=each.partition, error_code=wire.INVALID_TOPIC, high_watermark=-1,
                        aborted_transactions=[], records=b"",
                    )
                    for each in topic.partitions
                ],
            )
            for topic in refused
        ]  # fmt: skip
        return response

    # Topics

    def _create_topics(self, frame: bytes, header: wire.Header, _: int, line: wire.BrokerLine) -> Any:
        request = _decode(frame, header)
        answer = wire.RESPONSES[wire.CREATE_TOPICS]
        results, forwarded, configs, factors = [], [], {}, {}
        for topic in request.topics:
            configs[topic.name] = {each.name: each.value for each in topic.configs if each.name != REPLICATION}
            factor = len(topic.assignments[0].broker_ids) if topic.assignments else topic.replication_factor
            factors[topic.name] = factor if factor != -1 else int(self._cluster.get("default_topic_replications"))
            if refusal := self._refuse_creation(topic.name, configs[topic.name], factors[topic.name]):
                results.append(
                    answer.CreatableTopicResult(name=topic.name, error_code=refusal[0], error_message=refusal[1])
                )
                continue
            if topic.assignments:
                for each in topic.assignments:
                    each.broker_ids = [_BROKER]
            else:
                topic.replication_factor = 1
            kept_by_broker = self._topics.for_broker(configs[topic.name])
            topic.configs = [each for each in topic.configs if each.name in kept_by_broker and not _is_unset(each)]
            forwarded.append(topic)
        request.topics = forwarded
        response = _ask(line, request, header) if forwarded else answer(topics=[], throttle_time_ms=0)
        for result in response.topics:
            if not result.error_code and not request.validate_only:
                kept = self._topics.initial(configs[result.name])
                self._topics.kept[result.name] = {**kept, REPLICATION: str(factors[result.name])}
            result.replication_factor = factors[result.name]
            result.configs = []
        response.topics += results
        return response

    def _refuse_creation(self, name: str, configs: dict[str, str | None], factor: int) -> tuple[int, str] | None:
        if self._refuses(name, "change"):
            return wire.POLICY_VIOLATION, _HELD
        if error := self._topics.check_replication(factor):
            return wire.INVALID_REPLICATION_FACTOR, error
        if error := self._topics.check_creation(configs):
            return wire.INVALID_CONFIG, error
        return None

    def _delete_topics(self, frame: bytes, header: wire.Header, _: int, line: wire.BrokerLine) -> Any:
        request = _decode(frame, header)
        answer = wire.RESPONSES[wire.DELETE_TOPICS]
        if header.version < _IDS_VERSION:
            refused = [(name, None) for name in request.topic_names if self._refuses(name, "change")]
            request.topic_names = [name for name in request.topic_names if not self._refuses(name, "change")]
        else:
            names = self._find_names([each.topic_id for each in request.topics if each.name is None], line)
            held = [
                each for each in request.topics if self._refuses(each.name or names.get(each.topic_id, ""), "change")
            ]
            refused = [(each.name or names[each.topic_id], each.topic_id) for each in held]
            request.topics = [each for each in request.topics if each not in held]
        is_left = request.topics or request.topic_names
        response = _ask(line, request, header) if is_left else answer(responses=[], throttle_time_ms=0)
        for result in response.responses:
            if not result.error_code:
                self._topics.forget(result.name)
        for name, topic_id in refused:
            given = {} if topic_id is None else {"topic_id": topic_id}
            response.responses.append(
                answer.DeletableTopicResult(
                    name=name, error_code=wire.POLICY_VIOLATION, error_message=_HELD, version=header.version, **given
                )
            )
        return response

    def _find_names(self, ids: list[Any], line: wire.BrokerLine) -> dict[Any, str]:
        if not ids or not self.refused:
            return {}
        request = wire.REQUESTS[wire.METADATA]
        topics = [request.MetadataRequestTopic(topic_id=each, name=None) for each in ids]
        asked = request(topics=topics, allow_auto_topic_creation=False)
        return {topic.topic_id: topic.name for topic in line.ask(asked, _METADATA_WITH_IDS).topics if topic.name}

    def _create_partitions(self, frame: bytes, header: wire.Header, _: int, line: wire.BrokerLine) -> Any:
        request = _decode(frame, header)
        answer = wire.RESPONSES[wire.CREATE_PARTITIONS]
        held = [topic for topic in request.topics if self._refuses(topic.name, "change")]
        request.topics = [topic for topic in request.topics if topic not in held]
        for topic in request.topics:
            for each in topic.assignments or ():
                each.broker_ids = [_BROKER]
        response = _ask(line, request, header) if request.topics else answer(results=[], throttle_time_ms=0)
        response.results += [
            answer.CreatePartitionsTopicResult(name=topic.name, error_code=wire.POLICY_VIOLATION, error_message=_HELD)
            for topic in held
        ]
        return response

    # Configs

    def _describe_configs(self, frame: bytes, header: wire.Header, _: int, line: wire.BrokerLine) -> Any:
        request = _decode(frame, header)
        wanted: dict[tuple[int, str], list[str] | None] = {}
        for resource in request.resources:
            keys = resource.configuration_keys
            wanted[resource.resource_type, resource.resource_name] = keys
            if resource.resource_type == _TOPIC:
                shared = [key for key in self._topics.broker_keys if not keys or key in keys]
                resource.configuration_keys = shared or ["cleanup.policy"]
            elif resource.resource_type == _NODE and resource.resource_name:
                resource.resource_name = str(_BROKER)
        response = _ask(line, request, header)
        nodes = [name for kind, name in wanted if kind == _NODE]
        for result in response.results:
            if result.resource_type == _NODE:
                result.resource_name = nodes.pop(0)
            elif result.resource_type == _TOPIC and not result.error_code:
                keys = wanted[_TOPIC, result.resource_name]
                self._add_configs(result, header.version)
                result.configs = [config for config in result.configs if not keys or config.name in keys]
        return response

    def _add_configs(self, result: Any, version: int) -> None:
        for config in result.configs:
            if config.config_source != _TOPIC_SOURCE:
                config.config_source = _DEFAULT_SOURCE
                config.value = "-1" if config.name == DELETE_RETENTION else config.value
        result.configs += [
            result.DescribeConfigsResourceResult(
                version=version, name=name, value=value, read_only=False, is_sensitive=False,
                config_source=_DEFAULT_SOURCE if is_default else _TOPIC_SOURCE, synonyms=[], config_type=2,
            )
            for name, value, is_default in self._topics.describe(result.resource_name)
        ]  # fmt: skip

    def _alter_configs(self, frame: bytes, header: wire.Header, _: int, __: wire.BrokerLine) -> Any:
        text = "AlterConfigs is refused here: use IncrementalAlterConfigs"
        refusals = [(each, (wire.INVALID_REQUEST, text)) for each in _decode(frame, header).resources]
        return wire.RESPONSES[wire.ALTER_CONFIGS](throttle_time_ms=0, responses=_config_results(header, refusals))

    def _change_configs(self, frame: bytes, header: wire.Header, _: int, line: wire.BrokerLine) -> Any:
        request = _decode(frame, header)
        refusals, forwarded, changes = [], [], {}
        for resource in request.resources:
            changed = {each.name: each.value if each.config_operation == _SET else None for each in resource.configs}
            refusal = self._refuse_change(resource, changed, validates=request.validate_only)
            if refusal is not None:
                refusals.append((resource, refusal))
                continue
            changes[resource.resource_name] = changed
            kept_by_broker = self._topics.for_broker(changed)
            resource.configs = [each for each in resource.configs if each.name in kept_by_broker]
            for each in resource.configs:
                each.config_operation = _RESET if _is_unset(each) else each.config_operation
            forwarded.append(resource)
        request.resources = forwarded
        answer = wire.RESPONSES[wire.INCREMENTAL_ALTER_CONFIGS]
        response = _ask(line, request, header) if forwarded else answer(responses=[], throttle_time_ms=0)
        for result in response.responses:
            if not result.error_code and not request.validate_only:
                self._topics.change(result.resource_name, changes[result.resource_name])
        response.responses += _config_results(header, refusals)
        return response

    def _refuse_change(
        self, resource: Any, changed: dict[str, str | None], *, validates: bool
    ) -> tuple[int, str | None] | None:
        """Return an error, or code 0 for what is done already; `None` if the broker is to be asked."""
        if any(each.config_operation not in {_SET, _RESET} for each in resource.configs):
            return wire.INVALID_CONFIG, "append and subtract are not supported"
        if resource.resource_type == _NODE:
            return self._change_cluster(resource.resource_name, changed, validates=validates)
        if self._refuses(resource.resource_name, "change"):
            return wire.POLICY_VIOLATION, _HELD
        error = self._topics.check_change(resource.resource_name, changed)
        return None if error is None else (wire.INVALID_CONFIG, error)

    def _change_cluster(self, node: str, changed: dict[str, str | None], *, validates: bool) -> tuple[int, str | None]:
        if node:
            return wire.INVALID_REQUEST, "configs of single brokers cannot be changed"
        upsert = {name: _parse(value) for name, value in changed.items() if value is not None}
        errors = self._cluster.write(upsert, [name for name in changed if name not in upsert], dry_run=validates)
        return (wire.INVALID_CONFIG, str(errors)) if errors else (0, None)

    # Cluster

    def _metadata(self, frame: bytes, header: wire.Header, _: int, line: wire.BrokerLine) -> Any:
        response = _forward(line, frame, header)
        broker = response.brokers[0].__class__
        response.brokers = [
            broker(version=header.version, node_id=node, host="127.0.0.1", port=port, rack=None)
            for node, port in enumerate(self.ports, 1)
        ]
        response.cluster_id = f"redpanda.{self._cluster.uuid}"
        for topic in response.topics:
            nodes = list(range(1, self._topics.count_replicas(topic.name) + 1))
            if len(nodes) > 1:
                for partition in topic.partitions:
                    partition.replica_nodes, partition.isr_nodes = nodes, nodes
        return response

    def _find_coordinator(self, frame: bytes, header: wire.Header, _: int, line: wire.BrokerLine) -> Any:
        response = _forward(line, frame, header)
        for each in response.coordinators if header.version >= _COORDINATORS_VERSION else [response]:
            if not each.error_code:
                each.host, each.port = "127.0.0.1", self.ports[0]
        return response

    def _describe_cluster(self, frame: bytes, header: wire.Header, _: int, line: wire.BrokerLine) -> Any:
        response = _forward(line, frame, header)
        broker = response.brokers[0].__class__
        response.brokers = [
            broker(version=header.version, broker_id=node, host="127.0.0.1", port=port, rack=None)
            for node, port in enumerate(self.ports, 1)
        ]
        response.cluster_id = f"redpanda.{self._cluster.uuid}"
        return response

    def _describe_log_dirs(self, frame: bytes, header: wire.Header, node: int, line: wire.BrokerLine) -> Any:
        response = _forward(line, frame, header)
        for result in list(response.results):
            if node != _BROKER:
                result.topics = [each for each in result.topics if self._topics.count_replicas(each.name) >= node]
            tiered = [each for each in result.topics if self._topics.is_written(each.name)]
            if tiered and self._cluster.get("kafka_enable_describe_log_dirs_remote_storage"):
                remote = f"remote://{self._cluster.get('cloud_storage_bucket')}"
                row = result.__class__(version=header.version, error_code=0, log_dir=remote, topics=tiered)
                response.results.append(row)
        return response

    def _list_groups(self, frame: bytes, header: wire.Header, node: int, line: wire.BrokerLine) -> Any:
        response = _forward(line, frame, header)
        response.groups = response.groups if node == _BROKER else []
        return response

    def _list_transactions(self, frame: bytes, header: wire.Header, node: int, line: wire.BrokerLine) -> Any:
        response = _forward(line, frame, header)
        response.transaction_states = response.transaction_states if node == _BROKER else []
        return response


_HANDLERS: Final[dict[int, Handler]] = {
    wire.PRODUCE: KafkaFront._produce,
    wire.FETCH: KafkaFront._fetch,
    wire.CREATE_TOPICS: KafkaFront._create_topics,
    wire.DELETE_TOPICS: KafkaFront._delete_topics,
    wire.CREATE_PARTITIONS: KafkaFront._create_partitions,
    wire.DESCRIBE_CONFIGS: KafkaFront._describe_configs,
    wire.ALTER_CONFIGS: KafkaFront._alter_configs,
    wire.INCREMENTAL_ALTER_CONFIGS: KafkaFront._change_configs,
    wire.METADATA: KafkaFront._metadata,
    wire.FIND_COORDINATOR: KafkaFront._find_coordinator,
    wire.DESCRIBE_CLUSTER: KafkaFront._describe_cluster,
    wire.DESCRIBE_LOG_DIRS: KafkaFront._describe_log_dirs,
    wire.LIST_GROUPS: KafkaFront._list_groups,
    wire.LIST_TRANSACTIONS: KafkaFront._list_transactions,
}
"""Each returns a response, the bytes of a request to pass on, or `None` for no answer."""


def _body_start(frame: bytes) -> int:
    return 10 + max(0, int.from_bytes(frame[8:10], "big", signed=True))


def _decode(frame: bytes, header: wire.Header) -> Any:
    return wire.REQUESTS[header.key].decode(frame, version=header.version, header=True)


def _encode(request: Any, header: wire.Header) -> bytes:
    return wire.encode_request(request, header.version, header.correlation)


def _ask(line: wire.BrokerLine, request: Any, header: wire.Header) -> Any:
    return _forward(line, _encode(request, header), header)


def _forward(line: wire.BrokerLine, frame: bytes, header: wire.Header) -> Any:
    answer = _require(line.forward(frame))
    return wire.RESPONSES[header.key].decode(answer, version=header.version, header=True)


def _require(frame: bytes | None) -> bytes:
    if frame is None:
        raise ConnectionAbortedError("the broker closed the connection")
    return frame


def _is_unset(config: Any) -> bool:
    """Whether a value means "none" to Redpanda and nothing to Kafka."""
    return config.name == DELETE_RETENTION and config.value == "-1"


def _parse(value: str) -> Any:
    if value in {"true", "false"}:
        return value == "true"
    return int(value) if value.lstrip("-").isdigit() else value


def _config_results(header: wire.Header, refusals: Iterable[tuple[Any, tuple[int, str | None]]]) -> list[Any]:
    result = wire.RESPONSES[header.key].AlterConfigsResourceResponse
    return [
        result(
            version=header.version, error_code=code, error_message=message,
            resource_type=resource.resource_type, resource_name=resource.resource_name,
        )
        for resource, (code, message) in refusals
    ]  # fmt: skip
