"""What a run leaves beside the state: `runs/<run>/run.json` when it begins, `result.json` when it has ended."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

import orjson

from reconciler.errors import LostRaceError, RetryableError, UserError
from reconciler.objectstore.cutoff import create
from reconciler.state.lockfile import RUNS_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.objectstore.base import ObjectStore

RUN_FORMAT: Final = "reconciler.run/1"
RESULT_FORMAT: Final = "reconciler.result/1"
_ATTEMPTS: Final = 3


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
    _create(store, run_key(run.run), orjson.dumps({"format": RUN_FORMAT, **_shallow(run)}))


def write_result(store: ObjectStore, result: ResultFile) -> None:
    """Write `result.json`."""
    _create(store, result_key(result.run), orjson.dumps({"format": RESULT_FORMAT, **_shallow(result)}))


def read_run(store: ObjectStore, run: str) -> RunFile | None:
    """Return what a run set out to do, for people to read; `None` where it cannot be told."""
    stored = store.get(run_key(run))
    if stored is None:
        return None
    try:
        body = orjson.loads(stored.body)
        known = {part.name for part in fields(RunFile)}
        given: dict[str, Any] = {name: value for name, value in body.items() if name in known}
        return RunFile(**{**given, "actions": tuple(given["actions"])})
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


def require_run(store: ObjectStore, run: str) -> RunFile:
    """Return what a run set out to do, for going on with it.

    Raises:
        UserError: It is missing, or cannot be read.
    """
    found = read_run(store, run)
    if found is None or found.run != run:
        raise UserError(
            f"{store.url}/{run_key(run)} is missing or cannot be read, and the lockfile says that this run is open",
            hint="Restore the file from a backup or the bucket's versions; `reconciler state repair` goes on without.",
        )
    return found


def _shallow(file: RunFile | ResultFile) -> dict[str, Any]:
    return {part.name: getattr(file, part.name) for part in fields(file)}


def _create(store: ObjectStore, key: str, body: bytes) -> None:
    for left in reversed(range(_ATTEMPTS)):
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
