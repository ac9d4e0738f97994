"""A run's journal: entries, files and progress.

Entries are valid once their object is complete. The next writer replaces a truncated last object by compare-and-swap.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Protocol, TypeAlias, TypeVar, assert_never

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from reconciler.errors import LeaseError, LostRaceError, MendFirstError, NewerFormatError, RetryableError, UserError
from reconciler.objectstore.base import ObjectStore, create_nonce
from reconciler.objectstore.register import create_object, is_truncated_json
from reconciler.planning.record import apply_record_changes, record_action, record_refusal
from reconciler.planning.saved_plan import read_action
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.effects import Effects, log_debug
from reconciler.runtime.retry import Backoff
from reconciler.runtime.text import explain_invalid, explain_invalid_json
from reconciler.state.lockfile import KEY, RUNS_PREFIX, Lockfile, read_lockfile
from reconciler.state.snapshots import Snapshot, SnapshotRow, list_snapshots, read_base_record, read_run_id

if TYPE_CHECKING:
    import asyncio

    from reconciler.planning.actions import Action
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Record, Recorded


T = TypeVar("T")

_BACKOFF: Final = Backoff(first_s=0.1, longest_s=2.0, spread=0)


async def retry_until_answered(effects: Effects, write: Callable[[], T]) -> T:
    """Retry `write` until the store answers. Errors that no retry fixes are raised.

    `write` must check the lease, and recognize its own earlier write after a lost response.

    Raises:
        LeaseError: The lease was lost.
        StoppedError: A stop was requested.
    """
    failed = 0
    while True:
        try:
            return await effects.run_blocking(write)
        except MendFirstError:
            raise
        except RetryableError:
            failed += 1
            await effects.sleep(_BACKOFF.compute_pause(failed))


_MAX_IDS_PER_ENTRY: Final = 500
"""Keeps entries far below one mebibyte."""


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class RunTakenOver(_Entry):
    """Another run continues the journal from this object; the previous writer must stop."""

    type: Literal["takeover"] = "takeover"
    run: str
    who: str


class Intent(_Entry):
    """An action begins. Its outcome is unknown until its end is recorded."""

    type: Literal["intent"] = "intent"
    id: str


class ActionEnded(_Entry):
    """An action is complete."""

    type: Literal["done"] = "done"
    id: str
    incarnation: str | None = None
    physical_name: str | None = None
    is_settled: bool = False
    """Whether a later run observed the result, because the platform's answer is missing."""


class ActionRefused(_Entry):
    """An action failed. `is_made`: only the access rules of its resource are missing."""

    type: Literal["failed"] = "failed"
    id: str
    error: str
    hint: str
    is_made: bool = False
    incarnation: str | None = None
    physical_name: str | None = None


class ActionSkipped(_Entry):
    """An action was not attempted, because one that it depends on failed."""

    type: Literal["skipped"] = "skipped"
    id: str
    because: str


class RunDetached(_Entry):
    """The run ended early; a later run executes these actions."""

    type: Literal["detached"] = "detached"
    left: tuple[str, ...]


class RunClosed(_Entry):
    """The last entry. `superseded`: another run settled this one."""

    type: Literal["closed"] = "closed"
    status: Literal["done", "partial", "superseded"]


Entry: TypeAlias = RunTakenOver | Intent | ActionEnded | ActionRefused | ActionSkipped | RunDetached | RunClosed

AnyEntry: TypeAlias = Annotated[Entry, Field(discriminator="type")]


def build_detached_entries(left: Sequence[str]) -> list[RunDetached]:
    """Return entries for actions left to a later run, each small enough for an object."""
    return [
        RunDetached(left=tuple(left[at : at + _MAX_IDS_PER_ENTRY])) for at in range(0, len(left), _MAX_IDS_PER_ENTRY)
    ]


