"""Registers: small JSON objects that change by compare-and-swap.

Body: `{"format": "reconciler.head/2", "epoch": 3, "nonce": "…", "marks": […], …value}`. The nonce makes bodies unique.
Marks identify the last 256 swaps, so a writer whose response was lost recognizes its own swap.

If a writer is killed, some stores keep a truncated body, which was never acknowledged. A create overwrites that body; a
swapped register is restored from the bucket's versions.
"""

from __future__ import annotations

import codecs
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
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
from reconciler.objectstore.base import ObjectStore, StoredObject, Version, check_shape, create_nonce
from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.effects import log_debug
from reconciler.runtime.retry import Backoff, Tries

MEND: Final = "reconciler cluster check CLUSTER --repair"


@runtime_checkable
class VersionedStore(Protocol):
    """A store that may keep earlier versions of objects."""

    def list_versions(self, key: str) -> Iterator[bytes | None]:
        """Yield bodies of the object, newest first; `None` stands for a deletion."""
        ...


def is_truncated_json(body: bytes) -> bool:
    """Return whether a body is empty or the beginning of a JSON value."""
    try:
        orjson.loads(codecs.getincrementaldecoder("utf-8")().decode(body))
    except UnicodeDecodeError:
        return False
    except orjson.JSONDecodeError as error:
        return not body or error.msg == "unexpected end of data"
    return False


def truncation_error(store: ObjectStore, key: str, body: bytes) -> UserError:
    """Return the error for a truncated body."""
    why = "it ends in the middle" if body else "there is nothing in it"
    return UserError(
        f"{store.url}: {key} cannot be read: {why}",
        hint=f"Nothing was changed. Restore it from a copy of the store, or, where its bucket keeps versions: {MEND}",
    )


def create_object(store: ObjectStore, key: str, body: bytes) -> Version:
    """Store `body` if the object does not exist or is truncated.

    Raises:
        LostRaceError: Another writer came first.
    """
    try:
        return store.swap(key, body, expected=None)
    except LostRaceError:
        current = store.get(key)
        if current is None or not is_truncated_json(current.body):
            raise
        return store.swap(key, body, expected=current.version)


def restore_truncated(store: ObjectStore, key: str) -> bool:
    """Replace a truncated object by its last complete version in the bucket; return whether there was one.

    Does nothing if that version is a deletion or not a JSON object.
    """
    current = store.get(key)
    if current is None or not is_truncated_json(current.body) or not isinstance(store, VersionedStore):
        return False
    before = next((body for body in store.list_versions(key) if body is None or not is_truncated_json(body)), None)
    if before is None or not _is_object(before):
        return False
    with suppress(LostRaceError):
        store.swap(key, before, expected=current.version)
    return True


def _has_only_truncated_versions(store: ObjectStore, key: str) -> bool:
    if not isinstance(store, VersionedStore):
        return False
    bodies = [body for body in store.list_versions(key) if body is not None]
    return bool(bodies) and all(map(is_truncated_json, bodies))


def _is_object(body: bytes) -> bool:
    try:
        return isinstance(orjson.loads(body), dict)
    except orjson.JSONDecodeError:
        return False


_LOGGER: Final = logging.getLogger("reconciler.register")

MARKS: Final = 256
_FRAME_FIELDS: Final = ("format", "epoch", "nonce", "marks")
PATIENCE_S: Final = 60.0
_TROUBLE_NAMES: Final = {LostRaceError: "race lost", UnansweredError: "unanswered"}
_BACKOFF: Final = Backoff(first_s=0.002, longest_s=2.0)


@dataclass(frozen=True, slots=True)
class RegisterSnapshot:
    """Value of a register, and its version for a swap."""

    value: dict[str, Any]
    epoch: int
    marks: tuple[str, ...]
    version: Version


