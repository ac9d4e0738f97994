"""Risks of actions, and the topics that must be measured to assess them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias, assert_never

from reconciler.lifecycles import UNMOUNT
from reconciler.planning.actions import (
    Action,
    Adopt,
    Create,
    Delete,
    Estimate,
    Forget,
    Reason,
    Risk,
    RunJob,
    Transition,
    Update,
)
from reconciler.planning.checks.mirror_checks import add_lag_estimate, add_role_cost, is_catch_up
from reconciler.planning.checks.mount_checks import (
    BYTES_A_SECOND,
    add_mount_estimate,
    add_unmount_estimate,
    find_planned_source,
    find_unreadable,
    measure_source,
)
from reconciler.planning.checks.tiering_checks import Cost, TieringImpact
from reconciler.planning.diff.moves import MOVE, SWITCH_GROUPS, find_moved_from
from reconciler.planning.diff.retention_loss import (
    CLEANUP,
    KEYS,
    Loss,
    RetentionRule,
    Side,
    compute_loss,
    find_expiry_reason,
    parse_config_key,
)
from reconciler.planning.fields import list_fields
from reconciler.planning.resolve.acting_configs import ActingConfigs
from reconciler.planning.situation import Situation, as_mirror
from reconciler.resources.acls import ACLS, ALLOWS
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
from reconciler.resources.cluster import Cluster
from reconciler.resources.cluster_properties import CONFIG_DEFAULTS
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic
from reconciler.resources.namespace import Namespace
from reconciler.resources.tiering_policy import CLUSTER
from reconciler.resources.topic import Topic
from reconciler.resources.workspace import IN_PROCESS, SPARK_START_S

if TYPE_CHECKING:
    from reconciler.resources.measures import Cuts, Measure, Measures


PlanResult: TypeAlias = Mapping[Address, Mapping[str, str | None]]
"""Planned configs that delete records, by topic, namespace or cluster."""


def find_access_reason(action: Update, situation: Situation) -> Reason | None:
    """Return why an update gives all principals access or takes it from them, or `None`."""
    changes = {change.path: change.after for change in action.changes if change.path.startswith(ACLS)}
    # A mirror's access rules only deny writes.
    if not changes or isinstance(action.after, MirrorTopic):
        return None
    before = {path for path in list_fields(action.before) if path.startswith(ACLS)}
    after = {path for path in before if changes.get(path, path) is not None}
    after |= {path for path, value in changes.items() if value is not None}
    above = _collect_rules_above(action, situation)
    if situation.find_capabilities(cluster_of(action.address) or "").access.is_open:
        if not (before or above):
            return Reason.FIRST_RULE
        if not (after or above):
            return Reason.LAST_RULE
    had, has = (any(path.startswith(ALLOWS) for path in (*side, *above)) for side in (before, after))
    return Reason.LAST_ALLOWANCE if had and not has else None


def _collect_rules_above(action: Update, situation: Situation) -> set[str]:
    namespace, _ = split_name(full_name_of(action.address))
    tiers = situation.list_nearest_namespaces(cluster_of(action.address) or "", namespace)
    seen = (situation.observed[tier].resource for tier in tiers if tier in situation.observed)
    return {path for resource in seen for path in list_fields(resource) if path.startswith(ACLS)}


class Impact:
    """Assesses the risk of actions, and collects topics to measure."""

    def __init__(self, situation: Situation, measures: Measures, actions: Iterable[Action]) -> None:
        self._situation = situation
        self._measures = measures
        self._planned = {
            action.address: configs
            for action in actions
            if isinstance(action, Update) and (configs := _find_retention_changes(action))
        }
        self._missing: dict[Address, None] = {}
        self._wished: dict[Address, None] = {}
        self._cuts: dict[Address, set[int]] = {}
        self._acting = ActingConfigs(situation)
        self._switching = TieringImpact(situation, self.topics_below, self.measure, self._find_backlog_loss)

    @property
    def unmeasured(self) -> Cuts:
        """Topic to measure → timestamps before which its records would expire. Topics with a risk come first."""
        addresses = (*sorted(self._missing), *sorted(self._wished.keys() - self._missing.keys()))
        return {address: tuple(sorted(self._cuts.get(address, ()))) for address in addresses}

    def judge(self, action: Action) -> Action:
        """Return the action with risk, reasons and estimate."""
        match action:
            case Update():
                return self._assess_update(action)
            case Delete():
                return self._assess_delete(action)
            case RunJob():
                return self._assess_job(action)
            case Transition():
                costed = add_role_cost(
                    add_mount_estimate(action, self._situation, self.measure), self._situation, self.measure
                )
                return self._add_tiering_cost(self._assess_move(costed), action)
            case Create() | Adopt() | Forget():
                return action
            case _:
                assert_never(action)

    def _add_tiering_cost(self, judged: Transition, action: Transition) -> Transition:
        cost = self._switching.cost(action)
        mount_source = find_planned_source(action.address, self._situation)
        if mount_source is not None and action.parameters.get("policy") == "delete":
            lost = find_unreadable(mount_source, action.address)
            cost = Cost(lost, is_known=bool(lost))
        if cost == Cost():
            return judged
        return replace(
            judged,
            risk=Risk.DATA_LOSS if cost.is_loss else judged.risk,
            reasons=_merge_reasons(judged.reasons, cost.reasons),
            estimate=_add_estimates(judged.estimate, cost.estimate),
        )

    def _assess_move(self, action: Transition) -> Transition:
        old = find_moved_from(action)
        seen = self._situation.observed.get(old) if old is not None else None
        if old is None or seen is None or not isinstance(seen.resource, Topic):
            return action
        topic, limits = seen.resource, self._situation.find_capabilities(seen.resource.cluster)
        namespace, _ = split_name(full_name_of(action.address))
        above = self._acting.above(topic.cluster, namespace, seen.topic.initial)
        acting = {**{key: value for key, (value, _) in above.items()}, **topic.spec.configs}
        of_cluster = {key for key, (_, origin) in above.items() if origin == CLUSTER} - topic.spec.configs.keys()
        own = {key: value for key, value in acting.items() if key not in of_cluster}
        sides = self._build_planned_side(old, topic), Side(acting.get, own.get)
        was, will = RetentionRule.of_sides(*sides, limits.configs, limits.defaults)
        if not will.is_stricter_than(was):
            return action
        measured = self._measure_for(old, will)
        lost = compute_loss(was, will, measured, topic.spec.partitions or 1, self._situation.request.now_ms)
        if lost.risk is not Risk.DATA_LOSS:
            return action
        lowered = (Reason.RETENTION_LOWERED,) if lost.expires else ()
        reasons = (*action.reasons, *lowered, *lost.reasons)
        return replace(action, risk=Risk.DATA_LOSS, reasons=reasons, estimate=lost.estimate)

    def _assess_update(self, action: Update) -> Update:
        reasons = list(action.reasons)
        risk = Risk.NONE
        if any(change.path == "partitions" for change in action.changes):
            reasons.append(Reason.PARTITIONS_INCREASE)
            risk = Risk.IRREVERSIBLE
        lost, cost = self._find_loss_by_update(action), self._switching.cost(action)
        if lost.risk is Risk.DATA_LOSS:
            risk = Risk.DATA_LOSS
            named = {find_expiry_reason(change) for change in action.changes if parse_config_key(change.path) in KEYS}
            reasons += [reason for reason in Reason if reason in named and lost.expires]
            reasons += lost.reasons
        risk = Risk.DATA_LOSS if cost.is_loss else risk
        moved = self._estimate_replication(action)
        if moved is not None:
            reasons.append(Reason.REPLICAS_MOVE)
            risk = Risk.DISRUPTIVE if risk is Risk.NONE else risk
        access = find_access_reason(action, self._situation)
        if access is not None:
            reasons.append(access)
            risk = Risk.DISRUPTIVE if risk is Risk.NONE else risk
        if risk is Risk.NONE and cost == Cost():
            return action
        return replace(
            action,
            risk=risk,
            reasons=_merge_reasons(reasons, cost.reasons),
            estimate=replace(
                _add_estimates(lost.estimate, cost.estimate),
                replicated=0 if moved is None else moved[0],
                partitions=0 if moved is None else moved[1],
            ),
        )

    def _estimate_replication(self, action: Update) -> tuple[int, int] | None:
        topic = action.before
        change = next((candidate for candidate in action.changes if candidate.path == "replicationFactor"), None)
        if change is None or not isinstance(topic, Topic):
            return None
        if not self._situation.find_capabilities(topic.cluster).replication_moves:
            return None
        measure = self.measure(action.address, is_wish=True)
        more = change.after - change.before if isinstance(change.after, int) and isinstance(change.before, int) else 0
        return max(0, more) * (measure.bytes if measure is not None else 0), topic.spec.partitions or 1

    def _find_loss_by_update(self, action: Update) -> Loss:
        moved = self._planned.get(action.address)
        if not moved or not isinstance(action.before, Topic | Namespace | MirrorTopic | Cluster):
            return Loss()
        total = Loss()
        for address, topic in self._list_affected_topics(action.address, action.before):
            alone = self._find_topic_loss(address, topic, {action.address: moved})
            total += alone | self._find_added_loss(address, topic, action.address)
        return total

    def _find_added_loss(self, address: Address, topic: Topic, changed: Address) -> Loss:
        layers = [layer for layer, _ in self._list_config_values(address, topic, CLEANUP) if layer in self._planned]
        if layers == [changed]:
            return Loss()
        planned = {layer: self._planned[layer] for layer in layers}
        whole = self._find_topic_loss(address, topic, planned)
        without = self._find_topic_loss(
            address, topic, {layer: configs for layer, configs in planned.items() if layer != changed}
        )
        return Loss() if whole == without else whole

    def _find_topic_loss(self, address: Address, topic: Topic, planned: PlanResult) -> Loss:
        limits = self._situation.find_capabilities(topic.cluster)

        of_cluster = planned.get(cluster_address(topic.cluster), {})
        gone = {key for key, value in of_cluster.items() if value is None}
        beneath = {key: value for key, value in limits.defaults.items() if key not in gone} if gone else limits.defaults
        sides = self._build_planned_side(address, topic), self._build_planned_side(address, topic, planned)
        was, will = RetentionRule.of_sides(*sides, limits.configs, limits.defaults, beneath)
        if not will.is_stricter_than(was):
            return Loss()
        measured = self._measure_for(address, will)
        return compute_loss(was, will, measured, topic.spec.partitions or 1, self._situation.request.now_ms)

    def _measure_for(self, address: Address, will: RetentionRule) -> Measure | None:
        place, cut = self._find_current_address(address), will.expired_before(self._situation.request.now_ms)
        if cut is not None:
            self._cuts.setdefault(place, set()).add(cut)
        return self.measure(place)

    def _find_current_address(self, address: Address) -> Address:
        wanted = self._situation.wanted.get(address)
        old = wanted.moved_from if wanted is not None else None
        is_moved = address not in self._situation.observed and old in self._situation.observed
        return old if old is not None and is_moved else address

    def _find_backlog_loss(self, address: Address, topic: Topic) -> Loss:
        limits = self._situation.find_capabilities(topic.cluster)
        side = self._build_planned_side(address, topic, self._planned)
        _, will = RetentionRule.of_sides(side, side, limits.configs, limits.defaults)
        waits = replace(will, ms=math.inf, bytes=math.inf)
        if not will.is_stricter_than(waits):
            return Loss()
        measured = self._measure_for(address, will)
        if measured is not None:
            measured = measured.limit_to_newest(measured.local_only_bytes)
        return compute_loss(waits, will, measured, topic.spec.partitions or 1, self._situation.request.now_ms)

    def _build_planned_side(self, address: Address, topic: Topic, planned: PlanResult = MappingProxyType({})) -> Side:
        seen = self._situation.observed.get(self._find_current_address(address))

        def read_value(key: str, *, is_own: bool) -> str | None:
            for layer, now in self._list_config_values(address, topic, key):
                value = planned.get(layer, {}).get(key, now)
                if value is not None and not (is_own and kind_of(layer) == "cluster"):
                    return value
            return None if is_own or seen is None else seen.topic.initial.get(key)

        return Side(partial(read_value, is_own=False), partial(read_value, is_own=True))

    def _list_config_values(self, address: Address, topic: Topic, key: str) -> Iterator[tuple[Address, str | None]]:
        yield address, topic.spec.configs.get(key)
        for tier in self._situation.list_nearest_namespaces(topic.cluster, split_name(full_name_of(address))[0]):
            seen = self._situation.observed.get(tier) or self._situation.wanted.get(tier)
            yield tier, seen.resource.spec.configs.get(key) if seen and isinstance(seen.resource, Namespace) else None
        cluster = self._situation.observed.get(cluster_address(topic.cluster))
        properties = cluster.resource.spec.properties if cluster and isinstance(cluster.resource, Cluster) else {}
        names = (name for name, config in CONFIG_DEFAULTS.items() if config == key and name in properties)
        yield cluster_address(topic.cluster), next((properties[name] for name in names), None)

    def _list_affected_topics(
        self, address: Address, before: Topic | Namespace | MirrorTopic | Cluster
    ) -> Iterator[tuple[Address, Topic]]:
        match before:
            case Topic():
                yield address, before
            case Namespace() | Cluster():
                yield from self._topics_by_parent.get(address, ())
            case MirrorTopic():
                pass  # A mirror's retention is that of its source.
            case _:
                assert_never(before)

    def topics_below(self, address: Address) -> Iterator[Address]:
        """Yield the topics in a namespace or on a cluster."""
        yield from sorted(topic for topic, _ in self._topics_by_parent.get(address, ()))

    @cached_property
    def _topics_by_parent(self) -> Mapping[Address, list[tuple[Address, Topic]]]:
        topics: dict[Address, list[tuple[Address, Topic]]] = {}
        for address, seen in self._situation.observed.items():
            resource = seen.resource
            if isinstance(resource, Topic):
                topics.setdefault(cluster_address(resource.cluster), []).append((address, resource))
                for tier in list_levels(resource.metadata.namespace):
                    topics.setdefault(address_of("namespace", resource.cluster, tier), []).append((address, resource))
        return topics

    def _assess_delete(self, action: Delete) -> Delete:
        if kind_of(action.address) not in {"topic", "mirror"}:
            return action
        seen = self._situation.observed.get(action.address)
        remote = None if seen is None else seen.topic.legacy
        location = None if remote is None else remote.location
        if remote is not None:
            reason = Reason.REMOTE_DELETED if remote.is_deleted else Reason.REMOTE_KEPT
            action = replace(action, reasons=(*action.reasons, reason))
        if Reason.MOVED in action.reasons:
            return self._assess_copied_delete(action)
        measure = self.measure(_topic_address(action.address))
        if isinstance(action.before, Topic) and action.before.spec.read_replica_of is not None:
            groups = None if measure is None else measure.groups
            reasons = (*action.reasons, Reason.SOURCE_KEPT)
            return replace(action, risk=Risk.IRREVERSIBLE, reasons=reasons, estimate=Estimate(groups=groups))
        if measure is None:
            risk, reasons = Risk.DATA_LOSS, (*action.reasons, Reason.HOLDS_DATA, Reason.UNMEASURED)
            return replace(action, risk=risk, reasons=reasons, estimate=Estimate(location=location))
        is_empty = not measure.records
        return replace(
            action,
            risk=Risk.IRREVERSIBLE if is_empty else Risk.DATA_LOSS,
            reasons=action.reasons if is_empty else (*action.reasons, Reason.HOLDS_DATA),
            estimate=Estimate(measure.bytes, measure.records, groups=measure.groups, location=location),
        )

    def _assess_copied_delete(self, action: Delete) -> Delete:
        measure = self.measure(action.address, is_wish=True)
        estimate = Estimate() if measure is None else Estimate(measure.bytes, measure.records, groups=measure.groups)
        return replace(action, risk=Risk.IRREVERSIBLE, estimate=estimate)

    def _assess_job(self, action: RunJob) -> RunJob:
        if is_catch_up(action):
            return add_lag_estimate(action, self._situation, self.measure)
        if action.job == SWITCH_GROUPS:
            measure = self.measure(action.source, is_wish=True)
            return replace(action, estimate=Estimate(groups=None if measure is None else measure.groups))
        if action.job == UNMOUNT.name and action.address in self._situation.observed:
            return add_unmount_estimate(action, action.address, self._situation, self.measure)
        if Reason.FIRST_COPY not in action.reasons and action.job != MOVE:
            return action  # Other jobs copy only the lag.
        source = action.source
        is_brought = find_planned_source(source, self._situation) is not None
        is_there = is_brought or any(place in self._situation.observed for place in (source, as_mirror(source)))
        measure = self.measure(source) if is_there else None
        if measure is None:
            return action
        size, records = (0, 0) if self._is_starting_at_end(action) else (measure.bytes, measure.records)
        engine = self._situation.request.spark.choose_engine(size)
        seconds = max(1, size // BYTES_A_SECOND) + (0 if engine == IN_PROCESS else SPARK_START_S)
        return replace(action, estimate=Estimate(bytes=size, records=records, seconds=seconds, engine=engine))

    def _is_starting_at_end(self, action: RunJob) -> bool:
        mirror = (
            None if action.address in self._situation.observed else self._situation.desired_mirrors.get(action.address)
        )
        link = None if mirror is None else self._situation.wanted.get(address_of("link", mirror.cluster, mirror.link))
        declared = None if link is None else link.resource
        return isinstance(declared, MirrorLink) and declared.spec.start_offset == "latest"

    def measure(self, address: Address, *, is_wish: bool = False) -> Measure | None:
        """Return a topic's measurement, or request one and return `None`. `is_wish`: only estimates need it."""
        source = find_planned_source(address, self._situation)
        if source is not None:
            return measure_source(source, self._situation, self.measure)
        measured = self._measures.get(address)
        if measured is None and cluster_of(address) in self._situation.trusted:
            (self._wished if is_wish else self._missing)[address] = None
        return measured


def _find_retention_changes(action: Update) -> dict[str, str | None]:
    touched = {parse_config_key(change.path): change.after for change in action.changes}
    return {key: None if touched[key] is None else str(touched[key]) for key in KEYS if key in touched}


def _merge_reasons(reasons: Iterable[Reason], more: Iterable[Reason]) -> tuple[Reason, ...]:
    return tuple(dict.fromkeys((*reasons, *more)))


def _add_estimates(estimate: Estimate, more: Estimate) -> Estimate:
    return replace(estimate, bytes=estimate.bytes + more.bytes, uploads=more.uploads, unreadable=more.unreadable)


def _topic_address(address: Address) -> Address:
    return Address("topic/" + address.partition("/")[2])
