"""Topics that are to be made from object storage: whether what they name is there, and can be had."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.errors import UserError
from reconciler.resources.recoverable import Recoverable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.planning.situation import Situation
    from reconciler.resources.topic import Topic

RECOVERY: Final = "remote.recovery"


def is_recovery(topic: Topic) -> bool:
    """Tell whether a topic, where it is new, is made from object storage: by location, or by its name."""
    return topic.spec.recover_from is not None or topic.spec.configs.get(RECOVERY) == "true"


def check_recovery(topic: Topic, situation: Situation) -> Iterator[tuple[str, str]]:
    """Yield why a new topic cannot be made from what it names."""
    if not (is_recovery(topic) and situation.capabilities(topic.cluster).recovery):
        return
    cluster = situation.clusters.get(topic.cluster)
    word = "recoverFrom" if topic.spec.recover_from is not None else RECOVERY
    if cluster is not None and cluster.spec.object_storage is None:
        yield f"{word}: cluster {topic.cluster} has no object storage", "Declare objectStorage on the Cluster."
        return
    match situation.given.recoveries.get(topic.address):
        case None:
            yield f"{word}: object storage was not looked at", "Plan again."
        case UserError() as error:
            yield f"{word}: {error.message}", error.hint
        case Recoverable() as found:
            declared = topic.spec.partitions
            if declared is not None and declared < found.partitions:
                message = f"{word}: {found.location} has {found.partitions} partitions, and {declared} are declared"
                yield message, f"Declare {found.partitions} or more, or none: they come with the topic."
