"""Topics that are being made from object storage: there from the first commit on, and closed until all is copied."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from reconciler.embedded.catalog.configs import set_configs
from reconciler.embedded.catalog.entries import TieringEntry
from reconciler.embedded.catalog.topics import create_topic
from reconciler.errors import UserError
from reconciler.lifecycles.tiering import TieringState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.embedded.catalog.tables import Draft
    from reconciler.embedded.catalog.topics import TopicShape

_ONLY_AT_CREATION: Final = "remote.recovery"


def recover_topic(
    draft: Draft, full_name: str, shape: TopicShape, *, topic_id: str, location: str, found: Mapping[str, str]
) -> None:
    """Make a topic that is to be filled from a location; `found` are the configs it had there.

    What the new topic says itself, or would inherit as it was, stays; of `found` the rest becomes its own. A topic that
    neither writes nor reads remotely is one whose tiering was switched off and whose remote data is retained.

    Raises:
        InvalidNamespaceError: Its namespace does not exist.
        UserError: The cluster has no object storage, or such a topic cannot be made.
    """
    if draft.cluster.storage_id is None:
        message = f"topic {full_name} cannot be recovered: its cluster is bound to no object storage"
        raise UserError(message, hint="Declare objectStorage on the Cluster, and apply that first.")
    inherited = {key: value for key, (value, _) in set_configs(draft, full_name).items()}
    kept = {key: value for key, value in found.items() if key != _ONLY_AT_CREATION and inherited.get(key) != value}
    create_topic(draft, full_name, replace(shape, configs={**kept, **shape.configs}), topic_id=topic_id)
    topic = draft.topics[full_name]
    off = TieringEntry(str(TieringState.DISABLED), 1)
    draft.put_topic(full_name, replace(topic, tiering=topic.tiering or off, recovering=location))


def recovered(draft: Draft, topic_id: str) -> None:
    """Say that a topic has all it is made from; does nothing where it is gone."""
    for full_name, topic in draft.topics.items():
        if topic.id == topic_id and topic.recovering is not None:
            draft.put_topic(full_name, replace(topic, recovering=None))
            return
