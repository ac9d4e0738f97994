"""The journal of a run: its entries, the run's files, and the fold of what is done.

An entry counts when the object that holds it is there, whole. Where a store keeps what is left of one whose writer was
killed, the last slot holds nothing, or ends in the middle: it counts as free, and whoever writes next replaces it by
compare-and-swap, so that of two one wins, as in a slot that is not there.

What waits while one object is being written goes into the next one together: ten thousand intents cost what one does.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Protocol, TypeAlias, TypeVar, assert_never

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from reconciler.errors import LeaseError, LostRaceError, MendFirstError, NewerFormatError, RetryableError, UserError
from reconciler.objectstore.base import ObjectStore, nonce
from reconciler.objectstore.register import create, is_cut_off
from reconciler.planning.record import after_action, after_refusal, learn
from reconciler.planning.saved_plan import read_action
from reconciler.runtime.effects import Effects, note
from reconciler.runtime.retry import Backoff
from reconciler.runtime.text import no_json, refusal
from reconciler.state.lockfile import KEY, RUNS_PREFIX, Lockfile, read_lockfile
from reconciler.state.snapshots import Snapshot, SnapshotRow, history, read_base, run_of

if TYPE_CHECKING:
    from reconciler.planning.actions import Action
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Record, Recorded


# A write of the state where nobody answers: tried again for as long as the lease stands.


T = TypeVar("T")

_BACKOFF: Final = Backoff(first_s=0.1, longest_s=2.0, spread=0)


async def insist(effects: Effects, write: Callable[[], T]) -> T:
    """Call `write` until it gets through; what is refused is refused at once.

    `write` may have landed unanswered, so it finds its own work when called again; and it looks at the lease first,
    whose loss ends this.

    Raises:
        LeaseError: It was lost meanwhile.
        StoppedError: Somebody asked for the end.
        ReconcilerError: Trying again is of no use.
    """
    failed = 0
    while True:
        try:
            return await effects.call(write)
        except MendFirstError:
            raise
        except RetryableError:
            failed += 1
            await effects.sleep(_BACKOFF.after(failed))


# The entries of a journal: a closed union. What a run is about to do, what became of it, who took it over.


_LEFT_AT_MOST: Final = 500
"""Names in one entry: so many of the longest are far from a mebibyte."""


class _Entry(BaseModel):
    """Frozen, closed, and read as strictly as it was written. `id` is that of an action of the run."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class TakenOver(_Entry):
    """Another run writes from here on: whoever wrote before finds this slot taken, and stops."""

    type: Literal["takeover"] = "takeover"
    run: str
    who: str


class Intent(_Entry):
    """The action is about to be done: from here until its end it is in doubt."""

    type: Literal["intent"] = "intent"
    id: str


class ActionEnded(_Entry):
    """The action is complete and durable; what the platform said of it. It is the `Finished` of planning.recording."""

    type: Literal["done"] = "done"
    id: str
    incarnation: str | None = None
    physical_name: str | None = None
    is_settled: bool = False
    """Found done by the process that came after, not told by the platform."""


class ActionRefused(_Entry):
    """The action was refused; nothing of it is recorded, but for what `is_made`: all except its access rules."""

    type: Literal["failed"] = "failed"
    id: str
    error: str
    hint: str
    is_made: bool = False
    incarnation: str | None = None
    physical_name: str | None = None


class ActionSkipped(_Entry):
    """The action was not tried: what it leans on failed."""

    type: Literal["skipped"] = "skipped"
    id: str
    because: str


class Detached(_Entry):
    """The run was stopped, or told to leave these actions to another."""

    type: Literal["detached"] = "detached"
    left: tuple[str, ...]


class Closed(_Entry):
    """Nothing follows. `status` is `done`, `partial`, or `superseded` by the run that settled it."""

    type: Literal["closed"] = "closed"
    status: Literal["done", "partial", "superseded"]


Entry: TypeAlias = TakenOver | Intent | ActionEnded | ActionRefused | ActionSkipped | Detached | Closed

AnyEntry: TypeAlias = Annotated[Entry, Field(discriminator="type")]


def detached(left: Sequence[str]) -> list[Detached]:
    """Return the entries that say what is left; each of them fits into one object of a journal."""
    return [Detached(left=tuple(left[at : at + _LEFT_AT_MOST])) for at in range(0, len(left), _LEFT_AT_MOST)]


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
                hint="Restore the file from a backup or the bucket's versions. Without it reconciler cannot tell what "
                "that run did; `reconciler state repair` says what is known.",
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