class Register:
    """A JSON object that changes by compare-and-swap.

    `format` is a name and the latest supported version: `reconciler.head/2`.
    """

    def __init__(
        self,
        store: ObjectStore,
        key: str,
        *,
        format: str,  # noqa: A002 - the field's name
        shape: Any = dict,
        is_new: Callable[[ObjectStore], bool] = lambda _: False,
    ) -> None:
        """Define the register without a request. A value of another `shape` (see `check_shape`) is damaged.

        A truncated first write is ignored if `is_new` returns true, or all stored versions are truncated.
        """
        self.store = store
        self.key = key
        self.format = format
        self.shape = shape
        self._is_new = is_new

    def read(self) -> RegisterSnapshot | None:
        """Return the register's value; `None` if the register does not exist.

        Raises:
            NewerFormatError: A newer version of this package wrote it.
            UserError: The object is damaged, or not a register.
        """
        stored = self.store.get(self.key)
        return None if stored is None or self._is_unwritten(stored) else self._parse(stored)

    def swap(
        self, held: RegisterSnapshot | None, value: dict[str, Any], *, epoch: int | None = None, mark: str | None = None
    ) -> RegisterSnapshot:
        """Replace the value read as `held`; `None` means that the register did not exist.

        `mark` identifies this swap. By default, the epoch stays.

        Raises:
            LostRaceError: Another write came first. If `current` has `mark`, this swap succeeded before that write.
        """
        before = 0 if held is None else held.epoch
        after = before if epoch is None else epoch
        taken = [name for name in _FRAME_FIELDS if name in value]
        if after < before or taken:
            message = f"{self.key}: epoch {before} → {after}, fields of the register's own: {taken}"
            raise BrokenInvariantError(message, hint="Please report this.")
        marks = () if held is None else held.marks
        if mark is not None:
            marks = (*marks, mark)[-MARKS:]
        ours = {"format": self.format, "epoch": after, "nonce": create_nonce(), "marks": marks}
        body = orjson.dumps({**ours, **value})
        try:
            version = self.store.swap(self.key, body, expected=None if held is None else held.version)
        except LostRaceError:
            current = self.store.get(self.key) if held is None else None
            if current is None or not self._is_unwritten(current):
                raise
            version = self.store.swap(self.key, body, expected=current.version)
        return RegisterSnapshot(value, after, marks, version)

    def update(
        self,
        change: Callable[[RegisterSnapshot | None], dict[str, Any] | None],
        *,
        mark: str,
        patience_s: float | None = None,
        raises_epoch: bool = False,
        known: RegisterSnapshot | None = None,
    ) -> RegisterSnapshot | None:
        """Read, call `change`, and swap; retry if another writer came first. Return the resulting value.

        `change` may be called several times, and returns `None` for no change. Updates with the same mark happen once.
        `raises_epoch` fences earlier writers by a higher epoch. `known` is a recent value to try first, without a read.

        Raises:
            LostRaceError: Other writers were first until the time limit.
            UnansweredError: The outcome is unknown; retry with the same mark.
        """
        if known is not None and (swapped := self._try_known_state(known, change, mark)) is not None:
            return swapped
        tries = Tries(_BACKOFF, within_s=PATIENCE_S if patience_s is None else patience_s)
        trouble: ReconcilerError | None = None
        while True:
            began = tries.elapsed_s
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
                log_debug(_LOGGER, _TROUBLE_NAMES[type(error)], register=self.key, attempt=tries.failed + 1)
            else:
                log_debug(_LOGGER, "swapped", register=self.key, epoch=swapped.epoch, attempts=tries.failed + 1)
                return swapped
            if tries.has_ended:
                break
            # Pauses grow with the duration of an attempt, because concurrent retries slow each other down.
            tries.wait(least_s=2 * (tries.elapsed_s - began))
        held = self._read_after(trouble)
        if held is not None and mark in held.marks:
            return held
        raise trouble

    def _read_after(self, trouble: ReconcilerError | None) -> RegisterSnapshot | None:
        try:
            return self.read()
        except RetryableError as error:
            if isinstance(trouble, UnansweredError):
                raise UnansweredError(error.message, hint=error.hint) from error
            raise

    def _try_known_state(
        self, known: RegisterSnapshot, change: Callable[[RegisterSnapshot | None], dict[str, Any] | None], mark: str
    ) -> RegisterSnapshot | None:
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

    def _is_unwritten(self, stored: StoredObject) -> bool:
        body = stored.body
        if body.endswith(b"}") or not is_truncated_json(body):
            return False
        return self._is_new(self.store) or _has_only_truncated_versions(self.store, self.key)

    def _parse(self, stored: StoredObject) -> RegisterSnapshot:
        body = self._parse_object(stored.body)
        self._check_format(body.pop("format", None))
        epoch, marks = body.pop("epoch", None), body.pop("marks", None)
        is_whole = type(epoch) is int and isinstance(marks, list) and isinstance(body.pop("nonce", None), str)
        if not is_whole:
            raise self._damaged_error("a field of its frame is missing")
        try:
            check_shape(body, self.shape)
        except TypeError as error:
            raise self._damaged_error(str(error)) from error
        return RegisterSnapshot(body, epoch, tuple(marks), stored.version)

    def _parse_object(self, body: bytes) -> dict[str, Any]:
        try:
            parsed = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            if is_truncated_json(body):
                raise truncation_error(self.store, self.key, body) from error
            raise self._damaged_error(str(error)) from error
        if not isinstance(parsed, dict):
            raise self._damaged_error("not a JSON object")
        return parsed

    def _check_format(self, stored_format: object) -> None:
        if stored_format == self.format:
            return
        name, _, version = self.format.rpartition("/")
        stored_name, _, stored_version = str(stored_format).rpartition("/")
        if stored_name != name or not stored_version.isdecimal():
            raise self._damaged_error(f"its format is {stored_format!r}, not {self.format!r}")
        if int(stored_version) > int(version):
            message = f"{self.store.url}: {self.key} was written by a newer version of reconciler ({stored_format})"
            raise NewerFormatError(message, hint="Upgrade this one: pip install --upgrade stream-reconciler.")

    def _damaged_error(self, why: str) -> UserError:
        message = f"{self.store.url}: {self.key} cannot be read: {why}"
        return UserError(message, hint="Restore it from a copy of the store; nothing was changed.")


def create_mark() -> str:
    """Return a new random mark, which identifies a swap."""
    return create_nonce()[:16]
