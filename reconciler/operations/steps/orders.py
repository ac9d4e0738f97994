"""Plan and execute orders: changes that a command requests without manifests, such as `topic create`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from reconciler.errors import BlockedError, IncompleteError, ReconcilerError, RetryableError, StalePlanError, UserError
from reconciler.lifecycles import MIRROR, TWO_SIDED_VERBS, MirrorStatus
from reconciler.operations.steps.observe import (
    absent_cluster_error,
    explain_lost_cluster,
    measure,
    measure_on_cluster,
    query_in_parallel,
    reject_other_cluster,
)
from reconciler.operations.steps.runner import EmergencyRun, require_confirmation, summarize_errors
from reconciler.operations.steps.transitions import add_swap_costs, check_restorable, explain_interrupted
from reconciler.operations.steps.workspace import Site, Work
from reconciler.planning import planner
from reconciler.planning.actions import Delete, Risk, Transition, Update, list_changed_addresses
from reconciler.planning.allowances import group_allowances
from reconciler.planning.checks.mirror_checks import find_role_swap, find_truncated_topics
from reconciler.planning.diff.mirror_orders import list_mirror_scope, list_needed_clusters
from reconciler.planning.orders import (
    AlterLinkOrder,
    AlterNamespaceOrder,
    AlterTopicOrder,
    CreateLinkOrder,
    CreateMirrorOrder,
    CreateNamespaceOrder,
    CreateTopicOrder,
    DeleteLinkOrder,
    DeleteMirrorOrder,
    DeleteNamespaceOrder,
    DeleteTopicOrder,
    MountOrder,
    MoveTopicsOrder,
    PauseLinkOrder,
    RoleOrder,
    TrimTopicOrder,
)
from reconciler.planning.plan import Plan, PlanFinding, PlanInput, PlanSource, Selection
from reconciler.planning.resolve.mirror_sources import NOT_DECLARED, link_of
from reconciler.planning.selection import build_other_half_address, has_two_halves
from reconciler.planning.situation import as_mirror, get_source_topic
from reconciler.providers.protocol import Provider, Scope, require_archives, require_groups, require_links
from reconciler.resources.address import (
    Address,
    address_of,
    cluster_address,
    cluster_of,
    full_name_of,
    kind_of,
    list_levels,
    split_name,
)
from reconciler.resources.inventory import DeclaredResource, Observed
from reconciler.resources.measures import TopicReaders
from reconciler.resources.mirror_link import MirrorTopic
from reconciler.resources.mirrors import FAILOVER, RESTORE
from reconciler.resources.mount import StoredTopics
from reconciler.runtime.dataclass import dataclass, field, replace
from reconciler.runtime.threads import map_in_parallel

if TYPE_CHECKING:
    from reconciler.operations.steps.invocation import Invocation
    from reconciler.planning.actions import Action
    from reconciler.planning.orders import Order
    from reconciler.planning.planner import Draft
    from reconciler.resources.inventory import Capabilities, Inventory, Record, Resource
    from reconciler.resources.measures import Cuts, Measure, Measures
    from reconciler.resources.mirrors import ObservedMirror
    from reconciler.state.snapshots import Snapshot


def plan_record_orders(invocation: Invocation, orders: Sequence[Order], record: Record) -> Plan:
    """Plan orders that change only the state."""
    return require_executable(
        planner.assess_draft(
            planner.decide_actions({}, record, {}, request=_build_plan_input(invocation, orders, {})), {}
        )
    )


def plan_orders(
    site: Site,
    orders: Sequence[Order],
    snapshot: Snapshot | None,
    read: OrderObservation,
    allow: Sequence[str] = (),
    *,
    is_measured: bool = True,
) -> Plan:
    """Plan orders for the clusters of `read`. Rejected orders are errors of the plan.

    `allow` overrides guards, as `VERB:ADDR`.
    """
    observed = read.inventory
    clusters = sorted({cluster for address in observed if (cluster := cluster_of(address)) is not None})
    orders = [
        replace(order, readers=read.trimmed.get(order.topic)) if isinstance(order, TrimTopicOrder) else order
        for order in orders
    ]
    request = replace(
        _build_plan_input(site.invocation, orders, {name: site.providers[name].capabilities for name in clusters}),
        selection=Selection(allow=tuple(allow)),
        hidden={address: seen.hidden for address, seen in observed.items() if seen.hidden is not None},
        identities={name: site.providers[name].identify() for name in clusters if _is_for_links(orders)},
        stored=StoredTopics(detached=read.detached),
        me=None if snapshot is None else site.make_owner(snapshot.lineage),
        has_state=snapshot is not None,
        lost={name: explain_lost_cluster(name, error) for name, error in read.unread.items()},
    )
    shown = {address: seen for address, seen in observed.items() if seen.hidden is None}
    desired: dict[Address, DeclaredResource] = {
        cluster_address(name): DeclaredResource(site.clusters[name], "") for name in clusters
    }
    # Deletion protection in the files applies even if no state was read.
    if isinstance(site, Work):
        desired |= {address: site.loaded.desired[address] for address in observed if address in site.loaded.desired}
    draft = planner.decide_actions(desired, {} if snapshot is None else snapshot.record, shown, request=request)
    cuts = planner.list_topics_to_measure(draft) if is_measured else {}
    if any(isinstance(order, RoleOrder) for order in orders):
        return planner.assess_draft(*_measure_roles(site, draft, cuts, read.optional))
    measures = measure(site.providers, cuts, with_groups=True, optional=clusters) if cuts else {}
    return planner.assess_draft(draft, measures)


def _is_for_links(orders: Sequence[Order]) -> bool:
    return any(isinstance(order, CreateLinkOrder) for order in orders)


def _measure_roles(site: Site, draft: Draft, cuts: Cuts, optional: Collection[str]) -> tuple[Draft, Measures]:
    situation, cut = draft.situation, find_truncated_topics(draft.actions)
    by_cluster: dict[str, list[Address]] = {}
    for address in cuts:
        by_cluster.setdefault(cluster_of(address) or "", []).append(address)

    unreadable: dict[Address, UserError] = {}

    def measure_cluster(cluster: str) -> Measures:
        return _measure_side(site.providers[cluster], by_cluster[cluster], cut, unreadable)

    answers, late = query_in_parallel(measure_cluster, by_cluster, optional)
    measures = {address: measure for answer in answers.values() for address, measure in answer.items()}
    _reject_unreadable(draft, unreadable)
    if late:
        lost = {
            **situation.request.lost,
            **{cluster: explain_lost_cluster(cluster, error) for cluster, error in late.items()},
        }
        request = replace(situation.request, lost=lost)
        draft = replace(draft, situation=replace(situation, request=request, trusted=situation.trusted - late.keys()))
    is_swap = any(map(find_role_swap, draft.actions))
    return draft, add_swap_costs(site.providers, draft.actions, measures) if is_swap else measures


def _measure_side(
    provider: Provider, topics: Sequence[Address], cut: Collection[Address], unreadable: dict[Address, UserError]
) -> Measures:
    def measure_topics(wanted: Sequence[Address]) -> Measures:
        return measure_on_cluster(provider, dict.fromkeys(wanted, ()), cut, with_groups=False, is_optional=False)

    sizes: dict[Address, Measure] = {}
    try:
        while missing := [address for address in topics if address not in sizes]:
            more = measure_topics(missing)
            if not more:
                break
            sizes |= more
    except RetryableError:
        return sizes
    except UserError:
        for topic in missing:
            try:
                sizes |= measure_topics([topic])
            except UserError as error:
                unreadable[topic] = error
    return sizes


def _reject_unreadable(draft: Draft, unreadable: Mapping[Address, UserError]) -> None:
    for topic, error in unreadable.items():
        mirror = as_mirror(topic)
        if any(action.address == mirror for action in draft.actions):
            draft.decision.refuse(mirror, None, error.message, error.hint)
            draft.decision.actions = [action for action in draft.actions if action.address != mirror]


def require_executable(plan: Plan) -> Plan:
    """Return the plan. Raises `BlockedError` if a guard blocks an action."""
    for error in plan.errors:
        raise UserError(error.message, hint=error.hint)
    for action, block in ((action, action.blocked) for action in plan.blocked):
        hint = f"Allow it once with: --allow {block.allow}" if block and block.allow else "Nothing was done."
        raise BlockedError(f"{action.address}: {block.message if block else ''}; nothing was done", hint=hint)
    return plan


def _build_plan_input(
    invocation: Invocation, orders: Sequence[Order], capabilities: Mapping[str, Capabilities]
) -> PlanInput:
    return PlanInput(
        workspace="",
        capabilities=capabilities,
        identities={},
        today=invocation.today(),
        now_ms=invocation.now_ms(),
        source=PlanSource(tool=invocation.tool),
        orders=tuple(orders),
    )


_GUARD_HINTS: Final[Mapping[str, str]] = {
    "protected": "Apply once with protect: false.",
    "nested": "Delete those first, or all of it: --recursive",
    "mirroring": "Stop them first: reconciler mirror failover --link {}. --force does it, losing what they lack.",
}
"""Hints for guards that `--allow` cannot override. `{}` is the address."""

_WITH_STATES: Final = frozenset({"mirror", "link"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderResult:
    """Plan and results of changes that a command requested."""

    command: str
    noun: str
    plan: Plan
    addresses: tuple[Address, ...]
    failed: Mapping[Address, ReconcilerError]
    states: Mapping[Address, str] = field(default_factory=dict)
    """Final states of mirrors and links, and locations of topics, if known."""
    is_dry_run: bool = False
    is_shown: bool = False

    @property
    def verdict(self) -> ReconcilerError | None:
        """Error if an order failed."""
        errors = [self.failed.get(address) for address in self.addresses]
        return summarize_errors(self.command, errors, self.noun, is_rehearsal=self.is_dry_run)

    @property
    def unchanged(self) -> frozenset[Address]:
        """Ordered resources that needed no change."""
        changed = {address for action in self.plan.actions for address in list_changed_addresses(action)}
        return frozenset(self.addresses) - changed - self.failed.keys()

    @property
    def resources(self) -> tuple[OrderedResource, ...]:
        """Ordered resources in argument order."""
        untouched = {*self.unchanged, *self.failed}
        return tuple(
            OrderedResource(address, address not in untouched, self.states.get(address), self.failed.get(address))
            for address in self.addresses
        )


@dataclass(frozen=True, slots=True)
class OrderedResource:
    """A resource that a command names, with its result."""

    address: Address
    is_changed: bool
    state: str | None
    """State of a mirror or link, or location of a topic; `null` if unknown."""
    error: ReconcilerError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderRun:
    """Executes a command's orders, one per resource. A failed order does not stop the others."""

    emergency: EmergencyRun
    site: Site
    noun: str
    orders: Mapping[Address, Order]
    refused: Mapping[Address, ReconcilerError] = field(default_factory=dict)
    allow: Sequence[str] = ()
    confirm: Callable[[Plan], bool] | None = None
    is_dry_run: bool = False
    names_parts: bool = False

    def execute_orders(self) -> OrderResult:
        """Execute all orders."""
        failed = {**self.refused, **self._find_unreachable_resources()}
        unread: dict[str, ReconcilerError] = {}
        plan = self._plan_orders(self.emergency.read_snapshot(self.site), failed, unread)
        failed.update(_find_unrestorable_topics(self.site, plan))
        plan = self._add_errors(plan, failed)
        ready = {action.id: action for action in self._list_executable_actions(plan, failed)}
        if self.is_dry_run or not ready:
            return self._build_result(plan, failed)
        require_confirmation(self.confirm is None or self.confirm(plan))
        clusters = {cluster_of(action.address) or "" for action in ready.values()}

        def decide_actions(snapshot: Snapshot | None) -> list[Action]:
            for cluster in sorted(clusters):
                try:
                    reject_other_cluster(self.site, cluster, snapshot)
                except ReconcilerError as error:
                    failed.update(dict.fromkeys(self._list_ordered_on(cluster), error))
            again = self._plan_orders(snapshot, failed, unread, is_again=True)
            failed.update(
                (self._find_ordered_resource(address), error) for address, error in _find_added_losses(again, ready)
            )
            ready.update((action.id, _keep_shown_costs(action, ready)) for action in again.actions)
            return [ready[action.id] for action in self._list_executable_actions(again, failed)]

        undone = self.emergency.run_actions(self.site, clusters, decide_actions)
        for name, error in undone.items():
            action = ready.get(name)
            addresses = (Address(name.partition(":")[2]),) if action is None else list_changed_addresses(action)
            needed = next((need for need in action.depends_on if need in undone), None) if action is not None else None
            for address in addresses:
                cause = error if needed is None else _dependency_error(address, needed, undone[needed])
                failed.setdefault(self._find_ordered_resource(address), self._explain_stop(action, error) or cause)
        return self._build_result(plan, failed)

    def _add_errors(self, plan: Plan, failed: Mapping[Address, ReconcilerError]) -> Plan:
        refused = {address for address, _ in self._list_refusals(plan)}
        errors = [
            PlanFinding(at, None, refusal.strip_subject(f"{at}: "), refusal.hint)
            for at, refusal in failed.items()
            if at not in refused
        ]
        left = {error.address for error in errors}
        actions = tuple(action for action in plan.actions if self._find_ordered_resource(action.address) not in left)
        return replace(plan, errors=(*plan.errors, *errors), actions=actions)

    def _list_refusals(self, plan: Plan) -> Iterator[tuple[Address, ReconcilerError]]:
        is_whole = len(self.orders) == 1
        yield from (
            (self._find_ordered_resource(address), error) for address, error in _list_refusals(plan, is_whole=is_whole)
        )

    def _explain_stop(self, action: Action | None, error: ReconcilerError) -> ReconcilerError | None:
        is_two_sided = isinstance(action, Transition) and action.verb in TWO_SIDED_VERBS
        is_stopped = isinstance(error, IncompleteError) and self.emergency.stop.is_requested
        return (
            explain_interrupted(self.site.providers, action.address) if is_two_sided and is_stopped and action else None
        )

    def _find_unreachable_resources(self) -> dict[Address, ReconcilerError]:
        clusters = sorted(
            {
                cluster_of(at) or ""
                for named, order in self.orders.items()
                for at in _list_changed_resources(named, order)
            }
        )

        def check_cluster(cluster: str) -> ReconcilerError | None:
            try:
                self.site.providers[cluster]
                self.emergency.check_answers(self.site, cluster)
            except ReconcilerError as error:
                return error
            return None

        errors = zip(clusters, map_in_parallel(check_cluster, clusters, name="clusters"), strict=True)
        return {address: error for cluster, error in errors if error for address in self._list_ordered_on(cluster)}

    def _find_ordered_resource(self, address: Address) -> Address:
        if address in self.orders or len(self.orders) == 1:
            return address if address in self.orders else next(iter(self.orders))
        return next(
            (named for named, order in self.orders.items() if address in _list_changed_resources(named, order)), address
        )

    def _list_executable_actions(self, plan: Plan, failed: Mapping[Address, ReconcilerError]) -> list[Action]:
        refused = [action for action in plan.actions if self._find_ordered_resource(action.address) in failed]
        left_out = {action.id for action in refused}.union(*(action.depends_on for action in refused))
        return [action for action in plan.actions if action.id not in left_out]

    def _list_ordered_on(self, cluster: str) -> list[Address]:
        return [
            named
            for named, order in self.orders.items()
            if any(cluster_of(at) == cluster for at in _list_changed_resources(named, order))
        ]

    def _plan_orders(
        self,
        snapshot: Snapshot | None,
        failed: dict[Address, ReconcilerError],
        unread: dict[str, ReconcilerError],
        *,
        is_again: bool = False,
    ) -> Plan:
        orders = {address: order for address, order in self.orders.items() if address not in failed}
        read = observe_for_orders(self.site, orders, unread, has_costs=not is_again)
        unread.update(read.unread)
        failed.update(
            (named, unread[name])
            for named, order in orders.items()
            for name in sorted(_list_own_clusters(named, order) & unread.keys())
        )
        rest = [order for address, order in orders.items() if address not in failed]
        if not rest:
            return Plan(
                workspace="", environment=None, base=None, tool=self.site.invocation.tool, git_commit=None, actions=()
            )
        plan = plan_orders(
            self.site,
            rest,
            snapshot,
            read,
            self.allow,
            is_measured=not (is_again and all(isinstance(order, RoleOrder) for order in rest)),
        )
        for address, error in self._list_refusals(plan):
            failed.setdefault(address, error)
        return plan

    def _build_result(self, plan: Plan, failed: Mapping[Address, ReconcilerError]) -> OrderResult:
        addresses = (*self.orders, *(address for address in self.refused if address not in self.orders))
        if self.names_parts and plan.actions and not failed:
            addresses = tuple(dict.fromkeys(action.address for action in plan.actions))
        done = [] if self.is_dry_run else [at for at in addresses if at not in failed and kind_of(at) in _WITH_STATES]
        observed, _ = _observe_resources(self.site, done, ())
        return OrderResult(
            command=self.emergency.command,
            noun=self.noun,
            plan=plan,
            addresses=addresses,
            failed=failed,
            states={address: state for address in done if (state := _read_final_state(observed.get(address)))},
            is_dry_run=self.is_dry_run,
            is_shown=self.confirm is not None and bool(plan.actions),
        )


