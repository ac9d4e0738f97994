"""Problems, positions of fields, and values of plain YAML scalars."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import yaml
from yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from reconciler.errors import UserError
from reconciler.runtime.text import escape_invisible, pluralize

# Plain scalars follow the YAML 1.2 core schema, in which `yes` and `1:30` are strings and `012` is twelve.


Scalar: TypeAlias = str | int | float | bool | None

_WORDS: Final[dict[str, bool | float | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_FIRST: Final = frozenset("0123456789+-.")
_MAX_DIGITS: Final = 40
"""Longer digit sequences stay strings, because parsing is slow."""

_INTEGER: Final = re.compile(r"[-+]?[0-9]+")
_OCTAL: Final = re.compile(r"0o[0-7]+")
_HEXADECIMAL: Final = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


@lru_cache(maxsize=8192)
def parse_plain_scalar(text: str) -> Scalar:
    """Return the value of a plain (unquoted) YAML scalar."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _FIRST or len(text) > _MAX_DIGITS:
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _HEXADECIMAL.fullmatch(text):
        return int(text, 16)
    if _OCTAL.fullmatch(text):
        return int(text, 8)
    return text


class ScalarText(str):
    """A number or boolean with a spelling that its value loses: `0042`, `1.10`, `TRUE`."""

    __slots__ = ()


@lru_cache(maxsize=8192)
def parse_written_scalar(text: str) -> Scalar:
    """Return a plain scalar's value, or a `ScalarText` if its spelling would be lost."""
    value = parse_plain_scalar(text)
    return value if value is None or format_scalar(value) == text else ScalarText(text)


def format_scalar(value: str | float) -> str:
    """Return a scalar as YAML text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def replace_scalar_texts(content: Any) -> Any:
    """Return a copy with each `ScalarText` replaced by its value."""
    match content:
        case ScalarText():
            return parse_plain_scalar(content)
        case dict():
            return {key: replace_scalar_texts(value) for key, value in content.items()}
        case list():
            return [replace_scalar_texts(value) for value in content]
        case _:
            return content


def is_text(text: str) -> bool:
    """Return whether unquoted `text` is a string in YAML."""
    return isinstance(parse_plain_scalar(text), str)


def describe_value(value: object) -> str:
    """Describe a value for messages: `the number 3`, `a mapping`."""
    match value:
        case ScalarText():
            return describe_value(parse_plain_scalar(value))
        case None:
            return "nothing"
        case bool():
            return f"the boolean {'true' if value else 'false'}"
        case int() | float():
            return f"the number {value}"
        case str():
            return f"the text {_shorten_text(value)}"
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case _:
            return f"a {type(value).__name__}"


_SHOWN: Final = 60


def _shorten_text(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")


class Problem(NamedTuple):
    """A problem and its position.

    `line` and `column` count from 1, and are `None` for a whole file. `field` is empty for a whole document.
    """

    file: str
    line: int | None
    column: int | None
    field: str
    message: str
    hint: str
    unseen: str | None = None
    """Undeclared address that may exist on a cluster."""

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        field = f" {self.field}:" if self.field else ""
        return f"{place}:{field} {self.message}. {self.hint}"


class ManifestError(UserError):
    """The manifests are invalid. `problems` are sorted by position."""

    def __init__(
        self, problems: Sequence[Problem], *, hint: str, excerpts: Mapping[Problem, tuple[str, ...]] | None = None
    ) -> None:
        self.problems = tuple(sorted(problems, key=_sort_key))
        self.excerpts = excerpts or {}
        count = len(self.problems)
        files = len({problem.file for problem in self.problems})
        heading = f"{pluralize(count, 'problem', grouping='')} in {pluralize(files, 'file', grouping='')}"
        super().__init__("\n".join([heading, *map(str, self.problems)]), hint=hint)


_SECRETS: Final = re.compile(r"pass|pwd|secret|token|key|credential", re.IGNORECASE)
_WIDEST: Final = 100
_NAME: Final = re.compile(r"[\w.-]+")


def format_excerpt(problem: Problem, text: Sequence[str]) -> tuple[str, ...]:
    """Return a problem's line, and a line that marks its field. Lines that may show a secret are omitted."""
    if not problem.field or problem.line is None or problem.column is None or not 0 < problem.line <= len(text):
        return ()
    before = next((row for row in reversed(text[: problem.line - 1]) if row.strip()), "")
    written = text[problem.line - 1].rstrip()
    if any(map(_SECRETS.search, (before, written, problem.field))) or not written[problem.column - 1 :].strip():
        return ()
    line, start = escape_invisible(written), len(escape_invisible(written[: problem.column - 1]))
    if start >= _WIDEST:
        return ()
    name = _NAME.match(line, start)
    marks = "^" * (len(name[0]) if name else 1)
    number = str(problem.line)
    shown = line if len(line) <= _WIDEST else f"{line[:_WIDEST]}…"
    return (f"  {number} | {shown}", f"  {' ' * len(number)} | {' ' * start}{marks}"[: _WIDEST + 10])


