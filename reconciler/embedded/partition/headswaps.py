"""Upkeep's swaps of a head: what is there becomes other objects or fewer of them, and nobody's writing is in the way.

The head is never made, never touched once it is sealed, and its epoch and writer stay. What a swap made superfluous is
deleted after it: whoever dies in between leaves orphans to the sweep, and a reader that misses an object looks at the
head again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from reconciler.embedded.keys import fresh_mark
from reconciler.embedded.partition.head import NOBODY, Head, head_register, parse_head
from reconciler.errors import MissingObjectError

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.objectstore.base import ObjectStore
    from reconciler.objectstore.register import Held

_LOOKS: Final = 3
"""How often a head is read again that names a page which is not there, before that is believed."""


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """One partition of a topic; `full_name` is what the topic was called when it was looked at."""

    full_name: str
    topic_id: str
    number: int

    def __str__(self) -> str:
        """Say which, in sentences."""
        return f"{self.full_name}, partition {self.number}"


def swap_head(store: ObjectStore, partition: Partition, change: Callable[[Head], Head | None]) -> bool:
    """Change a head by one swap and say whether that was done.

    `change` returns what the head shall become, `None` for no change, and runs again after a lost race: what it decided
    last is what holds.

    Raises:
        MissingObjectError: A page that the head names is not there.
        UserError: The head is damaged.
        LostRaceError: Others were faster every time.
    """
    register = head_register(store, partition.topic_id, partition.number)
    is_changed = False

    def changed(held: Held | None) -> dict[str, Any] | None:
        nonlocal is_changed
        is_changed = False
        if held is None or held.value.get("writer") == NOBODY:
            return None
        after = change(parse_head(store, register.key, held.value))
        is_changed = after is not None
        return None if after is None else after.to_json()

    for look in range(1, _LOOKS + 1):
        try:
            register.update(changed, mark=fresh_mark())
        except MissingObjectError:
            # Other upkeep may have put other pages in the place of those: the head tells.
            if look == _LOOKS:
                raise
        else:
            break
    return is_changed
