"""Deliberately broken variants of mounting: each leaves out one rule of what is written, asked or read first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from reconciler.embedded.catalog import migration_tables
from reconciler.embedded.catalog.migration_tables import follow
from reconciler.embedded.clients import topic_log
from reconciler.embedded.mounts import inbound, mounts, outbound
from reconciler.embedded.mounts.handover import Handing
from reconciler.embedded.mounts.inbound import Inbound
from reconciler.embedded.mounts.outbound import Flush, Outbound
from reconciler.embedded.tiered import ownership
from reconciler.embedded.tiered.ownership import ownership_register
from reconciler.lifecycles.mount import UNMOUNT, MigrationState
from reconciler.lifecycles.table import Move

if TYPE_CHECKING:
    from reconciler.embedded.catalog.model import MigrantEntry

Patched = tuple[Any, str, Any]
"""Where, the name there, and what is put in its place."""

_S: Final = MigrationState


@dataclass(frozen=True, slots=True)
class Broken:
    """A variant: what is put in place of what, and which of the points notices it."""

    noticed: str
    patches: tuple[Patched, ...]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Run it instead of the real one."""
        with ExitStack() as stack:
            for where, name, by in self.patches:
                stack.enter_context(patch.object(where, name, by))
            yield


_update, _work, _detach, _cut_over, _upload = (
    ownership.update_ownership,
    Outbound._work,
    Outbound._detach,
    Inbound._cut_over,
    Flush.upload,
)
_seal, _flush, _hand_over = Outbound._seal, Outbound._flush, outbound.hand_over


def _nothing(*_asked: Any, **_named: Any) -> None:
    """Leave it out."""


def _reads_and_puts(storage: Any, location: Any, change: Any, *, mark: str) -> None:
    """Write what was decided over whatever is there by then."""
    storage.clock_ms()
    ahead = _Ahead(storage)
    _update(ahead, location, change, mark=mark)
    key = ownership_register(storage, location).key
    if ahead.body is not None:
        storage.put(key, ahead.body)


class _Ahead:
    """Keeps what is swapped, to be put later."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.body: bytes | None = None

    def swap(self, _key: str, body: bytes, *, expected: Any) -> Any:
        self.body = body
        return expected

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _seals_nothing(_self: Outbound, _topic: MigrantEntry) -> set[tuple[str, int]]:
    return set()


def _seals_early(self: Outbound, topic: MigrantEntry, rounds: int | None = None) -> None:
    _flush(self, topic, rounds)
    if self.migration.state == _S.PREPARING:
        self._settle_transactions(_seal(self, topic))


def _detaches_first(self: Outbound, topic: MigrantEntry) -> None:
    later: list[tuple[Any, ...]] = []

    def soon(*asked: Any) -> None:
        later.append(asked)

    def handed(_self: Handing, _partitions: Any, _change: Any) -> dict[int, Any]:
        return {}

    with patch.object(outbound, "hand_over", soon), patch.object(Handing, "__call__", handed):
        _detach(self, topic)
    _detach(self, topic)


def _removes_first(self: Outbound, state: MigrationState) -> None:
    if state is not _S.CUT_OVER:
        _work(self, state)
        return
    here = self._here()
    catalog = self.means.catalog.read()
    self._follow(_S.FINISHED)
    with (
        patch.object(self.means.catalog, "read", lambda: catalog),
        patch.object(Outbound, "_check_current", _nothing),
    ):
        for topic in here:
            _detach(self, topic)


def _opens_first(self: Inbound) -> None:
    means, begun = self.means, self.migration
    catalog = means.catalog.read()
    means.catalog.commit(lambda draft: follow(draft, self.number, begun, _S.FINISHED, now_ms=means.now_ms()))
    with patch.object(means.catalog, "read", lambda: catalog):
        for topic in begun.topics:
            self._take_over(topic)


def _unasked(self: Handing, partitions: Any, change: Any) -> dict[int, Any]:
    return _handed(replace(self, check=lambda: None), partitions, change)


_handed = Handing.__call__


def _told_unasked(_self: Any, _found: Any, told: Any) -> Any:
    return told


def _closed_segments_alone(self: Flush, rounds: int | None = None) -> int:
    return _upload(self, 0 if rounds is None else rounds)


def _does_not_fence(storage: Any, location: Any, cluster_id: str, claim: str, now_ms: int) -> None:
    with patch.object(ownership, "_claiming", lambda claim: f"another-{claim}"):
        _unclaim(storage, location, cluster_id, claim, now_ms)


_unclaim = ownership.unclaim_topic

_CANCELS_LATE: Final = replace(UNMOUNT, moves=(*UNMOUNT.moves, Move(_S.CUT_OVER, "cancel", _S.CANCELING)), refusals=())

VARIANTS: Final[Mapping[str, Broken]] = {
    "a claim is read and put": Broken("race", ((ownership, "update_ownership", _reads_and_puts),)),
    "no head is sealed": Broken("append", ((Outbound, "_seal", _seals_nothing),)),
    "heads are sealed before the catalog says so": Broken(
        "append", ((Outbound, "_flush", _seals_early), (Outbound, "_seal", _seals_nothing))
    ),
    "a topic is detached before its manifests are let go": Broken("at once", ((Outbound, "_detach", _detaches_first),)),
    "a topic is removed before it is detached": Broken("unmount died", ((Outbound, "_work", _removes_first),)),
    "a topic opens before it is taken over": Broken("mount died", ((Inbound, "_cut_over", _opens_first),)),
    "open transactions stay open": Broken("unmount died", ((Outbound, "_settle_transactions", _nothing),)),
    "the rest is not uploaded": Broken("unmount died", ((Flush, "upload", _closed_segments_alone),)),
    "manifests change hands unasked": Broken(
        "late driver", ((Handing, "__call__", _unasked), (outbound, "check_current", _nothing))
    ),
    "a cancel is legal in cut_over": Broken("unmount cancelled", ((migration_tables, "UNMOUNT", _CANCELS_LATE),)),
    "a claim that comes after its cancel is made": Broken(
        "mount cancelled", ((inbound, "unclaim_topic", _does_not_fence),)
    ),
    "transactions are settled whatever became of the migration": Broken(
        "unmount cancelled", ((Outbound, "_check_current", _nothing),)
    ),
    "a release seizes nothing": Broken(
        "release",
        (
            (mounts, "seize_topic", _nothing),
            (ownership, "check_seized", _nothing),
            (mounts, "check_seized", _nothing),
        ),
    ),
    "groups stay behind": Broken("unmount died", ((Outbound, "_groups", lambda _self, _topic: {}),)),
    "a reader takes what is gone for the end": Broken("reader", ((topic_log.EmbeddedLog, "_check_open", _nothing),)),
}
