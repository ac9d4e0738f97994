"""Where a topic lies in object storage, and the tiering that its manifests are written under."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.errors import UserError
from reconciler.lifecycles import TieringState
from reconciler.resources.tiering_policy import Targets


@dataclass(frozen=True, slots=True, order=True)
class TopicLocation:
    """Where a topic's remote objects lie for life, whatever it is called and wherever it is mounted."""

    topic: str
    """The name it was made with, its namespace included."""
    cluster_id: str
    """Of the cluster that made it."""
    revision: int
    """Its initial revision there."""

    def __str__(self) -> str:
        """Write it as people do: `orders/67f5505a-32f3-4677-bcad-3c75a1a702a6/10`."""
        return f"{self.topic}/{self.cluster_id}/{self.revision}"

    @classmethod
    def parse(cls, text: str) -> TopicLocation:
        """Read what people write.

        Raises:
            UserError: It is no location.
        """
        topic, _, rest = text.partition("/")
        cluster_id, _, revision = rest.partition("/")
        if not (topic and cluster_id and revision.isdecimal()):
            message = f"{text!r} is not the location of a topic in object storage"
            raise UserError(message, hint="Write <topic>/<cluster uuid>/<revision>, as `topic storage` shows it.")
        return cls(topic, cluster_id, int(revision))


@dataclass(frozen=True, slots=True)
class Tiering:
    """What holds for a topic that is, or was, tiered."""

    location: TopicLocation
    state: TieringState
    epoch: int
    policy: str
    """What the last disabling did to remote data: `retain` or `delete`."""
    uploads: bool
    """Whether closed segments are copied to the remote tier now."""
    serves: bool
    """Whether offsets below the local start may be fetched now."""
    targets: Targets
    max_interval_ms: int | None
    """The open segment is uploaded when this has passed; `None`: closed ones only."""
    spill_bytes: int
    """Size of a page that a manifest spills; it spills above twice that."""