class Holder(Protocol):
    """The run that holds the lease under which a journal is written."""

    @property
    def store(self) -> ObjectStore:
        """The store of the state."""

    @property
    def lockfile(self) -> Lockfile:
        """The lockfile as the holder wrote it last."""

    @property
    def run(self) -> str:
        """The id of the run."""

    def check(self) -> None:
        """Refuse to go on where the lease may be lost."""


async def take_over(lease: Holder, effects: Effects, run: str) -> Written:
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

    def __init__(self, lease: Holder, effects: Effects, run: str, *, next_seq: int = 1) -> None:
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
    """Write a page into its slot; return what is in that slot then: it, or what another process wrote there."""
    key = journal_key(page.run, page.seq)
    for attempt in range(_ATTEMPTS):
        check()
        try:
            create(store, key, page.to_bytes())
        except LostRaceError:
            pass
        except RetryableError:
            # Its answer may be lost, or it may land yet: the next attempt finds it, or writes the same once.
            if attempt == _ATTEMPTS - 1 and not _is_filled(store, key):
                raise
        else:
            return page
        if _is_filled(store, key):
            return _read_page(store, page.run, page.seq)
    raise RetryableError(f"{store.url}/{key} could not be written", hint="Check the store, then run again.")


def _is_filled(store: ObjectStore, key: str) -> bool:
    """Tell whether a slot holds more than what was cut off, which counts as nothing."""
    there = store.get(key)
    return there is not None and not is_cut_off(there.body)


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


# What a run leaves beside the state: `runs/<run>/run.json` when it begins, `result.json` when it has ended.


RUN_FORMAT: Final = "reconciler.run/1"
RESULT_FORMAT: Final = "reconciler.result/1"
_RESULT_ATTEMPTS: Final = 3
_AT_ONCE: Final = 8
"""Files of runs that are read side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFile:
    """What a run set out to do; written once, before anything is done."""

    run: str
    command: str
    plan_digest: str
    actions: tuple[Mapping[str, Any], ...]
    """Each whole, in the order of the plan, so that any machine can settle or finish it; `id` names it."""
    workspace: str
    environment: str | None
    base_serial: int
    base_sha256: str
    epoch: int
    options: Mapping[str, Any] | None = None
    """What was typed, where the actions come from a plan of files."""
    resumes: str | None = None
    """The run that this one finishes."""
    git_commit: str | None = None
    tool: str = ""
    who: str | None = None
    ci_url: str | None = None
    approved_digest: str | None = None
    """Of the plan that was approved; what was left of it may be less."""
    approved_by: tuple[str, ...] = ()
    """Who is said to have approved it."""
    pull_request: str | None = None
    started: str = ""
    """Wall-clock time, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFile:
    """How a run ended; written once, after its last commit."""

    run: str
    status: str
    serial: int
    done: tuple[str, ...]
    failed: tuple[dict[str, str], ...]
    """`{"id", "error", "hint"}`."""
    skipped: tuple[dict[str, str], ...]
    """`{"id", "because"}`: the failed action it leans on."""
    not_started: tuple[str, ...]
    in_doubt: tuple[str, ...] = ()
    """Among the failed: nobody knows whether they happen. The run stays open."""
    ended: str


@dataclass(frozen=True, slots=True)
class RunEnd:
    """What of a `result.json` counts for who goes on after it: it is written after the last commit."""

    status: str
    serial: int
    """Of the state when it ended."""
    done: tuple[str, ...]
    is_whole: bool
    """Nothing of the run is left."""


def run_key(run: str) -> str:
    """Return where a run's `run.json` is."""
    return f"{RUNS_PREFIX}{run}/run.json"


def result_key(run: str) -> str:
    """Return where a run's `result.json` is."""
    return f"{RUNS_PREFIX}{run}/result.json"


def write_run(store: ObjectStore, run: RunFile) -> None:
    """Write `run.json`; an id is used once.

    Raises:
        UserError: There is such a run already, and it is another one.
    """
    _create_file(store, run_key(run.run), orjson.dumps({"format": RUN_FORMAT, **_shallow(run)}))


