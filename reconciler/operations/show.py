"""`show`, `explain` and `graph`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from reconciler.errors import NotAuthorizedError, UserError
from reconciler.lifecycles import LIFECYCLES
from reconciler.manifests.load import find_field_origins
from reconciler.operations.clusters.mounts import UnmountedTopic, find_unmounted_topics
from reconciler.operations.clusters.namespaces import QuotaUsage, compute_quota_usage, read_quota_limits
from reconciler.operations.plan import PlanDecision, plan_unlocked
from reconciler.operations.steps.approval import read_plan
from reconciler.operations.steps.effective import (
    AclRow,
    ConfigRow,
    TieringRow,
    compute_effective_tiering,
    list_effective_acls,
    predict_inventory,
    read_effective_configs,
)
from reconciler.operations.steps.invocation import Invocation, Select, load_files
from reconciler.operations.steps.observe import ObservedClusters, observe
from reconciler.operations.steps.recorded import read_recorded_state
from reconciler.operations.steps.workspace import Work, open_work
from reconciler.planning.actions import Action, Create, Transition, Update
from reconciler.planning.checks.limit_checks import count_partitions
from reconciler.planning.checks.mount_checks import find_sealed_topics
from reconciler.planning.resolve.mirror_sources import find_current_role
from reconciler.planning.saved_plan import read_plan_to_show
from reconciler.planning.situation import is_recreated
from reconciler.resources.acls import build_rule_path
from reconciler.resources.address import Address, build_sort_key, cluster_address, cluster_of, full_name_of, kind_of
from reconciler.resources.cluster import Cluster
from reconciler.resources.cluster_properties import CONFIG_DEFAULTS
from reconciler.resources.inventory import DeclaredResource, Desired, Inventory, Observed, Record, Recorded, Resource
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic
from reconciler.resources.mount import Mounting
from reconciler.resources.namespace import Namespace
from reconciler.resources.owners import ResourceOwner, build_owner_key
from reconciler.resources.topic import Topic
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.text import find_similar, format_suggestion, pluralize

if TYPE_CHECKING:
    from reconciler.planning.plan import DriftFinding, HeldChange, Plan, PlanFinding, SavedPlan, UnfinishedTransition


@dataclass(frozen=True, slots=True)
class ResourceView:
    """A resource in files, state and clusters."""

    address: Address
    desired: Resource | None
    recorded: Recorded | None
    observed: Observed | None
    source: str | None
    """Declaration, such as `manifests/topics.yaml:88`."""
    hidden: NotAuthorizedError | None = None
    """Error if the principal may not see the resource; `observed` is `null` then."""

    unmounted: UnmountedTopic | None = None
    """Set if a Mounting unmounts the topic, which is missing or was replaced."""
    owner: ResourceOwner | None = None
    is_ours: bool = False
    is_rule: bool = False
    """Whether the namespace is only a name prefix, on a platform without namespaces."""
    quotas: tuple[QuotaUsage, ...] = ()
    """Use of a namespace's quotas; empty unless its address was requested."""

    @property
    def is_known(self) -> bool:
        """Whether files, state or cluster have the resource, even if hidden."""
        return (self.desired, self.recorded, self.observed, self.hidden) != (None, None, None, None)


def show(invocation: Invocation, select: Select, address: str | None) -> tuple[ResourceView, ...]:
    """Return the views of one resource, or of all."""
    work = open_work(invocation, select, is_reader=True)
    rows = _build_views(work, Address(address) if address else None)
    if address is not None and not rows[0].is_known:
        raise unknown_address_error(address, add_link_mirrors(work.loaded.desired))
    _warn_of_sealed(invocation, rows)
    return rows


def _warn_of_sealed(invocation: Invocation, rows: Iterable[ResourceView]) -> None:
    for sealed_topic in find_sealed_topics({row.address: row.observed for row in rows if row.observed is not None}):
        invocation.warn(f"{sealed_topic.address}: {sealed_topic.message}. {sealed_topic.hint}")


def show_plan(path: Path) -> SavedPlan:
    """Read a saved plan."""
    return read_plan(path, str(path), read_plan_to_show)


def unknown_address_error(address: str, known: Iterable[str]) -> UserError:
    """Build the error for an unknown address, with a similar one."""
    return UserError(
        f"{address} is neither declared, nor recorded, nor on a cluster",
        hint=format_suggestion(find_similar(address, known), then="List what there is with: reconciler show"),
    )


