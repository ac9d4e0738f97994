"""Checks of tiering, and what switching it costs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Final, TypeAlias

from reconciler.lifecycles import TieringState
from reconciler.planning.actions import Action, Estimate, Reason, Transition, Unreadable, Update
from reconciler.planning.diff.moves import moved_from
from reconciler.planning.diff.retention_loss import NO_LOSS, Loss
from reconciler.planning.fields import CONFIGS
from reconciler.planning.plan import Finding, Mark
from reconciler.planning.plan_rows import moves_of
from reconciler.planning.resolve.acting_configs import SWITCH_PATHS, Acting, ActingConfigs, Switched
from reconciler.planning.resolve.limits import beyond
from reconciler.resources.address import Address, cluster_address, cluster_of, full_name_of, split_name
from reconciler.resources.cluster_properties import ENABLED, UPLOADS
from reconciler.resources.configs import EMBEDDED_CONFIGS, POLICY_KEYS, policy_path, show_value
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
    broken,
    disable_policy_in,
    switches_in,
    without_effect,
)
from reconciler.resources.topic import Topic
from reconciler.runtime.text import counted, first_few

if TYPE_CHECKING:
    from reconciler.planning.situation import Review, Situation, WantedResource
    from reconciler.resources.inventory import Capabilities, Observed
    from reconciler.resources.measures import Measure, TieredPartition

    Below: TypeAlias = Callable[[Address], Iterable[Address]]
    """Returns the topics below a namespace; of anything else none."""
    Measuring: TypeAlias = Callable[..., Measure | None]
    """Returns what was measured of a topic; `is_wish`: no risk rests on it."""
    Backlog: TypeAlias = Callable[[Address, Topic], Loss]
    """Returns what expires of what waited to be uploaded."""

_FEW: Final = 3


@dataclass(frozen=True, slots=True)
class Cost:
    """What becomes of records when tiering is switched. `is_known` is false where nobody measured what may be lost."""

    unreadable: tuple[Unreadable, ...] = ()
    uploads: int = 0
    is_known: bool = True
    backlog: Loss = NO_LOSS
    """What waited to be uploaded, and expires."""

    def __add__(self, other: Cost) -> Cost:
        """Add what two topics cost."""
        return Cost(
            (*self.unreadable, *other.unreadable),
            self.uploads + other.uploads,
            self.is_known and other.is_known,
            self.backlog + other.backlog,
        )

    @property
    def is_loss(self) -> bool:
        """Tell whether records go, or nobody can tell."""
        return bool(self.unreadable) or not self.is_known or self.backlog.expires

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Why it is worth a second look."""
        lost = (Reason.BECOMES_UNREADABLE,) if self.unreadable or not self.is_known else ()
        expires = (Reason.RETENTION_LOWERED,) if self.backlog.expires else ()
        unknown = () if self.is_known and self.backlog.is_known else (Reason.UNMEASURED,)
        return (*lost, *expires, *unknown, *((Reason.UPLOADS,) if self.uploads else ()))

    @property
    def estimate(self) -> Estimate:
        """What is deleted and what is uploaded."""
        size = sum(lost.bytes for lost in self.unreadable) + self.backlog.bytes
        return Estimate(size, uploads=self.uploads, unreadable=self.unreadable)


