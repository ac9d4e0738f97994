"""What the operating system says about files, in our errors."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from reconciler.errors import MendFirstError, ReconcilerError, RetryableError, UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_REFUSED: Final = frozenset({errno.EACCES, errno.EPERM})
_IN_THE_WAY: Final = frozenset({errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY})
_CANNOT_LOCK: Final = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_TOO_MANY: Final = frozenset({errno.EMFILE, errno.ENFILE})
_BAD_NAME: Final = frozenset({errno.ENAMETOOLONG, errno.ELOOP, errno.EILSEQ, errno.EINVAL})


@contextmanager
def file_faults(doing: str, path: str) -> Iterator[None]:
    """Raise our error for what goes wrong with files inside; `doing` completes "cannot … PATH"."""
    try:
        yield
    except OSError as error:
        raise from_os_error(error, doing, path) from error


def from_os_error(error: OSError, doing: str, path: str) -> ReconcilerError:
    """Return the error that says what to do about `error`, met while `doing` something with `path`."""
    where = f"cannot {doing} {path}"
    code = error.errno
    if code in _FULL:
        return MendFirstError(
            f"{where}: {'the disk is full' if code != errno.EFBIG else 'the file would be too large'}",
            hint="Nothing half-written is left behind. Free some space (or raise a quota) and run it again.",
        )
    if code in _REFUSED:
        return UserError(f"{where}: permission denied", hint="Give this user the right to it, or run as its owner.")
    if code == errno.EROFS:
        return UserError(f"{where}: the file system is read-only", hint="Mount it for writing, or name another place.")
    if code in _IN_THE_WAY:
        return UserError(
            f"{where}: a file stands where a folder should be, or a folder where a file should be",
            hint="Move it away, or name another place.",
        )
    if code in _CANNOT_LOCK:
        return UserError(
            f"{where}: this file system cannot lock or link files ({_reason(error)})",
            hint="Use a local disk, an NFS mount with locks, or s3://.",
        )
    if code in _BAD_NAME:
        return UserError(f"{where}: {_reason(error)}", hint="Use a shorter or simpler path.")
    if code in _TOO_MANY:
        return RetryableError(f"{where}: too many open files", hint="Raise the limit (`ulimit -n`) and run it again.")
    return RetryableError(f"{where}: {_reason(error)}", hint="Check the disk or mount, then run it again.")


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