def add_link_mirrors(desired: Desired) -> Desired:
    """Return declared resources, including the mirrors of declared links."""
    derived: dict[Address, DeclaredResource] = {}
    for item in desired.values():
        if isinstance(item.resource, MirrorLink):
            derived.update(
                {mirror.address: DeclaredResource(mirror, item.source) for mirror in item.resource.mirrors()}
            )
    return {**desired, **derived}


def build_view(
    address: Address,
    desired: Desired,
    recorded: Record,
    seen: ObservedClusters,
    unmounted: Mapping[Address, UnmountedTopic],
    me: ResourceOwner,
) -> ResourceView:
    """Return a resource in files, state and clusters."""
    item = desired.get(address)
    observed, last, away = seen.inventory.get(address), recorded.get(address), unmounted.get(address)
    is_other = observed is not None and last is not None and is_recreated(last, observed)
    if address in seen.hidden or (observed is not None and not (is_other and away is not None and away.location)):
        away = None
    owner = _find_owner(address, item.resource if item else None, recorded, seen)
    platform = seen.capabilities.get(cluster_of(address) or "")
    return ResourceView(
        address,
        item.resource if item else None,
        last,
        _set_observed_role(observed, seen.inventory),
        item.source if item else None,
        seen.hidden.get(address),
        away,
        owner,
        owner is not None and owner.is_same(me),
        kind_of(address) == "namespace" and platform is not None and platform.namespaces_are_rules,
    )


def _set_observed_role(observed: Observed | None, inventory: Inventory) -> Observed | None:
    mirror = observed.resource if observed is not None else None
    role = find_current_role(mirror, inventory) if isinstance(mirror, MirrorTopic) else None
    if observed is None or mirror is None or role is None:
        return observed
    return replace(observed, resource=mirror.model_copy(update={"state": role}))


def _find_owner(
    address: Address, wanted: Resource | None, recorded: Record, seen: ObservedClusters
) -> ResourceOwner | None:
    cluster = seen.inventory.get(cluster_address(cluster_of(address) or ""))
    if cluster is None or cluster.cluster.owners is None:
        return None
    last = recorded.get(address)
    key = build_owner_key(address, wanted or (last.resource if last else None))
    return None if key is None else cluster.cluster.owners.find_owner(key)


def _build_views(work: Work, only: Address | None) -> tuple[ResourceView, ...]:
    remembered = read_recorded_state(work)
    names = (
        work.clusters_to_read
        if only is None
        else tuple(name for name in work.clusters_to_read if name == cluster_of(only))
    )
    seen = observe(work.providers, names, remembered.record)
    recorded = remembered.settle(seen)
    desired = add_link_mirrors(work.loaded.desired)
    addresses = sorted({*desired, *recorded, *seen.inventory}, key=build_sort_key) if only is None else [only]
    unmounted = find_unmounted_topics(desired, recorded)
    me = work.make_owner(remembered.snapshot.lineage if remembered.snapshot else "")
    rows = tuple(build_view(address, desired, recorded, seen, unmounted, me) for address in addresses)
    name = (only and cluster_of(only)) or ""
    if only is None or kind_of(only) != "namespace" or name not in seen.capabilities:
        return rows
    limits = read_quota_limits(seen.inventory.get(only)) or read_quota_limits(desired.get(only))
    topics = [topic for topic in seen.inventory if kind_of(topic) in {"topic", "mirror"}]
    partitions = {full_name_of(topic): count_partitions(seen.inventory[topic].resource) for topic in topics}
    return (replace(rows[0], quotas=compute_quota_usage(work.providers[name], only, limits, partitions)),)


@dataclass(frozen=True, slots=True)
class ExplainedResource:
    """Explanation of one resource."""

    shown: ResourceView
    origins: Mapping[str, str]
    """Field → `file:line`, an address, or `default`."""
    effective: Mapping[str, str]
    effective_origins: Mapping[str, str]
    """Config → an address with `file:line`, `brokers` or `default`."""
    tiering: tuple[TieringRow, ...]
    """Current tiering of a topic; empty if never tiered."""
    tiering_planned: tuple[TieringRow, ...]
    acls: tuple[AclRow, ...]
    actions: tuple[Action, ...]
    drift: tuple[DriftFinding, ...]
    held: tuple[HeldChange, ...]
    waiting: tuple[UnfinishedTransition, ...]
    errors: tuple[PlanFinding, ...]


