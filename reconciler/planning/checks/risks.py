"""The risk of each action: what it moves or removes, and what must be measured."""

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
from reconciler.planning.checks.mirror_checks import is_wait, with_cost, with_lag
from reconciler.planning.checks.mount_checks import (
    BYTES_A_SECOND,
    brought_by,
    detached,
    size_of,
    unmounted,
    unreadable_of,
)
from reconciler.planning.checks.tiering_checks import Cost, Switching
from reconciler.planning.diff.moves import MOVE, SWITCH_GROUPS, moved_from
from reconciler.planning.diff.retention_loss import CLEANUP, KEYS, Keeping, Loss, Side, config_at, loss, reason_of
from reconciler.planning.fields import fields_of
from reconciler.planning.resolve.acting_configs import ActingConfigs
from reconciler.planning.situation import Situation, mirror_at
from reconciler.resources.acls import ACLS, ALLOWS
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
from reconciler.resources.cluster import Cluster
from reconciler.resources.cluster_properties import CONFIG_DEFAULTS
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic
from reconciler.resources.namespace import Namespace
from reconciler.resources.tiering_policy import CLUSTER
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from reconciler.resources.measures import Cuts, Measure, Measures


Planned: TypeAlias = Mapping[Address, Mapping[str, str | None]]
"""The configs by which records go that a plan changes, by the topic, the namespace or the cluster that has them."""


# Changes of access rules after which other people may, or may not, than before: a second look is due.


def access_reason(action: Update, situation: Situation) -> Reason | None:
    """Return how an update opens or closes what it changes to everyone; `None` where it does neither."""
    changes = {change.path: change.after for change in action.changes if change.path.startswith(ACLS)}
    if not changes or isinstance(action.after, MirrorTopic):  # Of a mirror they only keep out whom a rule lets write.
        return None
    before = {path for path in fields_of(action.before) if path.startswith(ACLS)}
    after = {path for path in before if changes.get(path, path) is not None}
    after |= {path for path, value in changes.items() if value is not None}
    above = _above(action, situation)
    if situation.capabilities(cluster_of(action.address) or "").access.is_open:
        if not (before or above):
            return Reason.FIRST_RULE
        if not (after or above):
            return Reason.LAST_RULE
    had, has = (any(path.startswith(ALLOWS) for path in (*side, *above)) for side in (before, after))
    return Reason.LAST_ALLOWANCE if had and not has else None


def _above(action: Update, situation: Situation) -> set[str]:
    """Return the rules of the tiers above, as they are."""
    namespace, _ = split_name(full_name_of(action.address))
    tiers = situation.nearest(cluster_of(action.address) or "", namespace)
    seen = (situation.observed[tier].resource for tier in tiers if tier in situation.observed)
    return {path for resource in seen for path in fields_of(resource) if path.startswith(ACLS)}


