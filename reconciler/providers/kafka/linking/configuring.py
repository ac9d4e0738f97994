"""Which configs a mirror takes from its source on a Kafka cluster. Pure.

Timestamps of a mirror are those of its source's records, whatever the source does with those of its own producers: a
broker that stamped them anew would lose them, and one that finds them too far from now would refuse them for ever.
Retention goes with them: what is old must not expire on arrival.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.resources.linkrules import synced_configs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.resources.capabilities import Capabilities
    from reconciler.resources.linkentries import LinkEntry
    from reconciler.resources.sourcetopic import SourceTopic

KEPT: Final[Mapping[str, str]] = {"message.timestamp.type": "CreateTime"}
_NO_LIMIT: Final = str(2**63 - 2)
"""As good as none, and one less than what people write for none: so what is ours is told from what they declare."""
PINNED: Final[Mapping[str, str]] = {
    "message.timestamp.after.max.ms": _NO_LIMIT,
    "message.timestamp.before.max.ms": _NO_LIMIT,
}
"""What a mirror has unless somebody says otherwise: it takes every time its source took, whatever brokers here take by
themselves. Where brokers know `message.timestamp.difference.max.ms` too, these go before it.
"""


def synced_keys(link: LinkEntry) -> frozenset[str]:
    """Return the configs that are not a mirror's own."""
    return frozenset(synced_configs(link)) | KEPT.keys()


def is_declared(key: str, value: str) -> bool:
    """Tell whether a config that a mirror sets may be somebody's wish, and is not what every mirror has."""
    return key not in KEPT and PINNED.get(key) != value


def taken_configs(
    source: SourceTopic, link: LinkEntry, here: Capabilities, own: Mapping[str, str]
) -> dict[str, str | None]:
    """Return what a mirror sets so that synced configs are its source's; `None`: nothing.

    Where its source has a default and the brokers here say something else, the default is set. What this version does
    not know is left out. `own` is what it sets, or is to be made with: what somebody declared stays.
    """
    taken: dict[str, str | None] = {
        key: value for key, value in PINNED.items() if key in here.configs and own.get(key, value) == value
    }
    for key in sorted(synced_keys(link)):
        known = here.configs.get(key)
        if known is None:
            continue
        default = known.default
        pinned = default if default is not None and here.defaults.get(key, default) != default else None
        taken[key] = KEPT.get(key) or source.configs.get(key, PINNED.get(key, pinned))
    return taken
