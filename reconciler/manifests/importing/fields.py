"""Fields of somebody else's document, taken one by one: what nobody took in the end was not carried over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reconciler.manifests.importing.found import Lost, Place, Said
from reconciler.manifests.problems import path_text
from reconciler.manifests.scalars import kind_of_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from reconciler.manifests.importing.found import Reading
    from reconciler.manifests.positions import Path

UNKNOWN = "is no field that is known here"


class Fields:
    """A mapping, where it stands, and which of its keys were taken. An absent key and an empty one are the same."""

    def __init__(
        self,
        content: Mapping[str, Any],
        reading: Reading,
        locate: Callable[[Path], Place],
        *,
        subject: str = "",
        path: Path = (),
    ) -> None:
        self.content = content
        self.reading = reading
        self.subject = subject
        self._locate = locate
        self._path = path
        self._taken: set[str] = set()

    @property
    def place(self) -> Place:
        """Where it begins."""
        return self._locate(self._path)

    def of(self, key: str) -> Place:
        """Return where a key stands."""
        return self._locate((*self._path, key))

    def raw(self, key: str) -> Any:
        """Take whatever a key says."""
        self._taken.add(key)
        return self.content.get(key)

    def text(self, key: str) -> str | None:
        """Take a text; a number or a boolean is read as it is written."""
        value = self.raw(key)
        if value is None or isinstance(value, str):
            return value or None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int | float):
            return str(value)
        self._wrong(key, value, "a text")
        return None

    def is_named(self, key: str) -> bool:
        """Tell whether the `name` below a key is a text; say of a number that only its quotes make it a name."""
        inner = self.content.get(key)
        name = inner.get("name") if isinstance(inner, dict) else None
        if isinstance(name, bool) or not isinstance(name, int | float):
            return True
        path = (*self._path, key, "name")
        why = f"is {kind_of_value(name)}, and a name was expected; what it names is left out"
        hint = "Put it in quotes, as it is on the broker: without them YAML may read it as something else."
        self.reading.lost.append(Lost(self._locate(path), self.subject, path_text(path), why, hint))
        return False

    def number(self, key: str) -> int | None:
        """Take a whole number, also one in quotes."""
        value = self.raw(key)
        if value is None or value == "":
            return None
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, str) and value.strip().removeprefix("-").isdecimal():
            return int(value)
        self._wrong(key, value, "a whole number")
        return None

    def flag(self, key: str) -> bool | None:
        """Take a boolean, also one in quotes."""
        value = self.raw(key)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in {"true", "false"}:
            return value.lower() == "true"
        self._wrong(key, value, "true or false")
        return None

    def texts(self, key: str) -> tuple[str, ...]:
        """Take a list of texts; one text stands for a list of one."""
        value = self.raw(key)
        if value is None:
            return ()
        items = value if isinstance(value, list | tuple) else [value]
        if all(isinstance(item, str) for item in items):
            return tuple(items)
        self._wrong(key, value, "a list of texts")
        return ()

    def said(self, key: str) -> dict[str, Said]:
        """Take a mapping of keys to single values or lists of them, each with its place."""
        inner = self.inside(key)
        return {} if inner is None else {name: Said(inner.raw(name), inner.of(name)) for name in inner.content}

    def labels(self, key: str) -> dict[str, str]:
        """Take a mapping of texts."""
        inner = self.inside(key)
        found = {} if inner is None else {name: inner.text(name) for name in inner.content}
        return {name: value for name, value in found.items() if value is not None}

    def inside(self, key: str) -> Fields | None:
        """Take a mapping as fields of its own."""
        value = self.raw(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            self._wrong(key, value, "a mapping")
            return None
        return self._below(value, (*self._path, key))

    def each(self, key: str) -> Iterator[Fields]:
        """Take a list of mappings."""
        value = self.raw(key)
        if value is None:
            return
        if not isinstance(value, list | tuple):
            self._wrong(key, value, "a list")
            return
        for index, item in enumerate(value):
            if isinstance(item, dict):
                yield self._below(item, (*self._path, key, index))
            else:
                self._wrong(key, item, "a mapping", index)

    def named(self, key: str) -> Iterator[tuple[str, Fields]]:
        """Take a mapping of names to mappings; a name alone has nothing in it."""
        inner = self.inside(key)
        for name in inner.content if inner is not None else ():
            value = inner.raw(name) if inner is not None else None
            if value is None or isinstance(value, dict):
                yield name, self._below(value or {}, (*self._path, key, name))
            else:
                self._wrong(key, value, "a mapping", name)

    def lose(self, key: str, why: str, hint: str = "") -> None:
        """Say of a key that is there why it was left out; of one that is not, nothing."""
        if self._is_there(key):
            self.lost(key, why, hint)

    def lost(self, key: str, why: str, hint: str = "") -> None:
        """Say why something was left out: a field, or with an empty key all of this."""
        self._tell(key, why, hint, is_left_out=True)

    def unsaid(self, key: str, why: str, hint: str = "") -> None:
        """Say why manifests have no words for something that is there: a field, or with an empty key all of this."""
        if not key or self._is_there(key):
            self._tell(key, why, hint, is_left_out=False)

    def pass_over(self, *keys: str) -> None:
        """Take keys of which nothing is to be said: bookkeeping of the other tool."""
        self._taken.update(keys)

    def rest(self, why: str = UNKNOWN, *, is_left_out: bool = True) -> None:
        """Say of every key that nobody took that it was not carried over."""
        for key in self.content:
            if key not in self._taken and self._is_there(key):
                self._tell(key, why, "", is_left_out=is_left_out)

    def _is_there(self, key: str) -> bool:
        value = self.raw(key)
        return value is not None and value not in ("", [], {})

    def _tell(self, key: str, why: str, hint: str, *, is_left_out: bool) -> None:
        path = (*self._path, key) if key else ()
        place = self.of(key) if key else self.place
        self.reading.lost.append(Lost(place, self.subject, path_text(path), why, hint, is_left_out=is_left_out))

    def _below(self, content: Mapping[str, Any], path: Path) -> Fields:
        return Fields(content, self.reading, self._locate, subject=self.subject, path=path)

    def _wrong(self, key: str, value: Any, wanted: str, at: str | int | None = None) -> None:
        # Of a value that may be a secret only its kind is told.
        kind = "a text" if isinstance(value, str) else kind_of_value(value)
        path = (*self._path, key) if at is None else (*self._path, key, at)
        why = f"is {kind}, and {wanted} was expected"
        self.reading.lost.append(Lost(self._locate(path), self.subject, path_text(path), why))
