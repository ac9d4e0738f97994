"""Location and tiering of a topic in object storage."""

from __future__ import annotations

from reconciler.errors import UserError
from reconciler.lifecycles import TieringState
from reconciler.resources.tiering_policy import Targets
from reconciler.runtime.dataclass import dataclass


@dataclass(frozen=True, slots=True, order=True)
class TopicLocation:
    """The permanent location of a topic's objects in object storage."""

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
    """Tiering of a topic, enabled or disabled."""

    location: TopicLocation
    state: TieringState
    epoch: int
    policy: str
    """`retain` or `delete`: what happens to remote records when tiering is disabled."""
    uploads: bool
    serves: bool
    """Whether consumers may read remote records."""
    targets: Targets
    max_interval_ms: int | None
    """Age at which the open segment is uploaded; `None` uploads closed segments only."""
    spill_bytes: int
    """Size of a manifest page; a manifest moves entries to pages at twice this size."""
