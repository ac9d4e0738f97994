"""What a link says about its mirrors: which configs follow the source, which may be deleted, what they are called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.errors import BlockedError, UserError
from reconciler.lifecycles.mirror import MIRROR, MirrorStatus
from reconciler.resources.address import join_name, split_name
from reconciler.resources.linksyncs import AutoCreateSpec
from reconciler.resources.mirrorstates import status_of
from reconciler.resources.namefilters import is_never_made, is_never_mirrored, takes
from reconciler.resources.syncedconfigs import ALWAYS_SYNCED, SYNCED_BY_DEFAULT, is_never_synced

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reconciler.resources.linkentries import LinkEntry, MirrorEntry
    from reconciler.resources.mirrorstates import Named

_OVER: Final = frozenset({MirrorStatus.FAILED, MirrorStatus.STOPPED})


def synced_configs(link: LinkEntry) -> tuple[str, ...]:
    """Return the configs a link syncs, sorted: its complete list, else those of the platform."""
    declared = link.declared.get("topicConfigSync")
    listed = SYNCED_BY_DEFAULT if declared is None else declared["include"]
    return tuple(sorted(key for key in listed if not is_never_synced(key)))


def check_synced(name: str, link: LinkEntry) -> None:
    """Refuse a list of synced configs that is not complete.

    Raises:
        UserError: It lacks what is always synced.
    """
    missing = sorted(set(ALWAYS_SYNCED) - set(synced_configs(link)))
    if missing:
        message = f"link {name}: topicConfigSync.include lacks {', '.join(missing)}"
        raise UserError(message, hint="The list is complete: add these; they are always synced.")


def check_own(full_name: str, synced: Iterable[str], keys: Iterable[str]) -> None:
    """Refuse to set on a mirror what follows its source.

    Raises:
        UserError: Names what follows.
    """
    following = sorted(set(keys) & {*synced, "partitions"})
    if following:
        message = f"mirror {full_name} follows its source in {', '.join(following)}"
        raise UserError(message, hint="Change it on the source.")


def mirror_name(source: str, link: LinkEntry) -> str:
    """Return what a link calls the mirror of a topic: its prefix goes before the topic's own name."""
    namespace, own = split_name(source)
    return join_name(namespace, f"{link.declared.get('prefix', '')}{own}")


def check_mirrored(full_name: str, source: str, found: Named) -> None:
    """Refuse a source that is never mirrored, and a name of one's own: a mirror is found by its source's.

    Raises:
        UserError: So it is.
    """
    if is_never_mirrored(source):
        message = f"mirror {full_name}: {source} is a topic of the platform's own, and never mirrored"
        raise UserError(message, hint="Leave it out: each cluster keeps its own.")
    wanted = mirror_name(source, found[1])
    if full_name != wanted:
        message = f"a mirror of {source} over link {found[0]} is called {wanted}, and not {full_name}"
        raise UserError(message, hint="Give the link a prefix where the name is taken.")


def check_deletable(full_name: str, mirror: MirrorEntry, found: Named | None) -> None:
    """Refuse to delete a mirror that cannot be deleted now.

    Raises:
        UserError: It is being promoted, reversed or restored.
        BlockedError: The auto-create filters of its link take it: it would be made again, with all it had.
    """
    status = status_of(mirror, None if found is None else found[1])
    if "delete" not in MIRROR.legal(status):
        message = f"mirror {full_name} is {status}: cannot delete while {status}"
        raise UserError(message, hint=f"Legal there: {', '.join(MIRROR.legal(status))}.")
    if status in _OVER or found is None or not _makes(found[1], mirror.source):
        return
    message = f"mirror {full_name} cannot be deleted: the autoCreate filters of link {found[0]} take {mirror.source}"
    raise BlockedError(message, hint="Exclude it there or disable autoCreate first; or fail it over, then delete it.")


def check_unused(name: str, mirrors: Iterable[tuple[str, MirrorEntry]]) -> None:
    """Refuse to delete a link with mirrors.

    Raises:
        BlockedError: It has some that are not stopped.
    """
    live = [f"{topic} ({mirror.state})" for topic, mirror in mirrors if not mirror.is_stopped]
    if live:
        message = f"link {name} has mirrors that are not stopped: {', '.join(live[:5])}{' …' if live[5:] else ''}"
        raise BlockedError(message, hint="Promote, fail over or delete them first.")


def _makes(link: LinkEntry, source: str) -> bool:
    """Tell whether a link would make a mirror of a topic again."""
    declared = link.declared.get("autoCreate")
    auto = AutoCreateSpec() if declared is None else AutoCreateSpec.model_validate(declared)
    return auto.enabled and takes(auto.filters, source) and not is_never_made(source)
