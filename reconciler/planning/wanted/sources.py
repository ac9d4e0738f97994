"""Mirrors and what they lean on: the source topic, its link, and chains of mirrors."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from reconciler.planning.judging.limits import beyond, check_configs
from reconciler.planning.situation import COPYING, is_live, mirror_at, mounted_by, source_of
from reconciler.planning.wanted.ways import mirrored_back
from reconciler.resources.address import address_of, full_name_of, join_name, kind_of, split_name
from reconciler.resources.mirrorlink import MirrorLink, MirrorTopic
from reconciler.resources.mountable import MountSource
from reconciler.resources.mounting import Mounting
from reconciler.resources.namefilters import takes
from reconciler.resources.namespace import Namespace
from reconciler.resources.recoverable import Recoverable
from reconciler.resources.syncedconfigs import SYNCED_BY_DEFAULT
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from reconciler.planning.actions import Value
    from reconciler.planning.situation import Situation
    from reconciler.resources.address import Address


_FEW: Final = 3


def check_mirror(mirror: MirrorTopic, situation: Situation) -> Iterator[tuple[str, str]]:
    """Yield why a mirror cannot be."""
    capabilities = situation.capabilities(mirror.cluster)
    if not capabilities.links:
        return  # said of its link
    if mirror.state not in capabilities.mirror_states:
        message, hint = beyond(capabilities, f"bring a mirror into state {mirror.state}")
        if mirror.state == "reversed":
            hint = (
                f"To swap roles promote it, let its users write here, and declare a MirrorLink on cluster "
                f"{mirror.source_cluster} with source: {mirror.cluster} that mirrors it back under a name of its own."
            )
        yield message, hint
        return
    yield from check_configs(mirror.configs, capabilities)
    yield from _check_source(mirror, situation)
    seen = situation.observed.get(mirror.address)
    if seen is not None and isinstance(seen.resource, MirrorTopic):
        is_same = (mirror.link, mirror.source_cluster, mirror.source) == (
            seen.resource.link,
            seen.resource.source_cluster,
            seen.resource.source,
        )
        if not is_same:
            another = f"remove the entry, apply that with --allow delete:{mirror.address}, and declare it again"
            yield (
                f"it mirrors {source_of(seen.resource)} over link {seen.resource.link}, which never changes",
                f"Set it back. To follow another: {another}.",
            )


def _check_source(mirror: MirrorTopic, situation: Situation) -> Iterator[tuple[str, str]]:
    if mirror.source_cluster not in situation.trusted or mirror.state not in COPYING:
        return
    if mirrored_back(mirror, situation) is not None:
        return  # roles are swapped, or on the way to be: the source mirrors this one until they are swapped back
    if _is_circular(mirror, situation):
        yield "it mirrors itself in a circle", "A topic is mirrored in one direction only: remove one of the entries."
    elif not has_source(mirror, situation):
        near = get_close_matches(mirror.source, topics_on(mirror.source_cluster, situation), n=_FEW)
        guess = f"Did you mean {' or '.join(near)}? " if near else ""
        yield (
            f"its source {source_of(mirror)} is neither there nor declared",
            f"{guess}Declare {_declared(mirror, situation)}, or correct mirrorTopics.source.",
        )


def _declared(mirror: MirrorTopic, situation: Situation) -> str:
    """Return what makes a source known: where names are flat a namespace that nobody names is none."""
    namespace, _ = split_name(mirror.source)
    cluster = situation.clusters.get(mirror.source_cluster)
    is_flat = cluster is not None and cluster.spec.provider != "embedded"
    what = f"Namespace {namespace} or the Topic" if namespace and is_flat else "the Topic"
    return f"{what} on cluster {mirror.source_cluster}"


def topics_on(cluster: str, situation: Situation) -> list[str]:
    """Return the topics and mirrors that are there, or are declared: those are there after this plan."""
    found = {
        full_name_of(address)
        for address in (*situation.observed, *situation.wanted, *situation.mountings)
        if kind_of(address) in {"topic", "mirror"} and address.split("/", 2)[1] == cluster
    }
    return sorted(found)


def has_source(mirror: MirrorTopic, situation: Situation) -> bool:
    """Tell whether the source is there, or will be before the mirror is made."""
    source = source_of(mirror)
    if any(address in situation.observed for address in (source, mirror_at(source))):
        return True
    wanted = situation.wanted.get(source)
    mounting = situation.mountings.get(source)
    is_mounted = mounting is not None and mounting.spec.state == "mounted" and situation.is_chosen(mounting.address)
    is_planned = wanted is not None and situation.is_chosen(source)
    return (
        is_planned or is_mounted or (mirror_at(source) in situation.wanted and situation.is_chosen(mirror_at(source)))
    )


def _is_circular(mirror: MirrorTopic, situation: Situation) -> bool:
    seen: set[Address] = {mirror.address}
    here = _above(mirror, situation)
    while here is not None and here.address not in seen:
        seen.add(here.address)
        here = _above(here, situation)
    return here is not None


def _above(mirror: MirrorTopic, situation: Situation) -> MirrorTopic | None:
    """Return the mirror that a mirror follows: one that is declared, is there, or that a link would make by itself."""
    source = source_of(mirror)
    entry = situation.entries.get(mirror_at(source))
    if entry is not None:
        return entry if entry.state in COPYING else None
    there = situation.mirrors.get(mirror_at(source))
    if there is not None:
        return there if is_live(situation.observed[there.address]) else None
    is_topic = source in situation.observed or source in situation.wanted
    return None if is_topic else _made_by_link(mirror.source_cluster, mirror.source, situation)


def _made_by_link(cluster: str, full_name: str, situation: Situation) -> MirrorTopic | None:
    """Return the mirror that the filters of a cluster's links would make under a name."""
    namespace, name = split_name(full_name)
    for address, wanted in sorted(situation.wanted.items()):
        link = wanted.resource
        if not isinstance(link, MirrorLink) or link.cluster != cluster or not name.startswith(link.spec.prefix):
            continue
        making, source = link.spec.auto_create, join_name(namespace, name.removeprefix(link.spec.prefix))
        if making is not None and making.enabled and takes(making.filters, source):
            return MirrorTopic(
                cluster=cluster,
                link=full_name_of(address),
                source_cluster=link.spec.source,
                source=source,
                name=full_name,
            )
    return None


