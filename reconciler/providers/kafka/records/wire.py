"""Requests to leaders for the records that librdkafka cannot read or write (`batches.py`), over the other client."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar

from reconciler.errors import RetryableError
from reconciler.providers.kafka.faults import of_code
from reconciler.providers.kafka.reaching.patience import pause
from reconciler.providers.kafka.reaching.security import as_admin
from reconciler.providers.kafka.records.asking import asking
from reconciler.providers.kafka.records.batches import RawHeaders, batches_in, headers_in

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from reconciler.providers.kafka.client import KafkaClient

T = TypeVar("T")

# Whoever meets no such record imports no client.
# ruff: noqa: PLC0415

_FETCH_BYTES: Final = 4 << 20
_FETCH_VERSIONS: Final = (4, 12)
"""From 13 on topics are named by their ids."""
_WAIT_MS: Final = 500
_MOVED: Final = frozenset({3, 5, 6, 7, 9, 13, 19, 20, 56, 74, 75, 78})
"""Codes of who leads no longer or not yet, has not heard of a topic yet, or has too few followers for the moment."""
_GONE: Final = 1
"""An offset that is not in the log."""
SILENCE_S: Final = 60.0
_PAUSE_S: Final = 0.1


def until_told(ask: Callable[[], T], code: Callable[[T], int], again: Collection[int], forget: Callable[[], None]) -> T:
    """Return an answer to what may be asked again, once it is not to be asked again; before that, forget who was asked.

    Raises:
        RetryableError: There is no answer.
    """
    until = monotonic() + SILENCE_S
    while True:
        try:
            found = ask()
        except RetryableError:
            if monotonic() > until:
                raise
        else:
            if code(found) not in again or monotonic() > until:
                return found
        forget()
        pause(_PAUSE_S)


class Leader:
    """Who leads one partition; asked over again when that changes."""

    def __init__(self, settings: Mapping[str, Any], cluster: str, topic: str, partition: int) -> None:
        """Take settings of confluent-kafka, secrets hidden; a connection is made when something is sent."""
        self.client: KafkaClient = asking(as_admin(settings), cluster)
        self.topic, self.partition = topic, partition
        self._node: int | None = None

    def send(self, request: Any, answer: Callable[[Any], Any], *, doing: str, fine: Collection[int] = ()) -> Any:
        """Return what the leader says of the partition, picked from its answer; the request may come twice.

        `fine`: codes that are left to the caller.

        Raises:
            ReconcilerError: It refuses, or nobody leads.
        """
        found = until_told(
            lambda: answer(self.client.send(request, doing=doing, node=self._known())),
            lambda found: int(found.error_code),
            _MOVED,
            self._forget,
        )
        if found.error_code and found.error_code not in fine:
            said = getattr(found, "error_message", None) or ""
            raise of_code(found.error_code, said, what=f"cluster {self.client.name}: {doing}")
        return found

    def _forget(self) -> None:
        self._node = None

    def _known(self) -> int:
        from kafka.protocol.metadata import MetadataRequest

        if self._node is None:
            wanted = [MetadataRequest.MetadataRequestTopic(name=self.topic)]
            request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False, max_version=9)
            found = self.client.send(request, doing=f"looking who leads {self.topic}")
            (topic,) = found.topics
            node = {each.partition_index: each.leader_id for each in topic.partitions}.get(self.partition, -1)
            if node < 0:
                where = f"cluster {self.client.name}: {self.topic}, partition {self.partition}"
                raise RetryableError(f"{where}: nobody leads it", hint="See whether its brokers are alive.")
            know(self.client, found)
            self._node = node
        return self._node


def know(client: KafkaClient, metadata: Any) -> None:
    """Let a connection know where brokers are: it sends to no other."""
    client.admin._manager.cluster.update_metadata(metadata)  # noqa: SLF001 - the library has no public way


class HeadersOf:
    """The headers of records of one partition in bytes, by offset. Asked for in the order of offsets."""

    def __init__(self, leader: Leader) -> None:
        """Take who is asked."""
        self._leader = leader
        self._found: dict[int, RawHeaders] = {}

    def at(self, offset: int) -> RawHeaders:
        """Return the headers of the record at an offset.

        Raises:
            RetryableError: It was removed meanwhile.
        """
        if offset not in self._found:
            self._found = {}
            for batch in batches_in(self._fetched(offset)):
                self._found.update(headers_in(batch))
        if offset not in self._found:
            message = f"{self._leader.topic}, partition {self._leader.partition}: offset {offset:,} is gone"
            raise RetryableError(message, hint="It was removed while it was read. Run the same command again.")
        return self._found[offset]

    def _fetched(self, offset: int) -> bytes:
        from kafka.protocol.consumer import FetchRequest

        leader, topic = self._leader, FetchRequest.FetchTopic
        wanted = topic.FetchPartition(partition=leader.partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            topics=[topic(topic=leader.topic, partitions=[wanted])],
            min_version=_FETCH_VERSIONS[0],
            max_version=_FETCH_VERSIONS[1],
        )
        doing = f"reading {leader.topic}, partition {leader.partition}"
        found = leader.send(request, lambda answer: answer.responses[0].partitions[0], doing=doing, fine={_GONE})
        return bytes(found.records or b"")