def _dependency_error(address: Address, needed: str, cause: ReconcilerError) -> ReconcilerError:
    return UserError(f"{address} stays as it is: {needed}: {cause.message}", hint=cause.hint)


def _list_changed_resources(named: Address, order: Order) -> tuple[Address, ...]:
    if isinstance(order, CreateLinkOrder) and has_two_halves(order.resource):
        return (named, build_other_half_address(order.resource))
    return (named,)


def _list_own_clusters(named: Address, order: Order) -> AbstractSet[str]:
    source = {order.resource.spec.source} if isinstance(order, CreateLinkOrder) else set()
    return {cluster_of(named) or ""} | source


def _find_link_mirrors(site: Site, links: AbstractSet[Address]) -> Iterator[Address]:
    for cluster in sorted({cluster_of(link) or "" for link in links}):
        with suppress(ReconcilerError):
            for mirror in require_links(site.providers[cluster]).list_mirrors():
                if address_of("link", cluster, mirror.link) in links:
                    yield address_of("mirror", cluster, mirror.name)


def _read_live_mirrors(site: Site, optional: Collection[str]) -> Inventory:
    def read_cluster(cluster: str) -> Sequence[ObservedMirror]:
        try:
            provider = site.providers[cluster]
            return require_links(provider).list_mirrors() if provider.identify() is not None else ()
        except ReconcilerError:
            return ()

    mirrors: dict[Address, Observed] = {}
    for cluster, answer in query_in_parallel(read_cluster, site.clusters, optional)[0].items():
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


