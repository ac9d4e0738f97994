"""Registers: small JSON objects that change by compare-and-swap; and what a cut-off write leaves.

Body: `{"format": "reconciler.head/2", "epoch": 3, "nonce": "…", "marks": […], …value}`. The nonce makes every body
unique; the marks name the last 256 swaps, so that a writer whose answer was lost finds itself before it tries again.
"""

from __future__ import annotations

import codecs
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

import orjson

from reconciler.errors import (
    BrokenInvariantError,
    LostRaceError,
    NewerFormatError,
    ReconcilerError,
    RetryableError,
    UnansweredError,
    UserError,
)
from reconciler.objectstore.base import ObjectStore, Stored, Version, check_shape, nonce
from reconciler.runtime.effects import note
from reconciler.runtime.retry import Backoff, Tries

# What a store keeps of a write whose sender was killed: nothing, or the beginning of a JSON object.
#
# It was never acknowledged, so it counts as not written: whoever creates takes its place, and a register is put back as
# it was before, where the bucket keeps versions. Both by compare-and-swap.


MEND: Final = "reconciler cluster check CLUSTER --repair"


@runtime_checkable
class KeepsVersions(Protocol):
    """A store that may keep what an object held before."""

    def versions(self, key: str) -> Iterator[bytes | None]:
        """Yield what the object held, the newest first, from now on; `None` where it was deleted."""
        ...


def is_cut_off(body: bytes) -> bool:
    """Tell whether a body is nothing, or the beginning of JSON."""
    try:
        orjson.loads(codecs.getincrementaldecoder("utf-8")().decode(body))
    except UnicodeDecodeError:
        return False
    except orjson.JSONDecodeError as error:
        return not body or error.msg == "unexpected end of data"
    return False


def cut_off(store: ObjectStore, key: str, body: bytes) -> UserError:
    """Return the error for what a cluster needs and was cut off."""
    why = "it ends in the middle" if body else "there is nothing in it"
    return UserError(
        f"{store.url}: {key} cannot be read: {why}",
        hint=f"Nothing was changed. Restore it from a copy of the store, or, where its bucket keeps versions: {MEND}",
    )


def create(store: ObjectStore, key: str, body: bytes) -> Version:
    """Store `body` where there is nothing yet, or what was cut off.

    Raises:
        LostRaceError: Someone else's write is there.
    """
    try:
        return store.swap(key, body, expected=None)
    except LostRaceError:
        there = store.get(key)
        if there is None or not is_cut_off(there.body):
            raise
        return store.swap(key, body, expected=there.version)


def put_back(store: ObjectStore, key: str) -> bool:
    """Give an object that was cut off what it held before; tell whether that was done.

    Where the last thing before is not whole JSON either, or is a deletion, nothing is done.
    """
    there = store.get(key)
    if there is None or not is_cut_off(there.body) or not isinstance(store, KeepsVersions):
        return False
    before = next((body for body in store.versions(key) if body is None or not is_cut_off(body)), None)
    if before is None or not _is_object(before):
        return False
    with suppress(LostRaceError):  # another process has mended it, or goes on with it
        store.swap(key, before, expected=there.version)
    return True


def _was_never_whole(store: ObjectStore, key: str) -> bool:
    """Tell whether a bucket keeps versions, and each that it keeps of an object was cut off."""
    if not isinstance(store, KeepsVersions):
        return False
    kept = [body for body in store.versions(key) if body is not None]
    return bool(kept) and all(map(is_cut_off, kept))


def _is_object(body: bytes) -> bool:
    try:
        return isinstance(orjson.loads(body), dict)
    except orjson.JSONDecodeError:
        return False


_LOGGER: Final = logging.getLogger("reconciler.register")

MARKS: Final = 256
_OURS: Final = ("format", "epoch", "nonce", "marks")
PATIENCE_S: Final = 60.0
"""How long an update goes on against others, unless told otherwise."""
_TOLD: Final = {LostRaceError: "race lost", UnansweredError: "unanswered"}
_BACKOFF: Final = Backoff(first_s=0.002, longest_s=2.0)


@dataclass(frozen=True, slots=True)
class ReadRegister:
    """A register as it was read: what it holds, and what to swap against."""

    value: dict[str, Any]
    epoch: int
    marks: tuple[str, ...]
    version: Version


