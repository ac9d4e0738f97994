"""`lockfile.json`, the only mutable object of a state, and the durations of a lease.

Acquisition changes the object, so commits of the previous holder fail. It is never deleted, because that would restart
the epochs.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from reconciler.errors import NewerFormatError, UserError
from reconciler.objectstore.base import ObjectStore, StoredObject, Version, create_nonce
from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.text import explain_invalid, explain_invalid_json

KEY: Final = "lockfile.json"
FORMAT: Final = "reconciler.lockfile/1"
STATE_PREFIX: Final = "state/"
RUNS_PREFIX: Final = "runs/"

_Commit = Annotated[str, Field(pattern=r"^[0-9a-f]{4,64}$")]
_Sha = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _LockfileModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class StatePointer(_LockfileModel):
    """Reference to the current snapshot."""

    key: str = Field(pattern=r"^state/[0-9]{12}-[0-9a-f]{12}\.json\.gz$")
    sha256: _Sha
    bytes: int = Field(ge=0)


class LeaseEntry(_LockfileModel):
    """Holder of the lease. `epoch` counts holders, `beat` the holder's writes."""

    epoch: int = Field(ge=1)
    status: Literal["free", "held"]
    beat: int = Field(ge=0)
    lease_s: float = Field(gt=0)
    run: str | None = None
    holder: str | None = None
    """Nonce that distinguishes two processes of one run."""
    who: str | None = None
    ci_url: str | None = None
    since: str | None = None

    @model_validator(mode="after")
    def _check_holder(self) -> LeaseEntry:
        if self.status == "held" and not (self.run and self.holder):
            message = "a held lease names its run and holder"
            raise ValueError(message)
        return self


class OpenRun(_LockfileModel):
    """A run that is not closed."""

    run: str
    plan_digest: str


class Lockfile(_LockfileModel):
    """Content of `lockfile.json`."""

    format: Literal["reconciler.lockfile/1"] = FORMAT
    lineage: str = Field(min_length=1)
    workspace: str
    environment: str | None
    serial: int = Field(ge=0)
    state: StatePointer | None
    lease: LeaseEntry
    open_run: OpenRun | None
    nonce: str = Field(min_length=1)
    commit: _Commit | None = None
    """Git commit of the last applied files, even if nothing changed."""

    @model_validator(mode="after")
    def _check_serial(self) -> Lockfile:
        serial = 0 if self.state is None else int(self.state.key[len(STATE_PREFIX) :][:12])
        if serial != self.serial:
            message = f"serial is {self.serial}, but the state it names is {serial}"
            raise ValueError(message)
        return self

    def with_beat(self) -> Lockfile:
        """Return the next version, with the next beat and a new nonce."""
        lease = self.lease.model_copy(update={"beat": self.lease.beat + 1})
        return self.model_copy(update={"lease": lease, "nonce": create_nonce()})

    def with_free_lease(self) -> Lockfile:
        """Return a copy with a free lease."""
        lease = LeaseEntry(epoch=self.lease.epoch, status="free", beat=self.lease.beat, lease_s=self.lease.lease_s)
        return self.model_copy(update={"lease": lease})

    def to_bytes(self) -> bytes:
        """Return the lockfile as indented JSON."""
        absent = {"commit"} if self.commit is None else None
        return orjson.dumps(
            self.model_dump(mode="json", exclude=absent), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
        )


@dataclass(frozen=True, slots=True)
class Owner:
    """Workspace and environment of a state."""

    workspace: str
    environment: str | None = None

    def __str__(self) -> str:
        where = f" in environment {self.environment!r}" if self.environment is not None else ""
        return f"workspace {self.workspace!r}{where}"


@dataclass(frozen=True, slots=True)
class StoredLockfile:
    """A lockfile, with its version for the next swap."""

    lockfile: Lockfile
    version: Version


