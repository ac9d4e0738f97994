"""A store as one machine sees it: requests may fail, be done late, or be done without an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from reconciler.errors import LostRaceError, UnansweredError
from tests.simulation.machine import Machine, unanswered, unreachable_error

if TYPE_CHECKING:
    from reconciler.objectstore.base import ListedObject, ObjectStore, StoredObject, Version


class Witness(Protocol):
    """Whoever writes down what has become of the store."""

    def changed(self, machine: str, key: str, body: bytes | None) -> None:
        """Take note that an object is this now; `None`: it is gone."""
        ...


class Nobody:
    """Takes no note."""

    def changed(self, machine: str, key: str, body: bytes | None) -> None:
        """Nothing is looked at."""


class SeenFrom:
    """A store seen from a machine."""

    def __init__(self, inner: ObjectStore, machine: Machine, name: str, witness: Witness) -> None:
        self._inner, self._machine, self._name, self._witness = inner, machine, name, witness

    @property
    def url(self) -> str:
        return self._inner.url

    @property
    def can_encrypt(self) -> bool:
        return self._inner.can_encrypt

    def read_clock_ms(self) -> int:
        return self._inner.read_clock_ms()

    def get(self, key: str) -> StoredObject | None:
        self._ask(f"get {key}")
        return self._inner.get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self._ask(f"get {key}")
        return self._inner.get_range(key, start, length)

    def list(self, prefix: str) -> Iterator[ListedObject]:
        self._ask(f"list {prefix}")
        return self._inner.list(prefix)

    def put(self, key: str, body: bytes | memoryview, *, kms_key_id: str | None = None) -> None:
        def put() -> None:
            self._inner.put(key, body, kms_key_id=kms_key_id)
            self._witness.changed(self._machine.name, key, bytes(body))

        self._write(f"put {key}", put)

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        def swap() -> Version:
            before = self._inner.get(key)
            version = self._inner.swap(key, body, expected=expected)
            if before is None or before.version != version:  # else it was there already
                self._witness.changed(self._machine.name, key, body)
            return version

        found = self._write(f"swap {key}", swap)
        assert found is not None
        return found

    def copy_from(self, key: str, source: ObjectStore, source_key: str, *, kms_key_id: str | None = None) -> None:
        self._write(f"copy {key}", lambda: self._inner.copy_from(key, source, source_key, kms_key_id=kms_key_id))

    def delete(self, keys: Iterable[str]) -> None:
        named = list(keys)

        def delete() -> None:
            self._inner.delete(named)
            for key in named:
                self._witness.changed(self._machine.name, key, None)

        if named:
            self._write(f"delete {named[0]}", delete)

    def find_violated_conditions(self) -> Sequence[str]:
        return ()

    def _ask(self, what: str) -> None:
        fault = self._machine.asks(f"{self._name}: {what}", writes=False)
        if fault is not None:
            raise unreachable_error(what)

    def _write(self, what: str, write: Callable[[], Version | None]) -> Version | None:
        named = f"{self._name}: {what}"
        fault = self._machine.asks(named, writes=True)
        match fault.harm if fault else None:
            case "fail":
                raise unreachable_error(what)
            case "late":
                self._machine.later(fault.seconds if fault else 0.0, named, lambda: _has_landed(write))
                raise unanswered(what)
            case "lose":
                write()
                raise unanswered(what)
            case _:
                found = write()
        self._machine.wrote(named)
        return found


def _has_landed(write: Callable[[], Version | None]) -> bool:
    try:
        write()
    except (LostRaceError, UnansweredError):
        return False
    return True
