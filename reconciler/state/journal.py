"""The journal of a run: `runs/<run>/journal/<seq:06>.json`, created once each, without gaps, never changed.

An entry counts when the object that holds it is there, whole. Where a store keeps what is left of one whose writer was
killed, the last slot holds nothing, or ends in the middle: it counts as free, and whoever writes next replaces it by
compare-and-swap, so that of two one wins, as in a slot that is not there.

What waits while one object is being written goes into the next one together: ten thousand intents cost what one does.
"""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from reconciler.errors import LeaseError, LostRaceError, NewerFormatError, RetryableError, UserError
from reconciler.noting import note
from reconciler.objectstore.cutoff import create, is_cut_off
from reconciler.objectstore.nonces import nonce
from reconciler.state.entries import AnyEntry, Closed, Entry, TakenOver
from reconciler.state.insisting import insist
from reconciler.state.lockfile import RUNS_PREFIX
from reconciler.wording import no_json, refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from reconciler.effects import Effects
    from reconciler.objectstore.base import ObjectStore
    from reconciler.state.lease import Lease

FORMAT: Final = "reconciler.journal/1"
_NAME: Final = re.compile(r"(\d{6,})\.json")
_LOGGER: Final = logging.getLogger("reconciler.journal")
_MOST_BYTES: Final = (1 << 20) - (1 << 10)
"""Of the entries of one object; what stands around them takes less than the rest of a mebibyte."""
_ATTEMPTS: Final = 2
"""Of one call: an answer that was lost is found at once; a store that is away is waited for by who calls."""


class Page(BaseModel):
    """One object of a journal."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)

    format: Literal["reconciler.journal/1"] = FORMAT
    run: str
    seq: int = Field(ge=1)
    epoch: int = Field(ge=1)
    nonce: str = Field(min_length=1)
    entries: tuple[AnyEntry, ...]

    def to_bytes(self) -> bytes:
        """Return the object's body."""
        return orjson.dumps(self.model_dump(mode="json"))


@dataclass(frozen=True, slots=True)
class Written:
    """What a journal holds, in the order in which it was written."""

    run: str
    pages: tuple[Page, ...] = ()

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Everything that counts."""
        return tuple(entry for page in self.pages for entry in page.entries)

    @property
    def next_seq(self) -> int:
        """The slot of the next object."""
        return len(self.pages) + 1

    @property
    def is_closed(self) -> bool:
        """Tell whether nothing follows."""
        return any(isinstance(entry, Closed) for entry in self.entries)


def journal_key(run: str, seq: int) -> str:
    """Return where an object of a run's journal is."""
    return f"{_prefix(run)}{seq:06}.json"


def read_journal(store: ObjectStore, run: str) -> Written:
    """Return what a run has written: one LIST, and one GET for each object.

    Raises:
        UserError: It has a hole, is damaged, or was written by a newer version.
    """
    prefix = _prefix(run)
    found = (_NAME.fullmatch(listed.key[len(prefix) :]) for listed in store.list(prefix))
    seqs = sorted(int(name[1]) for name in found if name)
    for position, seq in enumerate(seqs, start=1):
        if seq != position:
            raise UserError(
                f"{store.url}/{journal_key(run, position)} is missing, and later entries of that journal are there",
                hint="Restore the file from a backup or the bucket's versions. Without it nobody can tell what that "
                "run did; `reconciler state repair` says what is known.",
            )
    pages = [_read_page(store, run, seq) for seq in seqs[:-1]]
    last = _last_page(store, run, seqs[-1]) if seqs else None
    return Written(run, (*pages, *([] if last is None else [last])))


def close_journal(store: ObjectStore, run: str, *, epoch: int) -> None:
    """Write that nothing follows into the next free slot of a run that is given up; who still writes it is stopped.

    Raises:
        UserError: The journal cannot be read.
    """
    while not (written := read_journal(store, run)).is_closed:
        entries = (Closed(status="superseded"),)
        page = Page(run=run, seq=written.next_seq, epoch=epoch, nonce=nonce(), entries=entries)
        with suppress(LostRaceError):
            create(store, journal_key(page.run, page.seq), page.to_bytes())


async def take_over(lease: Lease, effects: Effects, run: str) -> Written:
    """Write into the next free slot that the lease's run takes over, and return the journal up to there.

    Raises:
        LeaseError: The lease was lost on the way.
        UserError: The journal cannot be read.
    """
    written = await effects.call(lambda: read_journal(lease.store, run))
    if written.is_closed:
        return written
    lockfile = lease.lockfile
    entry = TakenOver(run=lease.run, who=lockfile.lease.who or "")
    pages = list(written.pages)
    while True:
        page = Page(run=run, seq=len(pages) + 1, epoch=lockfile.lease.epoch, nonce=nonce(), entries=(entry,))
        there = await insist(effects, partial(_create, lease.store, page, lease.check))
        pages.append(there)
        if there.nonce == page.nonce:
            return Written(run, tuple(pages))


