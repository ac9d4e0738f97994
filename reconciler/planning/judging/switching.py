"""What switching tiering costs: offsets nobody can read any more, bytes to upload, and what a plan has to warn of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Final, TypeAlias

from reconciler.lifecycles.tiering import TieringState
from reconciler.planning.actions import Reason, Transition, Update
from reconciler.planning.deciding.moved import moved_from
from reconciler.planning.deciding.movednamespaces import implied_moves
from reconciler.planning.document.rows import moves_of
from reconciler.planning.estimates import Estimate, Unreadable
from reconciler.planning.finding import Finding
from reconciler.planning.wanted.switched import SWITCH_PATHS, Switched
from reconciler.resources.address import cluster_of, full_name_of, split_name
from reconciler.resources.clusterproperties import UPLOADS
from reconciler.resources.tierrules import disable_policy_in, switches_in
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from reconciler.planning.actions import Action
    from reconciler.planning.review import Review
    from reconciler.planning.situation import Situation
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Observed
    from reconciler.resources.measures import Measure, TieredPartition
    from reconciler.resources.tierrules import Configs

    Below: TypeAlias = Callable[[Address], Iterable[Address]]
    """Returns the topics below a namespace; of anything else none."""
    Measuring: TypeAlias = Callable[..., Measure | None]
    """Returns what was measured of a topic; `is_wish`: no risk rests on it."""

_FEW: Final = 3


@dataclass(frozen=True, slots=True)
class Cost:
    """What becomes of records when tiering is switched. `is_known` is false where nobody measured what may be lost."""

    unreadable: tuple[Unreadable, ...] = ()
    uploads: int = 0
    is_known: bool = True

    def __add__(self, other: Cost) -> Cost:
        """Add what two topics cost."""
        return Cost(
            (*self.unreadable, *other.unreadable), self.uploads + other.uploads, self.is_known and other.is_known
        )

    @property
    def is_loss(self) -> bool:
        """Tell whether records go, or nobody can tell."""
        return bool(self.unreadable) or not self.is_known

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Why it is worth a second look."""
        lost = (Reason.BECOMES_UNREADABLE,) if self.is_loss else ()
        unknown = () if self.is_known else (Reason.UNMEASURED,)
        return (*lost, *unknown, *((Reason.UPLOADS,) if self.uploads else ()))

    @property
    def estimate(self) -> Estimate:
        """What is deleted and what is uploaded."""
        return Estimate(sum(lost.bytes for lost in self.unreadable), uploads=self.uploads, unreadable=self.unreadable)


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
    def hides(self) -> bool:
        """Tell whether what lies in object storage alone can be fetched no more, and stays there."""
        was, will = switches_in(self.now), switches_in(self.then)
        return self.seen.state == TieringState.ENABLED and was.read and will.write and not will.read


def warnings_of_switching(review: Review) -> Iterator[Finding]:
    """Yield what of the records is not lost, and yet to know before agreeing."""
    yield from Switching(review.situation, review.below, review.measure).warnings(review.actions)


class Switching:
    """Judges actions by what they make of the tiering of topics. `below` names those in a namespace."""

    def __init__(self, situation: Situation, below: Below, measure: Measuring) -> None:
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
        moved = wanted.moved_from if wanted is not None else None
        return moved or self._implied.get(topic)

    @cached_property
    def _implied(self) -> Mapping[Address, Address]:
        return implied_moves(self._situation)

    def _cost(self, switch: _Switch) -> Cost:
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
            message = f"without remote.read nobody can read {what}"
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
    return f"{count:,} offset{'' if count == 1 else 's'} ({'; '.join(named)}{more})"
