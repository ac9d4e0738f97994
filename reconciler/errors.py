"""The errors that the reconciler raises on purpose, sorted by what the caller can do next.

* ReconcilerError
  - UserError             fix the manifest or the command
    · MissingSparkError       Java or Spark are not there
    · MissingRecordsError     the libraries that read and write records are not installed
    · NotFoundError           a topic, mirror, link, group or partition does not exist
      InvalidNamespaceError     the namespace used does not exist
    · MissingObjectError      an object that something names is not there
    · DamagedObjectError      one that is there holds no records any more
    · StoreRefusedError       a store refuses, whatever it holds: rights, credentials, its location
    · NotAuthorizedError      the principal may not do that
    · ProducerFencedError     a newer producer of the same transactional id took over
    · OutOfOrderSequenceError a producer's sequence numbers have a gap
    · NewerFormatError        a newer version wrote it: upgrade this one
    · SourceChangedError      the source of a mirror is not the log that was copied, or the mirror lost some of it
    · QuotaExceededError      a namespace may not hold that much
  - BlockedError          a guard refused; allow it by name, or change the files
  - UsageError            call it differently
  - StalePlanError        plan again
  - PartialError          some actions failed, the rest is done
  - RetryableError        run the same command again
    · LostRaceError           someone else's write is there; read it, decide again
    · MendFirstError          a full disk, expired credentials: mend that, then try again
    · UnansweredError         a write may have been made or not; read it back, then try again
  - LeaseError            someone else is applying, or took over
  - IncompleteError       work is left; `apply --resume` goes on
    · StoppedError            asked to stop, and a call under way gave no answer in time
  - DriftError            reality has moved away from the files
  - PendingError          changes are pending (`plan --detailed-exitcode`)
  - InterruptedRunError   interrupted where there is nothing to go on with
  - BrokenInvariantError  our bug: please report, with the run's journal
"""

from __future__ import annotations

from typing import ClassVar, Final, Self


class ReconcilerError(Exception):
    """Base of all: what is wrong, where and why in `message`, what to do in `hint`."""

    exit_code: ClassVar[int] = 1
    message: str
    hint: str

    def __init__(self, message: str, *, hint: str) -> None:
        """Keep the message for people and the advice that goes with it."""
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        """Say it in one paragraph."""
        return f"{self.message}. {self.hint}"

    def about(self, subject: str, role: str = "") -> Self:
        """Begin the message with its subject and the role that has here, unless the message names the subject."""
        if subject not in self.message:
            self.message = f"{subject}{role and f', {role}'}: {self.message}"
        return self

    def __reduce__(self) -> tuple[object, ...]:
        """Survive the way back from an executor: `hint` is keyword-only, which plain pickling forgets."""
        return _rebuild, (type(self), self.__dict__)


def _rebuild(kind: type[ReconcilerError], state: dict[str, object]) -> ReconcilerError:
    error = kind.__new__(kind)
    error.args = (state["message"],)
    error.__dict__.update(state)
    return error


class UserError(ReconcilerError):
    """The manifests or the command name something that cannot be: fix them."""


class MissingSparkError(UserError):
    """Work that runs on Spark, and no PySpark, Java or Spark Connect server that could do it."""


class MissingRecordsError(UserError):
    """Work that reads or writes records, and no pyarrow or numpy that could do it."""

    @classmethod
    def of(cls, error: BaseException) -> Self | None:
        """Return what an import that failed for want of one of them means to a user; `None` for any other error."""
        library = (error.name or "").partition(".")[0] if isinstance(error, ImportError) else ""
        if library not in _OF_RECORDS:
            return None
        hint = "Install it: pip install 'stream-reconciler[records]'."
        return cls(f"this reads or writes records, and {library} is not installed", hint=hint)


_OF_RECORDS: Final = frozenset({"pyarrow", "numpy"})


class NotFoundError(UserError):
    """A topic, mirror, link, group or partition does not exist."""