@dataclass(frozen=True, slots=True)
class _Switch:
    """One topic whose switches an action moves: what they say before and after it."""

    topic: Address
    seen: Observed
    now: Configs
    then: Configs
    is_one: bool
    """One switch is for both directions (KIP-405): what it switches off is deleted."""

    @property
    def deletes(self) -> bool:
        """Tell whether what lies in object storage alone is deleted."""
        if self.is_one:
            return switches_in(self.now).read and not switches_in(self.then).read
        is_going_off = self.seen.state == TieringState.ENABLED and switches_in(self.then).is_off
        return is_going_off and disable_policy_in(self.then) == "delete"

    @property
    def begins_uploads(self) -> bool:
        """Tell whether what is local is uploaded from then on, and was not before."""
        was_on = self.seen.state in {None, TieringState.ENABLED} and switches_in(self.now).write
        return switches_in(self.then).write and not was_on

    @property
    def ends_uploads(self) -> bool:
        """Tell whether what waits to be uploaded waits no more: until then it stays past its retention."""
        was_on = self.seen.state == TieringState.ENABLED and switches_in(self.now).write
        return was_on and not self.is_one and not switches_in(self.then).write

    @property
    def hides(self) -> bool:
        """Tell whether what lies in object storage alone can be fetched no more, and stays there."""
        was, will = switches_in(self.now), switches_in(self.then)
        return self.seen.state == TieringState.ENABLED and was.read and will.write and not will.read


def warnings_of_switching(review: Review) -> Iterator[Finding]:
    """Yield what of the records is not lost, and yet to know before agreeing."""
    yield from Switching(review.situation, review.below, review.measure).warnings(review.actions)


