"""What may be asked of a mirror, in words that can be typed: its verbs are no commands' names everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.lifecycles.mirror import MIRROR

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.lifecycles.mirror import MirrorStatus

_TYPED: Final[Mapping[str, str]] = {
    "reverse-and-start": "mirror reverse",
    "reverse-and-pause": "mirror reverse --pause",
    "truncate-and-restore": "mirror restore",
    "delete": "by the files",
}
"""How a verb is asked whose command is called otherwise."""


def legal_words(status: MirrorStatus) -> str:
    """Return the verbs that may be asked for in a state, each with how; empty: none may."""
    verbs = MIRROR.legal(status)
    return ", ".join(f"{verb} ({_TYPED[verb]})" if verb in _TYPED else verb for verb in verbs)
