"""What may be asked of a mirror, in words that can be typed: its verbs are no commands' names everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.lifecycles.mirror import MIRROR, TWO_SIDED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from reconciler.lifecycles.mirror import MirrorStatus

_TYPED: Final[Mapping[str, str]] = {
    "reverse-and-start": "mirror reverse",
    "reverse-and-pause": "mirror reverse --pause",
    "truncate-and-restore": "mirror restore",
    "delete": "by the files",
}
"""How a verb is asked whose command is called otherwise."""


def legal_verbs(status: MirrorStatus, roles: Iterable[str]) -> tuple[str, ...]:
    """Return the verbs that may be asked for in a state where a mirror can have these roles."""
    lacking = () if "reversed" in roles else TWO_SIDED - {"promote"}
    return tuple(verb for verb in MIRROR.legal(status) if verb not in lacking)


def legal_words(verbs: Iterable[str]) -> str:
    """Return verbs that may be asked for, each with how; empty: none may."""
    return ", ".join(f"{verb} ({_TYPED[verb]})" if verb in _TYPED else verb for verb in verbs)