class Switching:
    """Judges actions by what they make of the tiering of topics. `below` names those in a namespace."""

    def __init__(self, situation: Situation, below: Below, measure: Measuring, backlog: Backlog | None = None) -> None:
        """Take what tells how much of a topic's backlog expires, where costs are asked for."""
        self._backlog = backlog
        self._situation = situation
        self._below = below
        self._measure = measure
        self._look = Switched(situation)

    def cost(self, action: Action) -> Cost:
        """Return what an action costs; nothing where it switches nothing."""
        return sum(map(self._cost, self._switches(action)), Cost())

    def warnings(self, actions: Sequence[Action]) -> Iterator[Finding]:
        """Yield what is not lost, and yet to know: offsets that are hidden, or that object storage will never have."""
        for action in actions:
            wanted = self._situation.wanted.get(action.address)
            source = wanted.source if wanted is not None else None
            for switch in self._switches(action):
                yield from self._hidden(switch, source)
                yield from self._missing(switch, source)
                yield from self._left_empty(switch, source)
                yield from _too_late(switch, source)

    def _switches(self, action: Action) -> Iterator[_Switch]:
        old = moved_from(action)
        seen = self._situation.observed.get(old) if old is not None else None
        if old is not None and seen is not None:
            now, then = self._look.now(old, seen), self._look.moved(action.address, seen)
            yield _Switch(old, seen, now, then, self._is_one(old))
        elif isinstance(action, Update | Transition) and any(each.path in SWITCH_PATHS for each in moves_of(action)):
            yield from self._of_one(action.address)
            for topic in self._below(action.address):
                if topic != action.address and not self._is_nearer_told(action.address, topic):
                    yield from self._of_one(topic)

    def _is_nearer_told(self, address: Address, topic: Address) -> bool:
        """Tell whether the topic, or a namespace nearer to it, changes switches too: that action says what it costs."""
        tiers = self._situation.nearest(cluster_of(topic) or "", split_name(full_name_of(topic))[0])
        nearer = (topic, *takewhile(lambda tier: tier != address, tiers))
        return any(self._look.own_then(each) != self._look.own_now(each) for each in nearer)

    def _of_one(self, topic: Address) -> Iterator[_Switch]:
        place = topic if topic in self._situation.observed else self._left_by(topic)
        seen = self._situation.observed.get(place) if place is not None else None
        if place is not None and seen is not None and isinstance(seen.resource, Topic):
            old = None if place == topic else place
            now, then = self._look.now(place, seen), self._look.then(topic, seen, old)
            yield _Switch(place, seen, now, then, self._is_one(place))

    def _is_one(self, topic: Address) -> bool:
        return self._situation.capabilities(cluster_of(topic) or "").tiering_words == "kip-405"

    def _left_by(self, topic: Address) -> Address | None:
        """Return where a topic is still that moves to an address in the same plan."""
        wanted = self._situation.wanted.get(topic)
        return wanted.moved_from if wanted is not None else None

    def _cost(self, switch: _Switch) -> Cost:
        topic = switch.seen.resource
        if switch.ends_uploads and self._backlog is not None and isinstance(topic, Topic):
            return replace(self._cost_in_storage(switch), backlog=self._backlog(switch.topic, topic))
        return self._cost_in_storage(switch)

    def _cost_in_storage(self, switch: _Switch) -> Cost:
        if switch.deletes:
            found = self._measure(switch.topic)
            if found is None:
                return Cost(is_known=False)
            return Cost(tuple(_lost(switch.topic, each) for each in found.tiered if each.start < each.local_start))
        if switch.begins_uploads:
            found = self._measure(switch.topic, is_wish=True)
            return Cost() if found is None else Cost(uploads=found.local_only_bytes)
        return Cost()

    def _hidden(self, switch: _Switch, source: str | None) -> Iterator[Finding]:
        if not switch.hides:
            return
        found = self._measure(switch.topic, is_wish=True)
        if found is None:
            what: str | None = "what lies in object storage alone (cannot tell which offsets)"
        else:
            what = _ranges([(each.number, each.start, each.local_start) for each in found.tiered])
        if what is not None:
            message = f"without remote.read these offsets cannot be read: {what}"
            yield Finding(switch.topic, source, message, "Nothing is deleted: remote.read: true shows it again.")

    def _missing(self, switch: _Switch, source: str | None) -> Iterator[Finding]:
        if switch.seen.state is None or not switch.begins_uploads:
            return
        found = self._measure(switch.topic, is_wish=True)
        if found is None:
            what: str | None = "what expired meanwhile (cannot tell which offsets)"
        else:
            what = _ranges([(each.number, each.uploaded_to, each.local_start) for each in found.tiered])
        if what is not None:
            yield Finding(
                switch.topic,
                source,
                f"nothing was uploaded for a while: object storage will never have {what}",
                f"Next time pause uploads without a gap: set the cluster's {UPLOADS}: false.",
            )

    def _left_empty(self, switch: _Switch, source: str | None) -> Iterator[Finding]:
        place = switch.seen.topic.legacy
        if not switch.deletes or place is None or place.location.partition("/")[2] not in self._replicas:
            return
        replicas = first_few(self._replicas[place.location.partition("/")[2]], _FEW)
        yield Finding(
            switch.topic,
            source,
            f"its read replicas show nothing once what it has in object storage is deleted: {replicas}",
            "Keep it with onDisable: retain; or go on: they follow again once tiering is on again.",
        )

    @cached_property
    def _replicas(self) -> Mapping[str, Sequence[Address]]:
        """The declared read replicas by what they follow: cluster and revision, for names change."""
        found: dict[str, list[Address]] = {}
        for address, wanted in sorted(self._situation.wanted.items()):
            topic = wanted.resource
            if isinstance(topic, Topic) and topic.spec.read_replica_of is not None:
                found.setdefault(topic.spec.read_replica_of.partition("/")[2], []).append(address)
        return found


def _too_late(switch: _Switch, source: str | None) -> Iterator[Finding]:
    """Say that what becomes of remote data was decided when tiering was switched off (F-K-057)."""
    was_kept = switch.seen.state == TieringState.DISABLED and disable_policy_in(switch.now) != "delete"
    if was_kept and switches_in(switch.then).is_off and disable_policy_in(switch.then) == "delete":
        yield Finding(
            switch.topic,
            source,
            "remote.log.disable.policy: delete changes nothing now: its tiering is off already, and what lies in "
            "object storage stays",
            "To delete it, apply remote.write: true and remote.read: true, then switch both off with delete.",
        )


def _lost(topic: Address, held: TieredPartition) -> Unreadable:
    return Unreadable(topic, held.number, held.start, held.local_start, held.remote_bytes)