class Impact:
    """Judges actions one by one, by what was measured, and collects the topics whose size it would have needed."""

    def __init__(self, situation: Situation, measures: Measures, actions: Iterable[Action]) -> None:
        """Take all actions of a plan: what one removes may hang on another."""
        self._situation = situation
        self._measures = measures
        self._planned = {
            action.address: found for action in actions if isinstance(action, Update) and (found := _keeping_of(action))
        }
        self._missing: dict[Address, None] = {}
        self._wished: dict[Address, None] = {}
        self._cuts: dict[Address, set[int]] = {}
        self._acting = ActingConfigs(situation)
        self._switching = Switching(situation, self.topics_below, self.measure, self._backlog_loss)

    @property
    def unmeasured(self) -> Cuts:
        """The topics that should be measured, and the times before which records of each would be expired.

        They are sorted, those first on which a risk rests.
        """
        found = (*sorted(self._missing), *sorted(self._wished.keys() - self._missing.keys()))
        return {address: tuple(sorted(self._cuts.get(address, ()))) for address in found}

    def judge(self, action: Action) -> Action:
        """Return the action with its risk, its estimate and the reasons of both."""
        match action:
            case Update():
                return self._update(action)
            case Delete():
                return self._delete(action)
            case RunJob():
                return self._job(action)
            case Transition():
                found = with_cost(detached(action, self._situation, self.measure), self._situation, self.measure)
                return self._switched(self._moved(found), action)
            case Create() | Adopt() | Forget():
                return action
            case _:
                assert_never(action)

    def _switched(self, judged: Transition, action: Transition) -> Transition:
        """What a move makes of the tiering of a topic comes on top of what else it costs."""
        cost = self._switching.cost(action)
        brought = brought_by(action.address, self._situation)
        if brought is not None and action.parameters.get("policy") == "delete":
            lost = unreadable_of(brought, action.address)
            cost = Cost(lost, is_known=bool(lost))
        if cost == Cost():
            return judged
        return replace(
            judged,
            risk=Risk.DATA_LOSS if cost.is_loss else judged.risk,
            reasons=_united(judged.reasons, cost.reasons),
            estimate=_added(judged.estimate, cost.estimate),
        )

    def _moved(self, action: Transition) -> Transition:
        """A topic that moves inherits from other tiers, or from its cluster alone, which may keep less."""
        old = moved_from(action)
        seen = self._situation.observed.get(old) if old is not None else None
        if old is None or seen is None or not isinstance(seen.resource, Topic):
            return action
        topic, limits = seen.resource, self._situation.capabilities(seen.resource.cluster)
        namespace, _ = split_name(full_name_of(action.address))
        above = self._acting.above(topic.cluster, namespace, seen.topic.initial)
        acting = {**{key: value for key, (value, _) in above.items()}, **topic.spec.configs}
        of_cluster = {key for key, (_, origin) in above.items() if origin == CLUSTER} - topic.spec.configs.keys()
        own = {key: value for key, value in acting.items() if key not in of_cluster}
        sides = self._side(old, topic), Side(acting.get, own.get)
        was, will = Keeping.of_sides(*sides, limits.configs, limits.defaults)
        if not will.is_stricter_than(was):
            return action
        measured = self._measured_for(old, will)
        found = loss(was, will, measured, topic.spec.partitions or 1, self._situation.request.now_ms)
        if found.risk is not Risk.DATA_LOSS:
            return action
        lowered = (Reason.RETENTION_LOWERED,) if found.expires else ()
        reasons = (*action.reasons, *lowered, *found.reasons)
        return replace(action, risk=Risk.DATA_LOSS, reasons=reasons, estimate=found.estimate)

    def _update(self, action: Update) -> Update:
        reasons = list(action.reasons)
        risk = Risk.NONE
        if any(change.path == "partitions" for change in action.changes):
            reasons.append(Reason.PARTITIONS_INCREASE)
            risk = Risk.IRREVERSIBLE  # keys move to other partitions
        found, cost = self._loss(action), self._switching.cost(action)
        if found.risk is Risk.DATA_LOSS:
            risk = Risk.DATA_LOSS
            named = {reason_of(change) for change in action.changes if config_at(change.path) in KEYS}
            reasons += [reason for reason in Reason if reason in named and found.expires]
            reasons += found.reasons
        risk = Risk.DATA_LOSS if cost.is_loss else risk
        moved = self._replicated(action)
        if moved is not None:
            reasons.append(Reason.REPLICAS_MOVE)
            risk = Risk.DISRUPTIVE if risk is Risk.NONE else risk
        access = access_reason(action, self._situation)
        if access is not None:
            reasons.append(access)
            risk = Risk.DISRUPTIVE if risk is Risk.NONE else risk
        if risk is Risk.NONE and cost == Cost():
            return action
        return replace(
            action,
            risk=risk,
            reasons=_united(reasons, cost.reasons),
            estimate=replace(
                _added(found.estimate, cost.estimate),
                replicated=0 if moved is None else moved[0],
                partitions=0 if moved is None else moved[1],
            ),
        )

    def _replicated(self, action: Update) -> tuple[int, int] | None:
        """Return the bytes that brokers copy to each other, and of how many partitions; `None`: no replica moves."""
        topic = action.before
        change = next((each for each in action.changes if each.path == "replicationFactor"), None)
        if change is None or not isinstance(topic, Topic):
            return None
        if not self._situation.capabilities(topic.cluster).replication_moves:
            return None
        measure = self.measure(action.address, is_wish=True)
        more = change.after - change.before if isinstance(change.after, int) and isinstance(change.before, int) else 0
        return max(0, more) * (measure.bytes if measure is not None else 0), topic.spec.partitions or 1

    def _loss(self, action: Update) -> Loss:
        moved = self._planned.get(action.address)
        if not moved or not isinstance(action.before, Topic | Namespace | MirrorTopic | Cluster):
            return Loss()
        total = Loss()
        for address, topic in self._concerned(action.address, action.before):
            alone = self._topic_loss(address, topic, {action.address: moved})
            total += alone | self._added_loss(address, topic, action.address)
        return total

    def _added_loss(self, address: Address, topic: Topic, changed: Address) -> Loss:
        """Return what a topic loses by the whole plan, where it would lose another amount without one change of it.

        Two changes may remove what neither does alone: a topic gives up its own retention, and its namespace lowers.
        """
        layers = [layer for layer, _ in self._values(address, topic, CLEANUP) if layer in self._planned]
        if layers == [changed]:
            return Loss()
        planned = {layer: self._planned[layer] for layer in layers}
        whole = self._topic_loss(address, topic, planned)
        without = self._topic_loss(
            address, topic, {layer: found for layer, found in planned.items() if layer != changed}
        )
        return Loss() if whole == without else whole

    def _topic_loss(self, address: Address, topic: Topic, planned: Planned) -> Loss:
        """Return what a topic loses by changes of it and of what it inherits from."""
        limits = self._situation.capabilities(topic.cluster)

        # What the brokers do now is the property itself, where one is taken back: nobody knows what lies beneath it.
        of_cluster = planned.get(cluster_address(topic.cluster), {})
        gone = {key for key, value in of_cluster.items() if value is None}
        beneath = {key: value for key, value in limits.defaults.items() if key not in gone} if gone else limits.defaults
        sides = self._side(address, topic), self._side(address, topic, planned)
        was, will = Keeping.of_sides(*sides, limits.configs, limits.defaults, beneath)
        if not will.is_stricter_than(was):
            return Loss()
        measured = self._measured_for(address, will)
        return loss(was, will, measured, topic.spec.partitions or 1, self._situation.request.now_ms)

    def _measured_for(self, address: Address, will: Keeping) -> Measure | None:
        """Return what was measured of a topic, and ask how much of it is older than what will be kept."""
        place, cut = self._lies_at(address), will.expired_before(self._situation.request.now_ms)
        if cut is not None:
            self._cuts.setdefault(place, set()).add(cut)
        return self.measure(place)

    def _lies_at(self, address: Address) -> Address:
        """Return where a topic lies now: one that moves in this plan is still at its old address."""
        wanted = self._situation.wanted.get(address)
        old = wanted.moved_from if wanted is not None else None
        is_moved = address not in self._situation.observed and old in self._situation.observed
        return old if old is not None and is_moved else address

    def _backlog_loss(self, address: Address, topic: Topic) -> Loss:
        """Return what expires of what waited to be uploaded, once nothing is uploaded any more."""
        limits = self._situation.capabilities(topic.cluster)
        side = self._side(address, topic, self._planned)
        _, will = Keeping.of_sides(side, side, limits.configs, limits.defaults)
        waits = replace(will, ms=math.inf, bytes=math.inf)
        if not will.is_stricter_than(waits):
            return Loss()
        measured = self._measured_for(address, will)
        if measured is not None:
            measured = measured.newest(measured.local_only_bytes)
        return loss(waits, will, measured, topic.spec.partitions or 1, self._situation.request.now_ms)

    def _side(self, address: Address, topic: Topic, planned: Planned = MappingProxyType({})) -> Side:
        """Return what a topic and its tiers say, with what is planned of them."""
        seen = self._situation.observed.get(self._lies_at(address))

        def said(key: str, *, is_own: bool) -> str | None:
            for layer, now in self._values(address, topic, key):
                value = planned.get(layer, {}).get(key, now)
                if value is not None and not (is_own and kind_of(layer) == "cluster"):
                    return value
            return None if is_own or seen is None else seen.topic.initial.get(key)

        return Side(partial(said, is_own=False), partial(said, is_own=True))

    def _values(self, address: Address, topic: Topic, key: str) -> Iterator[tuple[Address, str | None]]:
        """Yield what a topic and its tiers say of one config, nearest first; one that moves has its new tiers then."""
        yield address, topic.spec.configs.get(key)
        for tier in self._situation.nearest(topic.cluster, split_name(full_name_of(address))[0]):
            seen = self._situation.observed.get(tier) or self._situation.wanted.get(tier)
            yield tier, seen.resource.spec.configs.get(key) if seen and isinstance(seen.resource, Namespace) else None
        cluster = self._situation.observed.get(cluster_address(topic.cluster))
        said = cluster.resource.spec.properties if cluster and isinstance(cluster.resource, Cluster) else {}
        names = (name for name, config in CONFIG_DEFAULTS.items() if config == key and name in said)
        yield cluster_address(topic.cluster), next((said[name] for name in names), None)

    def _concerned(
        self, address: Address, before: Topic | Namespace | MirrorTopic | Cluster
    ) -> Iterator[tuple[Address, Topic]]:
        """Yield the topics a change touches: one topic, or every one below a namespace or on a cluster."""
        match before:
            case Topic():
                yield address, before
            case Namespace() | Cluster():
                yield from self._below.get(address, ())
            case MirrorTopic():
                pass  # what a mirror keeps follows its source
            case _:
                assert_never(before)

    def topics_below(self, address: Address) -> Iterator[Address]:
        """Yield the topics in a namespace or on a cluster."""
        yield from sorted(topic for topic, _ in self._below.get(address, ()))

    @cached_property
    def _below(self) -> Mapping[Address, list[tuple[Address, Topic]]]:
        found: dict[Address, list[tuple[Address, Topic]]] = {}
        for address, seen in self._situation.observed.items():
            resource = seen.resource
            if isinstance(resource, Topic):
                found.setdefault(cluster_address(resource.cluster), []).append((address, resource))
                for tier in tiers_of(resource.metadata.namespace):
                    found.setdefault(address_of("namespace", resource.cluster, tier), []).append((address, resource))
        return found

    def _delete(self, action: Delete) -> Delete:
        if kind_of(action.address) not in {"topic", "mirror"}:
            return action
        seen = self._situation.observed.get(action.address)
        remote = None if seen is None else seen.topic.legacy
        location = None if remote is None else remote.location
        if remote is not None:
            reason = Reason.REMOTE_DELETED if remote.is_deleted else Reason.REMOTE_KEPT
            action = replace(action, reasons=(*action.reasons, reason))
        if Reason.MOVED in action.reasons:
            return self._copied(action)
        measure = self.measure(_as_topic(action.address))
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

    def _copied(self, action: Delete) -> Delete:
        """Judge the delete of what was copied under another name before: offsets are others there, records the same."""
        measure = self.measure(action.address, is_wish=True)
        found = Estimate() if measure is None else Estimate(measure.bytes, measure.records, groups=measure.groups)
        return replace(action, risk=Risk.IRREVERSIBLE, estimate=found)

    def _job(self, action: RunJob) -> RunJob:
        if is_wait(action):
            return with_lag(action, self._situation, self.measure)
        if action.job == SWITCH_GROUPS:
            measure = self.measure(action.source, is_wish=True)
            return replace(action, estimate=Estimate(groups=None if measure is None else measure.groups))
        if action.job == UNMOUNT.name and action.address in self._situation.observed:
            return unmounted(action, action.address, self._situation, self.measure)
        if Reason.FIRST_COPY not in action.reasons and action.job != MOVE:
            return action  # what lags behind is all that it copies
        source = action.source
        is_brought = brought_by(source, self._situation) is not None
        is_there = is_brought or any(each in self._situation.observed for each in (source, mirror_at(source)))
        measure = self.measure(source) if is_there else None
        if measure is None:
            return action
        size, records = (0, 0) if self._begins_at_end(action) else (measure.bytes, measure.records)
        seconds, engine = max(1, size // BYTES_A_SECOND), self._situation.request.spark.engine_for(size)
        return replace(action, estimate=Estimate(bytes=size, records=records, seconds=seconds, engine=engine))

    def _begins_at_end(self, action: RunJob) -> bool:
        """Tell whether a job copies to a mirror that begins where its source ends when it is made."""
        mirror = None if action.address in self._situation.observed else self._situation.entries.get(action.address)
        link = None if mirror is None else self._situation.wanted.get(address_of("link", mirror.cluster, mirror.link))
        declared = None if link is None else link.resource
        return isinstance(declared, MirrorLink) and declared.spec.start_offset == "latest"

    def measure(self, address: Address, *, is_wish: bool = False) -> Measure | None:
        """Return what was measured of a topic; what was not is noted among `unmeasured`.

        `is_wish`: no risk rests on it, so it is measured last.
        """
        source = brought_by(address, self._situation)
        if source is not None:
            return size_of(source, self._situation, self.measure)
        found = self._measures.get(address)
        if found is None and cluster_of(address) in self._situation.trusted:
            (self._wished if is_wish else self._missing)[address] = None
        return found


def _keeping_of(action: Update) -> dict[str, str | None]:
    """Return the configs by which records go that an update changes, and what they become; `None`: not set."""
    touched = {config_at(change.path): change.after for change in action.changes}
    return {key: None if touched[key] is None else str(touched[key]) for key in KEYS if key in touched}


def _united(reasons: Iterable[Reason], more: Iterable[Reason]) -> tuple[Reason, ...]:
    return tuple(dict.fromkeys((*reasons, *more)))


def _added(estimate: Estimate, more: Estimate) -> Estimate:
    return replace(estimate, bytes=estimate.bytes + more.bytes, uploads=more.uploads, unreadable=more.unreadable)


def _as_topic(address: Address) -> Address:
    return Address("topic/" + address.partition("/")[2])