@dataclass(frozen=True, slots=True)
class OrderObservation:
    """Resources that orders need, and unreadable clusters."""

    inventory: Inventory
    unread: Mapping[str, ReconcilerError]
    optional: frozenset[str]
    detached: Mapping[Address, str] = field(default_factory=dict)
    trimmed: Mapping[Address, TopicReaders] = field(default_factory=dict)


def observe_for_orders(
    site: Site, named: Mapping[Address, Order], known_unread: Mapping[str, ReconcilerError], *, has_costs: bool = True
) -> OrderObservation:
    """Observe the resources that orders need.

    Clusters in `known_unread` are skipped; without `has_costs`, also sources of failovers.
    """
    unread, orders = dict(known_unread), list(named.values())
    deleted = {order.link for order in orders if isinstance(order, DeleteLinkOrder)}
    mirrors = tuple(_find_link_mirrors(site, deleted)) if deleted else ()
    observed: dict[Address, Observed] = {}
    queried: set[Address] = set()
    needed: set[str] = set()
    while True:
        needed.update(cluster for order in orders for cluster in _list_required_clusters(order, observed))
        addresses = dict.fromkeys(
            address
            for order in orders
            for address in _list_order_scope(order, observed, site.clusters)
            if address not in queried
            and (cluster_of(address) or "") not in unread
            and (has_costs or cluster_of(address) in needed or not _is_failover(order))
        )
        addresses |= dict.fromkeys(address for address in mirrors if address not in queried)
        if not addresses:
            break
        queried.update(addresses)
        optional = {cluster_of(address) or "" for address in addresses} - needed
        more, errors = _observe_resources(site, addresses, optional)
        observed |= more
        unread |= errors
    if any(_may_delete_topics(order) for order in orders):
        is_waited_for = any(isinstance(order, MountOrder) for order in orders)
        observed = {**_read_live_mirrors(site, () if is_waited_for else site.clusters), **observed}
    strange = dict(_find_replaced_sources(site, orders, observed))
    unread |= strange
    left = {address: seen for address, seen in observed.items() if cluster_of(address) not in strange}
    unneeded = frozenset({cluster_of(address) or "" for address in left} - needed)
    trimmed = {
        order.topic: _read_positions(site, order.topic, left)
        for order in orders
        if isinstance(order, TrimTopicOrder) and not left.keys().isdisjoint({order.topic, as_mirror(order.topic)})
    }
    return OrderObservation(left, unread, unneeded, _find_detached_topics(site, orders) if has_costs else {}, trimmed)