def _ranges(found: Sequence[tuple[int, int, int]]) -> str | None:
    """Return offsets in words, by partition; `None` where there are none."""
    ranges = [(number, start, stop) for number, start, stop in found if start < stop]
    if not ranges:
        return None
    named = [f"partition {number}: {start:,} to {stop - 1:,}" for number, start, stop in ranges[:_FEW]]
    more = f", and of {len(ranges) - _FEW:,} more partitions" if len(ranges) > _FEW else ""
    count = sum(stop - start for _, start, stop in ranges)
    return f"{counted(count, 'offset')} ({'; '.join(named)}{more})"


# What a tiering policy says of local disks, and brokers do not do once copying is off (KIP-950).


_FIELD: Final = ("spec", "localRetention")


def warnings_of_copying_off(review: Review) -> Iterator[Finding]:
    """Yield once for each policy that keeps topics tiered, copies no more, and says how long records are local."""
    situation = review.situation
    topics: dict[str, list[Address]] = {}
    for address in sorted(situation.wanted):
        wanted = situation.wanted[address]
        origin = wanted.origins.get(CONFIGS + COPY_DISABLE)
        if origin is None or not isinstance(wanted.resource, Topic) or not situation.is_decidable(address):
            continue
        configs = wanted.resource.spec.configs
        if configs.get(COPY_DISABLE) == "true" and any(configs.get(key) == AS_TOTAL for key in TOTALS):
            topics.setdefault(origin, []).append(address)
    for address, declared in sorted(review.desired.items()):
        policy = declared.resource
        if address in topics and isinstance(policy, TieringPolicy) and policy.spec.local_retention is not None:
            first, more = topics[address][0], len(topics[address]) - 1
            named = first + (f" and {more:,} more" if more else "")
            yield Finding(
                address,
                declared.source,
                "localRetention does nothing while remoteWrite is false: brokers want -2 there once copying is off, "
                f"so local disks hold the total of {named}",
                "Remove it, and see that disks have room for that; or switch remoteWrite on.",
                ((address, _FIELD),),
            )


# What of tiering cannot be, whatever the platform: nowhere to upload to, limits that contradict each other.


_WORDS: Final = frozenset(word for words in POLICY_KEYS.values() for word in words)
_PAIRS: Final = (
    (("retention.local.target.ms", "local.retention.ms"), "retention.ms"),
    (("retention.local.target.bytes", "local.retention.bytes"), "retention.bytes"),
)
"""Local targets in either platform's words, and the total each must not be above."""
_SEGMENT: Final = "segment.bytes"


def check_tiering(situation: Situation) -> Iterator[Finding]:
    """Yield what is wrong with the tiering of topics and namespaces, each where it is said."""
    acting = ActingConfigs(situation)
    told: set[tuple[str | None, str]] = set()
    right: set[Hashable] = set()
    for address in sorted(situation.wanted):
        wanted = situation.wanted[address]
        resource = wanted.resource
        if not isinstance(resource, Topic | Namespace) or not _WORDS & resource.spec.configs.keys():
            continue
        if situation.is_decidable(address) and _is_judged(situation.capabilities(resource.cluster)):
            likeness = _likeness(resource, situation.observed.get(address))
            if likeness in right:
                continue  # ten thousand topics of one policy are judged once
            judged = _Judged(address, wanted, acting.of(resource), frozenset(resource.spec.configs), situation)
            findings = list(judged.all())
            if likeness is not None and not findings:
                right.add(likeness)
            for finding in findings:
                # What a policy gets wrong is told once, not for each of ten thousand topics that have it.
                is_policys = any(place.startswith("policy/") for place, _ in finding.marks) and not any(
                    place == address and path[:2] == ("spec", "configs") for place, path in finding.marks
                )
                said = (resource.cluster, finding.message)
                if not is_policys or said not in told:
                    told.add(said)
                    yield finding


