"""What the clusters say: all of them read side by side, none of them changed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from reconciler.errors import ReconcilerError, RetryableError, UserError
from reconciler.providers.base import Scope
from reconciler.resources.address import Address, cluster_address, cluster_of, full_name_of, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from reconciler.errors import NotAuthorizedError
    from reconciler.providers.base import Provider
    from reconciler.resources.capabilities import Capabilities, ClusterIdentity
    from reconciler.resources.inventory import Inventory, Record
    from reconciler.resources.measures import Measures

AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Answer:
    """What one cluster said."""

    capabilities: Capabilities
    identity: ClusterIdentity | None
    inventory: Inventory


@dataclass(frozen=True, slots=True)
class Seen:
    """What all clusters that were read said."""

    inventory: Inventory
    """What whoever acts may see of it."""
    capabilities: Mapping[str, Capabilities]
    identities: Mapping[str, ClusterIdentity | None]
    hidden: Mapping[Address, NotAuthorizedError]
    """What is there besides, and why it may not be seen."""
    lost: Mapping[str, RetryableError | UserError] = field(default_factory=dict)
    """The clusters that could not be read, and may be missing; why each."""

    @property
    def topics(self) -> int:
        """How many topics were read."""
        return sum(1 for address in self.inventory if kind_of(address) in {"topic", "mirror"})


def observe(
    providers: Mapping[str, Provider],
    clusters: Sequence[str],
    recorded: Record,
    *,
    can_exclude: bool = True,
    may_lack: Callable[[Inventory], Collection[str]] = lambda _found: (),
) -> Seen:
    """Read `clusters`, all at once; those that `may_lack` names, of what was read, as far as they can be read.

    `can_exclude`: whether whoever asks can be told to leave one out.

    Raises:
        RetryableError: Some cannot be reached; names them all and how to go on without them.
        UserError: Some may not be read.
    """
    answers: dict[str, Answer] = {}
    lost: dict[str, RetryableError | UserError] = {}
    with ThreadPoolExecutor(max_workers=AT_ONCE, thread_name_prefix="observe") as threads:
        asked = {name: threads.submit(_ask, providers, name, recorded) for name in clusters}
        for name, future in asked.items():
            try:
                answers[name] = future.result()
            except (RetryableError, UserError) as error:
                lost[name] = error
    found = {address: item for answer in answers.values() for address, item in answer.inventory.items()}
    if lost and not lost.keys() <= set(may_lack(found)):
        raise _unreadable(lost, can_exclude=can_exclude)
    hidden = {address: item.hidden for address, item in found.items() if item.hidden is not None}
    return Seen(
        {address: item for address, item in found.items() if address not in hidden} if hidden else found,
        {name: answer.capabilities for name, answer in answers.items()},
        {name: answer.identity for name, answer in answers.items()},
        hidden,
        lost,
    )


def measure(
    providers: Mapping[str, Provider],
    addresses: Sequence[Address],
    *,
    with_groups: bool = False,
    committed: Collection[Address] = (),
    may_lack: Collection[str] = (),
) -> Measures:
    """Measure what a plan needs to know the size of, and who reads it; what cannot be measured is absent.

    `committed`: the topics of which it counts up to where each group has read; `may_lack`: the clusters that may be
    gone by now.
    """
    by_cluster: dict[str, list[Address]] = {}
    for address in addresses:
        by_cluster.setdefault(cluster_of(address) or "", []).append(address)
    with ThreadPoolExecutor(max_workers=AT_ONCE, thread_name_prefix="measure") as threads:
        asked = [
            threads.submit(
                _measured, providers[name], here, committed, with_groups=with_groups, may_lack=name in may_lack
            )
            for name, here in sorted(by_cluster.items())
        ]
        return {address: found for future in asked for address, found in future.result().items()}


def _measured(
    provider: Provider,
    addresses: Sequence[Address],
    committed: Collection[Address],
    *,
    with_groups: bool,
    may_lack: bool,
) -> Measures:
    try:
        found = provider.measure(addresses)
    except (RetryableError, UserError):
        if may_lack:
            return {}
        raise
    found = {
        address: replace(each, committed=committed_of(provider, full_name_of(address)))
        if address in committed
        else each
        for address, each in found.items()
    }
    if not (found and with_groups):
        return found
    reading = _reading(provider)
    return {
        address: replace(each, groups=None if reading is None else tuple(reading.get(full_name_of(address), ())))
        for address, each in found.items()
    }


def committed_of(provider: Provider, full_name: str) -> dict[str, dict[int, int]] | None:
    """Return where each group goes on reading a topic; `None` where that cannot be told."""
    try:
        groups = provider.groups.of_topic(full_name)
    except UserError:
        return None
    if groups is None:
        return None
    return {
        group.name: {at.partition: at.reads_on for at in group.offsets if at.reads_on is not None} for group in groups
    }


def _reading(provider: Provider) -> Mapping[str, Sequence[str]] | None:
    """Return who is reading each topic; `None` where that cannot be told, for a plan needs no more than to say so."""
    try:
        return provider.groups.reading()
    except UserError:
        return None


def _ask(providers: Mapping[str, Provider], name: str, recorded: Record) -> Answer:
    provider = providers[name]
    identity = provider.identify()
    if identity is None and cluster_address(name) in recorded:
        # A recorded cluster that is not there is out of reach, never one to be made anew over its data.
        raise gone()
    return Answer(provider.capabilities, identity, provider.observe(Scope(recorded=_on(recorded, name))))


def _on(recorded: Record, cluster: str) -> frozenset[Address]:
    return frozenset(address for address in recorded if cluster_of(address) == cluster)


def gone() -> RetryableError:
    """Return the error for a cluster that we applied to and that is not there any more."""
    return RetryableError(
        "it is recorded, but nothing is there now",
        hint="Check that its root is mounted and that the location in its manifest is right.",
    )


def _unreadable(lost: Mapping[str, RetryableError | UserError], *, can_exclude: bool) -> ReconcilerError:
    """Return the error that names them; where trying again mends none of them, it stays the kind it is."""
    named = unreachable(lost, can_exclude=can_exclude)
    for error in lost.values():
        if isinstance(error, UserError):
            error.message, error.hint, error.args = named.message, named.hint, named.args
            return error
    return named


def unreachable(lost: Mapping[str, ReconcilerError], *, can_exclude: bool = True) -> RetryableError:
    """Return the error that names clusters that cannot be read, and how to go on without them, where one can."""
    names = sorted(lost)
    is_one = len(names) == 1
    what = "; ".join(lost[name].message if is_one else f"{name}: {lost[name].message}" for name in names)
    without = " ".join(f"--exclude '*/{name}/*'" for name in names)
    hints = " ".join(dict.fromkeys(lost[name].hint for name in names))
    return RetryableError(
        f"cannot read {'cluster' if is_one else 'clusters'} {', '.join(names)}: {what}",
        hint=f"{hints} To go on without: {without}" if can_exclude else hints,
    )
