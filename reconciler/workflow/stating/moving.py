"""`state mv`: what is recorded under one address is recorded under another from then on; nothing is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

from pydantic import ValidationError

from reconciler.errors import UsageError, UserError
from reconciler.planning.actions import Adopt, Reason
from reconciler.resources.address import Address, cluster_of, full_name_of, kind_of, rank, split_name
from reconciler.resources.cluster import Cluster
from reconciler.resources.kinds import RESOURCE, Resource
from reconciler.resources.mirrorlink import MirrorLink, MirrorTopic
from reconciler.resources.mounting import Mounting
from reconciler.resources.namespace import Namespace
from reconciler.resources.tieringpolicy import TieringPolicy
from reconciler.resources.topic import Topic
from reconciler.workflow.stating.forgetting import holders_of
from reconciler.workflow.stating.looking import not_recorded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reconciler.resources.inventory import Record
    from reconciler.workflow.stating.surgery import Surgery

_MOVABLE: Final = ("topic", "namespace", "mounting")


def state_mv(
    surgery: Surgery, before: str, after: str, *, confirm: Callable[[tuple[tuple[Address, Address], ...]], bool]
) -> tuple[tuple[Address, Address], ...]:
    """Record `before` as `after` from now on, a namespace with all that lies in it; `confirm` is asked with each move.

    Raises:
        UsageError: The two are of different kinds or clusters, or of a kind that keeps its name.
        UserError: `before` is not recorded, `after` is, or it was not confirmed.
    """
    old, new = Address(before), Address(after)
    _check_pair(old, new)
    moves: list[Mapping[Address, Address]] = []

    def decide(record: Record) -> list[Adopt]:
        moves.append(_moves(record, old, new))
        return [_readdressed(source, moves[-1], record) for source in moves[-1]]

    surgery.carry_out(decide, lambda _record: confirm(tuple(moves[-1].items())))
    return tuple(moves[-1].items())


def _check_pair(old: Address, new: Address) -> None:
    kinds, clusters = (kind_of(old), kind_of(new)), (cluster_of(old), cluster_of(new))
    if kinds[0] not in _MOVABLE:
        hint = "Forget it with `state rm`, declare it under its new name, and the next apply adopts it."
        raise UsageError(f"a {kinds[0]} keeps its address", hint=hint)
    if kinds[0] != kinds[1]:
        raise UsageError(f"{old} is a {kinds[0]}, and {new} a {kinds[1]}", hint="Name an address of the same kind.")
    if clusters[0] != clusters[1]:
        message = f"{old} lives on cluster {clusters[0]}, and {new} on {clusters[1]}"
        raise UsageError(message, hint="What is recorded lives where it lives: name an address on the same cluster.")
    if old == new or old in holders_of(new):
        raise UsageError(f"{new} is {old} itself, or in it", hint="Name another address.")


def _moves(record: Record, old: Address, new: Address) -> dict[Address, Address]:
    """Return every address that moves, with where to: what others lean on first."""
    if old not in record:
        raise not_recorded(old, record)
    below = [address for address in sorted(record, key=rank) if old in holders_of(address)]
    length = len(full_name_of(old))
    moves = {old: new} | {
        address: Address(f"{kind_of(address)}/{cluster_of(old)}/{full_name_of(new)}{full_name_of(address)[length:]}")
        for address in below
    }
    taken = [target for target in moves.values() if target in record]
    if taken:
        raise UserError(f"{taken[0]} is recorded already", hint="Forget it first: reconciler state rm")
    return moves


def _readdressed(old: Address, moves: Mapping[Address, Address], record: Record) -> Adopt:
    last = record[old]
    origins = {path: moves.get(Address(origin), origin) for path, origin in last.origins.items()}
    return Adopt(
        address=moves[old],
        observed=last.resource,
        after=_renamed(last.resource, moves[old]),
        incarnation=last.incarnation,
        physical_name=last.physical_name,
        moved_from=old,
        reasons=(Reason.READDRESSED,),
        origins=origins,
    )


def _renamed(resource: Resource, address: Address) -> Resource:
    """Return a resource under another name.

    Raises:
        UserError: That is no name for it.
    """
    full_name = full_name_of(address)
    namespace, name = split_name(full_name)
    plain = resource.to_json()
    match resource:
        case Topic() | Mounting():
            plain["metadata"] |= {"name": name, "namespace": namespace}
        case Namespace():
            plain["metadata"] |= {"name": full_name}
        case MirrorTopic():
            plain["name"] = full_name
        case Cluster() | MirrorLink() | TieringPolicy():
            return resource  # they keep their addresses
        case _:
            assert_never(resource)
    try:
        return RESOURCE.validate_python(plain)
    except ValidationError as error:
        why = error.errors(include_url=False, include_context=False)[0]["msg"].removeprefix("Value error, ")
        raise UserError(f"{address} is no address: {why}", hint="Name one that a manifest could declare.") from error