def _read_positions(site: Site, topic: Address, observed: Inventory) -> TopicReaders:
    provider, full_name = site.providers[cluster_of(topic) or ""], full_name_of(topic)
    bounds = provider.open_log(topic).read_bounds()
    groups = None
    with suppress(ReconcilerError):
        groups = require_groups(provider).list_for_topic(full_name)
    committed = (
        None
        if groups is None
        else {
            group.name: {
                at.partition: at.committed for at in group.offsets if at.topic == full_name and at.committed is not None
            }
            for group in groups
        }
    )
    mirrors = [
        address
        for address, seen in sorted(observed.items())
        if isinstance(seen.resource, MirrorTopic)
        and seen.state != MirrorStatus.STOPPED.value
        and get_source_topic(seen.resource) == topic
    ]
    return TopicReaders(
        {number: (at.start, at.stable) for number, at in bounds.items()},
        committed,
        {mirror: _read_copied_offsets(site, mirror) for mirror in mirrors},
    )


def _read_copied_offsets(site: Site, mirror: Address) -> Mapping[int, int] | None:
    try:
        measured = site.providers[cluster_of(mirror) or ""].measure_topics([mirror])
    except ReconcilerError:
        return None
    if mirror not in measured:
        return None
    positions = measured[mirror].positions.items()
    return {number: at.fetched if at.is_renumbered else max(at.fetched, at.end) for number, at in positions}