def _sort_key(problem: Problem) -> tuple[str, int, int, str, str]:
    return problem.file, problem.line or 0, problem.column or 0, problem.field, problem.message


def format_path(path: Sequence[str | int]) -> str:
    """Return a path as text, such as `spec.acls[0].principal`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


FieldPath: TypeAlias = tuple[str | int, ...]


class Spot(NamedTuple):
    """Position in a file, counted from 1."""

    line: int
    column: int


PARSER: Final[Any] = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


def find_spots(raw: bytes) -> tuple[Mapping[FieldPath, Spot], ...]:
    """Return positions of keys and list entries by non-empty document. The first of duplicate keys counts."""
    walker = _SpotCollector()
    try:
        events = PARSER(raw)
        while (event := events.get_event()) is not None:
            walker.consume(event)
    except (yaml.YAMLError, UnicodeError):
        walker.store_document()
    return tuple(walker.documents)


class _SpotCollector:
    def __init__(self) -> None:
        self.documents: list[dict[FieldPath, Spot]] = []
        self._spots: dict[FieldPath, Spot] = {}
        self._is_empty = True
        self._stack: list[tuple[FieldPath, int]] = []
        self._here: FieldPath = ()
        self._next = _ROOT
        """Index of the next list entry; or whether a key or a value is next in a mapping."""
        self._key = ""

    def consume(self, event: Any) -> None:
        match event:
            case DocumentStartEvent():
                self._spots, self._here, self._next, self._is_empty = {}, (), _ROOT, True
                self._stack.clear()
            case DocumentEndEvent():
                self.store_document()
            case ScalarEvent() if self._next == _KEY:
                self._take_key(event)
            case MappingStartEvent() | SequenceStartEvent():
                self._stack.append((self._here, self._next))
                self._here = self._add_child(event)
                self._next = _KEY if isinstance(event, MappingStartEvent) else 0
            case MappingEndEvent() | SequenceEndEvent():
                self._here, self._next = self._stack.pop()
                self._move_to_next()
            case ScalarEvent() | AliasEvent():
                self._add_child(event)
                self._move_to_next()
            case _:
                pass

    def store_document(self) -> None:
        if not self._is_empty:
            self.documents.append(self._spots)
        self._is_empty = True

    def _take_key(self, event: Any) -> None:
        self._key = event.value
        self._spots.setdefault((*self._here, self._key), _build_spot(event))
        self._next = _VALUE

    def _add_child(self, event: Any) -> FieldPath:
        if self._next == _ROOT:
            is_null = isinstance(event, ScalarEvent) and event.implicit[0] and parse_plain_scalar(event.value) is None
            self._is_empty = is_null
            self._spots.setdefault((), _build_spot(event))
            return ()
        if self._next >= 0:
            path = (*self._here, self._next)
            self._spots[path] = _build_spot(event)
            return path
        return (*self._here, self._key)

    def _move_to_next(self) -> None:
        if self._next == _VALUE:
            self._next = _KEY
        elif self._next == _KEY:
            self._next = _VALUE  # The collection that ended was a key, so its value is next.
        elif self._next >= 0:
            self._next += 1


_ROOT = -1
_KEY = -2
_VALUE = -3


def _build_spot(event: Any) -> Spot:
    return Spot(event.start_mark.line + 1, event.start_mark.column + 1)
