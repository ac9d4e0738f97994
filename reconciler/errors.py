"""The errors that the reconciler raises on purpose, grouped by what the caller can do next.

The caller fixes files or the command after a `UserError`, and retries after a `RetryableError`.
`BrokenInvariantError` is a bug of reconciler.
"""

from __future__ import annotations

from typing import ClassVar, Final, Self


class ReconcilerError(Exception):
    """Base class: `message` says what is wrong, where and why; `hint` what to do."""

    exit_code: ClassVar[int] = 1
    message: str
    """What is wrong with which thing, where and why."""
    hint: str
    """What to do."""

    def __init__(self, message: str, *, hint: str) -> None:
        """Store the message and the hint."""
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        """Return the message and the hint in one paragraph."""
        return f"{self.message}. {self.hint}"

    def about(self, subject: str, role: str = "") -> Self:
        """Prefix the message with its subject and the subject's `role`, unless it names the subject already."""
        if subject not in self.message:
            self.message = f"{subject}{role and f', {role}'}: {self.message}"
        return self

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle with `hint`, which is keyword-only: errors return from executors."""
        return _rebuild, (type(self), self.__dict__)


def _rebuild(kind: type[ReconcilerError], state: dict[str, object]) -> ReconcilerError:
    error = kind.__new__(kind)
    error.args = (state["message"],)
    error.__dict__.update(state)
    return error


class UserError(ReconcilerError):
    """The manifests or the command are wrong: fix them."""


class MissingSparkError(UserError):
    """Work needs Spark, and PySpark, Java or a Spark Connect server is missing."""


class MissingRecordsError(UserError):
    """Work reads or writes records, and pyarrow or numpy is missing."""

    @classmethod
    def of(cls, error: BaseException) -> Self | None:
        """Return the error for a failed import of pyarrow or numpy; `None` for any other error."""
        library = (error.name or "").partition(".")[0] if isinstance(error, ImportError) else ""
        if library not in _RECORD_LIBRARIES:
            return None
        hint = "Install it: pip install 'stream-reconciler[records]'."
        return cls(f"this reads or writes records, and {library} is not installed", hint=hint)


_RECORD_LIBRARIES: Final = frozenset({"pyarrow", "numpy"})


class NotFoundError(UserError):
    """A topic, mirror, link, group or partition does not exist."""


class InvalidNamespaceError(NotFoundError):
    """The namespace does not exist (KIP-37); namespaces are never created implicitly."""


class MissingObjectError(UserError):
    """A referenced object does not exist; `key` and `offsets` identify the missing records."""

    key: str | None = None
    url: str = ""
    """URL of the store that should hold it."""
    offsets: tuple[int, int] | None = None
    """First and last offset, inclusive."""


class DamagedObjectError(UserError):
    """An object is not what was written; `key` and `offsets` identify the records, `why` the damage."""

    key: str | None = None
    url: str = ""
    """URL of the store that holds it."""
    offsets: tuple[int, int] | None = None
    """First and last offset, inclusive."""
    why: str = ""


class StoreRefusedError(UserError):
    """A store refuses: rights, credentials, its location. Says nothing about the store's objects."""


class NotAuthorizedError(UserError):
    """An access rule denies the operation to the principal, or none allows it."""


class ProducerFencedError(UserError):
    """A newer producer of the same transactional id, or a newer epoch of the same producer, took over."""


class OwnershipLostError(UserError):
    """The objects in object storage belong to another cluster now."""


class OutOfOrderSequenceError(UserError):
    """The sequence numbers of a producer's batch do not follow those in the partition."""


class NewerFormatError(UserError):
    """A newer version of reconciler wrote it; guessing its meaning could damage it."""


class QuotaExceededError(UserError):
    """The namespace's quota is exceeded: raise it, or delete data."""


class SourceChangedError(UserError):
    """A mirror's source is not the log that was copied, or the mirror lost records; logs are never mixed."""

    def __init__(self, message: str, *, code: str, hint: str) -> None:
        """Store a code: Kafka's (`SOURCE_TOPIC_ID_CHANGED`) or reconciler's (`MIRROR_TRUNCATED`)."""
        super().__init__(message, hint=hint)
        self.code = code


class BlockedError(ReconcilerError):
    """A guard refused: allow it by name, or change the files."""

    exit_code = 7


class UsageError(ReconcilerError):
    """The command or function was called wrongly."""

    exit_code = 64


class StalePlanError(ReconcilerError):
    """The clusters, state or files no longer match the approved plan: plan again."""

    exit_code = 6


class PartialError(ReconcilerError):
    """Some actions failed, the rest is done: fix the cause and apply again."""

    exit_code = 8


class RetryableError(ReconcilerError):
    """The files are right: run the same command again."""


class MendFirstError(RetryableError):
    """A retry helps only after a repair: a full disk, expired credentials."""


class UnansweredError(RetryableError):
    """The store did not answer a write, which may have happened or happen yet. Read it back, then try again."""


class LostRaceError(RetryableError):
    """Another process changed the object. Read it, decide again.

    `current` is the body found instead; `None`: the object is gone or unreadable.
    """

    def __init__(self, key: str, current: bytes | None, *, hint: str) -> None:
        """Store the key and the current body."""
        super().__init__(f"{key} was changed by someone else", hint=hint)
        self.key = key
        self.current = current


class LeaseError(ReconcilerError):
    """Another process is applying, or took over."""

    exit_code = 5


class IncompleteError(ReconcilerError):
    """Work is left: `apply` continues it."""

    exit_code = 4


class StoppedError(IncompleteError):
    """The run was stopped while a call gave no answer in time: its outcome is unknown."""


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
