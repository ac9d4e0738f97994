"""Plan the orders of a command over what is recorded and observed, and carry them out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from reconciler.errors import BlockedError, ReconcilerError, StalePlanError, UserError
from reconciler.lifecycles import MirrorStatus
from reconciler.operations.steps.observe import measure, refuse_another_cluster
from reconciler.operations.steps.runner import Emergency, require_confirmation, verdict_on_each
from reconciler.operations.steps.workspace import Site, Work
from reconciler.planning import planner
from reconciler.planning.actions import Delete, Risk, Transition, Update, addresses_of
from reconciler.planning.allowances import at_once
from reconciler.planning.orders import (
    AlterLinkOrder,
    AlterNamespaceOrder,
    AlterTopicOrder,
    CreateLinkOrder,
    CreateNamespaceOrder,
    CreateTopicOrder,
    DeleteLinkOrder,
    DeleteNamespaceOrder,
    DeleteTopicOrder,
    MountOrder,
    MoveTopicsOrder,
    PauseLinkOrder,
)
from reconciler.planning.plan import Finding, Plan, PlanInput, Selection
from reconciler.planning.selection import half_at, has_two_halves
from reconciler.planning.situation import mirror_at
from reconciler.providers.protocol import Scope
from reconciler.resources.address import (
    Address,
    address_of,
    cluster_address,
    cluster_of,
    full_name_of,
    kind_of,
    split_name,
    tiers_of,
)
from reconciler.resources.inventory import Declared, Observed
from reconciler.resources.mirror_link import MirrorTopic
from reconciler.resources.mirrors import RESTORE
from reconciler.runtime.threads import side_by_side

if TYPE_CHECKING:
    from reconciler.operations.steps.invocation import Invocation
    from reconciler.planning.actions import Action
    from reconciler.planning.orders import Order
    from reconciler.resources.inventory import Capabilities, Inventory, Record
    from reconciler.resources.mirrors import MirrorSeen
    from reconciler.state.snapshots import Snapshot


def plan_record_orders(invocation: Invocation, orders: Sequence[Order], record: Record) -> Plan:
    """Plan orders that change the record alone.

    Raises:
        UserError: An order is refused.
    """
    return require_executable(planner.judge(planner.decide({}, record, {}, given=_given(invocation, orders, {})), {}))


def plan_orders(
    site: Site,
    orders: Sequence[Order],
    record: Record | None,
    observed: Inventory,
    allow: Sequence[str] = (),
) -> Plan:
    """Plan orders over what was observed of their clusters; an order that is refused is an error of the plan.

    `record` is `None` for a command that acts without a state. `allow` lifts guards, as `VERB:ADDR`.
    """
    clusters = sorted({cluster for address in observed if (cluster := cluster_of(address)) is not None})
    given = replace(
        _given(site.invocation, orders, {name: site.providers[name].capabilities for name in clusters}),
        selection=Selection(allow=tuple(allow)),
        hidden={address: seen.hidden for address, seen in observed.items() if seen.hidden is not None},
        identities={name: site.providers[name].identify() for name in clusters if _is_for_links(orders)},
        has_state=record is not None,
    )
    shown = {address: seen for address, seen in observed.items() if seen.hidden is None}
    desired: dict[Address, Declared] = {cluster_address(name): Declared(site.clusters[name], "") for name in clusters}
    if isinstance(site, Work):  # The files say what is protected, also if the state is not read.
        desired |= {address: site.loaded.desired[address] for address in observed if address in site.loaded.desired}
    draft = planner.decide(desired, record or {}, shown, given=given)
    cuts = planner.to_measure(draft)
    measures = measure(site.providers, cuts, with_groups=True, may_lack=clusters) if cuts else {}
    return planner.judge(draft, measures)


def _is_for_links(orders: Sequence[Order]) -> bool:
    """Tell whether links are created: whether a link may lead from one cluster to another depends on who these are."""
    return any(isinstance(order, CreateLinkOrder) for order in orders)


def require_executable(plan: Plan) -> Plan:
    """Return the plan unchanged if all of it can be carried out.

    Raises:
        UserError: An order is refused.
        BlockedError: A guard blocks an action.
    """
    for error in plan.errors:
        raise UserError(error.message, hint=error.hint)
    for action, block in ((action, action.blocked) for action in plan.blocked):
        hint = f"Allow it once with: --allow {block.allow}" if block and block.allow else "Nothing was done."
        raise BlockedError(f"{action.address}: {block.message if block else ''}; nothing was done", hint=hint)
    return plan


def _given(invocation: Invocation, orders: Sequence[Order], capabilities: Mapping[str, Capabilities]) -> PlanInput:
    return PlanInput(
        workspace="",
        capabilities=capabilities,
        identities={},
        today=invocation.today(),
        now_ms=invocation.now_ms(),
        tool=invocation.tool,
        orders=tuple(orders),
    )


# Carry out orders: check the clusters, plan, confirm, plan again under the lease, apply.


_WAYS_ON: Final[Mapping[str, str]] = {
    "protected": "Apply once with protect: false.",
    "nested": "Delete those first, or all of it: --recursive",
    "mirroring": "Stop them first: reconciler mirror failover --link {}. --force does, and what they lack is lost.",
}
"""Hints for guards that no `--allow` lifts, by their names; `{}`: the address."""

_WITH_STATES: Final = frozenset({"mirror", "link"})
"""The kinds whose state after an order is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderResult:
    """The plan of orders, and what became of each named resource."""

    command: str
    noun: str
    plan: Plan
    addresses: tuple[Address, ...]
    """The resources, in the order in which they were named."""
    failed: Mapping[Address, ReconcilerError]
    """Why orders were refused or not carried out."""
    states: Mapping[Address, str] = field(default_factory=dict)
    """The states of mirrors and links afterwards, as far as they are known."""
    is_dry_run: bool = False
    """Nothing was changed."""
    is_shown: bool = False
    """The plan was shown before it was carried out."""

    @property
    def verdict(self) -> ReconcilerError | None:
        """The error to end with, where an order was not carried out."""
        errors = [self.failed.get(address) for address in self.addresses]
        return verdict_on_each(self.command, errors, self.noun, is_rehearsal=self.is_dry_run)

    @property
    def unchanged(self) -> frozenset[Address]:
        """The resources that are already as their orders want them."""
        changed = {address for action in self.plan.actions for address in addresses_of(action)}
        return frozenset(self.addresses) - changed - self.failed.keys()


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderRun:
    """Orders of one command, each about one resource, and how they are carried out.

    Each order stands alone: one that is refused, or whose cluster does not answer, stops no other.
    """

    emergency: Emergency
    site: Site
    command: str
    """As it is typed: `topic delete`."""
    noun: str
    """What the orders are about, in the plural."""
    orders: Mapping[Address, Order]
    refused: Mapping[Address, ReconcilerError] = field(default_factory=dict)
    """Resources that are named and need no plan to be refused."""
    allow: Sequence[str] = ()
    """Guards to lift, as `VERB:ADDR`."""
    confirm: Callable[[Plan], bool] | None = None
    """Asked once, with the plan, before anything is changed; `None`: the command asks nothing."""
    is_dry_run: bool = False
    names_parts: bool = False
    """Whether the result names the resources that change, instead of the one that was named."""

    def carry_out(self) -> OrderResult:
        """Return the result of all orders.

        Raises:
            UserError: It was not confirmed, or the state cannot be used.
            LeaseError: Someone else is applying.
        """
        failed = {**self.refused, **self._without_cluster()}
        refused = tuple(failed.items())
        plan = _with_errors(self._plan(self.emergency.recorded(self.site), failed), refused)
        ready = {action.id: action for action in self._executable(plan, failed)}
        if self.is_dry_run or not ready:
            return self._result(plan, failed)
        require_confirmation(self.confirm is None or self.confirm(plan))
        clusters = {cluster_of(action.address) or "" for action in ready.values()}

        def decide(snapshot: Snapshot | None) -> list[Action]:
            for cluster in sorted(clusters):
                try:
                    refuse_another_cluster(self.site, cluster, snapshot)
                except ReconcilerError as error:
                    failed.update(dict.fromkeys(self._named_on(cluster), error))
            again = self._plan(None if snapshot is None else snapshot.record, failed)
            failed.update((self._named(address), error) for address, error in _losing_more(again, ready))
            ready.update((action.id, action) for action in again.actions)
            return self._executable(again, failed)

        undone = self.emergency.carry_out_each(self.site, clusters, decide)
        for name, error in undone.items():
            action = ready.get(name)
            addresses = (Address(name.partition(":")[2]),) if action is None else addresses_of(action)
            needed = next((need for need in action.depends_on if need in undone), None) if action is not None else None
            for address in addresses:
                cause = error if needed is None else _without(address, needed, undone[needed])
                failed.setdefault(self._named(address), cause)
        return self._result(plan, failed)

    def _without_cluster(self) -> dict[Address, ReconcilerError]:
        """Return why resources cannot be reached: their cluster does not answer, or is another."""
        clusters = sorted(
            {cluster_of(at) or "" for named, order in self.orders.items() for at in _changed(named, order)}
        )

        def check(cluster: str) -> ReconcilerError | None:
            try:
                self.site.providers[cluster]  # An unknown name is refused with those that are known.
                self.emergency.check(self.site, cluster)
            except ReconcilerError as error:
                return error
            return None

        errors = zip(clusters, side_by_side(check, clusters, name="clusters"), strict=True)
        return {address: error for cluster, error in errors if error for address in self._named_on(cluster)}

    def _named(self, address: Address) -> Address:
        """Return the resource that was named for an action; a single order is done as a whole or not at all."""
        if address in self.orders or len(self.orders) == 1:
            return address if address in self.orders else next(iter(self.orders))
        return next((named for named, order in self.orders.items() if address in _changed(named, order)), address)

    def _executable(self, plan: Plan, failed: Mapping[Address, ReconcilerError]) -> list[Action]:
        """Return the actions of a plan without those of orders that failed, and without what only these need."""
        refused = [action for action in plan.actions if self._named(action.address) in failed]
        left_out = {action.id for action in refused}.union(*(action.depends_on for action in refused))
        return [action for action in plan.actions if action.id not in left_out]

    def _named_on(self, cluster: str) -> list[Address]:
        return [
            named
            for named, order in self.orders.items()
            if any(cluster_of(at) == cluster for at in _changed(named, order))
        ]

    def _plan(self, record: Record | None, failed: dict[Address, ReconcilerError]) -> Plan:
        """Plan the orders that did not fail yet, and add to `failed` those that are refused."""
        orders = {address: order for address, order in self.orders.items() if address not in failed}
        observed, unread = observe_orders(self.site, list(orders.values()))
        failed.update(
            (named, unread[name])
            for named, order in orders.items()
            for name in sorted(_needed(named, order) & unread.keys())
        )
        rest = [order for address, order in orders.items() if address not in failed]
        if not rest:
            return Plan(
                workspace="", environment=None, base=None, tool=self.site.invocation.tool, git_commit=None, actions=()
            )
        plan = plan_orders(self.site, rest, record, observed, self.allow)
        for address, error in _refusals(plan, is_whole=len(self.orders) == 1):
            failed.setdefault(self._named(address), error)
        return plan

    def _result(self, plan: Plan, failed: Mapping[Address, ReconcilerError]) -> OrderResult:
        addresses = (*self.orders, *(address for address in self.refused if address not in self.orders))
        if self.names_parts and plan.actions and not failed:
            addresses = tuple(dict.fromkeys(action.address for action in plan.actions))
        done = [] if self.is_dry_run else [at for at in self.orders if at not in failed and kind_of(at) in _WITH_STATES]
        observed, _ = _observe(self.site, done)
        return OrderResult(
            command=self.command,
            noun=self.noun,
            plan=plan,
            addresses=addresses,
            failed=failed,
            states={address: state for address in done if (state := _state(observed.get(address)))},
            is_dry_run=self.is_dry_run,
            is_shown=self.confirm is not None,
        )