def _may_delete_topics(order: Order) -> bool:
    is_taking = isinstance(order, DeleteTopicOrder | TrimTopicOrder | DeleteNamespaceOrder | MoveTopicsOrder)
    return is_taking or (isinstance(order, MountOrder) and order.needs_mirrors)


def _find_detached_topics(site: Site, orders: Iterable[Order]) -> Mapping[Address, str]:
    names: dict[str, list[str]] = {}
    for order in orders:
        if isinstance(order, CreateTopicOrder | CreateMirrorOrder):
            address = order.topic if isinstance(order, CreateTopicOrder) else order.mirror
            names.setdefault(cluster_of(address) or "", []).append(full_name_of(address))

    def read_cluster(cluster: str) -> Mapping[Address, str]:
        provider = site.providers[cluster]
        if site.clusters[cluster].spec.object_storage is None or not provider.capabilities.mountings:
            return {}
        stored = (
            register
            for register in require_archives(provider).list_mountable_topics()
            if register.state == "detached" and register.full_name in names[cluster]
        )
        return {address_of("topic", cluster, register.full_name): register.location for register in stored}

    answers, _ = query_in_parallel(read_cluster, names, names)
    return {topic: location for answer in answers.values() for topic, location in answer.items()}


def _is_failover(order: Order) -> bool:
    is_forced = isinstance(order, DeleteLinkOrder) and order.is_forced
    return is_forced or (isinstance(order, RoleOrder) and order.verb == FAILOVER)