def write_result(store: ObjectStore, result: ResultFile) -> None:
    """Write `result.json`."""
    _create_file(store, result_key(result.run), orjson.dumps({"format": RESULT_FORMAT, **_shallow(result)}))


def read_run(store: ObjectStore, run: str) -> RunFile | None:
    """Return what a run set out to do, for people to read; `None` where it cannot be told."""
    stored = store.get(run_key(run))
    if stored is None:
        return None
    try:
        body = orjson.loads(stored.body)
        known = {part.name for part in fields(RunFile)}
        given: dict[str, Any] = {name: value for name, value in body.items() if name in known}
        approvers = tuple(given.get("approved_by", ()))
        return RunFile(**{**given, "actions": tuple(given["actions"]), "approved_by": approvers})
    except (orjson.JSONDecodeError, TypeError, AttributeError, KeyError):
        return None


def read_end(store: ObjectStore, run: str) -> RunEnd | None:
    """Return how a run said it ended; `None` where it did not, or that cannot be told."""
    stored = store.get(result_key(run))
    if stored is None:
        return None
    try:
        body = orjson.loads(stored.body)
        status, is_left = str(body["status"]), bool(body.get("not_started") or body.get("in_doubt"))
        done = tuple(str(each) for each in body.get("done", ()))
        return RunEnd(status, int(body.get("serial", 0)), done, status in {"done", "partial"} and not is_left)
    except (orjson.JSONDecodeError, TypeError, AttributeError, KeyError, ValueError):
        return None


def read_runs(store: ObjectStore, *, at_most: int, is_too_old: Callable[[RunFile], bool]) -> tuple[RunFile, ...]:
    """Return what the last runs set out to do, those too that were killed: one LIST, and a GET for each of them.

    Ids grow with time, so the last ones are told by their names; where one is too old, those before it are not read.
    Their order is that in which they had the lease.
    """
    end = "/run.json"
    keys = (listed.key for listed in store.list(RUNS_PREFIX) if listed.key.endswith(end))
    names = sorted((key.removeprefix(RUNS_PREFIX).removesuffix(end) for key in keys), reverse=True)[:at_most]
    found: list[RunFile] = []
    with ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="runs") as threads:
        for first in range(0, len(names), _AT_ONCE):
            some = threads.map(partial(read_run, store), names[first : first + _AT_ONCE])
            read = [file for file in some if file is not None]
            found += read
            if any(map(is_too_old, read)):
                break
    return tuple(sorted(found, key=lambda file: (-file.epoch, file.run)))


def done_of(store: ObjectStore, run: str) -> frozenset[str]:
    """Return the ids of what a run did, as it said at its end and, unless that was all of it, as its journal says.

    Where neither can be read, nothing. What a run had left in doubt, the next one wrote into its journal.
    """
    end = read_end(store, run)
    told = frozenset(() if end is None else end.done)
    if end is not None and end.is_whole:
        return told
    try:
        return told | {entry.id for entry in read_journal(store, run).entries if isinstance(entry, ActionEnded)}
    except UserError:
        return told


def require_run(store: ObjectStore, run: str) -> RunFile:
    """Return what a run set out to do, for going on with it.

    Raises:
        UserError: It is missing, or cannot be read.
    """
    found = read_run(store, run)
    if found is None or found.run != run:
        raise UserError(
            f"{store.url}/{run_key(run)} is missing or cannot be read, and the lockfile says that this run is open",
            hint="Restore the file from a backup or the bucket's versions; `reconciler state repair` "
            "continues without it.",
        )
    return found


def _shallow(file: RunFile | ResultFile) -> dict[str, Any]:
    return {part.name: getattr(file, part.name) for part in fields(file)}


def _create_file(store: ObjectStore, key: str, body: bytes) -> None:
    for left in reversed(range(_RESULT_ATTEMPTS)):
        try:
            create(store, key, body)
        except LostRaceError as error:
            message = f"{store.url}/{key} exists already"
            raise UserError(message, hint="Every run has an id of its own: run the command again.") from error
        except RetryableError:
            # Its answer may be lost: asked again, the store finds our own body, or writes it once.
            if not left:
                raise
        else:
            return


# What a run has done so far: its base, its actions and its journal, folded. Any prefix of a journal folds.