def _without(address: Address, needed: str, cause: ReconcilerError) -> ReconcilerError:
    return UserError(f"{address} stays as it is: {needed}: {cause.message}", hint=cause.hint)


def _changed(named: Address, order: Order) -> tuple[Address, ...]:
    """Return what an order changes: the named resource, and the other half of a new link."""
    if isinstance(order, CreateLinkOrder) and has_two_halves(order.resource):
        return (named, half_at(order.resource))
    return (named,)


def _needed(named: Address, order: Order) -> AbstractSet[str]:
    """Return the clusters without which an order cannot be decided."""
    source = {order.resource.spec.source} if isinstance(order, CreateLinkOrder) else set()
    return {cluster_of(named) or ""} | source


def observe_orders(site: Site, orders: Sequence[Order]) -> tuple[Inventory, Mapping[str, ReconcilerError]]:
    """Observe what orders are about; return also why clusters could not be read."""
    deleted = {order.link for order in orders if isinstance(order, DeleteLinkOrder)}
    lost = _mirrors_over(site, deleted) if deleted else ()
    observed, unread = _observe(site, dict.fromkeys([*(at for order in orders for at in _scope(order)), *lost]))
    altered = (mirror_at(order.topic) for order in orders if isinstance(order, AlterTopicOrder))
    mirrors = (observed[address].resource for address in altered if address in observed)
    links = [address_of("link", each.cluster, each.link) for each in mirrors if isinstance(each, MirrorTopic)]
    if links:  # They say which configs their mirrors copy.
        seen, more = _observe(site, links)
        observed, unread = {**observed, **seen}, {**unread, **more}
    if any(isinstance(order, MountOrder) and order.needs_mirrors for order in orders):
        observed = {**_live_mirrors(site), **observed}
    return observed, unread