def _is_judged(capabilities: Capabilities) -> bool:
    return capabilities.tiering and capabilities.tiering_words == "directions"


def _likeness(resource: Topic | Namespace, seen: Observed | None) -> Hashable:
    """Return what two resources share that are judged alike; `None`: this one has more than the files say."""
    if not isinstance(resource, Topic):
        return None
    initial: tuple[tuple[str, str], ...] | None = None
    if seen is not None:
        if not isinstance(seen.resource, Topic) or seen.resource.spec.configs != resource.spec.configs:
            return None
        initial = tuple(seen.topic.initial.items())
    return resource.cluster, resource.metadata.namespace, initial, tuple(resource.spec.configs.items())


def warnings_of_tiering(review: Review) -> Iterator[Finding]:
    """Yield a warning for each cluster whose switch is off while topics ask to be tiered: nothing moves then."""
    situation = review.situation
    acting = ActingConfigs(situation)
    if not any(_is_off(cluster, situation, acting) for cluster in situation.trusted):
        return
    waiting: dict[str, list[Address]] = {}
    for address in sorted(situation.wanted):
        topic = situation.wanted[address].resource
        if not (isinstance(topic, Topic) and situation.is_decidable(address)):
            continue
        if _is_off(topic.cluster, situation, acting) and not switches_in(acting.of(topic)).is_off:
            waiting.setdefault(topic.cluster, []).append(address)
    for cluster, topics in waiting.items():
        count = counted(len(topics), "topic asks", "topics ask")
        yield Finding(
            cluster_address(cluster),
            situation.wanted[cluster_address(cluster)].source,
            f"{ENABLED} is false: {count} to be tiered, and nothing is uploaded or fetched: "
            "what lies in object storage alone cannot be read",
            "Remove the property where tiering is wanted.",
            ((cluster_address(cluster), ("spec", "properties", ENABLED)),),
        )


def _is_off(cluster: str, situation: Situation, acting: ActingConfigs) -> bool:
    return situation.capabilities(cluster).tiering and acting.properties(cluster).get(ENABLED) == "false"