class InvalidNamespaceError(NotFoundError):
    """The namespace used does not exist (KIP-37); namespaces are never made implicitly."""


class MissingObjectError(UserError):
    """An object that another object names is not there; where records lay in it, `key` and `offsets` say which."""

    key: str | None = None
    url: str = ""
    """Of the store that should have it."""
    offsets: tuple[int, int] | None = None
    """The first and the last."""


class DamagedObjectError(UserError):
    """An object in which records lay cannot be read as what was written; `key` and `offsets` say which, `why` how."""

    key: str | None = None
    url: str = ""
    """Of the store that has it."""
    offsets: tuple[int, int] | None = None
    """The first and the last."""
    why: str = ""


class StoreRefusedError(UserError):
    """A store refuses: rights, credentials, its location. It says nothing of what the store holds."""


class NotAuthorizedError(UserError):
    """The principal may not do that: an access rule denies it, or none allows it."""


class ProducerFencedError(UserError):
    """A newer producer of the same transactional id, or a newer epoch of the same producer, took over."""


class OwnershipLostError(UserError):
    """What lies in object storage belongs to another cluster now."""


class OutOfOrderSequenceError(UserError):
    """The sequence numbers of a producer's batch do not follow on those the partition has of it."""


class NewerFormatError(UserError):
    """A newer version of reconciler wrote it; to guess what it means would be to damage it."""


class QuotaExceededError(UserError):
    """A namespace may not hold that much: raise its quota, or delete some."""


class SourceChangedError(UserError):
    """The source of a mirror is not the log that was copied, or the mirror lost some of it; nothing is ever mixed."""

    def __init__(self, message: str, *, code: str, hint: str) -> None:
        """Say how it changed, by a code of the field (`SOURCE_TOPIC_ID_CHANGED`) or of ours (`MIRROR_TRUNCATED`)."""
        super().__init__(message, hint=hint)
        self.code = code


class BlockedError(ReconcilerError):
    """A guard refused: allow it by name, or change the files."""

    exit_code = 7


class UsageError(ReconcilerError):
    """Call it differently."""

    exit_code = 64


class StalePlanError(ReconcilerError):
    """The world no longer matches the plan that was approved: plan again."""

    exit_code = 6


class PartialError(ReconcilerError):
    """Some actions failed, the rest is done: mend the cause and apply again."""

    exit_code = 8


class RetryableError(ReconcilerError):
    """Nothing is wrong with the files: run the same command again."""


class MendFirstError(RetryableError):
    """Trying again is of use only once somebody has mended it: a full disk, credentials that have expired."""


class UnansweredError(RetryableError):
    """The store did not say whether a write was made: it may be there, or land yet. Read it back, then try again."""


class LostRaceError(RetryableError):
    """Someone else's write is there. Read it, decide again.

    `current` is the body found in place of ours, `None` where the object is gone or unreadable.
    """

    def __init__(self, key: str, current: bytes | None, *, hint: str) -> None:
        """Name the object that changed under us."""
        super().__init__(f"{key} was changed by someone else", hint=hint)
        self.key = key
        self.current = current


class LeaseError(ReconcilerError):
    """Someone else is applying, or took over."""

    exit_code = 5


class IncompleteError(ReconcilerError):
    """Work is left: `apply` continues it."""

    exit_code = 4


class StoppedError(IncompleteError):
    """Asked to stop, and a call that was under way gave no answer in time: whether it happens is not known."""


class DriftError(ReconcilerError):
    """Reality has moved away from the files."""

    exit_code = 3


class PendingError(ReconcilerError):
    """Changes are pending (`plan --detailed-exitcode`)."""

    exit_code = 2


class InterruptedRunError(ReconcilerError):
    """The user interrupted a command that leaves nothing to go on with; its hint says what may have been done."""

    exit_code = 130


class BrokenInvariantError(ReconcilerError):
    """Our bug: please report it, with the run's files."""