def _mirrors_over(site: Site, links: AbstractSet[Address]) -> Iterator[Address]:
    """Yield the mirrors of links, on clusters that answer."""
    for cluster in sorted({cluster_of(link) or "" for link in links}):
        with suppress(ReconcilerError):  # The cluster is observed next, and that says why it cannot be read.
            for mirror in site.providers[cluster].links.mirrors():
                if address_of("link", cluster, mirror.link) in links:
                    yield address_of("mirror", cluster, mirror.name)


def _live_mirrors(site: Site) -> Inventory:
    """Return the mirrors that follow a source, on all clusters that answer."""

    def read(cluster: str) -> Sequence[MirrorSeen]:
        try:
            provider = site.providers[cluster]
            return provider.links.mirrors() if provider.identify() is not None else ()
        except ReconcilerError:
            return ()

    mirrors: dict[Address, Observed] = {}
    for cluster, answer in zip(site.clusters, side_by_side(read, list(site.clusters), name="mirrors"), strict=True):
        for seen in answer:
            if seen.status is not MirrorStatus.STOPPED and seen.source_cluster:
                mirror = MirrorTopic(
                    cluster=cluster,
                    link=seen.link,
                    source_cluster=seen.source_cluster,
                    source=seen.source,
                    name=seen.name,
                )
                mirrors[mirror.address] = Observed(mirror, state=seen.status.value)
    return mirrors