@dataclass(frozen=True, slots=True)
class _Judged:
    """One topic or namespace: what will act there, and which of it it says itself, by configs or its policy."""

    address: Address
    wanted: WantedResource
    acting: Acting
    own: frozenset[str]
    situation: Situation

    def all(self) -> Iterator[Finding]:
        """Yield everything that is wrong."""
        if self.own & SWITCHES:
            yield from self._unstored()
        for local, total in _PAIRS:
            yield from self._above_total(local, total)
        if self.own & {"retention.bytes", _SEGMENT, *SWITCHES}:
            yield from self._below_segment()

    def _unstored(self) -> Iterator[Finding]:
        switches = switches_in(self.acting)
        cluster = self.wanted.resource.cluster or ""
        declared = self.situation.clusters[cluster]
        if switches.is_off or declared.spec.object_storage is not None:
            return
        keys = [key for key in sorted(self.own & SWITCHES) if self.acting[key][0] == "true"]
        if keys:
            yield self._finding(
                f"{self._named(keys[0])} is true, and cluster {cluster} has no object storage for that",
                f"Declare objectStorage on {declared.address}, or switch it off.",
                keys[0],
            )

    def _above_total(self, words: tuple[str, ...], total: str) -> Iterator[Finding]:
        """Of two limits that both are written the cluster could only break one."""
        local = next((word for word in words if word in self.acting), None)
        if local is None or total not in self.acting or not {local, total} & self.own:
            return
        (here, here_from), (whole, whole_from) = self.acting[local], self.acting[total]
        if CLUSTER in {here_from, whole_from} or int(whole) < 0 or int(here) <= int(whole):
            return
        limits = f"{show_value(local, here)}, above {self._named(total)} of {show_value(total, whole)}"
        yield self._finding(
            f"{self._named(local)} is {limits}: nothing stays local that is not kept at all",
            "Lower the local target, or raise the total.",
            *sorted({local, total}, key=lambda key: key not in self.own),
        )

    def _below_segment(self) -> Iterator[Finding]:
        """Size retention removes whole segments and ends below its limit: not even one segment would ever be kept."""
        if "retention.bytes" not in self.acting or switches_in(self.acting).is_off:
            return
        segment = self.acting.get(_SEGMENT, (EMBEDDED_CONFIGS[_SEGMENT].default or "0", "default"))[0]
        total = self.acting["retention.bytes"][0]
        if not 0 <= int(total) < int(segment):
            return
        yield self._finding(
            f"{self._named('retention.bytes')} is {show_value('retention.bytes', total)}, less than one segment of "
            f"{show_value(_SEGMENT, segment)} ({_SEGMENT}): each would be removed as soon as it is uploaded",
            f"Raise retention.bytes, or lower {_SEGMENT}.",
            "retention.bytes",
            _SEGMENT,
        )

    def _named(self, key: str) -> str:
        """Return a config as a message names it, with where it is from, unless it is the document's own."""
        origin = self.acting[key][1] if key in self.acting else str(self.address)
        return key if origin == self.address else f"{key} (of {origin})"

    def _finding(self, message: str, hint: str, *keys: str) -> Finding:
        marks = tuple(mark for key in keys for mark in self._marks(key))
        return Finding(self.address, self.wanted.source, message, hint, marks)

    def _marks(self, key: str) -> Iterator[Mark]:
        origin = self.wanted.origins.get(CONFIGS + key) or self.acting.get(key, ("", ""))[1]
        path = policy_path(key)
        if origin.startswith("policy/") and path is not None:
            if key in self.own:
                yield self.address, ("spec", "tieringPolicy")
            yield Address(origin), path
        elif key in self.own or origin in self.situation.wanted:
            yield self.address if key in self.own else Address(origin), ("spec", "configs", key)


# Tiered topics where one switch says so (KIP-405): what brokers would refuse, told before they are asked.
#
# Judged are effective values: what a topic says and will say, over the brokers' defaults (F-K-071).


_JUDGED: Final = RULED | {"cleanup.policy", "retention.ms", "retention.bytes"}


def check_tiered_topics(situation: Situation) -> Iterator[Finding]:
    """Yield what is wrong with the tiering of topics, each where it is said; what a tier says is told once."""
    acting, told = ActingConfigs(situation), set[tuple[str, str]]()
    right: set[Hashable] = set()
    for address, wanted, topic in _topics(situation):
        capabilities, live = situation.capabilities(topic.cluster), _live(address, situation)
        own = topic.spec.configs
        if own != live:
            own = {key: value for key, (value, _) in acting.of(topic).items()}
        likeness = topic.cluster, live.get(ENABLE), frozenset((key, own[key]) for key in _JUDGED & own.keys())
        if likeness in right:
            continue  # ten thousand topics of one policy are judged once
        if live.get(ENABLE) == "true" and ENABLE not in own:
            yield _left_to_chance(address, wanted)
            continue
        if live.get(ENABLE) == "true" and own.get(ENABLE) != "true":
            yield from _disabling(address, wanted, own, capabilities)
        problems = list(broken({**_defaults(capabilities), **own}))
        if not problems and own.get(ENABLE) == live.get(ENABLE):
            right.add(likeness)
        for keys, why, hint in problems:
            said = _by_default(keys, own, capabilities)
            is_its_own = any(key in own and CONFIGS + key not in wanted.origins for key in keys)
            if is_its_own or (topic.cluster, why) not in told:
                told.add((topic.cluster, why))
                yield Finding(
                    address, wanted.source, why + said + _from(keys, wanted), hint, _marks(address, keys, own)
                )


