"""`namespace move`: topics go into another namespace; the next plan shows what the files still say otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.errors import InvalidNamespaceError, UserError
from reconciler.planning.actions import Reason, Risk, Transition
from reconciler.planning.deciding.decision import state_precondition
from reconciler.planning.situation import source_of
from reconciler.providers.base import Scope
from reconciler.resources.address import Address, address_of, full_name_of, join_name, kind_of, split_name
from reconciler.resources.mirrorlink import MirrorTopic
from reconciler.resources.names import check_full_name
from reconciler.resources.topic import Topic
from reconciler.workflow.looking.underneath import check_name, observe_on, unknown_namespace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reconciler.providers.base import Provider
    from reconciler.resources.inventory import Inventory, Record
    from reconciler.workflow.running.emergencies import Emergency


@dataclass(frozen=True, slots=True)
class Moved:
    """Topics that were moved: (from, to)."""

    cluster: str
    moves: tuple[tuple[Address, Address], ...]


def move_topics(emergency: Emergency, cluster: str, source: str, target: str, topics: Sequence[str]) -> Moved:
    """Move topics of one namespace to another that is there: those that are named, or all in it and below it.

    Raises:
        InvalidNamespaceError: A namespace they would be in does not exist; none is made implicitly.
        UserError: A topic is not there, cannot be moved, or is not owned.
    """
    site = emergency.site(cluster)
    _check_namespaces(site.providers[cluster], cluster, source, target)

    def decide(provider: Provider, record: Record | None) -> list[Transition]:
        everything = provider.observe(Scope())
        chosen = _chosen(everything, cluster, source, topics)
        moves = [_move(everything, cluster, old, _renamed(old, source, target), record) for old in chosen]
        _check_homes(everything, cluster, [full_name_of(action.address) for action in moves])
        return moves

    done = emergency.carry_out(site, cluster, decide)
    return Moved(cluster, tuple((Address(str(action.parameters["from"])), action.address) for action in done))  # type: ignore[union-attr]  # moves have parameters


def _chosen(observed: Inventory, cluster: str, source: str, topics: Sequence[str]) -> list[Address]:
    """Return the topics to be moved, sorted."""
    named = [address_of("topic", cluster, _in(source, topic)) for topic in dict.fromkeys(topics)]
    for address in named:
        if address not in observed:
            raise UserError(f"{address} does not exist", hint="List what does with: reconciler topic list")
    if named:
        return sorted(named)
    prefix = f"{source}:" if source else ""
    found = [
        address
        for address in observed
        if kind_of(address) in {"topic", "mirror"} and full_name_of(address).startswith(prefix)
    ]
    # Of the default namespace only its own: below it lies everything.
    return sorted(address for address in found if source or ":" not in full_name_of(address))


def _in(namespace: str, topic: str) -> str:
    return topic if namespace and topic.startswith(f"{namespace}:") else join_name(namespace, topic)


def _renamed(old: Address, source: str, target: str) -> str:
    name = full_name_of(old)
    return join_name(target, name[len(source) + 1 :] if source else name)


def _move(observed: Inventory, cluster: str, old: Address, name: str, record: Record | None) -> Transition:
    check_name(check_full_name, name, "shop:eu:orders")
    address, before = address_of("topic", cluster, name), observed[old]
    resource = before.resource
    if not isinstance(resource, Topic):
        raise UserError(f"{old} is named by its link", hint="Promote it first, then move the topic.")
    if address in observed or address_of("mirror", cluster, name) in observed:
        raise UserError(f"{address} exists", hint="Name the topics to be moved: --topic")
    last = record.get(old) if record is not None else None
    if record is not None:
        if last is None:
            hint = "Declare it, or move it without remembering that: --no-state"
            raise UserError(f"{old} is not owned by this workspace", hint=hint)
        _refuse_mirrored(old, record)
    kept = last.resource if last is not None and isinstance(last.resource, Topic) else resource
    namespace, own = split_name(name)
    metadata = kept.metadata.model_copy(update={"name": own, "namespace": namespace})
    return Transition(
        address=address,
        machine="topic",
        verb="move",
        from_state=full_name_of(old),
        to_state=name,
        after=kept.model_copy(update={"metadata": metadata}),
        parameters={"from": old},
        risk=Risk.DISRUPTIVE,
        reasons=(Reason.MOVED,),
        origins=last.origins if last is not None else {},
        precondition=state_precondition(old, before),
    )


def _refuse_mirrored(topic: Address, record: Record) -> None:
    for address, item in record.items():
        if isinstance(item.resource, MirrorTopic) and source_of(item.resource) == topic:
            message = f"{address} mirrors {topic}, and a mirror never changes its source"
            raise UserError(message, hint="Promote or remove the mirror first.")


def _check_namespaces(provider: Provider, cluster: str, *names: str) -> None:
    there = observe_on(provider, cluster, *(f"namespace/{cluster}/{name}" for name in names))
    for name in names:
        if name and address_of("namespace", cluster, name) not in there:
            provider.check_shown(address_of("namespace", cluster, name))
            raise unknown_namespace(name, cluster)


def _check_homes(observed: Inventory, cluster: str, names: Sequence[str]) -> None:
    missing = sorted(set(_missing_homes(observed, cluster, names)))
    if missing:
        message = f"namespaces that do not exist on cluster {cluster}: {', '.join(missing[:5])}"
        hint = f"Create them first; none is made implicitly: reconciler namespace create {cluster} {missing[0]}"
        raise InvalidNamespaceError(message, hint=hint)


def _missing_homes(observed: Inventory, cluster: str, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        home = split_name(name)[0]
        if home and address_of("namespace", cluster, home) not in observed:
            yield home