FORMAT: Final = "reconciler.journal/1"
_NAME: Final = re.compile(r"(\d{6,})\.json")
_LOGGER: Final = logging.getLogger("reconciler.journal")
_MAX_ENTRIES_BYTES: Final = (1 << 20) - (1 << 10)
"""Keeps objects below one mebibyte."""
_ATTEMPTS: Final = 2
"""The second attempt detects a stored first one whose response was lost."""


class Page(BaseModel):
    """One object of a journal, with several entries."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)

    format: Literal["reconciler.journal/1"] = FORMAT
    run: str
    seq: int = Field(ge=1)
    epoch: int = Field(ge=1)
    nonce: str = Field(min_length=1)
    entries: tuple[AnyEntry, ...]

    def to_bytes(self) -> bytes:
        """Return the stored bytes."""
        return orjson.dumps(self.model_dump(mode="json"))


@dataclass(frozen=True, slots=True)
class JournalContents:
    """A run's journal: its objects in order."""

    run: str
    pages: tuple[Page, ...] = ()

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries in order."""
        return tuple(entry for page in self.pages for entry in page.entries)

    @property
    def next_seq(self) -> int:
        """Sequence number of the next object."""
        return len(self.pages) + 1

    @property
    def is_closed(self) -> bool:
        """Whether the journal ends with `RunClosed`."""
        return any(isinstance(entry, RunClosed) for entry in self.entries)


def journal_key(run: str, seq: int) -> str:
    """Return the key of a journal object in the store."""
    return f"{_build_prefix(run)}{seq:06}.json"


def read_journal(store: ObjectStore, run: str) -> JournalContents:
    """Read a run's journal: one LIST, and one GET per object."""
    prefix = _build_prefix(run)
    matches = (_NAME.fullmatch(listed.key[len(prefix) :]) for listed in store.list(prefix))
    seqs = sorted(int(name[1]) for name in matches if name)
    for position, seq in enumerate(seqs, start=1):
        if seq != position:
            raise UserError(
                f"{store.url}/{journal_key(run, position)} is missing, and later entries of that journal are there",
                hint="Restore the file from a backup or the bucket's versions. Without it reconciler cannot tell what "
                "that run did; `reconciler state repair` shows what is known.",
            )
    pages = [_read_page(store, run, seq) for seq in seqs[:-1]]
    last = _read_last_page(store, run, seqs[-1]) if seqs else None
    return JournalContents(run, (*pages, *([] if last is None else [last])))


def close_journal(store: ObjectStore, run: str, *, epoch: int) -> None:
    """Close an abandoned run's journal, so a living writer fails at its next object."""
    while not (written := read_journal(store, run)).is_closed:
        entries = (RunClosed(status="superseded"),)
        page = Page(run=run, seq=written.next_seq, epoch=epoch, nonce=create_nonce(), entries=entries)
        with suppress(LostRaceError):
            create_object(store, journal_key(page.run, page.seq), page.to_bytes())


class Holder(Protocol):
    """Holder of the lease under which a journal is written."""

    @property
    def store(self) -> ObjectStore:
        """The store of the state."""

    @property
    def lockfile(self) -> Lockfile:
        """The lockfile last written by the holder."""

    @property
    def run(self) -> str:
        """Id of the run."""

    def check(self) -> None:
        """Raise `LeaseError` if the lease may be lost."""


async def take_over_journal(lease: Holder, effects: Effects, run: str) -> JournalContents:
    """Append a takeover entry to a dead run's journal; return the preceding journal."""
    written = await effects.run_blocking(lambda: read_journal(lease.store, run))
    if written.is_closed:
        return written
    lockfile = lease.lockfile
    entry = RunTakenOver(run=lease.run, who=lockfile.lease.who or "")
    pages = list(written.pages)
    while True:
        page = Page(run=run, seq=len(pages) + 1, epoch=lockfile.lease.epoch, nonce=create_nonce(), entries=(entry,))
        stored_page = await retry_until_answered(effects, partial(_create, lease.store, page, lease.check))
        pages.append(stored_page)
        if stored_page.nonce == page.nonce:
            return JournalContents(run, tuple(pages))


