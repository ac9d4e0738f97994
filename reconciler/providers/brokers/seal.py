"""Seal topics: brokers then reject every batch, so the end offsets are final.

Brokers have no such switch, and access rules do not stop every producer. A seal sets `max.message.bytes` to 80 and
`compression.type` to gzip. No batch is that small (at least 81 bytes), but transaction markers are (78 bytes). Without
markers, producers would hang. The ledger records the topic's own values first.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import NotAuthorizedError, RetryableError, StalePlanError, UserError
from reconciler.providers.brokers import admin
from reconciler.providers.brokers.mount_ledger import CONFIGS, SEALED, WRITER, Seal, is_sealed, parse_seals, seal_key
from reconciler.providers.brokers.offsets import LATEST, read_offsets
from reconciler.providers.brokers.translate import TopicMetadata, select_own_configs
from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.retry import Backoff, Tries

if TYPE_CHECKING:
    from reconciler.providers.brokers.client import KafkaClient
    from reconciler.providers.brokers.ledger import Ledger


_DEFAULT: Final = 5
"""Source of a config with its default value (facts 6.1)."""
_PROPAGATION_S: Final = 30.0
_TRANSACTION_S: Final = 75.0
_BACKOFF: Final = Backoff(first_s=0.01, longest_s=0.5, spread=0)
_TOO_LARGE, _CORRUPT, _UNAUTHORIZED = 10, 2, 29
_ANY_REPLICA: Final = -2
"""Replica id to which a leader reports its log end instead of the high watermark."""


@dataclass(frozen=True)
class Seals:
    """Seals of one cluster's topics."""

    client: KafkaClient
    ledger: Ledger

    def find_seal(self, topic_id: str) -> Seal | None:
        """Return a topic's recorded seal, or `None`."""
        return parse_seals(self.ledger.read(SEALED)).get(topic_id)

    def seal_topic(self, name: str, topic_id: str, may_go_on: Callable[[], None]) -> dict[int, int]:
        """Seal a topic and return its end offsets, which only transaction markers may follow.

        Afterwards all leaders reject records, all records are replicated, and no transaction is open. Idempotent.

        Raises:
            StalePlanError: The topic was deleted or recreated.
            NotAuthorizedError: The principal may not write, which hides whether brokers reject records.
            RetryableError: A broker does not respond or lags, or a transaction stays open.
        """
        self._require_same_topic(name, topic_id)
        seal, (own, effective) = self.find_seal(topic_id), self._read_configs(name)
        if seal is None or not is_sealed(own):
            opened = {"own": own, "said": effective} if seal is None else _compute_unsealed_values(seal, own, effective)
            self.ledger.change(WRITER, lambda _entries: {seal_key(topic_id): {"topic": name, **opened}}, SEALED)
        may_go_on()
        admin.configure_topic(self.client, name, CONFIGS)
        self._wait_until_shown(name, topic_id, CONFIGS)
        self._wait_until_refused(name, topic_id, may_go_on)
        ends = self._wait_until_replicated(name, topic_id, may_go_on)
        self._wait_for_transactions(name, ends, may_go_on)
        return ends

    def is_refusing_records(self, name: str, topic_id: str) -> bool:
        """Return whether all leaders reject records."""
        return set(self._probe_leaders(self._require_same_topic(name, topic_id)).values()) == {_TOO_LARGE}

    def remove_seal(self, topic_id: str) -> None:
        """Remove the seal and restore the topic's configs, except those changed since.

        Does nothing if the seal or topic does not exist.
        """
        seal = self.find_seal(topic_id)
        if seal is None:
            return
        seen = self.client.read_topic(seal.topic)
        if seen is not None and seen.id == topic_id:
            own = _compute_unsealed_values(seal, *self._read_configs(seal.topic))["own"]
            admin.configure_topic(self.client, seal.topic, own)
            self._wait_until_shown(seal.topic, topic_id, own)
        self.ledger.change(WRITER, lambda _entries: {seal_key(topic_id): None}, SEALED)

    def _read_configs(self, name: str) -> tuple[dict[str, str | None], dict[str, str]]:
        configs = dict(self.client.read_configs([name], sorted(CONFIGS))).get(name, _UNAUTHORIZED)
        if isinstance(configs, int):
            message = (
                f"cluster {self.client.name}: the principal of reconciler may not read the configs of topic {name}"
            )
            raise NotAuthorizedError(message, hint="Allow DESCRIBE_CONFIGS on it.")
        own = select_own_configs(configs)
        effective = {
            key: config.value
            for key, config in configs.items()
            if config.source != _DEFAULT and config.value is not None
        }
        return {key: own.get(key) for key in CONFIGS}, effective

    def _require_same_topic(self, name: str, topic_id: str) -> TopicMetadata:
        seen = self.client.read_topic(name)
        if seen is None or seen.id != topic_id:
            what = "is gone" if seen is None else "was deleted and created again (its topic id changed)"
            raise StalePlanError(f"topic {name} {what} after it was read", hint="Plan again.")
        return seen

    def _wait_until_shown(self, name: str, topic_id: str, configs: Mapping[str, str | None]) -> None:
        """Wait until all replicas show the configs, because any may become leader."""
        tries = Tries(_BACKOFF, within_s=_PROPAGATION_S)
        while True:
            seen = self._require_same_topic(name, topic_id)
            alive = set(self.client.describe_cluster().brokers)
            brokers = sorted({broker for replicas in seen.replicas for broker in replicas} & alive)
            late = [broker for broker in brokers if not self._broker_shows(name, broker, configs)]
            if not late:
                return
            if tries.has_ended:
                message = f"broker {late[0]} does not show the configs of topic {name} after {_PROPAGATION_S:.0f} s"
                raise RetryableError(message, hint="It lags behind its controller: try again.")
            tries.wait()

    def _broker_shows(self, name: str, broker: int, configs: Mapping[str, str | None]) -> bool:
        try:
            configs_shown = dict(self.client.read_configs([name], sorted(configs), node=broker)).get(name, 0)
        except RetryableError:
            return False  # The caller asks again, unless the broker is dead then.
        if isinstance(configs_shown, int):
            return False
        own = select_own_configs(configs_shown)
        return all(own.get(key) == value for key, value in configs.items())

    def _wait_until_refused(self, name: str, topic_id: str, may_go_on: Callable[[], None]) -> None:
        tries = Tries(_BACKOFF, within_s=_PROPAGATION_S)
        while True:
            codes = self._probe_leaders(self._require_same_topic(name, topic_id))
            if set(codes.values()) == {_TOO_LARGE}:
                return
            if _UNAUTHORIZED in codes.values():
                message = f"cluster {self.client.name}: the principal of reconciler may not write to topic {name}"
                hint = "Allow WRITE on it: brokers tell only a principal with WRITE whether they refuse records."
                raise NotAuthorizedError(message, hint=hint)
            if tries.has_ended:
                number = min(number for number, code in codes.items() if code != _TOO_LARGE)
                message = f"partition {number} of topic {name} does not refuse records after {_PROPAGATION_S:.0f} s"
                raise RetryableError(message, hint="Its leader lags behind, or has none: try again.")
            may_go_on()
            tries.wait()

    def _probe_leaders(self, seen: TopicMetadata) -> dict[int, int]:
        from kafka.protocol.producer import ProduceRequest  # noqa: PLC0415 - only sealing needs it

        codes: dict[int, int] = dict.fromkeys(range(len(seen.leaders)), _CORRUPT)
        for leader, numbers in _group_by_leader(seen).items():
            topic = ProduceRequest.TopicProduceData
            data = [topic.PartitionProduceData(index=number, records=_UNWRITABLE) for number in numbers]
            request = ProduceRequest(
                transactional_id=None,
                acks=1,
                timeout_ms=10_000,
                topic_data=[topic(name=seen.name, partition_data=data)],
                max_version=12,
            )
            try:
                doing = f"looking whether topic {seen.name} is sealed"
                answer = self.client.send(request, doing=doing, node=leader, is_only_once=True)
            except RetryableError:
                continue
            codes.update(
                {partition.index: partition.error_code for partition in answer.responses[0].partition_responses}
            )
        return codes

    def _wait_until_replicated(self, name: str, topic_id: str, may_go_on: Callable[[], None]) -> dict[int, int]:
        tries = Tries(_BACKOFF, within_s=_PROPAGATION_S)
        while True:
            seen = self._require_same_topic(name, topic_id)
            written, places = self._read_log_ends(seen), [(name, number) for number in range(len(seen.replicas))]
            readable = {number: end for (_, number), end in read_offsets(self.client, places, LATEST).items()}
            behind = [number for number, end in readable.items() if written.get(number, -1) != end]
            if not behind:
                return readable
            if tries.has_ended:
                message = f"partition {behind[0]} of topic {name} has records that its replicas do not have yet"
                raise RetryableError(message, hint="Wait until its brokers have caught up, then apply again.")
            may_go_on()
            tries.wait()

    def _read_log_ends(self, seen: TopicMetadata) -> dict[int, int]:
        from kafka.protocol.consumer import ListOffsetsRequest  # noqa: PLC0415 - only sealing needs it

        ends = {}
        for leader, numbers in _group_by_leader(seen).items():
            topic = ListOffsetsRequest.ListOffsetsTopic
            partitions_asked = [
                topic.ListOffsetsPartition(partition_index=number, current_leader_epoch=-1, timestamp=LATEST)
                for number in numbers
            ]
            request = ListOffsetsRequest(
                replica_id=_ANY_REPLICA,
                isolation_level=0,
                topics=[topic(name=seen.name, partitions=partitions_asked)],
                timeout_ms=10_000,
            )
            try:
                answer = self.client.send(request, doing="reading offsets", node=leader, is_only_once=True)
            except RetryableError:
                continue
            partitions = answer.topics[0].partitions
            ends.update(
                {partition.partition_index: partition.offset for partition in partitions if not partition.error_code}
            )
        return ends

    def _wait_for_transactions(self, name: str, ends: Mapping[int, int], may_go_on: Callable[[], None]) -> None:
        tries = Tries(_BACKOFF, within_s=_TRANSACTION_S)
        while True:
            stable = read_offsets(self.client, [(name, number) for number in ends], LATEST, is_stable=True)
            opened = sorted(number for (_, number), offset in stable.items() if offset < ends[number])
            if not opened:
                return
            if tries.has_ended:
                named = ", ".join(map(str, opened))
                message = f"topic {name} is sealed, and transactions are still open on partitions {named}"
                hint = "Let their producers end them, or wait for them to time out; then try again."
                raise RetryableError(message, hint=hint)
            may_go_on()
            tries.wait()