def taken_from_source(mirror: MirrorTopic, situation: Situation) -> dict[str, Value]:
    """Return what a mirror takes from its source when it is made: `partitions`, synced `configs`, its `incarnation`."""
    source = source_of(mirror)
    chain = _chain(source, situation)
    configs: dict[str, object] = {}
    for key in _synced(mirror, situation):
        value = next((layer[key] for layer in chain if key in layer), None)
        if value is not None:
            configs[key] = value
    parameters: dict[str, Value] = {"configs": configs}
    partitions = _partitions(source, situation)
    if partitions is not None:
        parameters["partitions"] = partitions
    seen = situation.observed.get(source) or situation.observed.get(mirror_at(source))
    if seen is not None and seen.incarnation is not None:
        parameters["incarnation"] = seen.incarnation
    return parameters


def _partitions(source: Address, situation: Situation) -> int | None:
    """Return how many partitions a source will have, through chains of mirrors."""
    wanted, seen = situation.wanted.get(source), situation.observed.get(source)
    for item in (wanted, seen):
        if item is not None and isinstance(item.resource, Topic) and item.resource.spec.partitions is not None:
            return item.resource.spec.partitions
    above = situation.observed.get(mirror_at(source))
    if above is not None and isinstance(above.resource, MirrorTopic) and above.resource.partitions is not None:
        return above.resource.partitions
    chained = situation.wanted.get(mirror_at(source))
    if chained is not None and isinstance(chained.resource, MirrorTopic):
        return _partitions(source_of(chained.resource), situation)
    match _comes(source, situation):
        case Recoverable() as found:
            return found.partitions
        case Mounting() as leaving:
            return _partitions(mounted_by(leaving), situation)
        case None:
            return None


def _comes(source: Address, situation: Situation) -> Recoverable | Mounting | None:
    """Return what a source is that this plan mounts: as it lies detached, or what detaches it in this plan."""
    mounting = situation.mountings.get(source)
    found = situation.given.mounts.get(mounting.address) if mounting is not None else None
    if not isinstance(found, MountSource) or source in situation.observed:
        return None
    leaving = situation.wanted.get(found.unmounts) if found.unmounts is not None else None
    return leaving.resource if leaving and isinstance(leaving.resource, Mounting) else found.found


def _chain(source: Address, situation: Situation) -> list[Mapping[str, str]]:
    """Return the configs of a source topic and of the tiers above it, nearest first: wanted ones over observed ones."""
    _, cluster, _ = source.split("/", 2)
    topic = situation.wanted.get(source) or situation.observed.get(source)
    if topic is None or not isinstance(topic.resource, Topic):
        chained = situation.wanted.get(mirror_at(source))
        if chained is not None and isinstance(chained.resource, MirrorTopic):
            return _chain(source_of(chained.resource), situation)
        match _comes(source, situation):
            case Recoverable() as lying:
                return [lying.configs]
            case Mounting() as leaving:
                return _chain(mounted_by(leaving), situation)
            case None:
                return []
    tiers = situation.nearest(cluster, topic.resource.metadata.namespace)
    found = (
        inventory.get(address) for address in (source, *tiers) for inventory in (situation.wanted, situation.observed)
    )
    return [item.resource.spec.configs for item in found if item and isinstance(item.resource, Topic | Namespace)]


def _synced(mirror: MirrorTopic, situation: Situation) -> tuple[str, ...]:
    link = situation.wanted.get(link_of(mirror))
    if link is not None and isinstance(link.resource, MirrorLink) and link.resource.spec.topic_config_sync is not None:
        return link.resource.spec.topic_config_sync.include
    return SYNCED_BY_DEFAULT


def link_of(mirror: MirrorTopic) -> Address:
    """Return the address of the link a mirror belongs to."""
    return address_of("link", mirror.cluster, mirror.link)