class Journal:
    """Writes a run's journal under its lease."""

    def __init__(self, lease: Holder, effects: Effects, run: str, *, next_seq: int = 1) -> None:
        self._lease = lease
        self._effects = effects
        self.run = run
        self._seq = next_seq
        self._waiting: list[tuple[Sequence[Entry], asyncio.Future[Exception | None]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._broken: Exception | None = None

    async def append(self, entries: Sequence[Entry]) -> None:
        """Append entries; return once they are durable.

        Raises:
            LeaseError: Another run took over the lease.
            ReconcilerError: The write failed; this journal accepts no more entries.
        """
        if self._broken is not None:
            raise self._broken
        if not entries:
            return
        import asyncio  # noqa: PLC0415 - a plan reads journals, and needs no event loop

        ended: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((entries, ended))
        if self._writing is None:
            self._writing = self._effects.start_task(self._write_all())
        trouble = await ended
        if trouble is not None:
            raise trouble

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                taken, self._waiting = self._waiting, []
                if self._broken is None:
                    try:
                        for part in _split_by_size(entry for entries, _ in taken for entry in entries):
                            await self._write(part)
                    except Exception as error:  # noqa: BLE001 - raised where it is waited for
                        self._broken = error
                for _, ended in taken:
                    ended.set_result(self._broken)
        finally:
            self._writing = None

    async def _write(self, entries: tuple[Entry, ...]) -> None:
        page = Page(
            run=self.run, seq=self._seq, epoch=self._lease.lockfile.lease.epoch, nonce=create_nonce(), entries=entries
        )
        stored_page = await retry_until_answered(self._effects, lambda: self._create(page))
        if stored_page.nonce != page.nonce:
            log_debug(_LOGGER, "fenced", run=self.run, seq=page.seq, by_epoch=stored_page.epoch)
            raise LeaseError(
                f"another run has taken over: it wrote entry {page.seq} of our journal (epoch {stored_page.epoch})",
                hint="Nothing more was written. Check the result of that run, then run the command again.",
            )
        log_debug(_LOGGER, "written", run=self.run, seq=page.seq, entries=len(entries))
        self._seq += 1

    def _create(self, page: Page) -> Page:
        return _create(self._lease.store, page, self._lease.check)


def _create(store: ObjectStore, page: Page, check: Callable[[], None]) -> Page:
    key = journal_key(page.run, page.seq)
    for attempt in range(_ATTEMPTS):
        check()
        try:
            create_object(store, key, page.to_bytes())
        except LostRaceError:
            pass
        except RetryableError:
            # The store may still apply an unanswered write; the next attempt detects that.
            if attempt == _ATTEMPTS - 1 and not _is_filled(store, key):
                raise
        else:
            return page
        if _is_filled(store, key):
            return _read_page(store, page.run, page.seq)
    raise RetryableError(f"{store.url}/{key} could not be written", hint="Check the store, then run again.")


def _is_filled(store: ObjectStore, key: str) -> bool:
    stored = store.get(key)
    return stored is not None and not is_truncated_json(stored.body)


def _read_last_page(store: ObjectStore, run: str, seq: int) -> Page | None:
    stored = store.get(journal_key(run, seq))
    return None if stored is not None and is_truncated_json(stored.body) else _read_page(store, run, seq)


def _read_page(store: ObjectStore, run: str, seq: int) -> Page:
    key = journal_key(run, seq)
    stored = store.get(key)
    if stored is None:
        raise UserError(f"{store.url}/{key} is missing", hint="Restore it from a backup or the bucket's versions.")
    try:
        body = orjson.loads(stored.body)
        format_name = body.get("format") if isinstance(body, dict) else None
        if isinstance(format_name, str) and format_name != FORMAT and format_name.startswith("reconciler.journal/"):
            message = f"{store.url}/{key} was written by a newer version of reconciler ({format_name})"
            raise NewerFormatError(message, hint="Upgrade this one: pip install --upgrade stream-reconciler.")
        page = Page.model_validate_json(stored.body)
    except orjson.JSONDecodeError as error:
        raise _damaged_error(store, key, explain_invalid_json(error, stored.body)) from error
    except ValidationError as error:
        raise _damaged_error(store, key, explain_invalid(error)) from error
    if (page.run, page.seq) != (run, seq):
        raise _damaged_error(store, key, f"it is entry {page.seq} of run {page.run}")
    return page


def _damaged_error(store: ObjectStore, key: str, why: str) -> UserError:
    return UserError(
        f"{store.url}/{key} cannot be read: {why}",
        hint="Nothing was changed. Restore it from a backup or the bucket's versions; `reconciler state repair` shows "
        "what is known without it.",
    )


def _split_by_size(entries: Iterable[Entry]) -> Iterator[tuple[Entry, ...]]:
    part: list[Entry] = []
    size = 0
    for entry in entries:
        length = len(entry.model_dump_json().encode()) + len(",")
        if part and size + length > _MAX_ENTRIES_BYTES:
            yield tuple(part)
            part, size = [], 0
        part.append(entry)
        size += length
    if part:
        yield tuple(part)


def _build_prefix(run: str) -> str:
    return f"{RUNS_PREFIX}{run}/journal/"


RUN_FORMAT: Final = "reconciler.run/1"
RESULT_FORMAT: Final = "reconciler.result/1"
_RESULT_ATTEMPTS: Final = 3
_PARALLEL_READS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFile:
    """Plan of a run (`run.json`), written before its first action."""

    run: str
    command: str
    plan_digest: str
    actions: tuple[Mapping[str, Any], ...]
    """Actions in plan order, with all data to settle or finish them on any machine."""
    workspace: str
    environment: str | None
    base_serial: int
    base_sha256: str
    epoch: int
    options: Mapping[str, Any] | None = None
    resumes: str | None = None
    git_commit: str | None = None
    tool: str = ""
    who: str | None = None
    ci_url: str | None = None
    approved_digest: str | None = None
    """Digest of the approved plan, of which the run may execute a part."""
    approved_by: tuple[str, ...] = ()
    pull_request: str | None = None
    started: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFile:
    """Result of a run (`result.json`), written after its last commit."""

    run: str
    status: str
    serial: int
    done: tuple[str, ...]
    failed: tuple[dict[str, str], ...]
    """Each has `id`, `error` and `hint`."""
    skipped: tuple[dict[str, str], ...]
    """Each has `id` and `because`, the failed action."""
    not_started: tuple[str, ...]
    in_doubt: tuple[str, ...] = ()
    """Failed actions with unknown outcome, which keep the run open."""
    ended: str


@dataclass(frozen=True, slots=True)
class RunEnd:
    """Fields of `result.json` that later runs need."""

    status: str
    serial: int
    done: tuple[str, ...]
    is_whole: bool


def run_key(run: str) -> str:
    """Return the key of `run.json`."""
    return f"{RUNS_PREFIX}{run}/run.json"


def result_key(run: str) -> str:
    """Return the key of `result.json`."""
    return f"{RUNS_PREFIX}{run}/result.json"


def write_run(store: ObjectStore, run: RunFile) -> None:
    """Write `run.json`. Raises `UserError` if the run exists."""
    _create_file(store, run_key(run.run), orjson.dumps({"format": RUN_FORMAT, **_to_fields(run)}))


def write_result(store: ObjectStore, result: ResultFile) -> None:
    """Write `result.json`."""
    _create_file(store, result_key(result.run), orjson.dumps({"format": RESULT_FORMAT, **_to_fields(result)}))


def read_run(store: ObjectStore, run: str) -> RunFile | None:
    """Return a run's `run.json`; `None` if unreadable."""
    stored = store.get(run_key(run))
    if stored is None:
        return None
    try:
        body = orjson.loads(stored.body)
        known = {part.name for part in fields(RunFile)}
        values: dict[str, Any] = {name: value for name, value in body.items() if name in known}
        approvers = tuple(values.get("approved_by", ()))
        return RunFile(**{**values, "actions": tuple(values["actions"]), "approved_by": approvers})
    except (orjson.JSONDecodeError, TypeError, AttributeError, KeyError):
        return None


def read_run_end(store: ObjectStore, run: str) -> RunEnd | None:
    """Read how a run ended from `result.json`; `None` if missing or unreadable."""
    stored = store.get(result_key(run))
    if stored is None:
        return None
    try:
        body = orjson.loads(stored.body)
        status, is_left = str(body["status"]), bool(body.get("not_started") or body.get("in_doubt"))
        done = tuple(str(action) for action in body.get("done", ()))
        return RunEnd(status, int(body.get("serial", 0)), done, status in {"done", "partial"} and not is_left)
    except (orjson.JSONDecodeError, TypeError, AttributeError, KeyError, ValueError):
        return None


def read_runs(store: ObjectStore, *, at_most: int, is_too_old: Callable[[RunFile], bool]) -> tuple[RunFile, ...]:
    """Return the latest runs, including killed ones, newest epoch first: one LIST, and a GET per run.

    Reading stops at the first run that is too old.
    """
    end = "/run.json"
    keys = (listed.key for listed in store.list(RUNS_PREFIX) if listed.key.endswith(end))
    names = sorted((key.removeprefix(RUNS_PREFIX).removesuffix(end) for key in keys), reverse=True)[:at_most]
    files: list[RunFile] = []
    with ThreadPoolExecutor(max_workers=_PARALLEL_READS, thread_name_prefix="runs") as threads:
        for first in range(0, len(names), _PARALLEL_READS):
            batch = threads.map(partial(read_run, store), names[first : first + _PARALLEL_READS])
            readable = [file for file in batch if file is not None]
            files += readable
            if any(map(is_too_old, readable)):
                break
    return tuple(sorted(files, key=lambda file: (-file.epoch, file.run)))


def read_completed_actions(store: ObjectStore, run: str) -> frozenset[str]:
    """Return ids of a run's finished actions, from its result or journal; empty if unreadable."""
    end = read_run_end(store, run)
    ended_ids = frozenset(() if end is None else end.done)
    if end is not None and end.is_whole:
        return ended_ids
    try:
        return ended_ids | {entry.id for entry in read_journal(store, run).entries if isinstance(entry, ActionEnded)}
    except UserError:
        return ended_ids


def require_run(store: ObjectStore, run: str) -> RunFile:
    """Read `run.json`. Raises `UserError` if it is missing or unreadable."""
    file = read_run(store, run)
    if file is None or file.run != run:
        raise UserError(
            f"{store.url}/{run_key(run)} is missing or cannot be read, and the lockfile has that this run is open",
            hint="Restore the file from a backup or the bucket's versions; `reconciler state repair` "
            "continues without it.",
        )
    return file


def _to_fields(file: RunFile | ResultFile) -> dict[str, Any]:
    return {part.name: getattr(file, part.name) for part in fields(file)}


def _create_file(store: ObjectStore, key: str, body: bytes) -> None:
    for left in reversed(range(_RESULT_ATTEMPTS)):
        try:
            create_object(store, key, body)
        except LostRaceError as error:
            message = f"{store.url}/{key} exists already"
            raise UserError(message, hint="Every run has its own id: run the command again.") from error
        except RetryableError:
            # After a lost response, the next attempt finds this body or writes it.
            if not left:
                raise
        else:
            return


@dataclass(frozen=True, slots=True)
class RunProgress:
    """Recorded resources and unfinished actions of a run."""

    record: Record
    done: tuple[str, ...]
    in_doubt: tuple[Action, ...]
    """Actions without a recorded end that began, in plan order."""
    remaining: tuple[Action, ...]
    """Actions that did not begin or were stopped, in plan order."""
    is_closed: bool


def compute_run_progress(
    base: Record, actions: Sequence[Action], written: JournalContents, further: Sequence[Entry] = ()
) -> RunProgress:
    """Compute a run's progress from its journal and `further` entries. Unknown actions are ignored."""
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
                    apply_record_changes(record, record_action(by_id[entry.id], entry, record, written.run))
                    done[entry.id] = None
            case ActionRefused() | ActionSkipped():
                if isinstance(entry, ActionRefused) and entry.is_made and entry.id in by_id.keys() - done.keys():
                    apply_record_changes(record, record_refusal(by_id[entry.id], entry, record, written.run))
                open_ids.discard(entry.id)
                ended.add(entry.id)
            case RunTakenOver() | RunDetached() | RunClosed():
                pass
            case _:
                assert_never(entry)
    known = {*done, *ended, *open_ids}
    return RunProgress(
        record,
        tuple(done),
        tuple(action for action in actions if action.id in open_ids),
        tuple(action for action in actions if action.id not in known),
        is_closed=written.is_closed,
    )


RunEnding: TypeAlias = Literal["stopped", "detached"]
"""`stopped` on request, or `detached`: another run executes the remaining actions."""


@dataclass(frozen=True, slots=True)
class UnfinishedRun:
    """An open run, with the files needed to settle it."""

    file: RunFile
    base: Record
    actions: tuple[Action, ...]
    written: JournalContents
    end: RunEnd | None = None

    @property
    def parting(self) -> RunEnding | None:
        """How the run ended early; `None` after a crash."""
        last = next((entry for entry in reversed(self.written.entries) if not isinstance(entry, RunTakenOver)), None)
        if not isinstance(last, RunDetached):
            return None
        return "detached" if self.end is not None and self.end.status == "detached" else "stopped"

    def compute_progress(self, *, further: Sequence[Entry] = ()) -> RunProgress:
        """Return the progress as if the journal had `further` entries."""
        return compute_run_progress(self.base, self.actions, self.written, further)

    def with_journal(self, written: JournalContents) -> UnfinishedRun:
        """Return a copy with another journal."""
        return replace(self, written=written)


def read_open_run(store: ObjectStore, lockfile: Lockfile) -> UnfinishedRun | None:
    """Return a lockfile's open run, or `None`. Raises `UserError` if its files are damaged."""
    opened = lockfile.open_run
    if opened is None:
        return None
    file = require_run(store, opened.run)
    if file.plan_digest != opened.plan_digest or file.base_serial > lockfile.serial:
        raise UserError(
            f"{store.url}: the files of run {file.run} do not belong to this state: it began on #{file.base_serial}, "
            f"and the state is #{lockfile.serial}",
            hint="Files of two states were mixed. `reconciler state repair` shows which files belong together.",
        )
    return read_run_with_journal(store, file)


def read_run_with_journal(store: ObjectStore, file: RunFile) -> UnfinishedRun:
    """Return a run, open or closed, with its journal and initial record."""
    base = read_base_record(store, file.base_serial, file.base_sha256)
    written = read_journal(store, file.run)
    end = read_run_end(store, file.run)
    _check_not_cut(written, end)
    return UnfinishedRun(file, base, tuple(read_action(action) for action in file.actions), written, end)


def _check_not_cut(written: JournalContents, end: RunEnd | None) -> None:
    """Reject a journal that lacks actions of `result.json`, because a continuation would repeat them."""
    if end is None:
        return
    known = {entry.id for entry in written.entries if isinstance(entry, ActionEnded)}
    lost = [action for action in end.done if action not in known]
    if lost:
        raise UserError(
            f"the journal of run {written.run} is cut short: it does not know of {lost[0]}, which was done"
            + (f", and of {len(lost) - 1} more" if lost[1:] else ""),
            hint="Restore what is missing from a backup or the bucket's versions; `reconciler state repair` continues "
            "without it.",
        )


@dataclass(frozen=True, slots=True)
class StateAdvance:
    """Commits after a plan was approved, and the run of the last one, if known."""

    approved: int
    now: int
    run: str | None = None
    command: str | None = None
    who: str | None = None
    started: str | None = None

    def __str__(self) -> str:
        by = f", last by run {self.run}" if self.run else ""
        what = f" ({', '.join(part for part in (self.command, self.who, self.started) if part)})" if self.who else ""
        return f"the state went from #{self.approved} to #{self.now} since the plan was approved{by}{what}"


def find_state_advance(approved: tuple[int, str], snapshot: Snapshot, store: ObjectStore) -> StateAdvance | None:
    """Return the commits after the approved serial and sha256; `None` if none."""
    serial, _ = approved
    if approved == (snapshot.serial, snapshot.sha256):
        return None
    run = read_run(store, snapshot.run) if snapshot.run else None
    if run is None:
        return StateAdvance(serial, snapshot.serial, snapshot.run or None)
    return StateAdvance(serial, snapshot.serial, run.run, run.command, run.who, run.started)


# Only a later commit proves that a lockfile is an old copy. A later snapshot may be uncommitted.


def explain_outdated(store: ObjectStore, lockfile: Lockfile, rows: Sequence[SnapshotRow] | None = None) -> str | None:
    """Explain why a lockfile is an old copy; `None` if not."""
    why = prove_outdated(store, lockfile, list_snapshots(store) if rows is None else rows)
    if why is None:
        return None
    again = read_lockfile(store)
    if again is None or again.lockfile.nonce != lockfile.nonce:
        return None
    return f"{store.url}/{KEY} says state #{lockfile.serial}, but {why}: it is an old copy"


def check_lockfile_current(store: ObjectStore, lockfile: Lockfile, rows: Sequence[SnapshotRow] | None = None) -> None:
    """Raise `UserError` if the lockfile is an old copy."""
    outdated = explain_outdated(store, lockfile, rows)
    if outdated is not None:
        raise UserError(
            outdated,
            hint="An old one would forget what was applied since. Restore the newest version of it, or rebuild it "
            "from the files next to it: reconciler state repair",
        )


def prove_outdated(store: ObjectStore, lockfile: Lockfile, rows: Sequence[SnapshotRow]) -> str | None:
    """Explain from the newest-first `rows` why a lockfile is an old copy; `None` if not."""
    if rows and rows[0].serial >= lockfile.serial + 2:
        return f"{rows[0].key} was written"
    proofs = (_prove_commit(store, lockfile, row) for row in rows if row.serial == lockfile.serial + 1)
    return next((why for why in proofs if why is not None), None)


def _prove_commit(store: ObjectStore, lockfile: Lockfile, row: SnapshotRow) -> str | None:
    run = read_run_id(store, row)
    if run is None:
        return None
    end, file = read_run_end(store, run), read_run(store, run)
    if end is not None and end.serial >= row.serial:
        return f"run {run} ended with #{end.serial}"
    epoch = file.epoch if file is not None else _find_last_epoch(store, lockfile)
    if epoch > lockfile.lease.epoch:
        return f"run {run} had the lease under epoch {epoch}, and it knows of {lockfile.lease.epoch}"
    return None


def _find_last_epoch(store: ObjectStore, lockfile: Lockfile) -> int:
    """Return the journal's last epoch: a run that only settles the open run has no `run.json`."""
    if lockfile.open_run is None:
        return 0
    try:
        return max((page.epoch for page in read_journal(store, lockfile.open_run.run).pages), default=0)
    except UserError:
        return 0  # Resuming the run reports its unreadable journal.