def explain(invocation: Invocation, select: Select, address: str) -> ExplainedResource:
    """Explain one resource in the current plan."""
    work = open_work(invocation, select, is_reader=True)
    decided = plan_unlocked(work)
    target = Address(address)
    desired = add_link_mirrors(work.loaded.desired)
    unmounted = find_unmounted_topics(desired, decided.recorded)
    me = work.make_owner(decided.snapshot.lineage if decided.snapshot else "")
    shown = build_view(target, desired, decided.recorded, decided.seen, unmounted, me)
    plan = decided.plan
    if not shown.is_known and not any(action.address == target for action in plan.actions):
        raise unknown_address_error(address, {*desired, *decided.recorded})
    _warn_of_sealed(invocation, [shown])
    acting = _compute_effective_configs(work, decided, target)
    tiering, planned = _build_tiering_rows(decided, target)
    return ExplainedResource(
        shown=shown,
        origins=_find_origins(work, shown),
        effective={row.key: row.value for row in acting},
        effective_origins=dict(_find_config_places(work, acting)),
        tiering=tiering,
        tiering_planned=planned,
        acls=list_effective_acls(target, decided.seen.inventory),
        actions=tuple(action for action in plan.actions if action.address == target),
        drift=tuple(finding for finding in plan.drift if finding.address == target),
        held=tuple(held for held in plan.held if held.address == target),
        waiting=tuple(row for row in plan.waiting if row.address == target),
        errors=tuple(finding for finding in plan.errors if finding.address == target),
    )


def _build_tiering_rows(
    decided: PlanDecision, address: Address
) -> tuple[tuple[TieringRow, ...], tuple[TieringRow, ...]]:
    inventory, actions = decided.seen.inventory, decided.plan.actions
    known = {place: recorded.origins for place, recorded in decided.recorded.items() if recorded.origins}
    now = compute_effective_tiering(address, inventory, known)
    named = {action.address: action.origins for action in actions if isinstance(action, Create | Update | Transition)}
    then = compute_effective_tiering(address, predict_inventory(inventory, actions), {**known, **named})
    return now, tuple(row for row in then if row not in now)


def _find_origins(work: Work, shown: ResourceView) -> Mapping[str, str]:
    recorded = dict(shown.recorded.origins) if shown.recorded else {}
    written = find_field_origins(work.loaded, shown.address) if shown.desired is not None else {}
    return dict(sorted({**recorded, **written, **dict(_find_rule_origins(shown, written))}.items()))