class Journal:
    """The one who writes a run's journal, under its lease."""

    def __init__(self, lease: Lease, effects: Effects, run: str, *, next_seq: int = 1) -> None:
        """Go on at `next_seq`: what is before it was read, or there is nothing."""
        self._lease = lease
        self._effects = effects
        self.run = run
        self._seq = next_seq
        self._waiting: list[tuple[Sequence[Entry], asyncio.Future[Exception | None]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._broken: Exception | None = None

    async def append(self, entries: Sequence[Entry]) -> None:
        """Return once `entries` are durable.

        Raises:
            LeaseError: Another run took over: nothing may be done any more.
            ReconcilerError: They could not be written; nothing else will be, by this journal.
        """
        if self._broken is not None:
            raise self._broken
        if not entries:
            return
        ended: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((entries, ended))
        if self._writing is None:
            self._writing = self._effects.spawn(self._write_all())
        trouble = await ended
        if trouble is not None:
            raise trouble

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                taken, self._waiting = self._waiting, []
                if self._broken is None:
                    try:
                        for part in _parts(entry for entries, _ in taken for entry in entries):
                            await self._write(part)
                    except Exception as error:  # noqa: BLE001 - raised where it is waited for
                        self._broken = error
                for _, ended in taken:
                    ended.set_result(self._broken)
        finally:
            self._writing = None

    async def _write(self, entries: tuple[Entry, ...]) -> None:
        page = Page(
            run=self.run,
            seq=self._seq,
            epoch=self._lease.lockfile.lease.epoch,
            nonce=nonce(),
            entries=entries,
        )
        there = await insist(self._effects, lambda: self._create(page))
        if there.nonce != page.nonce:
            note(_LOGGER, "fenced", run=self.run, seq=page.seq, by_epoch=there.epoch)
            raise LeaseError(
                f"another run has taken over: it wrote entry {page.seq} of our journal (epoch {there.epoch})",
                hint="Nothing more was written. Look at their run, then run the command again.",
            )
        note(_LOGGER, "written", run=self.run, seq=page.seq, entries=len(entries))
        self._seq += 1

    def _create(self, page: Page) -> Page:
        return _create(self._lease.store, page, self._lease.check)


def _create(store: ObjectStore, page: Page, check: Callable[[], None]) -> Page:
    """Write a page into its slot; return what is in that slot then: it, or what somebody else wrote there."""
    key = journal_key(page.run, page.seq)
    for attempt in range(_ATTEMPTS):
        check()
        try:
            create(store, journal_key(page.run, page.seq), page.to_bytes())
        except LostRaceError:
            pass
        except RetryableError:
            # Its answer may be lost, or it may land yet: the next attempt finds it, or writes the same once.
            if attempt == _ATTEMPTS - 1 and store.get(key) is None:
                raise
        else:
            return page
        if store.get(key) is not None:
            return _read_page(store, page.run, page.seq)
    raise RetryableError(f"{store.url}/{key} could not be written", hint="Check the store, then run again.")


def _last_page(store: ObjectStore, run: str, seq: int) -> Page | None:
    """Return the page of the last slot; `None` where it was never written whole."""
    there = store.get(journal_key(run, seq))
    return None if there is not None and is_cut_off(there.body) else _read_page(store, run, seq)


def _read_page(store: ObjectStore, run: str, seq: int) -> Page:
    key = journal_key(run, seq)
    stored = store.get(key)
    if stored is None:
        raise UserError(f"{store.url}/{key} is missing", hint="Restore it from a backup or the bucket's versions.")
    try:
        body = orjson.loads(stored.body)
        found = body.get("format") if isinstance(body, dict) else None
        if isinstance(found, str) and found != FORMAT and found.startswith("reconciler.journal/"):
            message = f"{store.url}/{key} was written by a newer version of reconciler ({found})"
            raise NewerFormatError(message, hint="Upgrade this one: pip install --upgrade stream-reconciler.")
        page = Page.model_validate_json(stored.body)
    except orjson.JSONDecodeError as error:
        raise _damaged(store, key, no_json(error, stored.body)) from error
    except ValidationError as error:
        raise _damaged(store, key, refusal(error)) from error
    if (page.run, page.seq) != (run, seq):
        raise _damaged(store, key, f"it is entry {page.seq} of run {page.run}")
    return page


def _damaged(store: ObjectStore, key: str, why: str) -> UserError:
    return UserError(
        f"{store.url}/{key} cannot be read: {why}",
        hint="Nothing was changed. Restore it from a backup or the bucket's versions; `reconciler state repair` says "
        "what is known without it.",
    )


def _parts(entries: Iterable[Entry]) -> Iterator[tuple[Entry, ...]]:
    """Cut entries into what one object may hold."""
    part: list[Entry] = []
    size = 0
    for entry in entries:
        length = len(entry.model_dump_json().encode()) + len(",")
        if part and size + length > _MOST_BYTES:
            yield tuple(part)
            part, size = [], 0
        part.append(entry)
        size += length
    if part:
        yield tuple(part)


def _prefix(run: str) -> str:
    return f"{RUNS_PREFIX}{run}/journal/"