@dataclass(frozen=True, slots=True)
class Folded:
    """Where a run stands."""

    record: Record
    """The base, and everything that is done."""
    done: tuple[str, ...]
    """Ids, in the order in which they ended."""
    in_doubt: tuple[Action, ...]
    """Begun, and not known to have ended; in plan order."""
    left: tuple[Action, ...]
    """Never begun, or stopped; in plan order."""
    is_closed: bool


def fold_run(base: Record, actions: Sequence[Action], written: Written, further: Sequence[Entry] = ()) -> Folded:
    """Return where a run stands after what is written of it, and `further` entries.

    Entries of actions it does not have belong to no run of ours, and count for nothing.
    """
    by_id = {action.id: action for action in actions}
    record: dict[Address, Recorded] = dict(base)
    open_ids: set[str] = set()
    done: dict[str, None] = {}
    ended: set[str] = set()
    for entry in (*written.entries, *further):
        match entry:
            case Intent():
                open_ids.add(entry.id)
            case ActionEnded():
                open_ids.discard(entry.id)
                if entry.id in by_id and entry.id not in done:
                    learn(record, after_action(by_id[entry.id], entry, record, written.run))
                    done[entry.id] = None
            case ActionRefused() | ActionSkipped():
                if isinstance(entry, ActionRefused) and entry.is_made and entry.id in by_id.keys() - done.keys():
                    learn(record, after_refusal(by_id[entry.id], entry, record, written.run))
                open_ids.discard(entry.id)
                ended.add(entry.id)
            case TakenOver() | Detached() | Closed():
                pass
            case _:
                assert_never(entry)
    known = {*done, *ended, *open_ids}
    return Folded(
        record,
        tuple(done),
        tuple(action for action in actions if action.id in open_ids),
        tuple(action for action in actions if action.id not in known),
        is_closed=written.is_closed,
    )


# A run that has begun and not closed: what it set out to do, and how far its journal says it came.