def _find_rule_origins(shown: ResourceView, written: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if isinstance(shown.desired, Topic | Namespace):
        for index, rule in enumerate(shown.desired.spec.acls):
            place = written.get(f"spec.acls[{index}].principal")
            if place is not None:
                yield build_rule_path(rule), place


def _compute_effective_configs(work: Work, decided: PlanDecision, address: Address) -> Sequence[ConfigRow]:
    if address not in decided.seen.inventory or kind_of(address) not in {"topic", "mirror", "namespace"}:
        return ()
    provider = work.providers[cluster_of(address) or ""]
    return read_effective_configs(provider, address, decided.seen.inventory)


def _find_config_places(work: Work, rows: Sequence[ConfigRow]) -> Iterator[tuple[str, str]]:
    written = {origin: find_field_origins(work.loaded, Address(origin)) for origin in {row.origin for row in rows}}
    for row in rows:
        names = (f"spec.properties.{name}" for name, config in CONFIG_DEFAULTS.items() if config == row.key)
        paths = (f"spec.configs.{row.key}", *names)
        place = next((written_place for path in paths if (written_place := written[row.origin].get(path))), None)
        yield row.key, row.origin if place is None else f"{row.origin} ({place})"


Subject: TypeAlias = Literal["lifecycle", "workspace", "plan"]
Shape: TypeAlias = Literal["state", "cluster", "storage", "action"]


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a graph, with a unique `name`."""

    name: str
    shape: Shape


@dataclass(frozen=True, slots=True)
class Arrow:
    """A labeled arrow of a graph."""

    start: str
    end: str
    label: str = ""
    condition: str = ""
    """Condition of a verb with several results."""
    by_itself: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """A verb that is often tried in a state that rejects it."""

    state: str
    verb: str
    reason: str


@dataclass(frozen=True, slots=True)
class Picture:
    """Nodes and arrows of a graph, in stable order."""

    of: Subject
    name: str
    nodes: tuple[Node, ...]
    arrows: tuple[Arrow, ...]
    initial: str | None = None
    """`null` unless the graph shows a lifecycle."""
    refusals: tuple[Refusal, ...] = ()


def draw_lifecycle(name: str) -> Picture:
    """Draw the states and verbs of a lifecycle."""
    lifecycle = LIFECYCLES.get(name)
    if lifecycle is None:
        hint = format_suggestion(find_similar(name, LIFECYCLES), then=f"Lifecycles: {', '.join(LIFECYCLES)}.")
        raise UserError(f"there is no lifecycle {name!r}", hint=hint)
    return Picture(
        of="lifecycle",
        name=name,
        nodes=tuple(Node(str(state), "state") for state in lifecycle.states),
        arrows=tuple(
            Arrow(str(move.start), str(move.end), move.verb, move.condition, move.is_automatic)
            for move in lifecycle.moves
        ),
        initial=str(lifecycle.initial),
        refusals=tuple(Refusal(str(state), verb, reason) for state, verb, reason in lifecycle.refusals),
    )


def draw_workspace(invocation: Invocation, select: Select) -> Picture:
    """Draw declared clusters, links and mounted topics."""
    loaded = load_files(invocation, select)
    clusters = {
        item.resource.metadata.name: item.resource
        for _, item in sorted(loaded.desired.items())
        if isinstance(item.resource, Cluster)
    }
    mounted = _count_mounted(loaded.desired)
    storages = {
        name: storage.url
        for name in mounted
        if name in clusters and (storage := clusters[name].spec.object_storage) is not None
    }
    return Picture(
        of="workspace",
        name=loaded.workspace.metadata.name,
        nodes=(
            *(Node(name, "cluster") for name in clusters),
            *(Node(url, "storage") for url in sorted(set(storages.values()))),
        ),
        arrows=(
            *(arrow for arrow in _build_link_arrows(loaded.desired) if {arrow.start, arrow.end} <= clusters.keys()),
            *(
                Arrow(url, name, count) if verb == "mount" else Arrow(name, url, count)
                for name, url in sorted(storages.items())
                for verb, count in mounted[name].items()
            ),
        ),
    )


def draw_plan(plan: Plan) -> Picture:
    """Draw a plan's actions and their dependencies."""
    names = {action.id: f"{action.verb} {action.address}" for action in plan.actions}
    return Picture(
        of="plan",
        name=plan.workspace,
        nodes=tuple(Node(name, "action") for name in names.values()),
        arrows=tuple(
            Arrow(names[before], names[action.id])
            for action in plan.actions
            for before in action.depends_on
            if before in names
        ),
    )


def _build_link_arrows(desired: Desired) -> Iterator[Arrow]:
    for _, item in sorted(desired.items()):
        if isinstance(item.resource, MirrorLink):
            yield _build_link_arrow(item.resource)


def _build_link_arrow(link: MirrorLink) -> Arrow:
    spec = link.spec
    parts = [link.metadata.name]
    if spec.mode != "destination":
        parts.append(spec.mode)
    if spec.prefix:
        parts.append(f"prefix {spec.prefix}")
    if spec.mirror_topics:
        parts.append(pluralize(len(spec.mirror_topics), "mirror"))
    if spec.auto_create is not None and spec.auto_create.enabled:
        parts.append("auto-create")
    if spec.paused:
        parts.append("paused")
    return Arrow(spec.source, link.cluster, ", ".join(parts))


def _count_mounted(desired: Desired) -> Mapping[str, Mapping[str, str]]:
    counts: dict[str, dict[str, int]] = {}
    for _, item in sorted(desired.items()):
        if isinstance(item.resource, Mounting):
            verb = "mount" if item.resource.spec.state == "mounted" else "unmount"
            of_cluster = counts.setdefault(item.resource.metadata.cluster or "", {})
            of_cluster[verb] = of_cluster.get(verb, 0) + 1
    return {
        cluster: {verb: f"{verb}s {pluralize(count, 'topic')}" for verb, count in verb_counts.items()}
        for cluster, verb_counts in counts.items()
    }
