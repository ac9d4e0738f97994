"""Topics as a mount makes them: closed, at the place and with the configs they had, so that nothing of them changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from reconciler.embedded.catalog.configs import checked_configs, set_configs
from reconciler.embedded.catalog.entries import HoldEntry, TieringEntry
from reconciler.embedded.catalog.migrations import migration_with
from reconciler.embedded.catalog.topics import TopicShape, create_topic
from reconciler.lifecycles.tiering import TieringState
from reconciler.resources.pinning import pinned
from reconciler.resources.tierrules import RETAIN, switches_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.embedded.catalog.tables import Draft
    from reconciler.embedded.catalog.tiering import TopicLocation


@dataclass(frozen=True, slots=True)
class Made:
    """What object storage says of a topic that is to be mounted: enough to make it as it was."""

    location: TopicLocation
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]
    effective: Mapping[str, str]
    initial: Mapping[str, str]
    tiered_epoch: int


def create_mounted(draft: Draft, migration: int, made: Mapping[str, Made]) -> None:
    """Make the topics of a mount, by their location, closed: with the configs, the place and the epoch they had.

    What its new surroundings would set otherwise becomes its own config: nothing of a topic changes by mounting it.

    Raises:
        InvalidNamespaceError: The namespace of one does not exist.
        UserError: A name is taken, or the namespace would hold too many.
    """
    for migrant in migration_with(draft, migration).topics:
        existing, there = draft.topics.get(migrant.name), made[migrant.location]
        if existing is not None and existing.id == migrant.topic_id:
            continue  # Somebody was here before.
        own, effective = (
            checked_configs(f"topic at {there.location}", said) for said in (there.configs, there.effective)
        )
        shape = TopicShape(partitions=there.partitions, replication_factor=there.replication_factor)
        create_topic(draft, migrant.name, shape, topic_id=migrant.topic_id)
        place = there.location
        topic = replace(
            draft.topics[migrant.name],
            initial=dict(there.initial),
            revision=place.revision,
            origin=(place.topic, place.cluster_id),
            tiering=_tiering(effective, there.tiered_epoch),
            hold=HoldEntry(migration, is_closed=True),
        )
        draft.put_topic(migrant.name, topic)
        configs = pinned(set_configs(draft, migrant.name), own, effective)
        draft.put_topic(migrant.name, replace(topic, configs=configs))


def _tiering(effective: Mapping[str, str], epoch: int) -> TieringEntry:
    """Return the tiering of a topic; where its owner had switched it off, what is remote is retained."""
    said = {key: (value, "topic") for key, value in effective.items()}
    if not switches_in(said).is_off:
        return TieringEntry(str(TieringState.ENABLED), epoch)
    return TieringEntry(str(TieringState.DISABLED), epoch, RETAIN)
