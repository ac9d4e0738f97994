"""Errors, grouped by what the caller can do next.

Fix files or the command after a `UserError`; retry after a `RetryableError`. `BrokenInvariantError` is a bug.
"""

from __future__ import annotations

from typing import ClassVar, Final, Self

NOTHING_DONE: Final = "nothing was done: "
"""Start of the message of a refusal before any change."""


class ReconcilerError(Exception):
    """Base class: `message` says what is wrong, `hint` what to do."""

    exit_code: ClassVar[int] = 1
    message: str
    hint: str
    subject: str
    """Start of the message that a caller may leave out, such as `topic/west/orders: `; empty if there is none."""

    def __init__(self, message: str, *, hint: str, subject: str = "") -> None:
        super().__init__(subject + message)
        self.message = subject + message
        self.hint = hint
        self.subject = subject

    def __str__(self) -> str:
        return f"{self.message}. {self.hint}"

    def without(self, subject: str) -> str:
        """Return the message without its subject if that is `subject`, else the whole message."""
        return self.message.removeprefix(subject) if self.subject == subject else self.message

    def about(self, subject: str, role: str = "") -> Self:
        """Prefix the message with its subject and the subject's `role`, unless it names the subject."""
        if subject not in self.message:
            self.message = f"{subject}{role and f', {role}'}: {self.message}"
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.__dict__)


def _rebuild(kind: type[ReconcilerError], state: dict[str, object]) -> ReconcilerError:
    error = kind.__new__(kind)
    error.args = (state["message"],)
    error.__dict__.update(state)
    return error


class UserError(ReconcilerError):
    """The manifests or the command are wrong: fix them."""


class MissingSparkError(UserError):
    """PySpark, Java or a Spark Connect server is missing."""


class MissingRecordsError(UserError):
    """Pyarrow or numpy is missing."""

    @classmethod
    def of(cls, error: BaseException) -> Self | None:
        """Return the error for a failed import of pyarrow or numpy, else `None`."""
        library = (error.name or "").partition(".")[0] if isinstance(error, ImportError) else ""
        if library not in _RECORD_LIBRARIES:
            return None
        hint = "Install it: pip install 'stream-reconciler[records]'."
        return cls(f"this reads or writes records, and {library} is not installed", hint=hint)


_RECORD_LIBRARIES: Final = frozenset({"pyarrow", "numpy"})


class NotFoundError(UserError):
    """A topic, mirror, link, group or partition does not exist."""


class InvalidNamespaceError(NotFoundError):
    """The namespace does not exist (KIP-37); none is created implicitly."""


class MissingObjectError(UserError):
    """A referenced object is missing; `key` and `offsets` identify the lost records."""

    key: str | None = None
    url: str = ""
    offsets: tuple[int, int] | None = None
    """First and last offset, inclusive."""


class DamagedObjectError(UserError):
    """An object differs from what was written; `key` and `offsets` identify its records."""

    key: str | None = None
    url: str = ""
    offsets: tuple[int, int] | None = None
    """First and last offset, inclusive."""
    why: str = ""


class StoreRefusedError(UserError):
    """A store rejects rights, credentials or its location, which proves nothing about its objects."""


class NotAuthorizedError(UserError):
    """Access rules do not allow the operation to the principal."""


class ProducerFencedError(UserError):
    """A newer producer or epoch of the same transactional id took over."""


class OwnershipLostError(UserError):
    """The objects in object storage now belong to another cluster."""


class OutOfOrderSequenceError(UserError):
    """Sequence numbers of a producer's batch do not follow the partition's."""


class NewerFormatError(UserError):
    """A newer version of reconciler wrote it; guessing could damage it."""


class QuotaExceededError(UserError):
    """The namespace's quota is exceeded: raise it, or delete data."""


class SourceChangedError(UserError):
    """A mirror's source is not the copied log, or the mirror lost records; logs are never mixed."""

    def __init__(self, message: str, *, code: str, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.code = code


class BlockedError(ReconcilerError):
    """A guard refused: allow it by name, or change the files."""

    exit_code = 7


class UsageError(ReconcilerError):
    """The command or function was called wrongly."""

    exit_code = 64


class StalePlanError(ReconcilerError):
    """Clusters, state or files no longer match the approved plan: plan again."""

    exit_code = 6


class PartialError(ReconcilerError):
    """Some actions failed, the others are done: fix the cause and apply again."""

    exit_code = 8


class RetryableError(ReconcilerError):
    """The files are right: run the same command again."""


class MendFirstError(RetryableError):
    """A retry helps only after a repair: a full disk, expired credentials."""


class UnansweredError(RetryableError):
    """A write had no answer, and may have happened or happen yet. Read it back, then retry."""


class LostRaceError(RetryableError):
    """Another process changed the object. Read it, decide again.

    `current` is its present body; `None`: gone or unreadable.
    """

    def __init__(self, key: str, current: bytes | None, *, hint: str) -> None:
        super().__init__(f"{key} was changed by someone else", hint=hint)
        self.key = key
        self.current = current


class LeaseError(ReconcilerError):
    """Another process is applying, or took over."""

    exit_code = 5


class IncompleteError(ReconcilerError):
    """Work remains: `apply` continues it."""

    exit_code = 4


class StoppedError(IncompleteError):
    """The run was stopped before a call answered: its outcome is unknown."""


class DriftError(ReconcilerError):
    """Clusters differ from the files."""

    exit_code = 3


class PendingError(ReconcilerError):
    """Changes are pending (`plan --detailed-exitcode`)."""

    exit_code = 2


class InterruptedRunError(ReconcilerError):
    """The user interrupted a command that cannot be continued; the hint says what may have been done."""

    exit_code = 130


class BrokenInvariantError(ReconcilerError):
    """A bug of reconciler: report it with the run's files."""


def root_cause(error: BaseException) -> BaseException:
    """Return the first error of a chain of foreign errors; one of ours was handled when the chain began."""
    while (cause := error.__cause__ or error.__context__) and not isinstance(cause, ReconcilerError):
        error = cause
    return error
