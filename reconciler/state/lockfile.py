"""`lockfile.json`: the one mutable object of a state, and the terms of a lease.

Taking the lease changes the object, and that alone refuses every later commit of whoever held it before: object
stores have no transaction over two objects. It is never deleted, for an epoch that starts anew can fence no one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from reconciler.errors import NewerFormatError, UserError
from reconciler.objectstore.base import ObjectStore, Stored, Version, nonce
from reconciler.runtime.text import no_json, refusal

KEY: Final = "lockfile.json"
FORMAT: Final = "reconciler.lockfile/1"
STATE_PREFIX: Final = "state/"
RUNS_PREFIX: Final = "runs/"

_Commit = Annotated[str, Field(pattern=r"^[0-9a-f]{4,64}$")]
_Sha = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Part(BaseModel):
    """Frozen, closed, and read as strictly as it was written."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class StatePointer(_Part):
    """Which snapshot is the state."""

    key: str = Field(pattern=r"^state/[0-9]{12}-[0-9a-f]{12}\.json\.gz$")
    sha256: _Sha
    bytes: int = Field(ge=0)


class LeaseEntry(_Part):
    """Who is applying, and which turn it is. `beat` counts the writes under this epoch."""

    epoch: int = Field(ge=1)
    status: Literal["free", "held"]
    beat: int = Field(ge=0)
    lease_s: float = Field(gt=0)
    run: str | None = None
    holder: str | None = None
    """Made anew by every acquire: tells two processes of one run apart."""
    who: str | None = None
    ci_url: str | None = None
    since: str | None = None
    """Wall-clock time of the acquire, for people; nothing is decided by it."""

    @model_validator(mode="after")
    def _held_by_someone(self) -> LeaseEntry:
        if self.status == "held" and not (self.run and self.holder):
            message = "a held lease names its run and holder"
            raise ValueError(message)
        return self


class OpenRun(_Part):
    """The run that has begun and not closed."""

    run: str
    plan_digest: str


class Lockfile(_Part):
    """The whole object."""

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
    """The git commit of the files that were applied last, also where nothing was to be done."""

    @model_validator(mode="after")
    def _serial_of_its_state(self) -> Lockfile:
        serial = 0 if self.state is None else int(self.state.key[len(STATE_PREFIX) :][:12])
        if serial != self.serial:
            message = f"serial is {self.serial}, but the state it names is {serial}"
            raise ValueError(message)
        return self

    def with_beat(self) -> Lockfile:
        """Return what is written next: one beat more and a nonce no body had before."""
        lease = self.lease.model_copy(update={"beat": self.lease.beat + 1})
        return self.model_copy(update={"lease": lease, "nonce": nonce()})

    def freed(self) -> Lockfile:
        """Return it with a free lease; the epoch stays."""
        kept = LeaseEntry(epoch=self.lease.epoch, status="free", beat=self.lease.beat, lease_s=self.lease.lease_s)
        return self.model_copy(update={"lease": kept})

    def to_bytes(self) -> bytes:
        """Return the object's body, for people to read too."""
        absent = {"commit"} if self.commit is None else None
        return orjson.dumps(
            self.model_dump(mode="json", exclude=absent), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
        )


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose state it is: one workspace in one environment; any other pair is refused."""

    workspace: str
    environment: str | None = None

    def __str__(self) -> str:
        """Say it as people do."""
        where = f" in environment {self.environment!r}" if self.environment is not None else ""
        return f"workspace {self.workspace!r}{where}"


@dataclass(frozen=True, slots=True)
class Read:
    """A lockfile as it was read, and the version to swap it against."""

    lockfile: Lockfile
    version: Version


def read_lockfile(store: ObjectStore, *, owner: Owner | None = None) -> Read | None:
    """Return the lockfile; `None` where nothing was ever written.

    Raises:
        UserError: It is lost while its state is there, damaged, of a newer version, or another's.
    """
    stored = store.get(KEY)
    if stored is None and _has_remains(store):
        stored = store.get(KEY)  # a first apply may have made it, and its run, since we looked
        if stored is None:
            raise _lost(store)
    if stored is None:
        return None
    found = parse_lockfile(stored, store.url)
    if owner is not None:
        check_owner(Owner(found.lockfile.workspace, found.lockfile.environment), owner, store.url)
    return found


def check_kept(store: ObjectStore, *, has_seen: bool) -> None:
    """Refuse to make anew a lockfile that was there a moment ago: its epoch would begin again and fence no one.

    Raises:
        UserError: It was there.
    """
    if has_seen:
        raise _lost(store, "it was there a moment ago")


def parse_lockfile(stored: Stored, url: str) -> Read:
    """Read a lockfile's body. Raises UserError: damaged, or of a newer version."""
    try:
        body = orjson.loads(stored.body)
    except orjson.JSONDecodeError as error:
        raise _damaged(url, no_json(error, stored.body)) from error
    found = body.get("format") if isinstance(body, dict) else None
    if isinstance(found, str) and found != FORMAT and found.startswith("reconciler.lockfile/"):
        message = f"{url}/{KEY} was written by a newer version of reconciler ({found})"
        raise NewerFormatError(message, hint="Upgrade this one: pip install --upgrade stream-reconciler.")
    try:
        return Read(Lockfile.model_validate(body), stored.version)
    except ValidationError as error:
        raise _damaged(url, refusal(error)) from error


def _has_remains(store: ObjectStore) -> bool:
    return any(next(iter(store.list(prefix)), None) is not None for prefix in (STATE_PREFIX, RUNS_PREFIX))


def check_owner(found: Owner, owner: Owner, url: str) -> None:
    """Refuse a state that is another's. Raises UserError: says whose."""
    if found != owner:
        message = f"{url} holds the state of {found}, not of {owner}"
        raise UserError(message, hint="Name another `spec.state` in reconciler.yaml, or give the right `-e`.")


def _lost(store: ObjectStore, why: str = "") -> UserError:
    beside = why or f"{STATE_PREFIX} or {RUNS_PREFIX} beside it is not"
    return UserError(
        f"{store.url}: {KEY} is gone, but {beside}: the state is lost, not new",
        hint=f"Restore {KEY} from a backup or the bucket's versions, or rebuild it from what is beside it: "
        "reconciler state repair",
    )


def _damaged(url: str, why: str) -> UserError:
    return UserError(
        f"{url}/{KEY} cannot be read: {why}",
        hint="Nothing was changed. Restore it from a backup or the bucket's versions, or rebuild it from what is "
        "beside it: reconciler state repair",
    )


# How long a lease lasts, and what its holder may do as it grows old.


_RENEWALS = 6
_MAY_START = 60 / 90
_GIVES_UP = 75 / 90
_LONGEST_POLL_S = 5.0


@dataclass(frozen=True, slots=True)
class Terms:
    """Everything follows from the length of the lease, in seconds.

    The holder renews six times a lease, starts nothing new after two thirds of it without a renewal, and gives up
    after five sixths. Whoever waits takes over after seeing no change for all of it: the difference is the margin.
    """

    lease_s: float = 90.0

    @property
    def renew_s(self) -> float:
        """Between two renewals."""
        return self.lease_s / _RENEWALS

    @property
    def may_start_s(self) -> float:
        """Without a renewal for this long, nothing new is started."""
        return self.lease_s * _MAY_START

    @property
    def give_up_s(self) -> float:
        """Without a renewal for this long, the lease counts as lost."""
        return self.lease_s * _GIVES_UP

    @property
    def poll_s(self) -> float:
        """Between two looks at a lease that someone else holds."""
        return min(_LONGEST_POLL_S, self.lease_s / 10)
