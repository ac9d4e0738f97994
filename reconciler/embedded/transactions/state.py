"""A transaction as a value: what the register of a transactional id holds, and how it is written down."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from reconciler.embedded.consuming.offsets import Committed
from reconciler.objectstore.shapes import check_numbers, check_texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from reconciler.embedded.consuming.offsets import Place

Json = dict[str, Any]


class State(StrEnum):
    """How far a transaction has come. With `committing` and `aborting` it is decided: what is left is carrying out."""

    EMPTY = "empty"
    ONGOING = "ongoing"
    COMMITTING = "committing"
    ABORTING = "aborting"


SHAPE: Final = {
    "producer_id": str,
    "state": str,
    "partitions": [list],
    "offsets": {str: [list]},
    "timeout_ms": int,
    "began_ms": int,
}

DECIDED: Final = frozenset({State.COMMITTING, State.ABORTING})


class Written(NamedTuple):
    """A partition that a transaction may have written to; `full_name` is what its topic was called then."""

    topic_id: str
    full_name: str
    partition: int

    @classmethod
    def from_json(cls, kept: list[Any]) -> Written:
        """Read it back."""
        written = cls(*kept)
        check_texts(written.topic_id, written.full_name)
        check_numbers(written.partition)
        return written


Offsets = dict[str, dict["Place", Committed]]
"""By group: the offsets that are committed with the transaction."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """What is known of a transactional id. The epoch of its producer is that of the register."""

    producer_id: str
    timeout_ms: int
    state: State = State.EMPTY
    partitions: tuple[Written, ...] = ()
    offsets: Offsets = field(default_factory=dict)
    began_ms: int = 0

    def emptied(self) -> Transaction:
        """Return it with nothing open."""
        return Transaction(self.producer_id, self.timeout_ms)

    def widened(self, partitions: Iterable[Written]) -> Transaction:
        """Return it with more partitions."""
        return replace(self, partitions=tuple(dict.fromkeys((*self.partitions, *partitions))))

    def is_overdue(self, now_ms: int) -> bool:
        """Tell whether it has been open for too long."""
        return self.state is State.ONGOING and now_ms - self.began_ms > self.timeout_ms

    def to_json(self) -> Json:
        """Return what the register keeps."""
        return {
            "producer_id": self.producer_id,
            "state": self.state,
            "partitions": [list(one) for one in self.partitions],
            "offsets": {group: _rows(offsets) for group, offsets in self.offsets.items()},
            "timeout_ms": self.timeout_ms,
            "began_ms": self.began_ms,
        }

    @classmethod
    def from_json(cls, kept: Json) -> Transaction:
        """Read it back."""
        return cls(
            producer_id=kept["producer_id"],
            timeout_ms=kept["timeout_ms"],
            state=State(kept["state"]),
            partitions=tuple(map(Written.from_json, kept["partitions"])),
            offsets={group: _placed(rows) for group, rows in kept["offsets"].items()},
            began_ms=kept["began_ms"],
        )


def _rows(offsets: Mapping[Place, Committed]) -> list[list[Any]]:
    return [[*place, one.offset, one.metadata, one.at_ms] for place, one in sorted(offsets.items())]


def _placed(rows: list[list[Any]]) -> dict[Place, Committed]:
    placed: dict[Place, Committed] = {}
    for topic_id, partition, offset, metadata, at_ms in rows:
        check_texts(topic_id, metadata)
        check_numbers(partition, offset, *([] if at_ms is None else [at_ms]))
        placed[topic_id, partition] = Committed(offset, metadata, at_ms)
    return placed
