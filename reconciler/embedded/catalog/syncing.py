"""Which configs of a mirror follow its source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.embedded.catalog.configs import CONFIGS
from reconciler.resources.address import split_name, tiers_of
from reconciler.resources.clusterproperties import CONFIG_DEFAULTS
from reconciler.resources.linkrules import check_own, synced_configs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from reconciler.embedded.catalog.entries import TopicEntry
    from reconciler.embedded.catalog.tables import Catalog, Draft
    from reconciler.resources.linkentries import LinkEntry, MirrorEntry
    from reconciler.resources.sourcetopic import SourceTopic

_RETENTION: Final = frozenset({"retention.ms", "retention.bytes"})


def synced_with(catalog: Catalog | Draft, mirror: MirrorEntry) -> tuple[str, ...]:
    """Return the configs a mirror takes from its source, sorted; none once its link is gone."""
    found = (synced_configs(link) for link in catalog.links.values() if link.id == mirror.link_id)
    return next(found, ())


def follows_starts(catalog: Catalog | Draft, topic: TopicEntry) -> bool:
    """Tell whether what a mirror holds begins where its source begins, and expires there alone (F-C-054).

    So it is while its link syncs both limits of retention; else they, and where the log begins, are its own (F-C-055).
    """
    mirror = topic.follows
    return mirror is not None and {*synced_with(catalog, mirror)} >= _RETENTION


def taken_configs(
    catalog: Catalog | Draft, full_name: str, source: SourceTopic, link: LinkEntry
) -> Mapping[str, str | None]:
    """Return what a mirror sets of its own so that synced configs are its source's; `None`: nothing.

    Where its source has a default, nothing that a namespace or the cluster says here may come between (F-C-050). What
    this platform does not know is left out: it has the last word about its topics.
    """
    inherited = _inherited(catalog, full_name)
    taken: dict[str, str | None] = {}
    for key in synced_configs(link):
        if key in CONFIGS:
            default = CONFIGS[key].default
            pinned = default if inherited.get(key, default) != default else None
            taken[key] = source.configs.get(key, pinned)
    return taken


def _inherited(catalog: Catalog | Draft, full_name: str) -> dict[str, str]:
    """Return what a topic would have that sets nothing itself."""
    properties = catalog.cluster.properties
    found = {CONFIG_DEFAULTS[name]: value for name, value in properties.items() if name in CONFIG_DEFAULTS}
    for tier in tiers_of(split_name(full_name)[0]):
        entry = catalog.namespaces.get(tier)
        if entry is not None:
            found.update(entry.configs)
    return found


def check_not_synced(full_name: str, mirror: MirrorEntry, keys: Iterable[str], catalog: Catalog | Draft) -> None:
    """Refuse to set on a mirror what follows its source.

    Raises:
        UserError: Names what follows.
    """
    check_own(full_name, synced_with(catalog, mirror), keys)