def _compute_unsealed_values(seal: Seal, own: Mapping[str, str | None], effective: Mapping[str, str]) -> dict[str, Any]:
    ours = {key for key, value in CONFIGS.items() if own[key] == value}
    return {
        "own": {key: seal.own[key] if key in ours else value for key, value in own.items()},
        "said": {key: value for key, value in effective.items() if key not in ours}
        | {key: value for key, value in seal.effective.items() if key in ours},
    }


def sealed_error(seal: Seal) -> UserError:
    """Return the error for producing to a sealed topic."""
    message = f"topic {seal.topic} is sealed: its brokers refuse every record"
    hint = (
        "Write to where its records go. An interrupted apply left it so: the next one continues, or lets "
        "producers in again."
    )
    return UserError(message, hint=hint)


def _group_by_leader(seen: TopicMetadata) -> dict[int, list[int]]:
    numbers_by_leader: dict[int, list[int]] = {}
    for number, leader in enumerate(seen.leaders):
        if leader >= 0:
            numbers_by_leader.setdefault(leader, []).append(number)
    return numbers_by_leader


def _build_unwritable_batch() -> bytes:
    payload = bytes(140)
    head = struct.pack(">hiqqqhii", 0, 0, 0, 0, -1, -1, -1, 1)
    body = struct.pack(">ib", -1, 2) + bytes(4) + head + payload
    return struct.pack(">qi", 0, len(body)) + body


_UNWRITABLE: Final = _build_unwritable_batch()
