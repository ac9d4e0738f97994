"""Deliberately broken variants of mirroring: each leaves out one rule of what is written, asked or read first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from reconciler.embedded import link_side
from reconciler.embedded.clients import topic_sink
from reconciler.embedded.link_side import Linking
from reconciler.embedded.segments import gate
from reconciler.embedded.segments.gate import Gate
from reconciler.operations.steps import transitions
from reconciler.operations.steps.transitions import Driver
from reconciler.resources import mirrors
from tests.embedded.mounting.brokenmigrations import Broken

if TYPE_CHECKING:
    from reconciler.resources.mirrors import MirrorEntry, MirrorSeen, Operation

_hand, _ask, _advance, _join, _stand = (
    Linking._hand,
    Linking.ask,
    Linking.advance,
    Linking.join,
    Linking.stand,
)


def _nothing(*_asked: Any, **_named: Any) -> None:
    """Leave it out."""


def _opens_early(self: Linking, full_name: str, to: Any, *, operation: str) -> MirrorEntry:
    """Hand heads to producers while the catalog calls it a mirror."""
    if to == "STOPPED":
        topic = self.cluster.topic(full_name)
        self._hand(replace(topic, mirror=None))
    return _advance(self, full_name, to, operation=operation)


def _seals_what_is_there(self: Linking, topic: Any) -> Any:
    """Make no heads where there are none."""
    real = link_side.hand_over

    def only_there(*asked: Any, **named: Any) -> Any:
        return real(*asked, **{**named, "makes": False})

    link_side.hand_over = only_there
    try:
        return _hand(self, topic)
    finally:
        link_side.hand_over = real


def _keeps_transactions(self: Linking, full_name: str) -> None:
    _hand(self, self.cluster.topic(full_name))


def _stands_first(self: Driver, links: Any, here: MirrorSeen, operation: Operation, cut: Any) -> MirrorSeen:
    """Note that it equals its source before what diverged is cut, and cut nothing."""
    links.stand(here.name, here.source_topic_id or "", self._bounds(here), operation=operation.id)
    assert cut is not None
    return self._advance(links, here, transitions.MirrorStatus.ACTIVE)


def _opens_whatever(self: Driver, links: Any, here: MirrorSeen) -> None:
    """Copy to where the source is, and do not look whether all of it came."""
    self.copy(here, {} if here.operation is None else here.operation.ends)
    assert links is not None


def _joins_late(self: Driver, links: Any, here: MirrorSeen, operation: Operation) -> MirrorSeen:
    """Copy before the source is shut."""
    ends = {part: bound.end for part, bound in self._bounds(here).items()}
    here = links.aim(here.name, operation=operation.id, ends=ends)
    self._copy_all(links, here)
    there = self._links(here.source_cluster)
    there.join(here.source, here, operation=operation.id, verb=operation.verb, may_go_on=self.may_go_on)
    return self._advance(links, here, transitions.MirrorStatus.PENDING_STOPPED)


def _confirms_nothing(self: Gate, _partition: int) -> Any:
    """Refuse what is there."""
    catalog = self.catalog.read()
    self._check(catalog)
    return catalog


def _forgets(mirror: MirrorEntry) -> MirrorEntry:
    return replace(mirror, operation=None)


def _all_fetched(copy: Any, source: Any, _source_topic_id: Any) -> int:
    """Believe whatever was fetched, under any epochs."""
    return int(min(copy.end, source.end))


VARIANTS: Final[Mapping[str, Broken]] = {
    "heads are handed before the catalog says so": Broken("promote fails over", ((Linking, "advance", _opens_early),)),
    "no head is made where there is none": Broken(
        "overtaken first append", ((Linking, "_hand", _seals_what_is_there),)
    ),
    "no head is sealed": Broken("overtaken append", ((Linking, "_seal", _nothing),)),
    "open transactions stay open": Broken("reverse died", ((Linking, "_seal", _keeps_transactions),)),
    "it stands before it is cut": Broken("restore died", ((Driver, "_restore", _stands_first),)),
    "nothing is noted of what it equals": Broken("just swapped", ((Linking, "stand", _nothing),)),
    "no group is clamped": Broken(
        "failover died", ((link_side, "clamp_groups", _nothing), (gate, "clamp_groups", _nothing))
    ),
    "groups are clamped by who fails over alone": Broken("failover died", ((Gate, "_clamp", _nothing),)),
    "it opens without what it lacks": Broken("waits", ((Driver, "_copy_all", _opens_whatever),)),
    "the source is shut after the copy": Broken("append", ((Driver, "_synchronize", _joins_late),)),
    "what was failed over is begun again": Broken("late join", ((mirrors, "_over", _forgets),)),
    "a mirror opens though its source was rescued": Broken("west rescued", ((transitions, "check_shut", _nothing),)),
    "what was looked at long ago is published": Broken("late copy", ((topic_sink, "check_current", _nothing),)),
    "whatever has offsets is the same": Broken("restore died", ((mirrors, "_copied", _all_fetched),)),
    "a first append is refused after it is there": Broken("first append", ((Gate, "_confirm", _confirms_nothing),)),
}