def warnings_of_tiered_topics(review: Review) -> Iterator[Finding]:
    """Yield configs that brokers take and do nothing with, because the topic is not tiered."""
    situation = review.situation
    for address, wanted, topic in _topics(situation):
        known = situation.capabilities(topic.cluster).configs
        idle = [
            key for key in without_effect(topic.spec.configs) if key in known and CONFIGS + key not in wanted.origins
        ]
        if idle and _live(address, situation).get(ENABLE) != "true":
            yield Finding(
                address,
                wanted.source,
                f"{', '.join(idle)}: no effect, for {ENABLE} is not true",
                f"Set {ENABLE}: true, or remove what does nothing.",
                _marks(address, tuple(idle), topic.spec.configs),
            )


def _topics(situation: Situation) -> Iterator[tuple[Address, WantedResource, Topic]]:
    """Yield the wanted topics that say anything of tiering, or did, on clusters that say it by one switch."""
    clusters = {
        name
        for name in situation.trusted
        if (limits := situation.capabilities(name)).tiering and limits.tiering_words == "kip-405"
    }
    if not clusters:
        return
    for address in sorted(situation.wanted):
        wanted = situation.wanted[address]
        topic = wanted.resource
        if not isinstance(topic, Topic) or topic.cluster not in clusters or not situation.is_decidable(address):
            continue
        if not (RULED.isdisjoint(topic.spec.configs) and RULED.isdisjoint(_live(address, situation))):
            yield address, wanted, topic


def _live(address: Address, situation: Situation) -> Mapping[str, str]:
    seen = situation.observed.get(address)
    return seen.resource.spec.configs if seen is not None and isinstance(seen.resource, Topic) else {}


def _defaults(capabilities: Capabilities) -> dict[str, str]:
    known = capabilities.configs
    usual = {key: default for key in _JUDGED if key in known and (default := known[key].default) is not None}
    return {**usual, **{key: value for key, value in capabilities.defaults.items() if key in _JUDGED}}


def _disabling(
    address: Address, wanted: WantedResource, own: Mapping[str, str], capabilities: Capabilities
) -> Iterator[Finding]:
    """Yield why tiering cannot be switched off: not at all before KIP-950, and not in silence."""
    if not capabilities.untiering:
        yield Finding(address, wanted.source, *beyond(capabilities, "switch the tiering of a topic off", "untiering"))
    elif own.get(DELETE_ON_DISABLE) != "true":
        yield Finding(
            address,
            wanted.source,
            f"{ENABLE} would become false, which deletes what lies in object storage alone, and no file asks for that",
            f"To delete it set {DELETE_ON_DISABLE}: true with it; to keep it leave {ENABLE}: true and set "
            "remote.log.copy.disable: true, local.retention.ms: total, local.retention.bytes: total.",
            _marks(address, (ENABLE,), own),
        )


def _left_to_chance(address: Address, wanted: WantedResource) -> Finding:
    return Finding(
        address,
        wanted.source,
        f"its tiered storage would be left to chance: nothing names {ENABLE} any more, and it is on",
        "Switch it off first: keep the policy with remoteWrite: false for one apply, and onDisable as you want it.",
    )


def _by_default(keys: tuple[str, ...], own: Mapping[str, str], capabilities: Capabilities) -> str:
    unwritten = [key for key in keys if key not in own and (key in capabilities.defaults or key in _JUDGED)]
    return f" ({', '.join(unwritten)} by the brokers' defaults)" if unwritten else ""


def _from(keys: tuple[str, ...], wanted: WantedResource) -> str:
    origins = {origin: None for key in keys if (origin := wanted.origins.get(CONFIGS + key))}
    return f" (of {', '.join(origins)})" if origins else ""


def _marks(
    address: Address, keys: tuple[str, ...], own: Mapping[str, str]
) -> tuple[tuple[Address, tuple[str | int, ...]], ...]:
    return tuple((address, ("spec", "configs", key)) for key in keys if key in own)