def _list_required_clusters(order: Order, observed: Inventory) -> Iterator[str]:
    if isinstance(order, RoleOrder | CreateMirrorOrder | DeleteMirrorOrder):
        yield from list_needed_clusters(order, observed)
    elif isinstance(order, DeleteLinkOrder):
        yield cluster_of(order.link) or ""
    else:
        yield from (cluster_of(address) or "" for address in _list_order_scope(order, observed, ()))


def _list_order_scope(order: Order, observed: Inventory, clusters: Collection[str]) -> Iterator[Address]:
    match order:
        case CreateTopicOrder() | AlterTopicOrder() | DeleteTopicOrder() | TrimTopicOrder() | MountOrder():
            cluster = cluster_of(order.topic) or ""
            yield from (cluster_address(cluster), order.topic, as_mirror(order.topic))
            levels = list_levels(split_name(full_name_of(order.topic))[0])
            yield from (address_of("namespace", cluster, level) for level in levels)
            seen = observed.get(as_mirror(order.topic))
            if isinstance(order, AlterTopicOrder) and seen is not None and isinstance(seen.resource, MirrorTopic):
                yield address_of("link", cluster, seen.resource.link)
        case CreateNamespaceOrder(cluster=cluster, name=name) | AlterNamespaceOrder(cluster=cluster, name=name):
            yield cluster_address(cluster)
            yield from (address_of("namespace", cluster, level) for level in list_levels(name))
            if isinstance(order, AlterNamespaceOrder) and order.configs:
                yield from _list_patterns_below(cluster, name)
        case DeleteNamespaceOrder(cluster=cluster, name=name):
            yield from (
                cluster_address(cluster),
                address_of("namespace", cluster, name),
                *_list_patterns_below(cluster, name),
            )
        case MoveTopicsOrder(cluster=cluster):
            yield cluster_address(cluster)
            yield from (Address(f"{kind}/{cluster}/*") for kind in ("namespace", "topic", "mirror"))
        case CreateLinkOrder():
            link = order.resource
            yield from (
                cluster_address(link.cluster),
                _make_link_pattern(link.cluster),
                cluster_address(link.spec.source),
            )
            if has_two_halves(link):
                yield _make_link_pattern(link.spec.source)
        case AlterLinkOrder() | PauseLinkOrder() | DeleteLinkOrder():
            yield from _list_link_scope(order, observed)
        case RoleOrder() | CreateMirrorOrder() | DeleteMirrorOrder():
            yield from list_mirror_scope(order, observed, clusters)
        case _:
            message = f"{order} has no resource that can be observed"
            raise TypeError(message)


