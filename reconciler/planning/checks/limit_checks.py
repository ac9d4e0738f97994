"""Checks of quotas and of replication."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, assert_never

from reconciler.lifecycles import UNMOUNT
from reconciler.planning.actions import Action, Adopt, Create, Delete, Forget, RunJob, Transition, Update
from reconciler.planning.diff.moves import moved_from
from reconciler.planning.fields import CONFIGS
from reconciler.planning.plan import Finding
from reconciler.planning.situation import Review, Situation, mounted_by
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
from reconciler.resources.base import UNLIMITED
from reconciler.resources.cluster import Cluster
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic
from reconciler.resources.mount import Mounting
from reconciler.resources.namespace import Namespace, Quotas
from reconciler.resources.tiering_policy import TieringPolicy
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from reconciler.resources.inventory import Resource
    from reconciler.resources.measures import Measure


_LEAST: Final = "min.insync.replicas"


def warnings_of_moves(review: Review) -> Iterator[Finding]:
    """Yield the topics whose replicas still move; the observed number is that after the move."""
    situation = review.situation
    for address in sorted(address for address, seen in situation.observed.items() if seen.topic.is_moving):
        wanted = situation.wanted.get(address)
        if wanted is not None and situation.is_decidable(address):
            message = "replicas of it still move: a change of its replicationFactor has not come to its end"
            hint = "It continues by itself. To cancel it, set the number that it had before, and apply."
            yield Finding(address, wanted.source, message, hint)


def warnings_of_insync(review: Review) -> Iterator[Finding]:
    """Yield what asks for more replicas in sync than there are: every write with acks=all is refused."""
    situation = review.situation
    for address in sorted(situation.wanted):
        wanted = situation.wanted[address]
        name = cluster_of(address) or ""
        if not situation.is_decidable(address) or not situation.capabilities(name).replication_moves:
            continue
        match wanted.resource:
            case Cluster() as cluster:
                yield from _insync_of_cluster(situation, address, cluster, wanted.source)
            case Topic() as topic:
                yield from _insync_of_topic(situation, address, topic)
            case Namespace() | MirrorLink() | MirrorTopic() | Mounting() | TieringPolicy():
                pass
            case _:
                assert_never(wanted.resource)


def _insync_of_cluster(
    situation: Situation, address: Address, cluster: Cluster, source: str | None
) -> Iterator[Finding]:
    """Yield what is wrong with the property of all brokers, and that some brokers never take it back."""
    said, brokers = cluster.spec.properties.get(_LEAST), situation.capabilities(cluster.metadata.name)
    seen = situation.observed.get(address)
    live = seen.resource.spec.properties if seen is not None and isinstance(seen.resource, Cluster) else {}
    last = situation.recorded.get(address)
    ours = last.resource.spec.properties if last is not None and isinstance(last.resource, Cluster) else {}
    if said is None and _LEAST in ours and _LEAST in live:
        message = f"brokers with eligible leader replicas (Kafka 4) refuse to take back properties.{_LEAST}"
        hint = f"In place of leaving it out, write {_LEAST}: 1 among the properties, which is Kafka's own default."
        yield Finding(address, source, message, hint)
    most = brokers.max_replication_factor
    if (said or "").isdecimal() and int(said or 0) > most:
        message = f"properties.{_LEAST} {said} is more than the number of brokers, {most}: "
        hint = f"Set {_LEAST} to {max(1, most - 1)}."
        marks = ((address, ("spec", "properties", _LEAST)),)
        yield Finding(address, source, f"{message}producers with acks=all are refused", hint, marks)


def _insync_of_topic(situation: Situation, address: Address, topic: Topic) -> Iterator[Finding]:
    wanted, capabilities = situation.wanted[address], situation.capabilities(topic.cluster)
    cluster = situation.wanted.get(cluster_address(topic.cluster))
    planned = cluster.resource.spec.properties if cluster and isinstance(cluster.resource, Cluster) else {}
    own = topic.spec.configs.get(_LEAST)
    least = own or planned.get(_LEAST) or capabilities.defaults.get(_LEAST)
    if not (least or "").isdecimal():
        return
    replicas, where = _replicas(situation, address, topic, capabilities.max_replication_factor)
    if int(least or 0) <= replicas:
        return
    whose = "" if own is not None else ", the default of its cluster,"
    message = f"{_LEAST} {least}{whose} is more than {where} {replicas}: producers with acks=all are refused"
    marks = () if own is None or CONFIGS + _LEAST in wanted.origins else ((address, ("spec", "configs", _LEAST)),)
    hint = f"Raise replicationFactor to {least} or more, or set {_LEAST} to {max(1, replicas - 1)}."
    yield Finding(address, wanted.source, message, hint, marks)


def _replicas(situation: Situation, address: Address, topic: Topic, brokers: int) -> tuple[int, str]:
    """Return how many replicas a topic has, or at most gets, and what says so."""
    if topic.spec.replication_factor is not None:
        return topic.spec.replication_factor, "replicationFactor"
    there = situation.observed.get(address)
    if there is not None and isinstance(there.resource, Topic) and there.resource.spec.replication_factor is not None:
        return there.resource.spec.replication_factor, "the replication factor that the topic has,"
    return brokers, "the number of brokers,"


# Quotas of namespaces: what lies below each once a plan is done, nested tiers included, against what may lie there.
#
# Growth beyond a quota is an error. What is too much already and does not grow is only told: the quota was lowered, or
# another's topics lie there.


@dataclass(frozen=True, slots=True)
class Limits:
    """What may lie below a namespace when the plan is done, and where that is said."""

    quotas: Quotas
    source: str | None


@dataclass(slots=True)
class NamespaceUsage:
    """What lies below a namespace: topics by address, each with its partitions."""

    before: dict[Address, int] = field(default_factory=dict)
    after: dict[Address, int] = field(default_factory=dict)
    moved: Mapping[Address, Address | None] = field(default_factory=dict)
    """What topics that move are called now, by their new names; what is made under an old name is none of them."""

    @property
    def grows(self) -> bool:
        """Tell whether anything is made, moved in or given partitions; what only moves within it adds nothing."""
        return any(partitions > self._held_now(topic) for topic, partitions in self.after.items())

    @property
    def staying(self) -> list[Address]:
        """The topics that lie in it before and after, by the names they have now."""
        return sorted(each for each in map(self._name_now, self.after) if each is not None and each in self.before)

    def _held_now(self, topic: Address) -> int:
        name = self._name_now(topic)
        return 0 if name is None else self.before.get(name, 0)

    def _name_now(self, topic: Address) -> Address | None:
        return self.moved.get(topic, topic)


@dataclass(slots=True)
class Judged:
    """What was found."""

    errors: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)


def check_quotas(review: Review) -> Iterator[Finding]:
    """Yield the namespaces that grow beyond their quotas."""
    yield from _judged(review).errors


def warnings_of_quotas(review: Review) -> Iterator[Finding]:
    """Yield the namespaces that hold too much already, and those of which that cannot be told."""
    yield from _judged(review).warnings


def _judged(review: Review) -> Judged:
    situation, judged = review.situation, Judged()
    limits = {} if situation.request.options.is_destroy else _limits(situation)
    if not limits:
        return judged
    for address, held in sorted(_held(situation, review.actions, limits).items()):
        limit = limits[address]
        into = judged.errors if held.grows else judged.warnings
        into.extend(Finding(address, limit.source, *said) for said in _counted(limit.quotas, held))
        if limit.quotas.bytes not in {None, UNLIMITED} and held.grows:
            _judge_bytes(address, limit, held, review.measure, judged)
    return judged


def _limits(situation: Situation) -> dict[Address, Limits]:
    found: dict[Address, Limits] = {}
    for address in {**situation.observed, **situation.wanted}:
        if address.startswith("namespace/") and cluster_of(address) in situation.trusted:
            limits = _limits_at(address, situation)
            if limits.quotas != Quotas():
                found[address] = limits
    return found


def _limits_at(address: Address, situation: Situation) -> Limits:
    """Return what will hold: what is declared; of the rest, what is there, unless it was ours to take away."""
    wanted, last, seen = (
        situation.wanted.get(address),
        situation.recorded.get(address),
        situation.observed.get(address),
    )
    goal = _quotas(wanted.resource if wanted else None)
    was, there = _quotas(last.resource if last else None), _quotas(seen.resource if seen else None)
    merged = {
        word: wish if wish is not None else None if getattr(was, word) is not None else getattr(there, word)
        for word in Quotas.model_fields
        for wish in [getattr(goal, word)]
    }
    return Limits(Quotas.model_construct(**merged), wanted.source if wanted and goal != Quotas() else None)


def _quotas(resource: Resource | None) -> Quotas:
    return (resource.spec.quotas if isinstance(resource, Namespace) else None) or Quotas()


def _held(
    situation: Situation, actions: Sequence[Action], limits: Mapping[Address, Limits]
) -> dict[Address, NamespaceUsage]:
    # A mirror that was stopped is seen as the topic it is, too: both have one place.
    before = {
        _as_topic(address): partitions_of(seen.resource)
        for address, seen in situation.observed.items()
        if kind_of(address) in {"topic", "mirror"}
    }
    after = _afterwards(actions, before)
    olds = {_as_topic(action.address): old for action in actions if (old := moved_from(action)) is not None}
    moved: dict[Address, Address | None] = {**dict.fromkeys(olds.values()), **olds}
    held: defaultdict[Address, NamespaceUsage] = defaultdict(lambda: NamespaceUsage(moved=moved))
    for topics, name in ((before, "before"), (after, "after")):
        for topic, partitions in topics.items():
            for tier in _tiers(topic):
                if tier in limits:
                    getattr(held[tier], name)[topic] = partitions
    return held


def _afterwards(actions: Sequence[Action], before: Mapping[Address, int]) -> dict[Address, int]:
    """Return the topics once a plan is done, in whichever order; what is blocked counts too: it is done whole or not.

    What leaves a name goes before what comes to it: two topics may swap their names.
    """
    after = dict(before)
    for action in actions:
        left = _leaves(action)
        if left is not None:
            after.pop(left, None)
    for action in actions:
        after.update(_arrives(action, before))
    for action in actions:
        if isinstance(action, Update):
            after.update(_grown(action))
    return after


def _leaves(action: Action) -> Address | None:
    """Return the topic that is not there any more once an action is done."""
    match action:
        case Delete(before=Topic() | MirrorTopic()):
            return _as_topic(action.address)
        case Transition(after=Mounting() as mounting):
            return mounted_by(mounting) if action.machine == UNMOUNT.name else None
        case Transition():
            return moved_from(action)
        case Create() | Update() | Delete() | Adopt() | Forget() | RunJob():
            return None
        case _:
            assert_never(action)


def _arrives(action: Action, before: Mapping[Address, int]) -> Iterator[tuple[Address, int]]:
    """Yield the topic that an action brings, with its partitions."""
    address = _as_topic(action.address)
    match action:
        case Create(after=Topic() | MirrorTopic() as made):
            found = action.parameters.get("partitions")
            # What a mirror follows says how many it has.
            yield address, found if isinstance(found, int) else partitions_of(made) if isinstance(made, Topic) else 1
        case Transition(after=Mounting() as mounting):
            if action.machine != UNMOUNT.name:
                yield mounted_by(mounting), action.estimate.partitions or 1
        case Transition():
            old = moved_from(action)
            if old is not None and old in before:
                yield address, before[old]
        case Create() | Update() | Delete() | Adopt() | Forget() | RunJob():
            pass
        case _:
            assert_never(action)


def _grown(action: Update) -> Iterator[tuple[Address, int]]:
    for change in action.changes:
        if change.path == "partitions" and isinstance(change.after, int):
            yield _as_topic(action.address), change.after


def _counted(quotas: Quotas, held: NamespaceUsage) -> Iterator[tuple[str, str]]:
    counts = (
        ("topics", quotas.topics, len(held.before), len(held.after)),
        ("partitions", quotas.partitions, sum(held.before.values()), sum(held.after.values())),
    )
    for word, limit, before, after in counts:
        if limit is not None and after > limit:
            yield (
                f"quotas.{word} is {limit:,}, and {after:,} would lie in it after this plan, {before:,} now",
                f"Raise spec.quotas.{word} of the namespace, or take topics out of it.",
            )


def _judge_bytes(
    address: Address, limit: Limits, held: NamespaceUsage, measure: Callable[[Address], Measure | None], judged: Judged
) -> None:
    allowed = limit.quotas.bytes or 0
    staying = held.staying
    sizes = [measure(topic) for topic in staying]
    known = sum(size.bytes for size in sizes if size is not None)
    unknown = sum(size is None for size in sizes)
    hint = "Raise spec.quotas.bytes of the namespace, or let its topics keep less, before anything is added."
    if known > allowed:
        message = f"quotas.bytes is {allowed:,}, and it holds {known:,} now: nothing may be added to it"
        judged.errors.append(Finding(address, limit.source, message, hint))
    elif unknown:
        message = (
            f"quotas.bytes is {allowed:,}, and whether it holds more cannot be told: "
            f"{unknown:,} of {len(staying):,} topics in it were not measured"
        )
        judged.warnings.append(Finding(address, limit.source, message, "Look with: reconciler topic list"))


def partitions_of(resource: Resource) -> int:
    """Return the partitions of a topic or mirror; at least one."""
    match resource:
        case Topic():
            return resource.spec.partitions or 1
        case MirrorTopic():
            return resource.partitions or 1
        case _:
            return 0


def _as_topic(address: Address) -> Address:
    return Address("topic/" + address.partition("/")[2]) if kind_of(address) == "mirror" else address


def _tiers(topic: Address) -> Iterator[Address]:
    cluster = cluster_of(topic) or ""
    for tier in tiers_of(split_name(full_name_of(topic))[0]):
        yield address_of("namespace", cluster, tier)
