"""`state mv`, `rm`, `unlock` and `repair`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, assert_never

from pydantic import ValidationError

from reconciler.applying.run import Basis, RunOptions, RunRequest, ToDo
from reconciler.errors import StalePlanError, UsageError, UserError
from reconciler.operations.state_views import not_recorded, read_current
from reconciler.operations.steps.runner import Stop, require_confirmation, run_under_lease
from reconciler.operations.steps.workspace import Site, open_state
from reconciler.planning.actions import Adopt, Forget, Reason
from reconciler.planning.plan_rows import digest
from reconciler.resources.address import (
    Address,
    address_of,
    cluster_address,
    cluster_of,
    full_name_of,
    kind_of,
    matches,
    rank,
    split_name,
    tiers_of,
)
from reconciler.resources.cluster import Cluster
from reconciler.resources.inventory import RESOURCE, Record, Recorded, Resource
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic
from reconciler.resources.mount import Mounting
from reconciler.resources.namespace import Namespace
from reconciler.resources.tiering_policy import TieringPolicy
from reconciler.resources.topic import Topic
from reconciler.runtime.threads import ThreadEffects
from reconciler.state.diagnosis import look_at
from reconciler.state.lockfile import read_lockfile
from reconciler.state.repair import Choice, Repair, Unlocked, Unlocking, judge, mend, unlock

if TYPE_CHECKING:
    from reconciler.applying.events import Event
    from reconciler.operations.steps.invocation import Invocation, Select


@dataclass(frozen=True, slots=True, kw_only=True)
class Surgery:
    """One change of the record: of which state, under what name, and whom to tell."""

    invocation: Invocation
    select: Select
    command: str
    lock_timeout_s: float
    stop: Stop

    def carry_out(
        self, decide: Callable[[Record], Sequence[Adopt | Forget]], confirm: Callable[[Record], bool]
    ) -> None:
        """Do what `decide` makes of the record, once it was confirmed on the record as it is.

        Raises:
            UserError: Nothing was ever applied, or it was not confirmed; nothing was changed.
            StalePlanError: By now it would be something else than what was confirmed; nothing was changed.
            LeaseError: Someone else is applying.
        """
        site = open_state(self.invocation, self.select)
        snapshot = read_current(site)
        confirmed = decide(snapshot.record)
        require_confirmation(confirm(snapshot.record))

        def decide_under_lease(basis: Basis) -> ToDo:
            if basis.is_again:
                return ToDo((), digest(()))
            actions = decide(basis.snapshot.record)
            if digest(actions) != digest(confirmed):
                raise StalePlanError(
                    "what is recorded has changed since it was shown",
                    hint="Nothing was changed. Run the command again.",
                )
            return ToDo(actions, digest(actions))

        wish = RunRequest(command=self.command, options=RunOptions(parallelism=2, lock_timeout_s=self.lock_timeout_s))
        at = _with_clusters(site, snapshot.record)
        run_under_lease(at, wish, decide_under_lease, report=_tell_nobody, stop=self.stop)


def _tell_nobody(_event: Event) -> None:
    """Forgetting and readdressing are shown before and over at once."""


def _with_clusters(site: Site, record: Record) -> Site:
    """Return the site with the clusters as recorded: a run left open is settled first, and that asks them."""
    resources = (recorded.resource for recorded in record.values())
    return replace(site, clusters={item.metadata.name: item for item in resources if isinstance(item, Cluster)})


# `state rm`: stop owning, change nothing.


def state_rm(
    surgery: Surgery,
    patterns: Sequence[str],
    *,
    recursive: bool,
    confirm: Callable[[tuple[tuple[Address, Recorded], ...]], bool],
) -> tuple[Address, ...]:
    """Forget what `patterns` name; with `recursive` also what lies in those namespaces and on those clusters.

    `confirm` is asked with all that would be forgotten. Nothing on any cluster is changed; what is forgotten is owned
    by nobody there. Where a cluster cannot be told, a warning says so.

    Raises:
        UserError: One names nothing that is recorded, or it was not confirmed.
        UsageError: A pattern may name more than one, and `recursive` is not set.
    """
    for pattern in patterns:
        if "*" in pattern and not recursive:
            message = f"{pattern} may name more than one resource"
            raise UsageError(message, hint="Give --recursive; what goes is shown before.")
    forgotten: list[tuple[Address, ...]] = []

    def decide(record: Record) -> list[Forget]:
        forgotten.append(_named(record, patterns, recursive=recursive))
        return [Forget(address=address, reasons=(Reason.RECORD_ONLY,)) for address in forgotten[-1]]

    surgery.carry_out(decide, lambda record: confirm(tuple((address, record[address]) for address in forgotten[-1])))
    return forgotten[-1]


def _named(record: Record, patterns: Sequence[str], *, recursive: bool) -> tuple[Address, ...]:
    """Return what is forgotten, leaves before what they lean on."""
    found: set[Address] = set()
    for pattern in patterns:
        named = {address for address in record if matches(pattern, address)}
        if not named:
            raise not_recorded(pattern, record)
        below = {address for address in record if recursive and not named.isdisjoint(holders_of(address))}
        found |= named | below
    return tuple(sorted(found, key=rank, reverse=True))


def holders_of(address: Address) -> tuple[Address, ...]:
    """Return what an address lies in: its cluster and its namespaces."""
    cluster, kind = cluster_of(address), kind_of(address)
    if cluster is None or kind == "cluster":
        return ()
    name = full_name_of(address)
    tiers = tiers_of(name)[:-1] if kind == "namespace" else tiers_of(split_name(name)[0])
    spaces = () if kind == "link" else tuple(address_of("namespace", cluster, tier) for tier in tiers)
    return (cluster_address(cluster), *spaces)


# `state mv`: what is recorded under one address is recorded under another from then on; nothing is touched.


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
        raise UserError(f"{taken[0]} is recorded already", hint=f"Forget it first: reconciler state rm {taken[0]}")
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
        raise UserError(
            f"{address} is not an address: {why}", hint="Name one that a manifest could declare."
        ) from error


# `state repair`: look at what is left, show what would mend it, ask, and write it.


_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Repaired:
    """What was mended (`None`: there was nothing to mend), and where the lockfile that was there is kept."""

    repair: Repair | None
    kept: str | None = None


def state_repair(
    invocation: Invocation, select: Select, choice: Choice, *, confirm: Callable[[Repair], bool]
) -> Repaired:
    """Make the lockfile anew from what is beside it; `confirm` is asked with what would be done.

    Raises:
        UserError: The state is another's, of a newer version, or a person has to decide; or not confirmed.
        LeaseError: Somebody is applying.
    """
    site = open_state(invocation, select)
    with ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="look") as threads:
        remains = look_at(site.state, threads.map)
    repair = judge(site.state, remains, site.owner, choice, lineage=invocation.new_id())
    if repair is None:
        return Repaired(None)
    require_confirmation(confirm(repair))
    return Repaired(repair, mend(site.state, repair))


# `state unlock`: the lease of a run that is dead, taken away; never deleted.


def state_unlock(
    invocation: Invocation, select: Select, run: str | None, *, confirm: Callable[[str], bool], stop: Stop
) -> Unlocked:
    """Free a lease whose holder is dead: at once with its run, else after watching one whole lease.

    `confirm` gets one line that says who holds it; where nobody does there is nothing to ask.

    Raises:
        LeaseError: It is alive, or another run holds it.
        UserError: Not confirmed.
    """
    site = open_state(invocation, select)
    found = read_lockfile(site.state, owner=site.owner)
    lease = found.lockfile.lease if found is not None else None
    if lease is not None and lease.status == "held":
        is_confirmed = confirm(f"The lease is held by {lease.who} since {lease.since}, run {lease.run}.")
        require_confirmation(is_confirmed)
    effects = ThreadEffects()
    wanted = Unlocking(
        owner=site.owner,
        run=run,
        by_run=invocation.new_run(),
        who=invocation.who,
        is_stopped=lambda: stop.is_requested,
    )
    try:
        with stop.ends(lambda: None):
            return asyncio.run(unlock(site.state, effects, wanted))
    finally:
        effects.close()
