"""What a record says of a mirror to which a command gave its role: which one the files had then, or that they had none.

The marks lie among the origins of the mirror's entry, so that whatever writes the entry anew carries them on or drops
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.resources.mirrorlink import MirrorTopic

if TYPE_CHECKING:
    from reconciler.lifecycles.roles import Role
    from reconciler.resources.inventory import Recorded

STATE: Final = "state"
PEER: Final = "peer"
"""Where it says that the mirror on the other cluster, which mirrors this one since a reversal, was paused."""
NOTHING: Final = "nothing"
_MARK: Final = "a command, while the files said "
_PAUSED: Final = "a command paused it"

BY_COMMAND: Final = {STATE: f"{_MARK}{NOTHING}"}
"""The origins of a mirror that a command made, and that no file names."""


def origins_by_command(last: Recorded | None, role: Role, *, is_peer_paused: bool = False) -> dict[str, str]:
    """Return what the record of a mirror says of where its values come from, once a command has given it a role."""
    if last is None or not isinstance(last.resource, MirrorTopic):
        return {}
    kept = without_marks(last)
    if is_peer_paused:
        kept[PEER] = _PAUSED
    said = last.origins.get(STATE, mark(last.resource.state)).removeprefix(_MARK)
    return kept if said == role else {**kept, STATE: mark(said)}


def without_marks(last: Recorded | None) -> dict[str, str]:
    """Return the origins of a record without what commands did."""
    return {path: origin for path, origin in (last.origins if last else {}).items() if path not in {STATE, PEER}}


def mark(said: str) -> str:
    """Return the mark of a role that a command gave while the files said another."""
    return f"{_MARK}{said}"


def said_then(origin: str) -> str | None:
    """Return what the files said when a command gave a mirror its role; `None`: none did."""
    return origin.removeprefix(_MARK) if origin.startswith(_MARK) else None


def is_marked(last: Recorded | None) -> bool:
    """Tell whether a record says that a command gave a mirror its role."""
    return last is not None and last.origins.get(STATE, "").startswith(_MARK)


def is_made_by_command(last: Recorded | None) -> bool:
    """Tell whether a record says that a command made a mirror, and that no file has named it since."""
    return last is not None and last.origins.get(STATE) == mark(NOTHING)