def read_lockfile(store: ObjectStore, *, owner: Owner | None = None) -> StoredLockfile | None:
    """Read the lockfile; `None` before the first apply. Reject one of another `owner`."""
    stored = store.get(KEY)
    if stored is None and _has_remains(store):
        stored = store.get(KEY)  # A concurrent first apply may have created the lockfile meanwhile.
        if stored is None:
            raise _lost_error(store)
    if stored is None:
        return None
    lockfile = parse_lockfile(stored, store.url)
    if owner is not None:
        check_owner(Owner(lockfile.lockfile.workspace, lockfile.lockfile.environment), owner, store.url)
    return lockfile


def check_not_vanished(store: ObjectStore, *, has_seen: bool) -> None:
    """Raise `UserError` if a lockfile was seen before and is missing now."""
    if has_seen:
        raise _lost_error(store, "it was there a moment ago")


def parse_lockfile(stored: StoredObject, url: str) -> StoredLockfile:
    """Parse a lockfile. Raises `UserError` if it is damaged or of a newer version."""
    try:
        body = orjson.loads(stored.body)
    except orjson.JSONDecodeError as error:
        raise _damaged_error(url, explain_invalid_json(error, stored.body)) from error
    format_name = body.get("format") if isinstance(body, dict) else None
    if isinstance(format_name, str) and format_name != FORMAT and format_name.startswith("reconciler.lockfile/"):
        message = f"{url}/{KEY} was written by a newer version of reconciler ({format_name})"
        raise NewerFormatError(message, hint="Upgrade this one: pip install --upgrade stream-reconciler.")
    try:
        return StoredLockfile(Lockfile.model_validate(body), stored.version)
    except ValidationError as error:
        raise _damaged_error(url, explain_invalid(error)) from error


def _has_remains(store: ObjectStore) -> bool:
    return any(next(iter(store.list(prefix)), None) is not None for prefix in (STATE_PREFIX, RUNS_PREFIX))


def check_owner(actual: Owner, owner: Owner, url: str) -> None:
    """Raise `UserError` if the state belongs to another owner."""
    if actual != owner:
        message = f"{url} holds the state of {actual}, not of {owner}"
        raise UserError(message, hint="Name another `spec.state` in reconciler.yaml, or give the right `-e`.")


def _lost_error(store: ObjectStore, why: str = "") -> UserError:
    beside = why or f"{STATE_PREFIX} or {RUNS_PREFIX} next to it is not"
    return UserError(
        f"{store.url}: {KEY} is missing, but {beside}: the state is lost, not new",
        hint=f"Restore {KEY} from a backup or the bucket's versions, or rebuild it from the files next to it: "
        "reconciler state repair",
    )


def _damaged_error(url: str, why: str) -> UserError:
    return UserError(
        f"{url}/{KEY} cannot be read: {why}",
        hint="Nothing was changed. Restore it from a backup or the bucket's versions, or rebuild it from the files "
        "next to it: reconciler state repair",
    )


_RENEWALS = 6
_MAY_START = 60 / 90
_GIVES_UP = 75 / 90
_LONGEST_POLL_S = 5.0


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """Durations in seconds, derived from that of the lease.

    The holder renews six times per lease. Without renewal, it starts no action after two thirds of a lease, and stops
    after five sixths. Other processes take over after a full lease without a change.
    """

    lease_s: float = 90.0

    @property
    def renew_s(self) -> float:
        """Interval of renewals."""
        return self.lease_s / _RENEWALS

    @property
    def may_start_s(self) -> float:
        """Seconds without renewal after which no action may start."""
        return self.lease_s * _MAY_START

    @property
    def give_up_s(self) -> float:
        """Seconds without renewal after which the lease counts as lost."""
        return self.lease_s * _GIVES_UP

    @property
    def poll_s(self) -> float:
        """Interval at which waiting processes read a held lease."""
        return min(_LONGEST_POLL_S, self.lease_s / 10)
