"""Cluster properties that cannot be, or that contradict each other; each told where it is written."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from reconciler.planning.fields import PROPERTIES
from reconciler.planning.finding import Finding, Mark
from reconciler.resources.cluster import Cluster
from reconciler.resources.clusterproperties import ALIASES, CREATION_DEFAULTS, ENABLED, property_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from reconciler.planning.situation import Situation, Wanted
    from reconciler.resources.configkeys import ConfigKey

_DIRECTORY: Final = "cloud_storage_cache_directory"
_SIZE: Final = "cloud_storage_cache_size"
_PERCENT: Final = "cloud_storage_cache_size_percent"
_RESERVED: Final = "disk_reservation_percent"
_LEAST: Final = "cloud_storage_upload_ctrl_min_shares"
_MOST: Final = "cloud_storage_upload_ctrl_max_shares"
_WHOLE: Final = 100

_WORDS: Final = {
    "embedded": ("a property of an embedded cluster", "Remove it: properties have Redpanda's names."),
    "kafka": (
        "a property that these brokers take while they run",
        "Remove it: what is read-only is set in a broker's own file, and takes a restart.",
    ),
}
"""Provider → what properties are there, and what to do with one that is none."""

_ALIKE: Final = {"embedded": 0.6, "kafka": 0.85}
"""Provider → how alike a property is to what may be meant: brokers have many more than they take while they run."""

Said = tuple[str, str, tuple[str, ...]]
"""Message, hint, and the properties it is about."""


def check_properties(situation: Situation) -> Iterator[Finding]:
    """Yield what is wrong with the properties of clusters that know what properties they have."""
    for address in sorted(situation.wanted):
        wanted = situation.wanted[address]
        if isinstance(wanted.resource, Cluster) and situation.is_decidable(address):
            capabilities = situation.capabilities(wanted.resource.metadata.name)
            yield from judged_properties(wanted, wanted.resource, capabilities.properties)


def judged_properties(wanted: Wanted, cluster: Cluster, known: Mapping[str, ConfigKey]) -> Iterator[Finding]:
    """Yield what is wrong with the properties of a cluster, compiled; `known` are those of its platform."""
    if not known:
        return
    properties = cluster.spec.properties
    for message, hint, names in (
        *_unknown(properties.keys() - known.keys(), sorted(known), platform=cluster.spec.provider),
        *(_contradictions(properties) if ENABLED in known else ()),
        *_unstored(cluster),
    ):
        marks = tuple(_mark(wanted, name) for name in names if name in properties)
        yield Finding(wanted.resource.address, wanted.source, message, hint, marks)


def _unknown(names: AbstractSet[str], known: list[str], *, platform: str) -> Iterator[Said]:
    what, hint = _WORDS.get(platform, _WORDS["embedded"])
    for name in sorted(names):
        near = get_close_matches(name, known, n=1, cutoff=_ALIKE.get(platform, _ALIKE["embedded"]))
        yield f"{PROPERTIES}{name} is not {what}", f"Did you mean {near[0]}?" if near else hint, (name,)


def _contradictions(properties: Mapping[str, str]) -> Iterator[Said]:
    def number(name: str) -> float:
        return float(property_of(properties, name) or 0)

    first, second = (properties.get(name) for name in ALIASES)
    if first is not None and second is not None and first != second:
        yield "delete_retention_ms and log_retention_ms are one property by two names", "Keep one of the two.", ALIASES
    directory = properties.get(_DIRECTORY)
    if directory is not None and not directory.startswith("/"):
        message = f"{directory!r} is not a full path: every process would have a cache of its own"
        yield message, "Begin it with a slash.", (_DIRECTORY,)
    if not number(_SIZE) and not number(_PERCENT):
        message = "the cache has no limit at all: neither by bytes nor by percent"
        yield message, f"Set {_SIZE} or {_PERCENT}.", (_SIZE, _PERCENT)
    if number(_PERCENT) + number(_RESERVED) > _WHOLE:
        message = f"cache ({number(_PERCENT):g} %) and reservation ({number(_RESERVED):g} %) are more than the disk"
        yield message, "Lower one of the two: what they leave is for local data.", (_PERCENT, _RESERVED)
    if number(_LEAST) > number(_MOST):
        yield f"{_LEAST} is above {_MOST}", "Lower the one, or raise the other.", (_LEAST, _MOST)


def _unstored(cluster: Cluster) -> Iterator[Said]:
    if cluster.spec.object_storage is not None:
        return
    for name in (ENABLED, *CREATION_DEFAULTS):
        if cluster.spec.properties.get(name) == "true":
            yield f"{name} is true, and there is no object storage", "Declare objectStorage, or remove it.", (name,)


def _mark(wanted: Wanted, name: str) -> Mark:
    place = wanted.origins.get(PROPERTIES + name)
    address = wanted.resource.address
    if place is None or "." not in place:
        return address, ("spec", "properties", name)
    return address, ("spec", *place.split("."))