def _list_link_scope(
    order: AlterLinkOrder | PauseLinkOrder | DeleteLinkOrder, observed: Inventory
) -> Iterator[Address]:
    cluster = cluster_of(order.link) or ""
    yield from (cluster_address(cluster), _make_link_pattern(cluster))
    if isinstance(order, DeleteLinkOrder) and order.is_forced:
        # A forced deletion loses records that only the mirrors' sources have, so the sources are read.
        resources = (seen.resource for seen in observed.values())
        for mirror in (resource for resource in resources if isinstance(resource, MirrorTopic)):
            if link_of(mirror) == order.link:
                yield from (cluster_address(mirror.source_cluster), get_source_topic(mirror))


def _list_patterns_below(cluster: str, name: str) -> Iterator[Address]:
    yield from (Address(f"{kind}/{cluster}/{name}:*") for kind in ("namespace", "topic", "mirror"))


def _make_link_pattern(cluster: str) -> Address:
    return address_of("link", cluster, "*")


def _find_replaced_sources(
    site: Site, orders: Sequence[Order], observed: Inventory
) -> Iterator[tuple[str, ReconcilerError]]:
    mirrors = (order.mirror for order in orders if isinstance(order, RoleOrder))
    for cluster in sorted({cluster_of(address) or "" for address in mirrors}):
        if cluster_address(cluster) not in observed:
            continue
        for link in require_links(site.providers[cluster]).list_links():
            source = link.declared.spec.source
            seen = observed.get(cluster_address(source))
            if seen is not None and link.source_cluster_id not in {None, seen.incarnation}:
                message = f"is another cluster than when the link was created: {seen.incarnation}"
                yield source, UserError(message, hint=f"Correct where {source} is.", subject=f"cluster {source} ")


