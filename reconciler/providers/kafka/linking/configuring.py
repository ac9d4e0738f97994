"""Which configs a mirror takes from its source on a Kafka cluster. Pure.

Timestamps of a mirror are those of its source's records, whatever the source does with those of its own producers: a
broker that stamped them anew would lose them. Retention goes with them: what is old must not expire on arrival.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.resources.linkrules import synced_configs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.resources.capabilities import Capabilities
    from reconciler.resources.linkentries import LinkEntry
    from reconciler.resources.sourcetopic import SourceTopic

KEPT: Final[Mapping[str, str]] = {"message.timestamp.type": "CreateTime"}


def synced_keys(link: LinkEntry) -> frozenset[str]:
    """Return the configs that are not a mirror's own."""
    return frozenset(synced_configs(link)) | KEPT.keys()


def taken_configs(source: SourceTopic, link: LinkEntry, here: Capabilities) -> dict[str, str | None]:
    """Return what a mirror sets so that synced configs are its source's; `None`: nothing.

    Where its source has a default and the brokers here say something else, the default is set. What this version does
    not know is left out.
    """
    taken: dict[str, str | None] = {}
    for key in sorted(synced_keys(link)):
        known = here.configs.get(key)
        if known is None:
            continue
        default = known.default
        pinned = default if default is not None and here.defaults.get(key, default) != default else None
        taken[key] = KEPT.get(key) or source.configs.get(key, pinned)
    return taken
