"""The file that `topic consume` writes: one reader at a time, and for a group it grows."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, Final

from reconciler.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from reconciler.workflow.consuming.options import ConsumeOptions

_CHUNK: Final = 1 << 16


@contextmanager
def opened(cwd: Path, options: ConsumeOptions, stdout: BinaryIO) -> Iterator[BinaryIO]:
    """Open where records go, and keep every other reader out of it until the block ends.

    Raises:
        UserError: It cannot be written, another reader writes it, or what a group has read would go with it.
    """
    if options.output is None:
        yield stdout
        return
    try:
        stream = _file(cwd / options.output, options)
    except OSError as error:
        raise UserError(
            f"cannot write {options.output}: {error.strerror or error}", hint="Name a file that can be written."
        ) from error
    try:
        with stream:
            yield stream
    except OSError as error:
        # A write that fails, on a full disk say, does not name its file by itself.
        error.filename = error.filename or str(options.output)
        raise


def _file(path: Path, options: ConsumeOptions) -> BinaryIO:
    if path.exists() and not path.is_file():
        return path.open("wb")  # a pipe or a device has no content that two could spoil
    stream = _locked(path, options)
    try:
        _prepare(stream, options)
    except BaseException:
        stream.close()
        raise
    return stream


def _locked(path: Path, options: ConsumeOptions) -> BinaryIO:
    """Open a file as it is and hold it until it is closed; the kernel lets go of it where a reader is killed."""
    is_read = options.group is not None
    descriptor = os.open(path, (os.O_RDWR if is_read else os.O_WRONLY) | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fdopen(descriptor, "r+b" if is_read else "wb")
    except BlockingIOError as error:
        os.close(descriptor)
        raise UserError(
            f"{options.output} is being written by another reader: each would overwrite what the other has read",
            hint="Name a file of its own for each reader, or wait until the other has ended. Nothing was read.",
        ) from error
    except BaseException:
        os.close(descriptor)
        raise


def _prepare(stream: BinaryIO, options: ConsumeOptions) -> None:
    """Make room for what comes; a group goes on where it left off, so what it wrote before stays."""
    if options.group is None:
        stream.truncate(0)
        return
    if options.output_format == "parquet" and stream.seek(0, 2):
        raise UserError(
            f"{options.output} is there already, and what group {options.group} has read would go with it",
            hint="Name another file: a group never reads again what it has committed.",
        )
    stream.truncate(_whole_lines(stream))
    stream.seek(0, 2)


def _whole_lines(stream: BinaryIO) -> int:
    """Return where the last whole line ends: what a run that died had begun behind it was never committed."""
    at = stream.seek(0, 2)
    while at > 0:
        start = max(0, at - _CHUNK)
        stream.seek(start)
        found = stream.read(at - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        at = start
    return 0
