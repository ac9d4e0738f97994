"""Errors, grouped by what the caller can do next."""

from __future__ import annotations

from typing import ClassVar, Final, Self

NOTHING_DONE: Final = "nothing was done: "
"""Prefix for messages of errors raised before any change."""


class ReconcilerError(Exception):
    """Base class: `message` says what is wrong, and `hint` says what to do."""

    exit_code: ClassVar[int] = 1
    message: str
    hint: str
    subject: str
    """Prefix of the message, such as `topic/west/orders: `."""

    def __init__(self, message: str, *, hint: str, subject: str = "") -> None:
        super().__init__(subject + message)
        self.message = subject + message
        self.hint = hint
        self.subject = subject

    def __str__(self) -> str:
        return f"{self.message}. {self.hint}"

    def strip_subject(self, subject: str) -> str:
        """Return the message without its prefix if the prefix equals `subject`."""
        return self.message.removeprefix(subject) if self.subject == subject else self.message

    def add_subject(self, subject: str, role: str = "") -> Self:
        """Prefix the message with `subject` and its `role`, unless it contains `subject`."""
        if subject not in self.message:
            self.message = f"{subject}{role and f', {role}'}: {self.message}"
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return _unpickle_error, (type(self), self.__dict__)


def _unpickle_error(kind: type[ReconcilerError], state: dict[str, object]) -> ReconcilerError:
    error = kind.__new__(kind)
    error.args = (state["message"],)
    error.__dict__.update(state)
    return error


class UserError(ReconcilerError):
    """The user must fix the manifests, the command or the environment before a retry."""


class MissingSparkError(UserError):
    """PySpark, Java or a Spark Connect server is missing."""


class MissingRecordsError(UserError):
    """A package needed to read records, pyarrow or numpy, is not installed."""

    @classmethod
    def from_import_error(cls, error: BaseException) -> Self | None:
        """Convert a failed import of pyarrow or numpy; return `None` for other errors."""
        library = (error.name or "").partition(".")[0] if isinstance(error, ImportError) else ""
        if library not in _RECORD_LIBRARIES:
            return None
        hint = "Install it: pip install 'stream-reconciler[records]'."
        return cls(f"this reads or writes records, and {library} is not installed", hint=hint)


_RECORD_LIBRARIES: Final = frozenset({"pyarrow", "numpy"})


class NotFoundError(UserError):
    """A topic, mirror, link, group or partition does not exist."""


class InvalidNamespaceError(NotFoundError):
    """The namespace does not exist; clients cannot create it by producing or consuming (KIP-37)."""


class MissingObjectError(UserError):
    """A manifest in object storage references a missing object."""

    key: str | None = None
    url: str = ""
    offsets: tuple[int, int] | None = None
    """First and last lost offset, inclusive."""


class DamagedObjectError(UserError):
    """An object in object storage is damaged."""

    key: str | None = None
    url: str = ""
    offsets: tuple[int, int] | None = None
    """First and last damaged offset, inclusive."""
    why: str = ""


class StoreRefusedError(UserError):
    """The object store denied access: permissions, credentials or location are wrong."""


class NotAuthorizedError(UserError):
    """The principal has no permission for the operation."""


class ProducerFencedError(UserError):
    """A newer producer with the same transactional id fenced this one."""


class OwnershipLostError(UserError):
    """Another cluster took ownership of the topic's objects in object storage."""


class OutOfOrderSequenceError(UserError):
    """A producer's batch does not continue its sequence numbers in the partition."""


class NewerFormatError(UserError):
    """A newer version of reconciler wrote the file or object; this one must not change it."""


class QuotaExceededError(UserError):
    """A write would exceed the namespace's quota."""


class SourceChangedError(UserError):
    """The records of mirror and source differ: the source was replaced, or the mirror lost records."""

    def __init__(self, message: str, *, code: str, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.code = code


class BlockedError(ReconcilerError):
    """A guard blocks an action; the user may allow it by name, or change the files."""

    exit_code = 7


class UsageError(ReconcilerError):
    """The command or function was called with wrong arguments."""

    exit_code = 64


class StalePlanError(ReconcilerError):
    """Clusters, state or files no longer match the approved plan; a new one is needed."""

    exit_code = 6


class PartialError(ReconcilerError):
    """Some actions failed; the user must fix the cause and apply again."""

    exit_code = 8


class RetryableError(ReconcilerError):
    """A temporary failure: the same command may succeed when repeated."""


class MendFirstError(RetryableError):
    """The user must repair something else before a retry, such as a full disk."""


class UnansweredError(RetryableError):
    """A write was not answered and may still take effect; read before a retry."""


class LostRaceError(RetryableError):
    """Another process changed the object first; `current` is its content, or `None` if deleted or unreadable."""

    def __init__(self, key: str, current: bytes | None, *, hint: str) -> None:
        super().__init__(f"{key} was changed by someone else", hint=hint)
        self.key = key
        self.current = current


class LeaseError(ReconcilerError):
    """Another process holds the state's lease or took it over."""

    exit_code = 5


class IncompleteError(ReconcilerError):
    """Work remains, which the next `apply` continues."""

    exit_code = 4


class StoppedError(IncompleteError):
    """The run was stopped during a call, whose result is unknown."""


class DriftError(ReconcilerError):
    """`drift` found that clusters differ from the files."""

    exit_code = 3


class PendingError(ReconcilerError):
    """The plan has changes, and the option `--detailed-exitcode` was given."""

    exit_code = 2


class InterruptedRunError(ReconcilerError):
    """The user interrupted a command that cannot be continued; the hint names possible effects."""

    exit_code = 130


class BrokenInvariantError(ReconcilerError):
    """A bug of reconciler; the user should report it with the run's files."""


def find_root_cause(error: BaseException) -> BaseException:
    """Return the earliest cause or context of an error, up to the next `ReconcilerError`."""
    while (cause := error.__cause__ or error.__context__) and not isinstance(cause, ReconcilerError):
        error = cause
    return error