def _scope(order: Order) -> Iterator[Address]:
    """Yield what has to be observed to decide an order."""
    match order:
        case CreateTopicOrder() | AlterTopicOrder() | DeleteTopicOrder() | MountOrder():
            cluster = cluster_of(order.topic) or ""
            yield from (cluster_address(cluster), order.topic, mirror_at(order.topic))
            levels = tiers_of(split_name(full_name_of(order.topic))[0])
            yield from (address_of("namespace", cluster, level) for level in levels)
        case CreateNamespaceOrder(cluster=cluster, name=name) | AlterNamespaceOrder(cluster=cluster, name=name):
            yield cluster_address(cluster)
            yield from (address_of("namespace", cluster, level) for level in tiers_of(name))
            if isinstance(order, AlterNamespaceOrder) and order.configs:  # Topics inherit them.
                yield from _below(cluster, name)
        case DeleteNamespaceOrder(cluster=cluster, name=name):
            yield from (cluster_address(cluster), address_of("namespace", cluster, name), *_below(cluster, name))
        case MoveTopicsOrder(cluster=cluster):
            yield cluster_address(cluster)
            yield from (Address(f"{kind}/{cluster}/*") for kind in ("namespace", "topic", "mirror"))
        case CreateLinkOrder():
            link = order.resource
            yield from (cluster_address(link.cluster), _links_on(link.cluster), cluster_address(link.spec.source))
            if has_two_halves(link):
                yield _links_on(link.spec.source)
        case AlterLinkOrder() | PauseLinkOrder() | DeleteLinkOrder():
            cluster = cluster_of(order.link) or ""
            yield from (cluster_address(cluster), _links_on(cluster))
        case _:
            message = f"{order} names no resource of its own to observe"
            raise TypeError(message)