Parting: TypeAlias = Literal["stopped", "detached"]
"""`stopped`: somebody asked for its end. `detached`: it was told to leave the rest to another."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """An open run, with everything that is needed to settle it."""

    file: RunFile
    base: Record
    """What was recorded when it began."""
    actions: tuple[Action, ...]
    written: Written
    end: RunEnd | None = None
    """What it said of its end, if it came to that."""

    @property
    def parting(self) -> Parting | None:
        """How it left what is left; `None` where it was cut off: it crashed, or its journal could not be written."""
        last = next((entry for entry in reversed(self.written.entries) if not isinstance(entry, TakenOver)), None)
        if not isinstance(last, Detached):
            return None
        return "detached" if self.end is not None and self.end.status == "detached" else "stopped"

    def folded(self, *, further: Sequence[Entry] = ()) -> Folded:
        """Return where it stands; `further` entries count as if they were written."""
        return fold_run(self.base, self.actions, self.written, further)

    def after(self, written: Written) -> Unfinished:
        """Return it with more of its journal."""
        return replace(self, written=written)


def read_open_run(store: ObjectStore, lockfile: Lockfile) -> Unfinished | None:
    """Return the run that a lockfile says is open; reads its file, its base and its journal.

    Raises:
        UserError: Something of it is missing or damaged, or belongs to another state.
    """
    opened = lockfile.open_run
    if opened is None:
        return None
    file = require_run(store, opened.run)
    if file.plan_digest != opened.plan_digest or file.base_serial > lockfile.serial:
        raise UserError(
            f"{store.url}: the files of run {file.run} do not belong to this state: it began on #{file.base_serial}, "
            f"and the state is #{lockfile.serial}",
            hint="Files of two states were mixed. `reconciler state repair` says what fits.",
        )
    return read_unfinished(store, file)


def read_unfinished(store: ObjectStore, file: RunFile) -> Unfinished:
    """Return a run with its base and its journal, closed or not.

    Raises:
        UserError: One of them is missing or damaged.
    """
    base = read_base(store, file.base_serial, file.base_sha256)
    written = read_journal(store, file.run)
    end = read_end(store, file.run)
    _check_not_cut(written, end)
    return Unfinished(file, base, tuple(read_action(each) for each in file.actions), written, end)


def _check_not_cut(written: Written, end: RunEnd | None) -> None:
    """Refuse a journal that says less than its run said of its end: going on from it would undo what is recorded."""
    if end is None:
        return
    known = {entry.id for entry in written.entries if isinstance(entry, ActionEnded)}
    lost = [action for action in end.done if action not in known]
    if lost:
        raise UserError(
            f"the journal of run {written.run} is cut short: it does not know of {lost[0]}, which was done"
            + (f", and of {len(lost) - 1} more" if lost[1:] else ""),
            hint="Restore what is missing from a backup or the bucket's versions; `reconciler state repair` goes on "
            "without.",
        )


# How far the state went since a plan was made on it, and which run took it there.


@dataclass(frozen=True, slots=True)
class StateAdvance:
    """The state is another than a plan was approved on; of the last run what its `run.json` says, if it is there."""

    approved: int
    now: int
    run: str | None = None
    command: str | None = None
    who: str | None = None
    started: str | None = None

    def __str__(self) -> str:
        """Say it in one sentence."""
        by = f", last by run {self.run}" if self.run else ""
        what = f" ({', '.join(part for part in (self.command, self.who, self.started) if part)})" if self.who else ""
        return f"the state went from #{self.approved} to #{self.now} since the plan was approved{by}{what}"


def advance_since(approved: tuple[int, str], snapshot: Snapshot, store: ObjectStore) -> StateAdvance | None:
    """Return how far the state went from the serial and sha256 that were approved; `None` where it is the same."""
    serial, _ = approved
    if approved == (snapshot.serial, snapshot.sha256):
        return None
    run = read_run(store, snapshot.run) if snapshot.run else None
    if run is None:
        return StateAdvance(serial, snapshot.serial, snapshot.run or None)
    return StateAdvance(serial, snapshot.serial, run.run, run.command, run.who, run.started)


# Tell a lockfile that was put back from a backup: by what was committed since, as far as a LIST of states shows it.
#
# Looking further costs nothing where no later snapshot lies beside it. One of the next serial alone proves nothing: it
# may be of a run that died before it could commit it.


def find_outdated(store: ObjectStore, lockfile: Lockfile, rows: Sequence[SnapshotRow] | None = None) -> str | None:
    """Say that a lockfile is an old copy, in a sentence; `None` where nothing proves it. One LIST, unless `rows` is it.

    `lockfile` was read before the LIST: where it has changed since, it was our look that was old.
    """
    why = why_outdated(store, lockfile, history(store) if rows is None else rows)
    if why is None:
        return None
    again = read_lockfile(store)
    if again is None or again.lockfile.nonce != lockfile.nonce:
        return None
    return f"{store.url}/{KEY} says state #{lockfile.serial}, but {why}: it is an old copy"


def check_current(store: ObjectStore, lockfile: Lockfile, rows: Sequence[SnapshotRow] | None = None) -> None:
    """Refuse to go on from an old copy. Raises UserError: it is one."""
    outdated = find_outdated(store, lockfile, rows)
    if outdated is not None:
        raise UserError(
            outdated,
            hint="An old one would forget what was applied since. Restore the newest version of it, or make it anew "
            "from what is beside it: reconciler state repair",
        )


def why_outdated(store: ObjectStore, lockfile: Lockfile, rows: Sequence[SnapshotRow]) -> str | None:
    """Return what proves that a lockfile is an old copy; `rows` are the snapshots, the newest first."""
    if rows and rows[0].serial >= lockfile.serial + 2:
        return f"{rows[0].key} was written"
    found = (_committed(store, lockfile, row) for row in rows if row.serial == lockfile.serial + 1)
    return next((why for why in found if why is not None), None)


def _committed(store: ObjectStore, lockfile: Lockfile, row: SnapshotRow) -> str | None:
    """Return what proves that the next snapshot was committed, and not only written."""
    run = run_of(store, row)
    if run is None:
        return None
    end, file = read_end(store, run), read_run(store, run)
    if end is not None and end.serial >= row.serial:
        return f"run {run} ended with #{end.serial}"
    epoch = file.epoch if file is not None else _settled_under(store, lockfile)
    if epoch > lockfile.lease.epoch:
        return f"run {run} had the lease under epoch {epoch}, and it knows of {lockfile.lease.epoch}"
    return None


def _settled_under(store: ObjectStore, lockfile: Lockfile) -> int:
    """Return the epoch under which the open run was written last: who only settled it left no file of its own."""
    if lockfile.open_run is None:
        return 0
    try:
        return max((page.epoch for page in read_journal(store, lockfile.open_run.run).pages), default=0)
    except UserError:
        return 0  # what a journal that cannot be read means, whoever goes on with it says
