"""Checks of tiering, and costs of tiering changes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Final, TypeAlias

from reconciler.lifecycles import TieringState
from reconciler.planning.actions import Action, Estimate, Reason, Transition, Unreadable, Update
from reconciler.planning.diff.moves import find_moved_from
from reconciler.planning.diff.retention_loss import NO_LOSS, Loss
from reconciler.planning.fields import CONFIGS
from reconciler.planning.plan import FieldMark, PlanFinding
from reconciler.planning.plan_rows import list_platform_changes
from reconciler.planning.resolve.acting_configs import SWITCH_PATHS, ActingConfigs, ActOptions, SwitchReader
from reconciler.planning.resolve.limits import describe_unsupported
from reconciler.resources.address import Address, cluster_address, cluster_of, full_name_of, split_name
from reconciler.resources.cluster_properties import ENABLED, UPLOADS
from reconciler.resources.configs import EMBEDDED_CONFIGS, POLICY_KEYS, format_value, policy_path
from reconciler.resources.namespace import Namespace
from reconciler.resources.tiering_policy import (
    AS_TOTAL,
    CLUSTER,
    COPY_DISABLE,
    DELETE_ON_DISABLE,
    ENABLE,
    RULED,
    SWITCHES,
    TOTALS,
    Configs,
    TieringPolicy,
    find_ineffective_configs,
    find_refused_configs,
    read_disable_policy,
    read_switches,
)
from reconciler.resources.topic import Topic
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.text import list_first, pluralize

if TYPE_CHECKING:
    from reconciler.planning.situation import Review, Situation, WantedResource
    from reconciler.resources.inventory import Capabilities, Observed
    from reconciler.resources.measures import Measure, TieredPartition

    Below: TypeAlias = Callable[[Address], Iterable[Address]]
    """Returns the topics below a namespace; none for other addresses."""
    Measuring: TypeAlias = Callable[..., Measure | None]
    """Returns a topic's measurement; `is_wish`: no risk depends on it."""
    Backlog: TypeAlias = Callable[[Address, Topic], Loss]
    """Returns what expires of a topic's upload backlog."""

