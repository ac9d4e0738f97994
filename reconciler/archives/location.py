"""The location of a topic in object storage, and its tiering."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.errors import UserError
from reconciler.lifecycles import TieringState
from reconciler.resources.tiering_policy import Targets


@dataclass(frozen=True, slots=True, order=True)
class TopicLocation:
    """The permanent location of a topic's remote objects."""

    topic: str
    cluster_id: str
    revision: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.cluster_id}/{self.revision}"

    @classmethod
    def parse(cls, text: str) -> TopicLocation:
        """Parse the text form."""
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
    serves: bool
    """Whether offsets below the local start may be fetched."""
    targets: Targets
    max_interval_ms: int | None
    """Age at which the open segment is uploaded; `None`: only closed segments."""
    spill_bytes: int
    """Size of a manifest page; manifests spill above twice that."""
