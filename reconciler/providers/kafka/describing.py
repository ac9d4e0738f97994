"""Descriptions of configs, read straight from what brokers send.

Brokers say all thirty-three keys of every topic, and thousands of topics say the same: what is byte for byte as it was
for the topic before is not read again. The library makes an object of each entry instead, which takes most of the time
of a look at a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kafka.protocol.admin import DescribeConfigsRequest, DescribeConfigsResponse
from kafka.protocol.api_header import RequestHeader

from reconciler.providers.kafka.metadata import ConfigSeen

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

VERSION: Final = 4
"""Of the request, which every broker has that tells the ids of topics (2.8), as `KafkaClient.topics` asks it to."""
_MORE: Final = 0x80
"""Set in every byte of a number but its last."""


@dataclass(frozen=True, slots=True)
class Described:
    """The configs of one topic or broker; not to be changed: those that are alike share them."""

    resource_name: str
    error_code: int
    error_message: str | None
    configs: Mapping[str, ConfigSeen]


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry, and the bytes that say it."""

    raw: bytes
    name: str
    seen: ConfigSeen


class _Answer:
    """The answer as the library takes it, with `Described` as its results."""

    parse_header = DescribeConfigsResponse[VERSION].parse_header

    @staticmethod
    def decode(came: Any) -> Any:
        """Return what follows the header."""
        reading = _Reading(came.read())
        throttled = reading.number(4)
        return DescribeConfigsResponse(throttle_time_ms=throttled, results=list(reading.results()), version=VERSION)


class _Header(RequestHeader, init=False):  # type: ignore[misc, call-arg]  # the library has no types
    """The header of a request, which knows who reads the answer."""

    def get_response_class(self) -> type[_Answer]:
        return _Answer


class DescribeAllConfigsRequest(DescribeConfigsRequest, init=False):  # type: ignore[misc, call-arg]  # as above
    """A request for configs whose answer is read here."""

    header_class = _Header

    def __init__(self, resources: Sequence[tuple[int, str, list[str] | None]]) -> None:
        super().__init__(resources=list(resources), min_version=VERSION, max_version=VERSION)


class _Reading:
    """One answer, and how far it is read."""

    def __init__(self, buffer: bytes) -> None:
        self._buffer, self._at = buffer, 0
        self._before: list[_Entry] = []
        """The entries of the topic before; then all of them as one."""
        self._same: tuple[bytes, Mapping[str, ConfigSeen]] = (b"", {})

    def results(self) -> Iterator[Described]:
        for _ in range(self._length()):
            code, message = self.number(2), self._text()
            self.number(1)
            name = self._text() or ""
            yield Described(name, code, message, self._configs())
            self._skip_tags()

    def number(self, width: int) -> int:
        """Return a whole number of so many bytes."""
        begin, self._at = self._at, self._at + width
        if self._at > len(self._buffer):
            message = f"the answer ends after {len(self._buffer)} bytes"
            raise ValueError(message)
        return int.from_bytes(self._buffer[begin : self._at], "big", signed=True)

    def _configs(self) -> Mapping[str, ConfigSeen]:
        begin, (raw, same) = self._at, self._same
        if raw and self._buffer.startswith(raw, begin):
            self._at += len(raw)
            return same
        found = [self._entry(place) for place in range(self._length())]
        configs = {entry.name: entry.seen for entry in found}
        self._before, self._same = found or self._before, (self._buffer[begin : self._at], configs)
        return configs

    def _entry(self, place: int) -> _Entry:
        if place < len(self._before):
            before = self._before[place]
            if self._buffer.startswith(before.raw, self._at):
                self._at += len(before.raw)
                return before
        begin = self._at
        name, value = self._text() or "", self._text()
        is_read_only, source, is_sensitive = bool(self.number(1)), self.number(1), bool(self.number(1))
        for _ in range(self._length()):  # What the key would be if this value were not: nobody asks.
            self._text(), self._text(), self.number(1)
            self._skip_tags()
        kind = self.number(1)
        self._text()
        self._skip_tags()
        return _Entry(self._buffer[begin : self._at], name, ConfigSeen(value, source, is_read_only, is_sensitive, kind))

    def _text(self) -> str | None:
        length = self._length()
        if length < 0:
            return None
        begin, self._at = self._at, self._at + length
        return self._buffer[begin : self._at].decode()

    def _length(self) -> int:
        """Return how long what follows is: brokers send one more, and 0 for what is null."""
        return self._unsigned() - 1

    def _unsigned(self) -> int:
        found = shift = 0
        while True:
            byte = self.number(1) & 0xFF
            found |= (byte & ~_MORE) << shift
            if not byte & _MORE:
                return found
            shift += 7

    def _skip_tags(self) -> None:
        for _ in range(self._unsigned()):
            self._unsigned()
            self._at += self._unsigned()
