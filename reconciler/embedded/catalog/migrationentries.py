"""What the catalog holds of a migration: topics that are being mounted or unmounted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reconciler.embedded.catalog.entries import Json


@dataclass(frozen=True, slots=True)
class MigrantEntry:
    """One topic of a migration: what it is called here, its id here, and where its remote objects lie for life.

    `mounting` is the full name of the Mounting that asked for it, where one did.
    """

    name: str
    topic_id: str
    location: str
    mounting: str | None = None

    def to_json(self) -> Json:
        """Return what the catalog keeps."""
        kept: Json = {"name": self.name, "topic_id": self.topic_id, "location": self.location}
        return kept if self.mounting is None else {**kept, "mounting": self.mounting}

    @classmethod
    def from_json(cls, kept: Json) -> MigrantEntry:
        """Read it back."""
        return cls(kept["name"], kept["topic_id"], kept["location"], kept.get("mounting"))


@dataclass(frozen=True, slots=True)
class MigrationEntry:
    """Topics on their way into object storage (`outbound`) or from there (`inbound`): `lifecycles/mounting.py`.

    `claim` is a mark of its own, by which what it wrote elsewhere is known again. Without `is_automatic` it moves on
    from planned, prepared and executed only when it is told to.
    """

    direction: str
    state: str
    topics: tuple[MigrantEntry, ...]
    claim: str
    created_ms: int
    completed_ms: int | None = None
    is_automatic: bool = True

    def to_json(self) -> Json:
        """Return what the catalog keeps."""
        return {
            "direction": self.direction,
            "state": self.state,
            "topics": [topic.to_json() for topic in self.topics],
            "claim": self.claim,
            "created_ms": self.created_ms,
            "completed_ms": self.completed_ms,
            "is_automatic": self.is_automatic,
        }

    @classmethod
    def from_json(cls, kept: Json) -> MigrationEntry:
        """Read it back."""
        return cls(
            kept["direction"],
            kept["state"],
            tuple(map(MigrantEntry.from_json, kept["topics"])),
            kept["claim"],
            kept["created_ms"],
            kept["completed_ms"],
            kept["is_automatic"],
        )
