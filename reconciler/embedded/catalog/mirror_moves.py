"""State changes of mirrors within one commit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from reconciler.embedded.catalog.tables import (
    Catalog,
    Draft,
    check_not_migrating,
    check_not_replica,
    check_served,
    get_link,
    get_topic,
)
from reconciler.errors import NotFoundError
from reconciler.lifecycles import MirrorStatus
from reconciler.resources import mirrors
from reconciler.resources.mirrors import (
    LinkEntry,
    MirrorEntry,
    Operation,
    Peer,
    TransitionRequest,
    compute_mirror_status,
)

if TYPE_CHECKING:
    from reconciler.embedded.catalog.model import TopicEntry


def find_mirror_link(catalog: Catalog | Draft, mirror: MirrorEntry) -> tuple[str, LinkEntry] | None:
    """Return a mirror's link and its name; `None` if the link was deleted."""
    return next(((name, link) for name, link in catalog.links.items() if link.id == mirror.link_id), None)


def find_mirror(catalog: Catalog | Draft, full_name: str) -> tuple[TopicEntry, MirrorEntry]:
    """Return a topic and its mirror entry, active or stopped; reject other topics."""
    topic = get_topic(catalog, full_name)
    if topic.mirror is None:
        raise NotFoundError(f"topic {full_name} is not mirrored", hint="See the mirrors with: reconciler mirror list")
    return topic, topic.mirror


def start_mirror_operation(draft: Draft, full_name: str, verb: str, request: TransitionRequest) -> MirrorEntry:
    """Start an operation such as `failover` on a mirror; return its new entry."""
    _, mirror = find_mirror(draft, full_name)
    return _put_mirror(
        draft, full_name, mirrors.apply_verb_request(full_name, mirror, find_mirror_link(draft, mirror), verb, request)
    )


def mirror_own_mirror(draft: Draft, full_name: str, peer: Peer, begun: Operation, now_ms: int) -> MirrorEntry:
    """Make a topic the mirror of its own mirror; repeating the operation changes nothing."""
    topic, link = get_topic(draft, full_name), get_link(draft, peer.link)
    mirror = topic.mirror
    status = MirrorStatus.REGULAR if mirror is None else compute_mirror_status(mirror, link)
    after = mirrors.join_peer(full_name, mirror, status, (peer, link), (begun, now_ms))
    if after is not mirror:
        check_not_replica(full_name, topic, "to become a mirror")
        check_not_migrating(full_name, topic, "to become a mirror")
        check_served(full_name, topic)
    return _put_mirror(draft, full_name, after)


def change_mirror(draft: Draft, full_name: str, decide: Callable[[MirrorEntry], MirrorEntry]) -> MirrorEntry:
    """Replace a mirror's entry; return the new one."""
    _, mirror = find_mirror(draft, full_name)
    return _put_mirror(draft, full_name, decide(mirror))


def find_running_operation(catalog: Catalog | Draft, full_name: str, operation: str) -> tuple[MirrorEntry, Operation]:
    """Return a mirror and its running operation; reject any other operation."""
    _, mirror = find_mirror(catalog, full_name)
    return mirror, mirrors.require_operation(full_name, mirror, operation)


def convert_stopped_mirrors(draft: Draft, link: LinkEntry) -> None:
    """Turn the stopped mirrors of a deleted link into ordinary topics (F-C-091)."""
    for name, topic in list(draft.topics.items()):
        if topic.mirror is not None and topic.mirror.link_id == link.id and topic.mirror.is_stopped:
            draft.put_topic(name, replace(topic, mirror=None))


def _put_mirror(draft: Draft, full_name: str, mirror: MirrorEntry) -> MirrorEntry:
    if draft.topics[full_name].mirror != mirror:
        draft.put_topic(full_name, replace(draft.topics[full_name], mirror=mirror))
    return mirror


def check_mirror_deletable(catalog: Catalog | Draft, full_name: str, topic: TopicEntry) -> None:
    """Reject deletion of a mirror with a running operation.

    Raises:
        BlockedError: The link's auto-create filters would create the mirror again.
    """
    if topic.mirror is not None:
        mirrors.check_deletable(full_name, topic.mirror, find_mirror_link(catalog, topic.mirror))
