"""Which configs of a mirror follow its source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.errors import UserError
from reconciler.resources.syncedconfigs import ALWAYS_SYNCED, SYNCED_BY_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reconciler.embedded.catalog.linkentries import LinkEntry, MirrorEntry
    from reconciler.embedded.catalog.tables import Catalog, Draft


def synced_with(catalog: Catalog | Draft, mirror: MirrorEntry) -> tuple[str, ...]:
    """Return the configs a mirror takes from its source, sorted; none once its link is gone."""
    found = (synced_configs(link) for link in catalog.links.values() if link.id == mirror.link_id)
    return next(found, ())


def synced_configs(link: LinkEntry) -> tuple[str, ...]:
    """Return the configs a link syncs, sorted: its complete list, else those of the platform."""
    declared = link.declared.get("topicConfigSync")
    return tuple(sorted(SYNCED_BY_DEFAULT if declared is None else declared["include"]))


def check_synced(name: str, link: LinkEntry) -> None:
    """Refuse a list of synced configs that is not complete.

    Raises:
        UserError: It lacks what is always synced.
    """
    missing = sorted(set(ALWAYS_SYNCED) - set(synced_configs(link)))
    if missing:
        message = f"link {name}: topicConfigSync.include lacks {', '.join(missing)}"
        raise UserError(message, hint="The list is complete: add these; they are always synced.")


def check_not_synced(full_name: str, mirror: MirrorEntry, keys: Iterable[str], catalog: Catalog | Draft) -> None:
    """Refuse to set on a mirror what follows its source.

    Raises:
        UserError: Names what follows.
    """
    following = sorted(set(keys) & {*synced_with(catalog, mirror), "partitions"})
    if following:
        message = f"mirror {full_name} follows its source in {', '.join(following)}"
        raise UserError(message, hint="Change it on the source.")
