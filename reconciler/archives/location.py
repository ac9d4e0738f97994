"""The location of a topic in object storage, and its tiering."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.errors import UserError
from reconciler.lifecycles import TieringState
from reconciler.resources.tiering_policy import Targets


@dataclass(frozen=True, slots=True, order=True)
class TopicLocation:
    """The location of a topic's remote objects, which never changes."""

    topic: str
    """Full name at creation."""
    cluster_id: str
    """Of the cluster that created it."""
    revision: int
    """Its initial revision there."""

    def __str__(self) -> str:
        """Format as `orders/67f5505a-32f3-4677-bcad-3c75a1a702a6/10`."""
        return f"{self.topic}/{self.cluster_id}/{self.revision}"

    @classmethod
    def parse(cls, text: str) -> TopicLocation:
        """Parse the text form.

        Raises:
            UserError: The text is no location.
        """
        topic, _, rest = text.partition("/")
        cluster_id, _, revision = rest.partition("/")
        if not (topic and cluster_id and revision.isdecimal()):
            message = f"{text!r} is not the location of a topic in object storage"
            raise UserError(message, hint="Write <topic>/<cluster uuid>/<revision>, as `topic storage` shows it.")
        return cls(topic, cluster_id, int(revision))


@dataclass(frozen=True, slots=True)
class TopicTiering:
    """Tiering of a topic that is, or was, tiered."""

    location: TopicLocation
    state: TieringState
    epoch: int
    policy: str
    """What the last disabling did to remote data: `retain` or `delete`."""
    uploads: bool
    """Whether closed segments are uploaded."""
    serves: bool
    """Whether offsets below the local start may be fetched."""
    targets: Targets
    max_interval_ms: int | None
    """The open segment is uploaded after this time; `None`: only closed segments."""
    spill_bytes: int
    """Size of a manifest's page; it spills above twice that."""
