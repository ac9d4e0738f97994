"""Topics that somebody looks for, and that were unmounted: where they lie, and what wakes them."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.errors import NotAuthorizedError, ReconcilerError, UserError
from reconciler.planning.situation import mounted_by
from reconciler.providers.base import Scope
from reconciler.resources.address import address_of, cluster_of, full_name_of, kind_of
from reconciler.resources.mounting import Mounting
from reconciler.workflow.beginning.topicaddress import provider_of
from reconciler.workflow.looking.reading import read_state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Desired, Record
    from reconciler.resources.mountable import Mountable
    from reconciler.workflow.beginning.opening import Work


@dataclass(frozen=True, slots=True)
class Asleep:
    """A topic that a mounting has unmounted, or shall."""

    mounting: Address
    location: str | None
    """Where it was when it was unmounted; `None`: that was not recorded."""

    @property
    def said(self) -> str:
        """Say so; true as well where another cluster has mounted it since."""
        return f"unmounted{f' to {self.location}' if self.location else ''} by {self.mounting}"


def sleeping_topics(desired: Desired, record: Record) -> dict[Address, Asleep]:
    """Return the topics that mountings have unmounted or shall, as the state and the files say it."""
    declared = [each.resource for each in desired.values()]
    wanted = [each for each in declared if isinstance(each, Mounting) and each.spec.state == "unmounted"]
    found = {mounted_by(each): Asleep(each.address, None) for each in wanted}
    for address, last in record.items():
        if isinstance(last.resource, Mounting) and last.resource.spec.state == "unmounted":
            found[mounted_by(last.resource)] = Asleep(address, last.physical_name)
    return found


@contextmanager
def told_asleep(work: Work, topic: Address) -> Iterator[None]:
    """Say of a topic that is not there that it sleeps, if it does, in place of that it does not exist."""
    try:
        yield
    except NotAuthorizedError:
        raise  # who may not see it is not told where it lies
    except UserError as error:
        found = None if _is_there(work, topic) else _asleep(work, topic)
        if found is None:
            raise
        raise found from error


def _is_there(work: Work, topic: Address) -> bool:
    mirror = address_of("mirror", cluster_of(topic) or "", full_name_of(topic))
    provider = provider_of(work, topic)
    return provider.identify() is None or bool(provider.observe(Scope((topic, mirror))))


def _asleep(work: Work, topic: Address) -> UserError | None:
    desired, record = work.loaded.desired, _recorded(work)
    known = sleeping_topics(desired, record).get(topic)
    if known is None and topic not in desired and topic not in record:
        return None  # nobody speaks of it: a slip of the pen is not looked for in object storage
    lying = _lying(work, topic, known)
    location = lying.location if lying is not None else known.location if known is not None else None
    if known is None and lying is None:
        return None
    by = "" if known is None else f" by {known.mounting}"
    if lying is None or lying.state == "detached":
        place = f" at {location}" if location is not None else ""
        return UserError(f"{topic} lies detached{place}{by}", hint=_waking(topic, known, location))
    clusters = {
        each.incarnation: cluster_of(address) for address, each in record.items() if kind_of(address) == "cluster"
    }
    owner = clusters.get(lying.owner)
    word = "mounted" if lying.state == "mounted" else "being mounted"
    message = (
        f"{topic} was unmounted to {location}{by}, and is {word} on cluster {owner or lying.owner} as {lying.name}"
    )
    there = f"Look for it there: {address_of('topic', owner, lying.name)}" if owner else "Look for it there."
    return UserError(message, hint=there)


def _recorded(work: Work) -> Record:
    try:
        snapshot = read_state(work)
    except ReconcilerError:
        return {}  # the state cannot be read: what the files and the object storage say is left to tell
    return snapshot.record if snapshot is not None else {}


def _lying(work: Work, topic: Address, known: Asleep | None) -> Mountable | None:
    """Return what object storage has of a topic; `None` where it has nothing, or cannot be asked."""
    provider = provider_of(work, topic)
    try:
        listed, identity = provider.mountable(), provider.identify()
    except ReconcilerError:
        return None  # that the topic is not there is the news, and stands as it was said
    if known is not None and known.location is not None:
        return next((each for each in listed if each.location == known.location), None)
    own = (None if identity is None else identity.cluster_id, full_name_of(topic))
    return next((each for each in listed if each.state == "detached" and (each.owner, each.name) == own), None)


def _waking(topic: Address, known: Asleep | None, location: str | None) -> str:
    if known is not None:
        return f"To have it back: state: mounted in {known.mounting}, and reconciler apply"
    source = f" and source: {location}" if location is not None else ""
    return (
        f"To have it back: declare a Mounting of {full_name_of(topic)} on {cluster_of(topic)} with state: mounted"
        f"{source}, and reconciler apply"
    )
