"""`mount release`: a topic is taken from an owner that will not come back, which nobody can tell but who says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.errors import BlockedError, InterruptedRunError, NotAuthorizedError, UserError
from reconciler.resources.address import Address, matches
from reconciler.workflow.mounting.listing import cluster_ids
from reconciler.workflow.mounting.reaching import ask_each, clusters_named, storage_of, verdict_on
from reconciler.workflow.running.emergencies import require_confirmation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from reconciler.errors import ReconcilerError
    from reconciler.resources.mountable import Mountable
    from reconciler.workflow.beginning.opening import Site
    from reconciler.workflow.mounting.reaching import Reach
    from reconciler.workflow.running.stopping import Stop

_VERB: Final = "release"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseOf:
    """What is to be released, and from whom."""

    location: str
    owner: str
    cluster: str | None = None
    """By whose object storage; `None`: that of any cluster that has it."""
    allow: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Release:
    """What a release makes mountable; what the owner had not uploaded is lost."""

    topic: Mountable
    owner: str
    owner_name: str | None
    """What the workspace calls the owner, where it is one of its clusters and answers: then it is not gone."""
    clusters: tuple[str, ...]
    """Those of the workspace that share the object storage: it can be mounted on any of them."""


def release_topic(reach: Reach, asked: ReleaseOf, *, confirm: Callable[[Release], bool], stop: Stop) -> Release:
    """Make a topic nobody's; `confirm` is asked where it is allowed.

    Raises:
        UserError: There is no such topic, it has another owner or none, or it was not confirmed.
        BlockedError: It is not allowed by name; says what is lost.
    """
    site = reach.site()
    sharing: dict[str, list[str]] = {}
    for name in clusters_named(site, () if asked.cluster is None else (asked.cluster,)):
        sharing.setdefault(storage_of(site, name), []).append(name)
    if not sharing:
        hint = "Declare objectStorage on a Cluster: it is taken by way of it."
        raise UserError("no cluster of this workspace has object storage", hint=hint)
    here, topic = _found(site, sharing, asked)
    owners = cluster_ids(site, site.clusters)
    release = Release(topic, asked.owner, owners.get(asked.owner), tuple(here))
    if not any(_covers(text, topic.location) for text in asked.allow):
        raise _blocked(release)
    require_confirmation(confirm(release))
    if stop.is_requested:
        raise InterruptedRunError("Interrupted", hint="Nothing was started")
    with stop.ends(lambda: None):  # It is short, and half of it would have to be done again.
        released = site.providers[here[0]].migrations.release(topic.location, asked.owner)
    return Release(released, release.owner, release.owner_name, release.clusters)


def _found(site: Site, sharing: Mapping[str, Sequence[str]], asked: ReleaseOf) -> tuple[Sequence[str], Mountable]:
    """Return the clusters in whose object storage a topic lies, and what it is."""

    def look(url: str) -> Mountable:
        return site.providers[sharing[url][0]].migrations.releasable(asked.location, asked.owner)

    found, lost = ask_each(list(sharing), look)
    if len(found) > 1:
        named = ", ".join(sharing[url][0] for url in found)
        message = f"{asked.location} lies in the object storage of each of the clusters {named}"
        raise UserError(message, hint=f"Say in which: --cluster {sharing[next(iter(found))][0]}")
    for url, topic in found.items():
        return sharing[url], topic
    raise _nowhere(lost)


def _nowhere(lost: Mapping[str, ReconcilerError]) -> ReconcilerError:
    errors = list(lost.values())
    if len(errors) == 1 or isinstance(errors[0], NotAuthorizedError):
        return errors[0]
    if all(isinstance(error, UserError) for error in errors):
        said = "; ".join(dict.fromkeys(error.message for error in errors))
        return UserError(said, hint="See what there is, and whose: reconciler mount list")
    return verdict_on(lost) or errors[0]


def _covers(text: str, location: str) -> bool:
    verb, _, pattern = text.partition(":")
    return verb == _VERB and matches(pattern, Address(location))


def _blocked(release: Release) -> BlockedError:
    topic, owner = release.topic, release.owner
    has = "is being mounted" if topic.state == "claimed" else "is mounted"
    kept = f"{topic.records:,} records, {topic.bytes:,} bytes"
    message = (
        f"{topic.location} {has} on cluster {owner} as {topic.name}: to release it is data-loss. "
        f"What that cluster has not uploaded is lost; {kept} in object storage are kept"
    )
    command = f"reconciler mount release {topic.location} --owner {owner} --allow {_VERB}:{topic.location}"
    if release.owner_name is not None:
        hint = f"Cluster {release.owner_name} of this workspace is that cluster, and answers: unmount it there. Else"
        return BlockedError(message, hint=f"{hint} allow it once with: {command}")
    return BlockedError(message, hint=f"Where that cluster is gone for good, allow it once with: {command}")