def _below(cluster: str, name: str) -> Iterator[Address]:
    yield from (Address(f"{kind}/{cluster}/{name}:*") for kind in ("namespace", "topic", "mirror"))


def _links_on(cluster: str) -> Address:
    return address_of("link", cluster, "*")


def _observe(site: Site, addresses: Collection[Address]) -> tuple[Inventory, Mapping[str, ReconcilerError]]:
    scopes: dict[str, list[Address]] = {}
    for address in addresses:
        scopes.setdefault(cluster_of(address) or "", []).append(address)

    def read(cluster: str) -> Inventory | ReconcilerError:
        try:
            return site.providers[cluster].observe(Scope(tuple(scopes[cluster])))
        except ReconcilerError as error:
            return error

    observed: dict[Address, Observed] = {}
    unread: dict[str, ReconcilerError] = {}
    for cluster, answer in zip(scopes, side_by_side(read, list(scopes), name="clusters"), strict=True):
        if isinstance(answer, ReconcilerError):
            unread[cluster] = answer
        else:
            observed |= answer
    return observed, unread


def _state(seen: Observed | None) -> str | None:
    return None if seen is None else seen.state


def _losing_more(again: Plan, shown: Mapping[str, Action]) -> Iterator[tuple[Address, ReconcilerError]]:
    """Yield resources whose order would lose more than was shown.

    All else that is still legal is done, whatever became of it meanwhile.
    """
    for action in again.actions:
        is_restore = isinstance(action, Transition) and action.verb == RESTORE
        before = shown.get(action.id)
        if isinstance(action, Update) and action.risk is Risk.DATA_LOSS:
            if before is None or before.risk is not Risk.DATA_LOSS:
                message = f"{action.address} has records by now that would be lost"
                yield action.address, StalePlanError(message, hint="Nothing was done. Give the command again.")
        elif not isinstance(action, Delete) and not is_restore:
            continue
        elif before is None or before.precondition != action.precondition:
            message = f"{action.address} was created, changed or deleted by another process after it was shown"
            yield action.address, StalePlanError(message, hint="Nothing was done. Give the command again.")


def _way_on(guard: str, address: Address) -> str:
    return _WAYS_ON.get(guard, "Nothing was done.").format(address)


def _with_errors(plan: Plan, refused: Sequence[tuple[Address, ReconcilerError]]) -> Plan:
    """Return a plan that also says what was refused before it was made."""
    more = (Finding(at, None, error.message.removeprefix(f"{at}: "), error.hint) for at, error in refused)
    return replace(plan, errors=(*plan.errors, *more))


def _refusals(plan: Plan, *, is_whole: bool) -> Iterator[tuple[Address, ReconcilerError]]:
    """Yield why orders are refused. The hint of one that is done as a whole lifts all blocks at once."""
    allows = at_once([action.blocked.allow for action in plan.blocked if action.blocked and action.blocked.allow])
    for action in plan.blocked:
        if action.blocked is not None:
            allow, guard = action.blocked.allow, action.blocked.guard
            options = " ".join(f"--allow '{each}'" if "*" in each else f"--allow {each}" for each in allows)
            lifted = options if is_whole else f"--allow {allow}"
            hint = f"Allow it once with: {lifted}" if allow else _way_on(guard, action.address)
            yield action.address, BlockedError(f"{action.address}: {action.blocked.message}", hint=hint)
    for error in plan.errors:
        if error.address is not None:
            yield error.address, UserError(error.message, hint=error.hint)
