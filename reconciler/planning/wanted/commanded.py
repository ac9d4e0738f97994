"""What commands did to mirrors: it holds until the files say something else than they said then.

On the day itself nobody edits files first. The record keeps the role that a command made, and which one the files had;
while these go on saying that, a plan leaves the mirror as it is and says so, and `drift --accept` writes it down. What
was done without the state is found by looking: nothing but a command stops a mirror.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from reconciler.lifecycles.mirror import MirrorStatus
from reconciler.lifecycles.roles import Held, Role, towards
from reconciler.planning.finding import Finding
from reconciler.planning.situation import COPYING, is_live
from reconciler.planning.wanted.commandmarks import PEER, STATE, is_made_by_command, mark, said_then
from reconciler.planning.wanted.sources import link_of
from reconciler.planning.wanted.ways import peer_of, status_of
from reconciler.resources.mirrorlink import MirrorLink, MirrorTopic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from reconciler.planning.review import Review
    from reconciler.planning.situation import Situation, Wanted
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Desired, Inventory, Observed, Record

_ROLE_BY_VERB: Final[Mapping[str, Role]] = {"failover": "failed-over", "promote": "promoted"}
"""What a stopped mirror is, by what stopped it: neither needs anything of the other cluster to be told."""
_UNNAMED: Final = "it was made by a command, and the files do not name it"
_LEFT: Final = "it is left as it is"


@dataclass(frozen=True, slots=True)
class Commanded:
    """A mirror that is not what the files say."""

    mirror: MirrorTopic
    """With the role it has."""
    said: Role | None
    """What the files say, and said then; `None`: they do not name it."""
    is_peer_paused: bool = False
    """Whether the mirror on the other cluster, which follows this one since a reversal, was paused by a command."""

    @property
    def is_of_role(self) -> bool:
        """Whether the files can say it."""
        return self.mirror.state != self.said

    @property
    def message(self) -> str:
        """What it is, in words."""
        said = [] if not self.is_of_role else [_said(self.mirror.state, self.said)]
        return "; ".join([*said, *([self.peer] if self.is_peer_paused else [])])

    @property
    def peer(self) -> str:
        """What became of the mirror on the other cluster, in words."""
        return _peer_paused(self.mirror)


def as_commanded(wanted: dict[Address, Wanted], recorded: Record, observed: Inventory) -> dict[Address, Wanted]:
    """Return what is wanted, with the roles that commands gave to mirrors of which the files say nothing new."""
    mirrors = {address: item.resource for address, item in wanted.items() if isinstance(item.resource, MirrorTopic)}
    for found in _commanded(mirrors, recorded, observed):
        address = found.mirror.address
        item = wanted[address]
        marks = {STATE: mark(found.said or "")} if found.is_of_role else {}
        if found.is_peer_paused:
            marks[PEER] = recorded[address].origins[PEER]
        resource = mirrors[address].model_copy(update={"state": found.mirror.state})
        wanted[address] = replace(item, resource=resource, origins={**item.origins, **marks})
    return wanted


def commanded(desired: Desired, recorded: Record, observed: Inventory) -> tuple[Commanded, ...]:
    """Return the mirrors of which the files do not say yet what they are, or that they are there."""
    links = {address: each.resource for address, each in desired.items() if isinstance(each.resource, MirrorLink)}
    mirrors = {mirror.address: mirror for link in links.values() for mirror in link.mirrors()}
    made = (
        Commanded(last.resource, None)
        for address, last in sorted(recorded.items())
        if isinstance(last.resource, MirrorTopic)
        and address not in mirrors
        and address in observed
        and is_made_by_command(last)
        and link_of(last.resource) in links
    )
    return (*_commanded(mirrors, recorded, observed), *made)


def is_left(address: Address, situation: Situation) -> bool:
    """Tell whether a mirror that no file names is left alone: a command made it, over a link that they do name."""
    last = situation.recorded[address]
    if situation.given.is_destroy or not isinstance(last.resource, MirrorTopic):
        return False
    return is_made_by_command(last) and link_of(last.resource) in situation.wanted


def warnings_of_commanded(review: Review) -> Iterator[Finding]:
    """Yield the mirrors that are left as a command made them."""
    situation = review.situation
    for address, item in sorted(situation.wanted.items()):
        mirror = item.resource
        if not isinstance(mirror, MirrorTopic) or not situation.is_decidable(address):
            continue
        said = said_then(item.origins.get(STATE, ""))
        if said is not None:
            hint = f"Write it into the files: reconciler drift --accept {address}"
            yield Finding(address, item.source, f"{_said(mirror.state, said)}: {_LEFT}", hint, item.marks)
        if PEER in item.origins:
            hint = f"It goes on with: reconciler mirror resume {peer_of(mirror).address}"
            yield Finding(address, item.source, f"{_peer_paused(mirror)}: {_LEFT}", hint, item.marks)
    for address in sorted(situation.recorded.keys() - situation.wanted.keys()):
        if address in situation.observed and situation.is_decidable(address) and is_left(address, situation):
            hint = f"Write it into the files: reconciler drift --accept {address}"
            yield Finding(address, None, f"{_UNNAMED}: {_LEFT}", hint)


def _commanded(mirrors: Mapping[Address, MirrorTopic], recorded: Record, observed: Inventory) -> Iterator[Commanded]:
    for address, mirror in mirrors.items():
        last, seen = recorded.get(address), observed.get(address)
        if last is None or not isinstance(last.resource, MirrorTopic):
            role = None if _is_followed(mirror, seen, observed) else _seen_role(mirror, seen)
        elif last.origins.get(STATE) == mark(mirror.state) and not _is_taken_back(last.resource, mirror, seen):
            role = last.resource.state
        else:
            role = _seen_role(mirror, seen) if last.resource.state == mirror.state else None
        state = role or mirror.state
        is_paused = state == "reversed" and last is not None and PEER in last.origins
        if state != mirror.state or is_paused:
            yield Commanded(mirror.model_copy(update={"state": state}), mirror.state, is_paused)


def _seen_role(mirror: MirrorTopic, seen: Observed | None) -> Role | None:
    """Return the role a mirror was given by who told no state of it."""
    is_stopped = mirror.state in COPYING and seen is not None and seen.state == MirrorStatus.STOPPED
    return _ROLE_BY_VERB.get(seen.stopped_by or "") if is_stopped and seen is not None else None


def _is_followed(mirror: MirrorTopic, seen: Observed | None, observed: Inventory) -> bool:
    """Tell whether the other cluster went on after a mirror was stopped: what then is to be done, both say."""
    there = observed.get(peer_of(mirror).address)
    return there is not None and (is_live(there) or seen is None or there.since_ms > seen.since_ms)


def _is_taken_back(done: MirrorTopic, said: MirrorTopic, seen: Observed | None) -> bool:
    """Tell whether a mirror is again what the files say, by who told no state of it."""
    status = None if seen is None else status_of(seen)
    is_as_said = status is not None and isinstance(towards(said.state, status), Held)
    return is_as_said and status is not None and not isinstance(towards(done.state, status), Held)


def _said(role: str, said: str | None) -> str:
    if said is None:
        return _UNNAMED
    return f"it was made {role} by a command, and the files still say {said}"


def _peer_paused(mirror: MirrorTopic) -> str:
    return f"{peer_of(mirror).address}, which mirrors it since their roles were swapped, was paused by a command"