_MAX_NAMES: Final = 3


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of a topic's tiering change. `is_known` is false if possible losses were not measured."""

    unreadable: tuple[Unreadable, ...] = ()
    uploads: int = 0
    is_known: bool = True
    backlog: Loss = NO_LOSS

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            (*self.unreadable, *other.unreadable),
            self.uploads + other.uploads,
            self.is_known and other.is_known,
            self.backlog + other.backlog,
        )

    @property
    def is_loss(self) -> bool:
        """Whether records are or may be lost."""
        return bool(self.unreadable) or not self.is_known or self.backlog.expires

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Reasons to review the action."""
        lost = (Reason.BECOMES_UNREADABLE,) if self.unreadable or not self.is_known else ()
        expires = (Reason.RETENTION_LOWERED,) if self.backlog.expires else ()
        unknown = () if self.is_known and self.backlog.is_known else (Reason.UNMEASURED,)
        return (*lost, *expires, *unknown, *((Reason.UPLOADS,) if self.uploads else ()))

    @property
    def estimate(self) -> Estimate:
        """Bytes that the change deletes and uploads."""
        size = sum(lost.bytes for lost in self.unreadable) + self.backlog.bytes
        return Estimate(size, uploads=self.uploads, unreadable=self.unreadable)


@dataclass(frozen=True, slots=True)
class _Switch:
    topic: Address
    seen: Observed
    now: Configs
    then: Configs
    is_one: bool
    """A single switch for uploads and reads (KIP-405). Switching it off deletes remote records."""

    @property
    def deletes(self) -> bool:
        if self.is_one:
            return read_switches(self.now).read and not read_switches(self.then).read
        is_going_off = self.seen.state == TieringState.ENABLED and read_switches(self.then).is_off
        return is_going_off and read_disable_policy(self.then) == "delete"

    @property
    def begins_uploads(self) -> bool:
        was_on = self.seen.state in {None, TieringState.ENABLED} and read_switches(self.now).write
        return read_switches(self.then).write and not was_on

    @property
    def ends_uploads(self) -> bool:
        was_on = self.seen.state == TieringState.ENABLED and read_switches(self.now).write
        return was_on and not self.is_one and not read_switches(self.then).write

    @property
    def hides(self) -> bool:
        was, will = read_switches(self.now), read_switches(self.then)
        if self.seen.state is None:
            return not self.is_one and was.read and not will.read
        return self.seen.state == TieringState.ENABLED and was.read and will.write and not will.read


def warnings_of_switching(review: Review) -> Iterator[PlanFinding]:
    """Warn about effects of tiering changes other than losses."""
    yield from TieringImpact(review.situation, review.list_topics_below, review.measure).warnings(review.actions)


class TieringImpact:
    """Computes the cost of tiering changes."""

    def __init__(self, situation: Situation, below: Below, measure: Measuring, backlog: Backlog | None = None) -> None:
        self._backlog = backlog
        self._situation = situation
        self._below = below
        self._measure = measure
        self._switch_reader = SwitchReader(situation)

    def cost(self, action: Action) -> Cost:
        """Return the cost of an action; it is empty without a tiering change."""
        return sum(map(self._compute_cost, self._find_switches(action)), Cost())

    def warnings(self, actions: Sequence[Action]) -> Iterator[PlanFinding]:
        """Yield offsets that become unreadable or are never uploaded, and other effects."""
        for action in actions:
            wanted = self._situation.wanted.get(action.address)
            source = wanted.source if wanted is not None else None
            for switch in self._find_switches(action):
                yield from self._report_hidden_offsets(switch, source)
                yield from self._report_missing_offsets(switch, source)
                yield from self._report_emptied_replicas(switch, source)
                yield from _report_decided_before(switch, source)

    def _find_switches(self, action: Action) -> Iterator[_Switch]:
        old = find_moved_from(action)
        seen = self._situation.observed.get(old) if old is not None else None
        if old is not None and seen is not None:
            now, then = self._switch_reader.now(old, seen), self._switch_reader.moved(action.address, seen)
            yield _Switch(old, seen, now, then, self._has_single_switch(old))
        elif isinstance(action, Update | Transition) and any(
            change.path in SWITCH_PATHS for change in list_platform_changes(action)
        ):
            yield from self._find_switch(action.address)
            for topic in self._below(action.address):
                if topic != action.address and not self._is_switched_nearer(action.address, topic):
                    yield from self._find_switch(topic)

    def _is_switched_nearer(self, address: Address, topic: Address) -> bool:
        tiers = self._situation.list_nearest_namespaces(cluster_of(topic) or "", split_name(full_name_of(topic))[0])
        nearer = (topic, *takewhile(lambda tier: tier != address, tiers))
        return any(
            self._switch_reader.read_planned_switches(address_below)
            != self._switch_reader.read_own_switches(address_below)
            for address_below in nearer
        )

    def _find_switch(self, topic: Address) -> Iterator[_Switch]:
        place = topic if topic in self._situation.observed else self._find_previous_address(topic)
        seen = self._situation.observed.get(place) if place is not None else None
        if place is not None and seen is not None and isinstance(seen.resource, Topic):
            old = None if place == topic else place
            now, then = self._switch_reader.now(place, seen), self._switch_reader.then(topic, seen, old)
            yield _Switch(place, seen, now, then, self._has_single_switch(place))

    def _has_single_switch(self, topic: Address) -> bool:
        return self._situation.find_capabilities(cluster_of(topic) or "").tiering_words == "kip-405"

    def _find_previous_address(self, topic: Address) -> Address | None:
        wanted = self._situation.wanted.get(topic)
        return wanted.moved_from if wanted is not None else None

    def _compute_cost(self, switch: _Switch) -> Cost:
        topic = switch.seen.resource
        if switch.ends_uploads and self._backlog is not None and isinstance(topic, Topic):
            return replace(self._compute_cost_in_storage(switch), backlog=self._backlog(switch.topic, topic))
        return self._compute_cost_in_storage(switch)

    def _compute_cost_in_storage(self, switch: _Switch) -> Cost:
        if switch.deletes:
            measured = self._measure(switch.topic)
            if measured is None:
                return Cost(is_known=False)
            return Cost(
                tuple(
                    _make_unreadable(switch.topic, partition)
                    for partition in measured.tiered
                    if partition.start < partition.local_start
                )
            )
        if switch.begins_uploads:
            measured = self._measure(switch.topic, is_wish=True)
            return Cost() if measured is None else Cost(uploads=measured.local_only_bytes)
        return Cost()

    def _report_hidden_offsets(self, switch: _Switch, source: str | None) -> Iterator[PlanFinding]:
        if not switch.hides:
            return
        measured = self._measure(switch.topic, is_wish=True)
        if measured is None:
            what: str | None = "what only object storage has (offsets unknown)"
        else:
            what = _format_offsets(
                [(partition.number, partition.start, partition.local_start) for partition in measured.tiered]
            )
        if what is not None:
            message = f"without remote.read these offsets cannot be read: {what}"
            yield PlanFinding(switch.topic, source, message, "Nothing is deleted: remote.read: true shows it again.")

    def _report_missing_offsets(self, switch: _Switch, source: str | None) -> Iterator[PlanFinding]:
        if switch.seen.state is None or not switch.begins_uploads:
            return
        measured = self._measure(switch.topic, is_wish=True)
        if measured is None:
            what: str | None = "what expired in the meantime (offsets unknown)"
        else:
            what = _format_offsets(
                [(partition.number, partition.uploaded_to, partition.local_start) for partition in measured.tiered]
            )
        if what is not None:
            yield PlanFinding(
                switch.topic,
                source,
                f"uploads were off for some time: object storage will never contain {what}",
                f"Next time pause uploads without a gap: set the cluster's {UPLOADS}: false.",
            )

    def _report_emptied_replicas(self, switch: _Switch, source: str | None) -> Iterator[PlanFinding]:
        place = switch.seen.topic.legacy
        if not switch.deletes or place is None or place.location.partition("/")[2] not in self._replicas:
            return
        replicas = list_first(self._replicas[place.location.partition("/")[2]], _MAX_NAMES)
        yield PlanFinding(
            switch.topic,
            source,
            f"its read replicas become empty when its records in object storage are deleted: {replicas}",
            "Keep it with onDisable: retain; or continue: they follow again when tiering is on again.",
        )

    @cached_property
    def _replicas(self) -> Mapping[str, Sequence[Address]]:
        replicas: dict[str, list[Address]] = {}
        for address, wanted in sorted(self._situation.wanted.items()):
            topic = wanted.resource
            if isinstance(topic, Topic) and topic.spec.read_replica_of is not None:
                replicas.setdefault(topic.spec.read_replica_of.partition("/")[2], []).append(address)
        return replicas


def _report_decided_before(switch: _Switch, source: str | None) -> Iterator[PlanFinding]:
    was_kept = switch.seen.state == TieringState.DISABLED and read_disable_policy(switch.now) != "delete"
    if was_kept and read_switches(switch.then).is_off and read_disable_policy(switch.then) == "delete":
        yield PlanFinding(
            switch.topic,
            source,
            "remote.log.disable.policy: delete has no effect now: its tiering is already off, and the records in "
            "object storage stays",
            "To delete it, apply remote.write: true and remote.read: true, then switch both off with delete.",
        )


def _make_unreadable(topic: Address, held: TieredPartition) -> Unreadable:
    return Unreadable(topic, held.number, held.start, held.local_start, held.remote_bytes)


def _format_offsets(stretches: Sequence[tuple[int, int, int]]) -> str | None:
    ranges = [(number, start, stop) for number, start, stop in stretches if start < stop]
    if not ranges:
        return None
    named = [f"partition {number}: {start:,} to {stop - 1:,}" for number, start, stop in ranges[:_MAX_NAMES]]
    more = f", and of {len(ranges) - _MAX_NAMES:,} more partitions" if len(ranges) > _MAX_NAMES else ""
    count = sum(stop - start for _, start, stop in ranges)
    return f"{pluralize(count, 'offset')} ({'; '.join(named)}{more})"


_FIELD: Final = ("spec", "localRetention")


def warnings_of_copying_off(review: Review) -> Iterator[PlanFinding]:
    """Warn about policies whose local retention has no effect, because copying is disabled (KIP-950)."""
    situation = review.situation
    topics: dict[str, list[Address]] = {}
    for address in sorted(situation.wanted):
        wanted = situation.wanted[address]
        origin = wanted.origins.get(CONFIGS + COPY_DISABLE)
        if origin is None or not isinstance(wanted.resource, Topic) or not situation.can_plan(address):
            continue
        configs = wanted.resource.spec.configs
        if configs.get(COPY_DISABLE) == "true" and any(configs.get(key) == AS_TOTAL for key in TOTALS):
            topics.setdefault(origin, []).append(address)
    for address, declared in sorted(review.desired.items()):
        policy = declared.resource
        if address in topics and isinstance(policy, TieringPolicy) and policy.spec.local_retention is not None:
            first, more = topics[address][0], len(topics[address]) - 1
            named = first + (f" and {more:,} more" if more else "")
            yield PlanFinding(
                address,
                declared.source,
                "localRetention has no effect while remoteWrite is false: brokers require -2 once copying is off, "
                f"so local disks hold the total of {named}",
                "Remove it, and see that disks have room for that; or switch remoteWrite on.",
                ((address, _FIELD),),
            )


_WORDS: Final = frozenset(word for words in POLICY_KEYS.values() for word in words)
_PAIRS: Final = (
    (("retention.local.target.ms", "local.retention.ms"), "retention.ms"),
    (("retention.local.target.bytes", "local.retention.bytes"), "retention.bytes"),
)
_SEGMENT: Final = "segment.bytes"


def check_tiering(situation: Situation) -> Iterator[PlanFinding]:
    """Yield problems of tiering at the resource that declares it."""
    acting = ActingConfigs(situation)
    reported: set[tuple[str | None, str]] = set()
    right: set[Hashable] = set()
    for address in situation.planned:
        wanted = situation.wanted[address]
        resource = wanted.resource
        if not isinstance(resource, Topic | Namespace) or _WORDS.isdisjoint(resource.spec.configs):
            continue
        if _has_directions(situation.find_capabilities(resource.cluster)):
            likeness = _make_equality_key(resource, situation.observed.get(address))
            if likeness in right:
                continue
            judged = _TieringChecker(address, wanted, acting.of(resource), frozenset(resource.spec.configs), situation)
            findings = list(judged.all())
            if likeness is not None and not findings:
                right.add(likeness)
            for finding in findings:
                is_policys = any(place.startswith("policy/") for place, _ in finding.marks) and not any(
                    place == address and path[:2] == ("spec", "configs") for place, path in finding.marks
                )
                key = (resource.cluster, finding.message)
                if not is_policys or key not in reported:
                    reported.add(key)
                    yield finding


def _has_directions(capabilities: Capabilities) -> bool:
    return capabilities.tiering and capabilities.tiering_words == "directions"


def _make_equality_key(resource: Topic | Namespace, seen: Observed | None) -> Hashable:
    if not isinstance(resource, Topic):
        return None
    initial: tuple[tuple[str, str], ...] | None = None
    if seen is not None:
        if not isinstance(seen.resource, Topic) or seen.resource.spec.configs != resource.spec.configs:
            return None
        initial = tuple(seen.topic.initial.items())
    return resource.cluster, resource.metadata.namespace, initial, tuple(resource.spec.configs.items())


def warnings_of_tiering(review: Review) -> Iterator[PlanFinding]:
    """Warn about clusters without tiering whose topics require it."""
    situation = review.situation
    acting = ActingConfigs(situation)
    if not any(_is_off(cluster, situation, acting) for cluster in situation.trusted):
        return
    waiting: dict[str, list[Address]] = {}
    for address in situation.planned:
        topic = situation.wanted[address].resource
        if not isinstance(topic, Topic):
            continue
        if _is_off(topic.cluster, situation, acting) and not read_switches(acting.of(topic)).is_off:
            waiting.setdefault(topic.cluster, []).append(address)
    for cluster, topics in waiting.items():
        count = pluralize(len(topics), "topic asks", "topics ask")
        yield PlanFinding(
            cluster_address(cluster),
            situation.wanted[cluster_address(cluster)].source,
            f"{ENABLED} is false: {count} to be tiered, and nothing is uploaded or fetched: "
            "records that are only in object storage cannot be read",
            "Remove the property where tiering is wanted.",
            ((cluster_address(cluster), ("spec", "properties", ENABLED)),),
        )


def _is_off(cluster: str, situation: Situation, acting: ActingConfigs) -> bool:
    return situation.find_capabilities(cluster).tiering and acting.properties(cluster).get(ENABLED) == "false"


@dataclass(frozen=True, slots=True)
class _TieringChecker:
    address: Address
    wanted: WantedResource
    acting: ActOptions
    own: frozenset[str]
    situation: Situation

    def all(self) -> Iterator[PlanFinding]:
        if self.own & SWITCHES:
            yield from self._check_storage()
        for local, total in _PAIRS:
            yield from self._check_local_limit(local, total)
        if self.own & {"retention.bytes", _SEGMENT, *SWITCHES}:
            yield from self._check_segment()

    def _check_storage(self) -> Iterator[PlanFinding]:
        switches = read_switches(self.acting)
        cluster = self.wanted.resource.cluster or ""
        declared = self.situation.clusters[cluster]
        named = self.situation.find_capabilities(cluster).object_storage
        if switches.is_off or declared.spec.object_storage is not None or named:
            return
        keys = [key for key in sorted(self.own & SWITCHES) if self.acting[key][0] == "true"]
        if keys:
            yield self._make_finding(
                f"{self._show_config(keys[0])} is true, and cluster {cluster} has no object storage for that",
                f"Declare objectStorage on {declared.address}, or switch it off.",
                keys[0],
            )

    def _check_local_limit(self, words: tuple[str, ...], total: str) -> Iterator[PlanFinding]:
        local = next((word for word in words if word in self.acting), None)
        if local is None or total not in self.acting or not {local, total} & self.own:
            return
        (limit, limit_origin), (whole, whole_from) = self.acting[local], self.acting[total]
        if CLUSTER in {limit_origin, whole_from} or int(whole) < 0 or int(limit) <= int(whole):
            return
        limits = f"{format_value(local, limit)}, above {self._show_config(total)} of {format_value(total, whole)}"
        yield self._make_finding(
            f"{self._show_config(local)} is {limits}: nothing stays local that is not kept at all",
            "Lower the local target, or raise the total.",
            *sorted({local, total}, key=lambda key: key not in self.own),
        )

    def _check_segment(self) -> Iterator[PlanFinding]:
        """Size retention deletes whole segments, so it must allow more than one."""
        if "retention.bytes" not in self.acting or read_switches(self.acting).is_off:
            return
        segment = self.acting.get(_SEGMENT, (EMBEDDED_CONFIGS[_SEGMENT].default or "0", "default"))[0]
        total = self.acting["retention.bytes"][0]
        if not 0 <= int(total) < int(segment):
            return
        yield self._make_finding(
            f"{self._show_config('retention.bytes')} is {format_value('retention.bytes', total)}, less than one "
            f"segment of {format_value(_SEGMENT, segment)} ({_SEGMENT}): each would be removed as soon as it is "
            f"uploaded",
            f"Raise retention.bytes, or lower {_SEGMENT}.",
            "retention.bytes",
            _SEGMENT,
        )

    def _show_config(self, key: str) -> str:
        origin = self.acting[key][1] if key in self.acting else str(self.address)
        return key if origin == self.address else f"{key} (of {origin})"

    def _make_finding(self, message: str, hint: str, *keys: str) -> PlanFinding:
        marks = tuple(mark for key in keys for mark in self._make_marks(key))
        return PlanFinding(self.address, self.wanted.source, message, hint, marks)

    def _make_marks(self, key: str) -> Iterator[FieldMark]:
        origin = self.wanted.origins.get(CONFIGS + key) or self.acting.get(key, ("", ""))[1]
        path = policy_path(key)
        if origin.startswith("policy/") and path is not None:
            if key in self.own:
                yield self.address, ("spec", "tieringPolicy")
            yield Address(origin), path
        elif key in self.own or origin in self.situation.wanted:
            yield self.address if key in self.own else Address(origin), ("spec", "configs", key)


# Checks use a config's planned value, or the brokers' default (F-K-071).


_CHECKED_CONFIGS: Final = RULED | {"cleanup.policy", "retention.ms", "retention.bytes"}


def check_tiered_topics(situation: Situation) -> Iterator[PlanFinding]:
    """Yield problems of tiered topics that brokers would reject. A namespace's problems are reported once."""
    acting, reported = ActingConfigs(situation), set[tuple[str, str]]()
    right: set[Hashable] = set()
    for address, wanted, topic in _list_tiered_topics(situation):
        capabilities, live = situation.find_capabilities(topic.cluster), _read_live_configs(address, situation)
        own = topic.spec.configs
        if own != live:
            own = {key: value for key, (value, _) in acting.of(topic).items()}
        likeness = topic.cluster, live.get(ENABLE), frozenset((key, own[key]) for key in _CHECKED_CONFIGS & own.keys())
        if likeness in right:
            continue
        if live.get(ENABLE) == "true" and ENABLE not in own:
            yield _report_undeclared_switch(address, wanted)
            continue
        if live.get(ENABLE) == "true" and own.get(ENABLE) != "true":
            yield from _check_disabling(address, wanted, own, capabilities)
        problems = list(find_refused_configs({**_read_broker_defaults(capabilities), **own}))
        if not problems and own.get(ENABLE) == live.get(ENABLE):
            right.add(likeness)
        for keys, why, hint in problems:
            suffix = _format_defaults(keys, own, capabilities)
            is_its_own = any(key in own and CONFIGS + key not in wanted.origins for key in keys)
            if is_its_own or (topic.cluster, why) not in reported:
                reported.add((topic.cluster, why))
                yield PlanFinding(
                    address,
                    wanted.source,
                    why + suffix + _format_origins(keys, wanted),
                    hint,
                    _make_marks(address, keys, own),
                )


