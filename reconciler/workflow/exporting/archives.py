"""Topics in object storage as manifests that recover them: what a cluster leaves behind when its root is lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from reconciler.errors import UserError
from reconciler.resources.address import Address, address_of, split_name
from reconciler.resources.inventory import Observed
from reconciler.resources.metadata import InNamespace, OfNamespace
from reconciler.resources.namespace import Namespace
from reconciler.resources.recoverable import Recoverable
from reconciler.resources.topic import Topic, TopicSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_ONLY_AT_CREATION: Final = "remote.recovery"
_NAMED: Final = 10


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something of which no manifest was written, and why."""

    place: str
    """Its key in object storage, or its address on the cluster."""
    error: UserError


@dataclass(frozen=True, slots=True)
class Archives:
    """What can be made of an object storage."""

    inventory: Mapping[Address, Observed] = field(default_factory=dict)
    """Namespaces and topics, as they would be declared."""
    found: Mapping[Address, Recoverable] = field(default_factory=dict)
    """What each topic would be recovered from."""
    older: Mapping[Address, Sequence[str]] = field(default_factory=dict)
    """Locations that had a topic's name before, on the same cluster."""
    left_out: tuple[LeftOut, ...] = ()


def archives_in(cluster: str, found: Iterable[tuple[str, Recoverable | UserError]]) -> Archives:
    """Sort what was found of one cluster: of several topics of one name, the newest is taken."""
    left_out: list[LeftOut] = []
    by_name: dict[str, list[tuple[str, Recoverable]]] = {}
    for place, topic in found:
        match topic:
            case UserError():
                left_out.append(LeftOut(place, topic))
            case Recoverable():
                by_name.setdefault(topic.full_name, []).append((place, topic))
    inventory: dict[Address, Observed] = {}
    taken: dict[Address, Recoverable] = {}
    older: dict[Address, Sequence[str]] = {}
    for full_name, several in sorted(by_name.items()):
        address = address_of("topic", cluster, full_name)
        several.sort(key=lambda each: _revision(each[1].location))
        place, newest = several[-1]
        try:
            inventory.update(_declared(cluster, newest))
        except ValueError as error:  # Names and configs are checked as those of manifests are.
            message = f"topic {full_name!r} cannot be declared: {str(error).splitlines()[0]}"
            left_out.append(LeftOut(place, UserError(message, hint="Its topic.json was written by other hands.")))
            continue
        taken[address] = newest
        if several[:-1]:
            older[address] = [each.location for _, each in several[:-1]]
    return Archives(inventory, taken, older, tuple(left_out))


def ends_text(found: Recoverable) -> str:
    """Say the next offset of each partition, as `topic storage` does: what came from there on was not uploaded."""
    shown = range(min(found.partitions, _NAMED))
    named = [f"{_next(found.ends.get(number))} of partition {number}" for number in shown]
    more = found.partitions - len(named)
    return ", ".join(named) + (f" and those of {more} more" if more else "")


def _next(bounds: tuple[int, int] | None) -> str:
    return f"{0 if bounds is None else bounds[1]:,}"


def _declared(cluster: str, found: Recoverable) -> dict[Address, Observed]:
    namespace, name = split_name(found.full_name)
    configs = {key: value for key, value in found.configs.items() if key != _ONLY_AT_CREATION}
    several = found.replication_factor if found.replication_factor > 1 else None
    topic = Topic(
        metadata=InNamespace(name=name, namespace=namespace, cluster=cluster),
        spec=TopicSpec(
            partitions=found.partitions, replication_factor=several, configs=configs, recover_from=found.location
        ),
    )
    declared = {topic.address: Observed(topic)}
    if namespace:
        above = Namespace(metadata=OfNamespace(name=namespace, cluster=cluster))
        declared[above.address] = Observed(above)
    return declared


def _revision(location: str) -> int:
    return int(location.rpartition("/")[2])
