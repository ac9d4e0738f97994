"""Topics in the hands of a migration: their shape and configs stay, and from the cut on nobody reads or writes them.

Kafka has no error of its own for that: records are refused with INVALID_TOPIC_EXCEPTION, changes of the topic with
POLICY_VIOLATION (redpanda: "resource is being migrated").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.errors import UserError

if TYPE_CHECKING:
    from reconciler.embedded.catalog.entries import TopicEntry
    from reconciler.embedded.catalog.tables import Catalog, Draft

_NOT_THERE_YET: Final = frozenset({"planned", "preparing"})
_SEE: Final = "See whose it is, how far, and what may be asked of it: reconciler mount status"
"""Without an id: each cluster counts its own, and what stops a migration differs by its state."""
SEAL: Final = "migration:"
"""What the writer of a sealed head begins with; the migration's id follows."""


def sealed_by(migration: int) -> str:
    """Return the writer of the heads that a migration has sealed."""
    return f"{SEAL}{migration}"


def is_closed(topic: TopicEntry) -> bool:
    """Tell whether a topic takes and gives no records, and whether nothing but its migration may touch them."""
    return topic.hold is not None and topic.hold.is_closed


def is_served(topic: TopicEntry) -> bool:
    """Tell whether a topic takes and gives records."""
    return topic.recovering is None and not is_closed(topic)


def check_served(full_name: str, topic: TopicEntry) -> None:
    """Refuse records of or for a topic that is not whole yet, or is being mounted or unmounted.

    Raises:
        UserError: It is.
    """
    if topic.recovering is not None:
        message = f"topic {full_name} is being recovered from {topic.recovering}: it takes and gives no records yet"
        raise UserError(message, hint="Wait until that is done: `reconciler run --once` goes on with it.")
    if topic.hold is not None and topic.hold.is_closed:
        message = (
            f"topic {full_name} takes and gives no records: migration {topic.hold.migration} has it "
            "(INVALID_TOPIC_EXCEPTION, RESOURCE_IS_BEING_MIGRATED)"
        )
        raise UserError(message, hint=_SEE)


def check_unheld(full_name: str, topic: TopicEntry, what: str) -> None:
    """Refuse to change a topic that is being mounted or unmounted; `what` is not possible then.

    Raises:
        UserError: It is.
    """
    if topic.hold is not None:
        message = (
            f"topic {full_name}: {what} is not possible: the resource is undergoing data migration "
            f"{topic.hold.migration} (POLICY_VIOLATION)"
        )
        raise UserError(message, hint=f"Wait until it is done, or stop it. {_SEE}")


def check_unreserved(catalog: Catalog | Draft, full_name: str, topic_id: str | None = None) -> None:
    """Refuse a name that a planned mount is going to need, unless it is for that very topic.

    Raises:
        UserError: One is.
    """
    for number, migration in catalog.migrations.items():
        if migration.direction != "inbound" or migration.state not in _NOT_THERE_YET:
            continue
        if any(topic.name == full_name and topic.topic_id != topic_id for topic in migration.topics):
            message = f"topic {full_name} is being mounted by migration {number} (POLICY_VIOLATION)"
            raise UserError(message, hint=f"Wait until it is done. {_SEE}")
