"""Which actions are about links and mirrors: others carry them out than those about topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.lifecycles.mirror import MIRROR
from reconciler.planning.actions import Create, Delete, Transition, Update
from reconciler.resources.mirrorlink import MirrorLink, MirrorTopic

if TYPE_CHECKING:
    from reconciler.planning.actions import ControlAction


def is_about_links(action: ControlAction) -> bool:
    """Tell whether an action is about a link or a mirror."""
    match action:
        case Create(after=MirrorLink() | MirrorTopic()) | Update(after=MirrorLink() | MirrorTopic()):
            return True
        case Delete(before=MirrorLink() | MirrorTopic()):
            return True
        case Transition(machine=machine):
            return machine == MIRROR.name
        case _:
            return False