class Register:
    """One register of a store. `format` is its name and the highest version understood: `reconciler.head/2`."""

    def __init__(
        self,
        store: ObjectStore,
        key: str,
        *,
        format: str,  # noqa: A002 - the field's name
        shape: Any = dict,
        is_new: Callable[[ObjectStore], bool] = lambda _: False,
    ) -> None:
        """Name the register; nothing is read yet. What is read is of the `shape` (`check_shape`), or damaged.

        One whose first write was cut off counts as never written: `is_new` tells where that is so, or the versions
        that the bucket keeps do.
        """
        self.store = store
        self.key = key
        self.format = format
        self.shape = shape
        self._is_new = is_new

    def read(self) -> ReadRegister | None:
        """Return what it holds now; `None` where it was never written.

        Raises:
            NewerFormatError: It was written by a newer version.
            UserError: It is not one of ours, or damaged.
        """
        stored = self.store.get(self.key)
        return None if stored is None or self._is_unwritten(stored) else self._parse(stored)

    def swap(
        self, held: ReadRegister | None, value: dict[str, Any], *, epoch: int | None = None, mark: str | None = None
    ) -> ReadRegister:
        """Replace what was read as `held` (`None`: what does not exist) by `value`; `epoch` stays unless given.

        Raises:
            LostRaceError: Someone else's write is there; ours may lie below it, its mark tells.
        """
        before = 0 if held is None else held.epoch
        after = before if epoch is None else epoch
        taken = [name for name in _OURS if name in value]
        if after < before or taken:
            message = f"{self.key}: epoch {before} → {after}, fields of the register's own: {taken}"
            raise BrokenInvariantError(message, hint="Please report this.")
        marks = () if held is None else held.marks
        if mark is not None:
            marks = (*marks, mark)[-MARKS:]
        ours = {"format": self.format, "epoch": after, "nonce": nonce(), "marks": marks}
        body = orjson.dumps({**ours, **value})
        try:
            version = self.store.swap(self.key, body, expected=None if held is None else held.version)
        except LostRaceError:
            there = self.store.get(self.key) if held is None else None
            if there is None or not self._is_unwritten(there):
                raise
            version = self.store.swap(self.key, body, expected=there.version)
        return ReadRegister(value, after, marks, version)

    def update(
        self,
        change: Callable[[ReadRegister | None], dict[str, Any] | None],
        *,
        mark: str,
        patience_s: float | None = None,
        raises_epoch: bool = False,
        known: ReadRegister | None = None,
    ) -> ReadRegister | None:
        """Read, let `change` decide anew, swap; again when another writer was faster. Return what holds then.

        `change` returns `None` when there is nothing to do, and may be called once for every attempt. Doing the
        same update (the same mark) twice does it once. `raises_epoch` fences: the swap is made under the next epoch.
        `known` is what it held a moment ago: tried before anything is read, and believed only where that swap succeeds.

        Raises:
            LostRaceError: Others were faster every time, until patience ended.
            UnansweredError: The store did not say whether it was done, as long; ask again with the same mark.
        """
        if known is not None and (swapped := self._swapped(known, change, mark)) is not None:
            return swapped
        tries = Tries(_BACKOFF, within_s=PATIENCE_S if patience_s is None else patience_s)
        trouble: ReconcilerError | None = None
        while True:
            began = tries.spent_s
            held = self._read_after(trouble)
            if held is not None and mark in held.marks:
                return held
            value = change(held)
            if value is None:
                return held
            epoch = (0 if held is None else held.epoch) + 1 if raises_epoch else None
            try:
                swapped = self.swap(held, value, epoch=epoch, mark=mark)
            except (LostRaceError, UnansweredError) as error:
                trouble = error
                note(_LOGGER, _TOLD[type(error)], register=self.key, attempt=tries.failed + 1)
            else:
                note(_LOGGER, "swapped", register=self.key, epoch=swapped.epoch, attempts=tries.failed + 1)
                return swapped
            if tries.is_over:
                break
            # A pause grows with what a try takes, until there is room for all: forty writers of a bucket that tried
            # again at once would leave it no time for the one that wins.
            tries.wait(least_s=2 * (tries.spent_s - began))
        held = self._read_after(trouble)
        if held is not None and mark in held.marks:
            return held
        raise trouble

    def _read_after(self, trouble: ReconcilerError | None) -> ReadRegister | None:
        """Read; where that fails after a write without an answer, it is that write of which nobody knows."""
        try:
            return self.read()
        except RetryableError as error:
            if isinstance(trouble, UnansweredError):
                raise UnansweredError(error.message, hint=error.hint) from error
            raise

    def _swapped(
        self, known: ReadRegister, change: Callable[[ReadRegister | None], dict[str, Any] | None], mark: str
    ) -> ReadRegister | None:
        """Swap what may be out of date; `None`: it is, or says that there is nothing to do, or to refuse."""
        try:
            value = change(known)
        except ReconcilerError:
            return None
        if value is None:
            return None
        try:
            return self.swap(known, value, mark=mark)
        except (LostRaceError, UnansweredError):
            return None

    def _is_unwritten(self, stored: Stored) -> bool:
        """Tell whether what is there is what a first write left that was cut off."""
        body = stored.body
        if body.endswith(b"}") or not is_cut_off(body):
            return False
        return self._is_new(self.store) or _was_never_whole(self.store, self.key)

    def _parse(self, stored: Stored) -> ReadRegister:
        body = self._object(stored.body)
        self._check_format(body.pop("format", None))
        epoch, marks = body.pop("epoch", None), body.pop("marks", None)
        is_whole = type(epoch) is int and isinstance(marks, list) and isinstance(body.pop("nonce", None), str)
        if not is_whole:
            raise self._damaged("a field of its frame is missing")
        try:
            check_shape(body, self.shape)
        except TypeError as error:
            raise self._damaged(str(error)) from error
        return ReadRegister(body, epoch, tuple(marks), stored.version)

    def _object(self, body: bytes) -> dict[str, Any]:
        try:
            parsed = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            if is_cut_off(body):
                raise cut_off(self.store, self.key, body) from error
            raise self._damaged(str(error)) from error
        if not isinstance(parsed, dict):
            raise self._damaged("not a JSON object")
        return parsed

    def _check_format(self, found: object) -> None:
        if found == self.format:
            return
        name, _, version = self.format.rpartition("/")
        found_name, _, found_version = str(found).rpartition("/")
        if found_name != name or not found_version.isdecimal():
            raise self._damaged(f"its format is {found!r}, not {self.format!r}")
        if int(found_version) > int(version):
            message = f"{self.store.url}: {self.key} was written by a newer version of reconciler ({found})"
            raise NewerFormatError(message, hint="Upgrade this one: pip install --upgrade stream-reconciler.")

    def _damaged(self, why: str) -> UserError:
        message = f"{self.store.url}: {self.key} cannot be read: {why}"
        return UserError(message, hint="Restore it from a copy of the store; nothing was changed.")


def fresh_mark() -> str:
    """Return a mark by which a register's writer knows its swap again; short, since 256 of them are kept."""
    return nonce()[:16]
