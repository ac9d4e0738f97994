"""Roles of mirrors that a command brought about: they hold until the files say something else than they said then.

On the day itself nobody edits files first. The record keeps the role that a command made, and which one the files had;
while these go on saying that, a plan leaves the mirror as it is and says so, and `drift --accept` writes it down.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from reconciler.planning.finding import Finding
from reconciler.resources.mirrorlink import MirrorLink, MirrorTopic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from reconciler.lifecycles.roles import Role
    from reconciler.planning.situation import Situation, Wanted
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Desired, Record, Recorded

STATE: Final = "state"
_MARK: Final = "a command, while the files said "


@dataclass(frozen=True, slots=True)
class Commanded:
    """A mirror whose role is not the one that the files say."""

    mirror: MirrorTopic
    """With the role it has."""
    said: Role
    """What the files say, and said then."""

    @property
    def message(self) -> str:
        """What it is, in words."""
        return f"it was made {self.mirror.state} by a command, and the files still say {self.said}"


def origins_by_command(last: Recorded | None, role: Role) -> dict[str, str]:
    """Return what the record of a mirror says of where its values come from, once a command has given it a role."""
    if last is None or not isinstance(last.resource, MirrorTopic):
        return {}
    kept = {path: origin for path, origin in last.origins.items() if path != STATE}
    said = last.origins.get(STATE, _mark(last.resource.state)).removeprefix(_MARK)
    return kept if said == role else {**kept, STATE: f"{_MARK}{said}"}


def is_marked(last: Recorded | None) -> bool:
    """Tell whether a record says that a command gave a mirror its role."""
    return last is not None and last.origins.get(STATE, "").startswith(_MARK)


def as_commanded(wanted: dict[Address, Wanted], recorded: Record) -> dict[Address, Wanted]:
    """Return what is wanted, with the roles that commands gave to mirrors of which the files say nothing new."""
    mirrors = {address: item.resource for address, item in wanted.items() if isinstance(item.resource, MirrorTopic)}
    for found in _commanded(mirrors, recorded):
        address = found.mirror.address
        item = wanted[address]
        wanted[address] = replace(
            item,
            resource=mirrors[address].model_copy(update={"state": found.mirror.state}),
            origins={**item.origins, STATE: _mark(found.said)},
        )
    return wanted


def commanded(desired: Desired, recorded: Record) -> tuple[Commanded, ...]:
    """Return the mirrors whose role the files do not say yet."""
    links = (declared.resource for declared in desired.values() if isinstance(declared.resource, MirrorLink))
    return tuple(_commanded({mirror.address: mirror for link in links for mirror in link.mirrors()}, recorded))


def warnings_of_commanded(situation: Situation) -> Iterator[Finding]:
    """Yield the mirrors that are left as a command made them."""
    for address, item in sorted(situation.wanted.items()):
        mirror, origin = item.resource, item.origins.get(STATE, "")
        if isinstance(mirror, MirrorTopic) and origin.startswith(_MARK) and situation.is_decidable(address):
            yield Finding(
                address,
                item.source,
                f"it was made {mirror.state} by a command, and the files still say {origin.removeprefix(_MARK)}: "
                "it is left as it is",
                f"Write it into the files: reconciler drift --accept {address}",
                item.marks,
            )


def _commanded(mirrors: Mapping[Address, MirrorTopic], recorded: Record) -> Iterator[Commanded]:
    for address, mirror in mirrors.items():
        last = recorded.get(address)
        if last is None or last.origins.get(STATE) != _mark(mirror.state):
            continue
        if isinstance(last.resource, MirrorTopic) and last.resource.state != mirror.state:
            yield Commanded(last.resource, mirror.state)


def _mark(said: str) -> str:
    return f"{_MARK}{said}"
