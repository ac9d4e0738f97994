"""Seal a topic: brokers refuse every batch, so that the last look at its end stays true.

A topic is deleted after it was copied. Between the last look at its end and the deletion a producer could write, and
its acknowledged record would be in neither place. Brokers have no switch for that, and access rules do not reach every
producer. Two configs do: `max.message.bytes` of 80 and `compression.type` of gzip. The smallest batch that gzip makes
has 81 bytes, so no batch of records goes in; the markers that end transactions have 78, so transactions that are open
still end. (`max.message.bytes` of 0 would refuse the markers too, and their producers would hang.)

The ledger keeps that a topic is sealed, and what it said itself, before the first config changes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import NotAuthorizedError, RetryableError, StalePlanError, UserError
from reconciler.providers.kafka import admin
from reconciler.providers.kafka.mount_ledger import CONFIGS, SEALED, WRITER, Seal, is_sealed, seal_key, seals_in
from reconciler.providers.kafka.offsets import LATEST, offsets_at
from reconciler.providers.kafka.translate import TopicSeen, own_values
from reconciler.runtime.retry import Backoff, Tries

if TYPE_CHECKING:
    from reconciler.providers.kafka.client import KafkaClient
    from reconciler.providers.kafka.ledger import Ledger


_DEFAULT: Final = 5
"""Source of a config that nobody sets (6.1)."""
_PATIENCE_S: Final = 30.0
"""How long brokers may take to learn of it."""
_TRANSACTION_S: Final = 75.0
"""How long a transaction may stay open: a little more than what clients allow theirs."""
_BACKOFF: Final = Backoff(first_s=0.01, longest_s=0.5, spread=0)
_TOO_LARGE, _CORRUPT, _UNAUTHORIZED = 10, 2, 29
_ANY_REPLICA: Final = -2
"""Who asks for offsets as this is told where a log ends, not up to where it is replicated."""


@dataclass(frozen=True)
class Seals:
    """The seals of one cluster."""

    client: KafkaClient
    ledger: Ledger

    def of(self, topic_id: str) -> Seal | None:
        """Return the seal of a topic as the ledger keeps it."""
        return seals_in(self.ledger.read(SEALED)).get(topic_id)

    def put(self, name: str, topic_id: str, may_go_on: Callable[[], None]) -> dict[int, int]:
        """Seal a topic and return where each partition ends; nothing but ends of transactions comes after that.

        When it returns every leader refuses records, all that was written is replicated, and no transaction that wrote
        before is open. May be repeated. `name`: the one its brokers give it.

        Raises:
            StalePlanError: It is another topic, or gone.
            NotAuthorizedError: The principal may not write to it: nobody else is told whether records are refused.
            RetryableError: A broker does not answer or does not learn of it, or a transaction stays open.
        """
        self._same(name, topic_id)
        kept, (own, said) = self.of(topic_id), self._said(name)
        if kept is None or not is_sealed(own):
            opened = {"own": own, "said": said} if kept is None else _opened(kept, own, said)
            self.ledger.change(WRITER, lambda _entries: {seal_key(topic_id): {"topic": name, **opened}}, SEALED)
        may_go_on()
        admin.configure(self.client, name, CONFIGS)
        self._wait_until_shown(name, topic_id, CONFIGS)
        self._wait_until_refused(name, topic_id, may_go_on)
        ends = self._replicated(name, topic_id, may_go_on)
        self._wait_until_decided(name, ends, may_go_on)
        return ends

    def is_on(self, name: str, topic_id: str) -> bool:
        """Tell whether every leader refuses records now."""
        return set(self._refusals(self._same(name, topic_id)).values()) == {_TOO_LARGE}

    def take_off(self, topic_id: str) -> None:
        """Let producers in again: the topic says what it said before. One without a seal, or gone, is let be.

        What somebody set in place of a part of the seal stays.

        Raises:
            RetryableError: A broker does not answer.
            UserError: The cluster refuses to change configs.
        """
        kept = self.of(topic_id)
        if kept is None:
            return
        seen = self.client.topic(kept.topic)
        if seen is not None and seen.id == topic_id:
            own = _opened(kept, *self._said(kept.topic))["own"]
            admin.configure(self.client, kept.topic, own)
            self._wait_until_shown(kept.topic, topic_id, own)
        self.ledger.change(WRITER, lambda _entries: {seal_key(topic_id): None}, SEALED)

    def _said(self, name: str) -> tuple[dict[str, str | None], dict[str, str]]:
        """Return what a topic says itself now of what the seal sets, and what holds for it and is no default."""
        configs = dict(self.client.configs([name], sorted(CONFIGS))).get(name, _UNAUTHORIZED)
        if isinstance(configs, int):
            message = (
                f"cluster {self.client.name}: the principal of reconciler may not read the configs of topic {name}"
            )
            raise NotAuthorizedError(message, hint="Allow DESCRIBE_CONFIGS on it.")
        own = own_values(configs)
        said = {key: each.value for key, each in configs.items() if each.source != _DEFAULT and each.value is not None}
        return {key: own.get(key) for key in CONFIGS}, said

    def _same(self, name: str, topic_id: str) -> TopicSeen:
        seen = self.client.topic(name)
        if seen is None or seen.id != topic_id:
            what = "is gone" if seen is None else "was deleted and created again (its topic id changed)"
            raise StalePlanError(f"topic {name} {what} since it was looked at", hint="Plan again.")
        return seen

    def _wait_until_shown(self, name: str, topic_id: str, configs: Mapping[str, str | None]) -> None:
        """Return once every broker with a replica knows the configs: any of them may lead next."""
        looks = Tries(_BACKOFF, within_s=_PATIENCE_S)
        while True:
            seen = self._same(name, topic_id)
            alive = set(self.client.cluster().brokers)
            brokers = sorted({broker for each in seen.replicas for broker in each} & alive)
            late = [broker for broker in brokers if not self._shows(name, broker, configs)]
            if not late:
                return
            if looks.is_over:
                message = f"broker {late[0]} does not show the configs of topic {name} after {_PATIENCE_S:.0f} s"
                raise RetryableError(message, hint="It lags behind its controller: try again.")
            looks.wait()

    def _shows(self, name: str, broker: int, configs: Mapping[str, str | None]) -> bool:
        try:
            found = dict(self.client.configs([name], sorted(configs), node=broker)).get(name, 0)
        except RetryableError:
            return False  # It went away: whether it is missed is looked at next.
        if isinstance(found, int):
            return False
        own = own_values(found)
        return all(own.get(key) == value for key, value in configs.items())

    def _wait_until_refused(self, name: str, topic_id: str, may_go_on: Callable[[], None]) -> None:
        looks = Tries(_BACKOFF, within_s=_PATIENCE_S)
        while True:
            found = self._refusals(self._same(name, topic_id))
            if set(found.values()) == {_TOO_LARGE}:
                return
            if _UNAUTHORIZED in found.values():
                message = f"cluster {self.client.name}: the principal of reconciler may not write to topic {name}"
                hint = "Allow WRITE on it: brokers tell only a principal with WRITE whether they refuse records."
                raise NotAuthorizedError(message, hint=hint)
            if looks.is_over:
                number = min(number for number, code in found.items() if code != _TOO_LARGE)
                message = f"partition {number} of topic {name} does not refuse records after {_PATIENCE_S:.0f} s"
                raise RetryableError(message, hint="Its leader lags behind, or has none: try again.")
            may_go_on()
            looks.wait()

    def _refusals(self, seen: TopicSeen) -> dict[int, int]:
        """Return what the leader of each partition answers to a batch that is never written: its checksum is wrong."""
        from kafka.protocol.producer import ProduceRequest  # noqa: PLC0415 - only who seals pays

        found: dict[int, int] = dict.fromkeys(range(len(seen.leaders)), _CORRUPT)
        for leader, numbers in _by_leader(seen).items():
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
                continue  # Nothing was written: whoever leads then is asked again.
            found.update({each.index: each.error_code for each in answer.responses[0].partition_responses})
        return found

    def _replicated(self, name: str, topic_id: str, may_go_on: Callable[[], None]) -> dict[int, int]:
        """Return where each partition ends once all of it is replicated: only then it was acknowledged, or never is."""
        looks = Tries(_BACKOFF, within_s=_PATIENCE_S)
        while True:
            seen = self._same(name, topic_id)
            written, places = self._written(seen), [(name, number) for number in range(len(seen.replicas))]
            readable = {number: end for (_, number), end in offsets_at(self.client, places, LATEST).items()}
            behind = [number for number, end in readable.items() if written.get(number, -1) != end]
            if not behind:
                return readable
            if looks.is_over:
                message = f"partition {behind[0]} of topic {name} has records that its replicas do not have yet"
                raise RetryableError(message, hint="Wait until its brokers have caught up, then apply again.")
            may_go_on()
            looks.wait()

    def _written(self, seen: TopicSeen) -> dict[int, int]:
        """Return where the log of each leader ends."""
        from kafka.protocol.consumer import ListOffsetsRequest  # noqa: PLC0415 - only who seals pays

        found = {}
        for leader, numbers in _by_leader(seen).items():
            topic = ListOffsetsRequest.ListOffsetsTopic
            asked = [
                topic.ListOffsetsPartition(partition_index=number, current_leader_epoch=-1, timestamp=LATEST)
                for number in numbers
            ]
            request = ListOffsetsRequest(
                replica_id=_ANY_REPLICA,
                isolation_level=0,
                topics=[topic(name=seen.name, partitions=asked)],
                timeout_ms=10_000,
            )
            try:
                answer = self.client.send(request, doing="reading offsets", node=leader, is_only_once=True)
            except RetryableError:
                continue  # A process that leads then is asked again.
            partitions = answer.topics[0].partitions
            found.update({each.partition_index: each.offset for each in partitions if not each.error_code})
        return found

    def _wait_until_decided(self, name: str, ends: Mapping[int, int], may_go_on: Callable[[], None]) -> None:
        """Return once no transaction is open that wrote before the seal."""
        looks = Tries(_BACKOFF, within_s=_TRANSACTION_S)
        while True:
            stable = offsets_at(self.client, [(name, number) for number in ends], LATEST, is_stable=True)
            opened = sorted(number for (_, number), offset in stable.items() if offset < ends[number])
            if not opened:
                return
            if looks.is_over:
                named = ", ".join(map(str, opened))
                message = f"topic {name} is sealed, and transactions are still open on partitions {named}"
                hint = "Let their producers end them, or wait for them to time out; then try again."
                raise RetryableError(message, hint=hint)
            may_go_on()
            looks.wait()


def _opened(kept: Seal, own: Mapping[str, str | None], said: Mapping[str, str]) -> dict[str, Any]:
    """Return what a topic says without its seal, of which a person may have changed a part."""
    ours = {key for key, value in CONFIGS.items() if own[key] == value}
    return {
        "own": {key: kept.own[key] if key in ours else value for key, value in own.items()},
        "said": {key: value for key, value in said.items() if key not in ours}
        | {key: value for key, value in kept.said.items() if key in ours},
    }


def refusal(kept: Seal) -> UserError:
    """Return why our own producers do not even try to write to a sealed topic."""
    message = f"topic {kept.topic} is sealed: its brokers refuse every record"
    hint = (
        "Write to where its records go. An apply that was broken off left it so: the next one continues, or lets "
        "producers in again."
    )
    return UserError(message, hint=hint)


def _by_leader(seen: TopicSeen) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for number, leader in enumerate(seen.leaders):
        if leader >= 0:
            found.setdefault(leader, []).append(number)
    return found


def _unwritable() -> bytes:
    """Return a batch of the current format that every broker refuses: larger than a seal allows, its checksum wrong."""
    payload = bytes(140)
    head = struct.pack(">hiqqqhii", 0, 0, 0, 0, -1, -1, -1, 1)
    body = struct.pack(">ib", -1, 2) + bytes(4) + head + payload
    return struct.pack(">qi", 0, len(body)) + body


_UNWRITABLE: Final = _unwritable()