def warnings_of_tiered_topics(review: Review) -> Iterator[PlanFinding]:
    """Warn about configs without effect because the topic is not tiered."""
    situation = review.situation
    for address, wanted, topic in _list_tiered_topics(situation):
        known = situation.find_capabilities(topic.cluster).configs
        idle = [
            key
            for key in find_ineffective_configs(topic.spec.configs)
            if key in known and CONFIGS + key not in wanted.origins
        ]
        if idle and _read_live_configs(address, situation).get(ENABLE) != "true":
            yield PlanFinding(
                address,
                wanted.source,
                f"{', '.join(idle)}: no effect, for {ENABLE} is not true",
                f"Set {ENABLE}: true, or remove what does nothing.",
                _make_marks(address, tuple(idle), topic.spec.configs),
            )


def _list_tiered_topics(situation: Situation) -> Iterator[tuple[Address, WantedResource, Topic]]:
    clusters = {
        name
        for name in situation.trusted
        if (limits := situation.find_capabilities(name)).tiering and limits.tiering_words == "kip-405"
    }
    if not clusters:
        return
    for address in situation.planned:
        wanted = situation.wanted[address]
        topic = wanted.resource
        if not isinstance(topic, Topic) or topic.cluster not in clusters:
            continue
        if not (RULED.isdisjoint(topic.spec.configs) and RULED.isdisjoint(_read_live_configs(address, situation))):
            yield address, wanted, topic


