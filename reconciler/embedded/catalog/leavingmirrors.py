"""Which mirrors may be deleted: none on its way to another state, and none that its link would make again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.embedded.catalog.mirroring import link_of, status_of
from reconciler.errors import BlockedError, UserError
from reconciler.lifecycles.mirror import MIRROR, MirrorStatus
from reconciler.resources.linksyncs import AutoCreateSpec
from reconciler.resources.namefilters import is_never_made, takes

if TYPE_CHECKING:
    from reconciler.embedded.catalog.entries import TopicEntry
    from reconciler.embedded.catalog.linkentries import LinkEntry
    from reconciler.embedded.catalog.tables import Catalog, Draft

_OVER: Final = frozenset({MirrorStatus.FAILED, MirrorStatus.STOPPED})


def check_deletable(catalog: Catalog | Draft, full_name: str, topic: TopicEntry) -> None:
    """Refuse to delete a mirror that cannot be deleted now; every other topic can.

    Raises:
        UserError: It is being promoted, reversed or restored.
        BlockedError: The auto-create filters of its link take it: it would be made again, with all it had.
    """
    mirror = topic.mirror
    if mirror is None:
        return
    found = link_of(catalog, mirror)
    status = status_of(mirror, None if found is None else found[1])
    if "delete" not in MIRROR.legal(status):
        message = f"mirror {full_name} is {status}: cannot delete while {status}"
        raise UserError(message, hint=f"Legal there: {', '.join(MIRROR.legal(status))}.")
    if status in _OVER or found is None or not _makes(found[1], mirror.source):
        return
    message = f"mirror {full_name} cannot be deleted: the autoCreate filters of link {found[0]} take {mirror.source}"
    raise BlockedError(message, hint="Exclude it there or disable autoCreate first; or fail it over, then delete it.")


def _makes(link: LinkEntry, source: str) -> bool:
    """Tell whether a link would make a mirror of a topic again."""
    declared = link.declared.get("autoCreate")
    auto = AutoCreateSpec() if declared is None else AutoCreateSpec.model_validate(declared)
    return auto.enabled and takes(auto.filters, source) and not is_never_made(source)
