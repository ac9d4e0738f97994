"""Checks of quotas and replication."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, assert_never

from reconciler.lifecycles import UNMOUNT
from reconciler.planning.actions import Action, Adopt, Create, Delete, Forget, RunJob, Transition, Update
from reconciler.planning.diff.moves import find_moved_from
from reconciler.planning.fields import CONFIGS
from reconciler.planning.plan import PlanFinding
from reconciler.planning.situation import Review, Situation, get_mounted_topic
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
from reconciler.resources.base import UNLIMITED
from reconciler.resources.cluster import Cluster
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic
from reconciler.resources.mount import Mounting
from reconciler.resources.namespace import Namespace, Quotas
from reconciler.resources.tiering_policy import TieringPolicy
from reconciler.resources.topic import Topic
from reconciler.runtime.dataclass import dataclass, field

if TYPE_CHECKING:
    from reconciler.resources.inventory import Resource
    from reconciler.resources.measures import Measure


_MIN_INSYNC: Final = "min.insync.replicas"


def warnings_of_moves(review: Review) -> Iterator[PlanFinding]:
    """Warn about topics whose replicas still move."""
    situation = review.situation
    for address in sorted(address for address, seen in situation.observed.items() if seen.topic.is_moving):
        wanted = situation.wanted.get(address)
        if wanted is not None and situation.can_plan(address):
            message = "replicas of it still move: a change of its replicationFactor has not finished"
            hint = "It continues by itself. To cancel it, set the number that it had before, and apply."
            yield PlanFinding(address, wanted.source, message, hint)


def warnings_of_insync(review: Review) -> Iterator[PlanFinding]:
    """Warn if min.insync.replicas exceeds the replication factor, because writes with acks=all then fail."""
    situation = review.situation
    for address in sorted(situation.wanted):
        wanted = situation.wanted[address]
        name = cluster_of(address) or ""
        if not situation.can_plan(address) or not situation.find_capabilities(name).replication_moves:
            continue
        match wanted.resource:
            case Cluster() as cluster:
                yield from _check_insync_of_cluster(situation, address, cluster, wanted.source)
            case Topic() as topic:
                yield from _check_insync_of_topic(situation, address, topic)
            case Namespace() | MirrorLink() | MirrorTopic() | Mounting() | TieringPolicy():
                pass
            case _:
                assert_never(wanted.resource)


def _check_insync_of_cluster(
    situation: Situation, address: Address, cluster: Cluster, source: str | None
) -> Iterator[PlanFinding]:
    declared, brokers = cluster.spec.properties.get(_MIN_INSYNC), situation.find_capabilities(cluster.metadata.name)
    seen = situation.observed.get(address)
    live = seen.resource.spec.properties if seen is not None and isinstance(seen.resource, Cluster) else {}
    last = situation.recorded.get(address)
    ours = last.resource.spec.properties if last is not None and isinstance(last.resource, Cluster) else {}
    if declared is None and _MIN_INSYNC in ours and _MIN_INSYNC in live:
        message = f"brokers with eligible leader replicas (Kafka 4) refuse to take back properties.{_MIN_INSYNC}"
        hint = f"Instead of removing it, write {_MIN_INSYNC}: 1 among the properties, which is Kafka's own default."
        yield PlanFinding(address, source, message, hint)
    most = brokers.replication_factors[-1]
    if (declared or "").isdecimal() and int(declared or 0) > most:
        message = f"properties.{_MIN_INSYNC} {declared} is more than the number of brokers, {most}: "
        hint = f"Set {_MIN_INSYNC} to {max(1, most - 1)}."
        marks = ((address, ("spec", "properties", _MIN_INSYNC)),)
        yield PlanFinding(address, source, f"{message}producers with acks=all are refused", hint, marks)


def _check_insync_of_topic(situation: Situation, address: Address, topic: Topic) -> Iterator[PlanFinding]:
    wanted, capabilities = situation.wanted[address], situation.find_capabilities(topic.cluster)
    cluster = situation.wanted.get(cluster_address(topic.cluster))
    planned = cluster.resource.spec.properties if cluster and isinstance(cluster.resource, Cluster) else {}
    own = topic.spec.configs.get(_MIN_INSYNC)
    least = own or planned.get(_MIN_INSYNC) or capabilities.defaults.get(_MIN_INSYNC)
    if not (least or "").isdecimal():
        return
    replicas, where = _count_replicas(situation, address, topic, capabilities.replication_factors[-1])
    if int(least or 0) <= replicas:
        return
    whose = "" if own is not None else ", the default of its cluster,"
    message = f"{_MIN_INSYNC} {least}{whose} is more than {where} {replicas}: producers with acks=all are refused"
    marks = (
        () if own is None or CONFIGS + _MIN_INSYNC in wanted.origins else ((address, ("spec", "configs", _MIN_INSYNC)),)
    )
    hint = f"Raise replicationFactor to {least} or more, or set {_MIN_INSYNC} to {max(1, replicas - 1)}."
    yield PlanFinding(address, wanted.source, message, hint, marks)


def _count_replicas(situation: Situation, address: Address, topic: Topic, brokers: int) -> tuple[int, str]:
    if topic.spec.replication_factor is not None:
        return topic.spec.replication_factor, "replicationFactor"
    observed = situation.observed.get(address)
    if (
        observed is not None
        and isinstance(observed.resource, Topic)
        and observed.resource.spec.replication_factor is not None
    ):
        return observed.resource.spec.replication_factor, "the replication factor that the topic has,"
    return brokers, "the number of brokers,"


@dataclass(frozen=True, slots=True)
class Limits:
    """Planned quotas of a namespace and where they are declared."""

    quotas: Quotas
    source: str | None


@dataclass(slots=True)
class NamespaceUsage:
    """Partitions by topic in a namespace and below it."""

    before: dict[Address, int] = field(default_factory=dict)
    after: dict[Address, int] = field(default_factory=dict)
    moved: Mapping[Address, Address | None] = field(default_factory=dict)
    """New address → current address of a moved topic."""

    @property
    def grows(self) -> bool:
        """Whether the plan adds topics or partitions to the namespace."""
        return any(partitions > self._count_partitions_before(topic) for topic, partitions in self.after.items())

    @property
    def staying(self) -> list[Address]:
        """Current addresses of topics in the namespace before and after the plan."""
        return sorted(
            topic for topic in map(self._find_current_address, self.after) if topic is not None and topic in self.before
        )

    def _count_partitions_before(self, topic: Address) -> int:
        name = self._find_current_address(topic)
        return 0 if name is None else self.before.get(name, 0)

    def _find_current_address(self, topic: Address) -> Address | None:
        return self.moved.get(topic, topic)


@dataclass(slots=True)
class QuotaFindings:
    """Errors and warnings about quotas."""

    errors: list[PlanFinding] = field(default_factory=list)
    warnings: list[PlanFinding] = field(default_factory=list)


def check_quotas(review: Review) -> Iterator[PlanFinding]:
    """Yield an error for each namespace that grows beyond a quota."""
    yield from _check_quotas(review).errors


def warnings_of_quotas(review: Review) -> Iterator[PlanFinding]:
    """Warn about namespaces that exceed, or may exceed, a quota now."""
    yield from _check_quotas(review).warnings


def _check_quotas(review: Review) -> QuotaFindings:
    situation, judged = review.situation, QuotaFindings()
    limits = {} if situation.request.options.is_destroy else _collect_limits(situation)
    if not limits:
        return judged
    for address, held in sorted(_collect_usage(situation, review.actions, limits).items()):
        limit = limits[address]
        into = judged.errors if held.grows else judged.warnings
        into.extend(
            PlanFinding(address, limit.source, *problem) for problem in _find_exceeded_counts(limit.quotas, held)
        )
        if limit.quotas.bytes not in {None, UNLIMITED} and held.grows:
            _check_bytes_quota(address, limit, held, review.measure, judged)
    return judged


def _collect_limits(situation: Situation) -> dict[Address, Limits]:
    limits_by_address: dict[Address, Limits] = {}
    for address in {**situation.observed, **situation.wanted}:
        if address.startswith("namespace/") and cluster_of(address) in situation.trusted:
            limits = _merge_limits(address, situation)
            if limits.quotas != Quotas():
                limits_by_address[address] = limits
    return limits_by_address


def _merge_limits(address: Address, situation: Situation) -> Limits:
    wanted, last, seen = (
        situation.wanted.get(address),
        situation.recorded.get(address),
        situation.observed.get(address),
    )
    goal = _read_quotas(wanted.resource if wanted else None)
    was, observed = _read_quotas(last.resource if last else None), _read_quotas(seen.resource if seen else None)
    merged = {
        word: wish if wish is not None else None if getattr(was, word) is not None else getattr(observed, word)
        for word in Quotas.model_fields
        for wish in [getattr(goal, word)]
    }
    return Limits(Quotas.model_construct(**merged), wanted.source if wanted and goal != Quotas() else None)


def _read_quotas(resource: Resource | None) -> Quotas:
    return (resource.spec.quotas if isinstance(resource, Namespace) else None) or Quotas()


def _collect_usage(
    situation: Situation, actions: Sequence[Action], limits: Mapping[Address, Limits]
) -> dict[Address, NamespaceUsage]:
    # A stopped mirror is also observed as a topic; the pair counts once.
    before = {
        _topic_address(address): count_partitions(seen.resource)
        for address, seen in situation.observed.items()
        if kind_of(address) in {"topic", "mirror"}
    }
    after = _plan_partitions(actions, before)
    olds = {_topic_address(action.address): old for action in actions if (old := find_moved_from(action)) is not None}
    moved: dict[Address, Address | None] = {**dict.fromkeys(olds.values()), **olds}
    held: defaultdict[Address, NamespaceUsage] = defaultdict(lambda: NamespaceUsage(moved=moved))
    for topics, name in ((before, "before"), (after, "after")):
        for topic, partitions in topics.items():
            for tier in _list_namespaces(topic):
                if tier in limits:
                    getattr(held[tier], name)[topic] = partitions
    return held


def _plan_partitions(actions: Sequence[Action], before: Mapping[Address, int]) -> dict[Address, int]:
    after = dict(before)
    for action in actions:
        left = _find_removed_topic(action)
        if left is not None:
            after.pop(left, None)
    for action in actions:
        after.update(_find_added_topics(action, before))
    for action in actions:
        if isinstance(action, Update):
            after.update(_find_grown_topics(action))
    return after


def _find_removed_topic(action: Action) -> Address | None:
    match action:
        case Delete(before=Topic() | MirrorTopic()):
            return _topic_address(action.address)
        case Transition(after=Mounting() as mounting):
            return get_mounted_topic(mounting) if action.machine == UNMOUNT.name else None
        case Transition():
            return find_moved_from(action)
        case Create() | Update() | Delete() | Adopt() | Forget() | RunJob():
            return None
        case _:
            assert_never(action)


def _find_added_topics(action: Action, before: Mapping[Address, int]) -> Iterator[tuple[Address, int]]:
    address = _topic_address(action.address)
    match action:
        case Create(after=Topic() | MirrorTopic() as made):
            partitions = action.parameters.get("partitions")
            # A mirror with an unknown source counts as one partition.
            yield (
                address,
                partitions if isinstance(partitions, int) else count_partitions(made) if isinstance(made, Topic) else 1,
            )
        case Transition(after=Mounting() as mounting):
            if action.machine != UNMOUNT.name:
                yield get_mounted_topic(mounting), action.estimate.partitions or 1
        case Transition():
            old = find_moved_from(action)
            if old is not None and old in before:
                yield address, before[old]
        case Create() | Update() | Delete() | Adopt() | Forget() | RunJob():
            pass
        case _:
            assert_never(action)


def _find_grown_topics(action: Update) -> Iterator[tuple[Address, int]]:
    for change in action.changes:
        if change.path == "partitions" and isinstance(change.after, int):
            yield _topic_address(action.address), change.after


def _find_exceeded_counts(quotas: Quotas, held: NamespaceUsage) -> Iterator[tuple[str, str]]:
    counts = (
        ("topics", quotas.topics, len(held.before), len(held.after)),
        ("partitions", quotas.partitions, sum(held.before.values()), sum(held.after.values())),
    )
    for word, limit, before, after in counts:
        if limit is not None and after > limit:
            yield (
                f"quotas.{word} is {limit:,}, and {after:,} would be in it after this plan, {before:,} now",
                f"Raise spec.quotas.{word} of the namespace, or take topics out of it.",
            )


def _check_bytes_quota(
    address: Address,
    limit: Limits,
    held: NamespaceUsage,
    measure: Callable[[Address], Measure | None],
    judged: QuotaFindings,
) -> None:
    allowed = limit.quotas.bytes or 0
    staying = held.staying
    sizes = [measure(topic) for topic in staying]
    known = sum(size.bytes for size in sizes if size is not None)
    unknown = sum(size is None for size in sizes)
    hint = "Raise spec.quotas.bytes of the namespace, or reduce the retention of its topics, before adding any."
    if known > allowed:
        message = f"quotas.bytes is {allowed:,}, and it holds {known:,} now: nothing may be added to it"
        judged.errors.append(PlanFinding(address, limit.source, message, hint))
    elif unknown:
        message = (
            f"quotas.bytes is {allowed:,}, and it is unknown whether it holds more: "
            f"{unknown:,} of {len(staying):,} topics in it were not measured"
        )
        judged.warnings.append(PlanFinding(address, limit.source, message, "Check with: reconciler topic list"))


def count_partitions(resource: Resource) -> int:
    """Return the partition count: at least 1 for a topic or mirror, 0 for other kinds."""
    match resource:
        case Topic():
            return resource.spec.partitions or 1
        case MirrorTopic():
            return resource.partitions or 1
        case _:
            return 0


def _topic_address(address: Address) -> Address:
    return Address("topic/" + address.partition("/")[2]) if kind_of(address) == "mirror" else address


def _list_namespaces(topic: Address) -> Iterator[Address]:
    cluster = cluster_of(topic) or ""
    for tier in list_levels(split_name(full_name_of(topic))[0]):
        yield address_of("namespace", cluster, tier)