def _read_live_configs(address: Address, situation: Situation) -> Mapping[str, str]:
    seen = situation.observed.get(address)
    return seen.resource.spec.configs if seen is not None and isinstance(seen.resource, Topic) else {}


def _read_broker_defaults(capabilities: Capabilities) -> dict[str, str]:
    known = capabilities.configs
    usual = {key: default for key in _CHECKED_CONFIGS if key in known and (default := known[key].default) is not None}
    return {**usual, **{key: value for key, value in capabilities.defaults.items() if key in _CHECKED_CONFIGS}}


def _check_disabling(
    address: Address, wanted: WantedResource, own: Mapping[str, str], capabilities: Capabilities
) -> Iterator[PlanFinding]:
    if not capabilities.untiering:
        yield PlanFinding(
            address,
            wanted.source,
            *describe_unsupported(capabilities, "switch the tiering of a topic off", "untiering"),
        )
    elif own.get(DELETE_ON_DISABLE) != "true":
        yield PlanFinding(
            address,
            wanted.source,
            f"{ENABLE} would become false, which deletes what only object storage has, and no file declares that",
            f"To delete it set {DELETE_ON_DISABLE}: true with it; to keep it leave {ENABLE}: true and set "
            "remote.log.copy.disable: true, local.retention.ms: total, local.retention.bytes: total.",
            _make_marks(address, (ENABLE,), own),
        )


def _report_undeclared_switch(address: Address, wanted: WantedResource) -> PlanFinding:
    return PlanFinding(
        address,
        wanted.source,
        f"its tiered storage would be unmanaged: no file sets {ENABLE} any more, and it is on",
        "Switch it off first: keep the policy with remoteWrite: false for one apply, and onDisable as you want it.",
    )


def _format_defaults(keys: tuple[str, ...], own: Mapping[str, str], capabilities: Capabilities) -> str:
    unwritten = [key for key in keys if key not in own and (key in capabilities.defaults or key in _CHECKED_CONFIGS)]
    return f" ({', '.join(unwritten)} by the brokers' defaults)" if unwritten else ""


def _format_origins(keys: tuple[str, ...], wanted: WantedResource) -> str:
    origins = {origin: None for key in keys if (origin := wanted.origins.get(CONFIGS + key))}
    return f" (of {', '.join(origins)})" if origins else ""


def _make_marks(
    address: Address, keys: tuple[str, ...], own: Mapping[str, str]
) -> tuple[tuple[Address, tuple[str | int, ...]], ...]:
    return tuple((address, ("spec", "configs", key)) for key in keys if key in own)