def _observe_resources(
    site: Site, addresses: Collection[Address], optional: Collection[str]
) -> tuple[Inventory, Mapping[str, ReconcilerError]]:
    scopes: dict[str, list[Address]] = {}
    for address in addresses:
        scopes.setdefault(cluster_of(address) or "", []).append(address)

    def observe_cluster(cluster: str) -> Inventory:
        if cluster not in site.clusters and cluster in optional:
            raise UserError(NOT_DECLARED, hint="Declare it as a Cluster.", subject=f"cluster {cluster} ")
        observed = site.providers[cluster].observe(Scope(tuple(scopes[cluster])))
        if cluster_address(cluster) in scopes[cluster] and cluster_address(cluster) not in observed:
            raise absent_cluster_error(site.clusters[cluster])
        return observed

    answers, errors = query_in_parallel(observe_cluster, scopes, optional)
    return {address: seen for answer in answers.values() for address, seen in answer.items()}, errors


def _read_final_state(seen: Observed | None) -> str | None:
    return None if seen is None else seen.state


def _find_unrestorable_topics(site: Site, plan: Plan) -> Iterator[tuple[Address, ReconcilerError]]:
    moves = [action for action in plan.actions if isinstance(action, Transition) and action.verb == RESTORE]
    restores = [move.after for move in moves]

    def check_mirror(mirror: Resource) -> tuple[Address, ReconcilerError] | None:
        if isinstance(mirror, MirrorTopic):
            try:
                peer = require_links(site.providers[mirror.source_cluster]).read_mirror(mirror.source)
                check_restorable(site.providers, mirror.cluster, mirror.name, peer)
            except ReconcilerError as error:
                return mirror.address, error
        return None

    yield from (wrong for wrong in map_in_parallel(check_mirror, restores, name="restore") if wrong is not None)


def _keep_shown_costs(action: Action, shown: Mapping[str, Action]) -> Action:
    """A restore must not lose more than the user confirmed."""
    before = shown.get(action.id)
    if isinstance(action, Transition) and isinstance(before, Transition) and action.machine == MIRROR.name:
        return replace(action, estimate=before.estimate, risk=before.risk, parameters=before.parameters)
    return action


def _find_added_losses(again: Plan, shown: Mapping[str, Action]) -> Iterator[tuple[Address, ReconcilerError]]:
    for action in again.actions:
        is_restore = isinstance(action, Transition) and action.verb == RESTORE
        before = shown.get(action.id)
        is_other = isinstance(action, Transition) and isinstance(before, Transition) and before.after != action.after
        is_trim = isinstance(action, Update) and action.is_trim
        if isinstance(action, Update) and action.risk is Risk.DATA_LOSS and not is_trim:
            if before is None or before.risk is not Risk.DATA_LOSS:
                message = f"{action.address} has received records that would be lost"
                yield action.address, StalePlanError(message, hint="Nothing was done. Run the command again.")
        elif not isinstance(action, Delete) and not is_restore and not is_trim:
            continue
        elif before is None or is_other or before.precondition != action.precondition:
            message = f"{action.address} was created, changed or deleted by another process after it was shown"
            yield action.address, StalePlanError(message, hint="Nothing was done. Run the command again.")


def _choose_hint(guard: str, address: Address) -> str:
    return _GUARD_HINTS.get(guard, "Nothing was done.").format(address)


def _list_refusals(plan: Plan, *, is_whole: bool) -> Iterator[tuple[Address, ReconcilerError]]:
    allows = group_allowances(
        [action.blocked.allow for action in plan.blocked if action.blocked and action.blocked.allow]
    )
    for action in plan.blocked:
        if action.blocked is not None:
            allow, guard = action.blocked.allow, action.blocked.guard
            options = " ".join(
                f"--allow '{allowance}'" if "*" in allowance else f"--allow {allowance}" for allowance in allows
            )
            lifted = options if is_whole else f"--allow {allow}"
            hint = f"Allow it once with: {lifted}" if allow else _choose_hint(guard, action.address)
            yield action.address, BlockedError(action.blocked.message, hint=hint, subject=f"{action.address}: ")
    for error in plan.errors:
        if error.address is not None:
            subject = f"{error.address}: " if error.message.startswith("it ") else ""
            yield error.address, UserError(f"{subject}{error.message}", hint=error.hint)
