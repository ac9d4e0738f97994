"""Parse YAML 1.2 (core schema) with size limits and readable errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from sys import intern
from typing import Any, Final, NamedTuple, NoReturn

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
from yaml.reader import ReaderError

from reconciler.manifests import positions
from reconciler.manifests.positions import (
    PARSER,
    FieldPath,
    Problem,
    describe_value,
    find_spots,
    format_path,
    parse_plain_scalar,
)

_TAGS: Final = "tag:yaml.org,2002:"


class RefusedYamlError(Exception):
    """YAML rejected because of a tag, an alias, or its size."""

    def __init__(self, message: str, mark: Any, *, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.mark = mark


def parse_tagged_scalar(event: Any) -> Any:
    """Return the value of a tagged scalar. Only core-schema tags such as `!!str` are allowed."""
    value: Any = event.value
    if event.tag in {"!", f"{_TAGS}str"}:
        return value
    resolved = parse_plain_scalar(value)
    wanted = {f"{_TAGS}null": type(None), f"{_TAGS}bool": bool, f"{_TAGS}int": int, f"{_TAGS}float": float}
    if type(resolved) is not wanted.get(event.tag):
        _refuse_tag(event)
    return positions.parse_written_scalar(value)


def check_collection_tag(event: Any, tag: str) -> None:
    """Reject a collection's tag, except `!`, `!!map` and `!!seq`."""
    if event.tag not in {"!", f"{_TAGS}{tag}"}:
        _refuse_tag(event)


def _refuse_tag(event: Any) -> NoReturn:
    shown = event.tag.replace(_TAGS, "!!")
    raise RefusedYamlError(f"the tag {shown} is not supported", event.start_mark, hint="Leave the tag out")


def convert_error(error: Exception, raw: bytes, file: str) -> Problem:
    """Convert an error of the YAML parser to a problem."""
    match error:
        case RefusedYamlError():
            return _build_problem(file, error.mark, error.message, error.hint)
        case ReaderError() | UnicodeError():
            return _build_unreadable_problem(raw, file)
        case yaml.MarkedYAMLError():
            mark = error.problem_mark or error.context_mark
            if _read_character(raw, mark, -1) + _read_character(raw, mark) == "${":
                return _build_problem(
                    file, mark, "${…} is written here without quotes", 'Within { } and [ ] write it as "${…}"'
                )
            return _build_problem(file, mark, *_reword_error(error, _read_character(raw, mark)))
        case _:
            return Problem(file, None, None, "", f"is not YAML: {error}", _CHECK)


def _build_problem(file: str, mark: Any, message: str, hint: str) -> Problem:
    if mark is None:
        return Problem(file, None, None, "", message, hint)
    return Problem(file, mark.line + 1, mark.column + 1, "", message, hint)


_CHECK: Final = "Check quotes, brackets and indentation just before this place"
_REWORDED: Final = (
    ("mapping values are not allowed", "a ': ' is where no key can be", "Quote the text, or correct the indentation"),
    ("could not find expected ':'", "a key without ': '", "Write `key: value`; quote texts of several lines"),
    ("end of stream", "the file ends too early", "Close the quote or bracket that is open"),
    ("undefined tag handle", "a tag that is not supported", "Leave the tag out, or quote the text that begins with !"),
    ("did not find expected alphabetic", "a * or & that names nothing", "Quote the text that begins with * or &"),
    ("unknown escape character", "a \\ that escapes nothing", "Write \\\\, or use single quotes"),
    ("did not find expected", "the structure breaks here", _CHECK),
    ("block sequence entries are not allowed", "a '- ' is where no list can be", "Put it on its own line"),
)


def _reword_error(error: yaml.MarkedYAMLError, character: str) -> tuple[str, str]:
    what = (error.problem or error.context or "cannot be read").strip()
    if "cannot start any token" in what:
        if character == "\t":
            return "this line is indented with a tab, and YAML needs spaces", "Indent with spaces"
        return f"{character} cannot begin a text", "Quote the text"
    began = error.context_mark
    inside = ""
    if began is not None and error.problem_mark is not None and began.line != error.problem_mark.line:
        inside = f", inside what began on line {began.line + 1}"
    for match, message, hint in _REWORDED:
        if match in what:
            return message + inside, hint
    return f"is not YAML: {what}{inside}", _CHECK


def _read_character(raw: bytes, mark: Any, beside: int = 0) -> str:
    lines = raw.decode(errors="replace").split("\n")
    at = mark.column + beside if mark is not None and mark.line < len(lines) else -1
    return lines[mark.line][at : at + 1] if at >= 0 else ""


_FORBIDDEN: Final = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")


def _build_unreadable_problem(raw: bytes, file: str) -> Problem:
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        line, column = _compute_line_column(raw[: error.start].decode(errors="replace"))
        message = f"is not UTF-8: the byte 0x{raw[error.start]:02x} begins no character"
        return Problem(file, line, column, "", message, "Save it as UTF-8")
    position = _FORBIDDEN.search(text)
    if position is None:
        return Problem(file, None, None, "", "holds a character that YAML does not allow", "Remove it")
    line, column = _compute_line_column(text[: position.start()])
    what = "a NUL byte" if position[0] == "\0" else f"the control character U+{ord(position[0]):04X}"
    hint = "Is it a text file? Remove the character, or write it as an escape in double quotes"
    return Problem(file, line, column, "", f"holds {what}, which YAML does not allow", hint)


def _compute_line_column(before: str) -> tuple[int, int]:
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


MAX_DEPTH: Final = 100
_MAX_SIMPLE_DEPTH: Final = 20
MAX_NODES: Final = 1_000_000
MAX_ALIASED: Final = 100_000
"""Maximum values of a file with expanded aliases."""

_NO_KEY: Final[Any] = object()
_REFUSED_KEY: Final[Any] = object()


class Document(NamedTuple):
    """A YAML document and its first line."""

    content: Any
    line: int
    number: int
    has_null: bool
    as_written: Any


class ParsedFile(NamedTuple):
    """Documents and problems of a YAML file. `is_whole`: the parser reached the end."""

    documents: tuple[Document, ...]
    problems: tuple[Problem, ...]
    is_whole: bool


def parse_yaml(raw: bytes, file: str, *, may_merge: bool = False) -> ParsedFile:
    """Parse all non-empty documents of a file, and collect errors. `may_merge` allows the key `<<`."""
    if raw.startswith(UTF_16):
        return ParsedFile(
            (), (Problem(file, None, None, "", "is written in UTF-16", "Save it as UTF-8"),), is_whole=False
        )
    simple = _parse_simple(raw)
    if simple is not None:
        return ParsedFile(simple, (), is_whole=True)
    builder = _DocumentBuilder(file, may_merge=may_merge)
    try:
        builder.consume(PARSER(raw))
    except (yaml.YAMLError, RefusedYamlError, UnicodeError) as error:
        problems = (*builder.problems, *builder.find_duplicate_keys(raw), convert_error(error, raw, file))
        return ParsedFile(tuple(builder.documents), problems, is_whole=False)
    return ParsedFile(tuple(builder.documents), (*builder.problems, *builder.find_duplicate_keys(raw)), is_whole=True)


# Most files are block mappings of one-line values. Reading them line by line takes a fifth of libyaml's time, because
# lines repeat. What the patterns do not cover, such as block lists, anchors and block texts, is left to libyaml.
_NAME: Final = r"[A-Za-z][\w.-]{0,99}"
_QUOTED: Final = r'"[ !#-\[\]-~]*"'
_PLAIN: Final = r"[A-Za-z0-9_/](?:[\w./+@%=;~()$*,-]|:(?=\S)| (?=[\w./(]))*"
_ITEM: Final = rf"(?:[A-Za-z0-9_/](?:[\w./+-]|:(?=[\w/]))*|{_QUOTED})"
_ENTRY: Final = rf"{_NAME}: {_ITEM}"
_FLOW: Final = rf"\{{ ?{_ENTRY}(?:, {_ENTRY})* ?\}}|\[{_ITEM}(?:, {_ITEM})*\]"
_LINE: Final = re.compile(
    rf"( *)(?:({_NAME}):(?: +({_PLAIN}|{_QUOTED}|{_FLOW}))? *)?(?:(?:^|(?<= ))#[ -~]*)?", re.ASCII
)
_PARTS: Final = re.compile(rf"(?:({_NAME}): )?({_ITEM})", re.ASCII)
_SEPARATOR: Final = "---"


class _UnsupportedLineError(Exception):
    """A line needs the full parser."""


@lru_cache(maxsize=8192)
def _parse_line(line: str) -> tuple[int, str, Any]:
    """Return a line's indentation, its key, and its value or `_NO_KEY`. The key of a line without data is empty."""
    match = _LINE.fullmatch(line)
    if match is None and line != _SEPARATOR:
        raise _UnsupportedLineError
    if match is None or match[2] is None:
        return 0, line if match is None else "", _NO_KEY
    return len(match[1]), _parse_simple_key(match[2]), _NO_KEY if match[3] is None else _parse_simple_value(match[3])


def _parse_simple_key(text: str) -> str:
    if not positions.is_text(text):
        raise _UnsupportedLineError
    return intern(text)


def _parse_simple_value(text: str) -> Any:
    if text[0] == '"':
        return text[1:-1]
    if text[0] in "[{":
        parts = _PARTS.findall(text)
        if text[0] == "[":
            return [_parse_simple_value(item) for _, item in parts]
        mapping = {_parse_simple_key(key): _parse_simple_value(item) for key, item in parts}
        if len(mapping) < len(parts):
            raise _UnsupportedLineError
        return mapping
    value = positions.parse_written_scalar(text)
    if value is None or type(value) is positions.ScalarText:
        raise _UnsupportedLineError
    return value


def _parse_simple(raw: bytes) -> tuple[Document, ...] | None:
    """Return the documents of a file of block mappings with one-line values; `None`: it needs the full parser."""
    if len(raw) > MAX_NODES or not raw.isascii():
        return None
    try:
        return tuple(_read_mappings(raw.decode().split("\n")))
    except _UnsupportedLineError:
        return None


def _read_mappings(lines: list[str]) -> Iterator[Document]:
    root: dict[str, Any] | None = None
    into: dict[str, Any] = {}
    around: list[tuple[int, dict[str, Any]]] = []
    column = start = count = 0
    waiting = ""  # The key whose mapping begins on the next line.
    for number, line in enumerate([*lines, _SEPARATOR], 1):
        indent, key, value = _parse_line(line)
        if not key:
            continue
        if key == _SEPARATOR:
            if waiting:
                raise _UnsupportedLineError
            if root is not None:
                yield Document(root, start, count, has_null=False, as_written=root)
                count += 1
            root = None
            continue
        if root is None:
            root, column, start = {}, 0, number
            into = root
            around.clear()
        elif waiting:
            if indent <= column or len(around) == _MAX_SIMPLE_DEPTH:
                raise _UnsupportedLineError
            around.append((column, into))
            into[waiting] = into = {}
            column, waiting = indent, ""
        while indent < column:
            column, into = around.pop()
        if indent != column or key in into:
            raise _UnsupportedLineError
        into[key] = value.copy() if type(value) in {dict, list} else value
        if value is _NO_KEY:
            waiting = key


class _DocumentBuilder:
    def __init__(self, file: str, *, may_merge: bool) -> None:
        self.file = file
        self._may_merge = may_merge
        self.documents: list[Document] = []
        self.problems: list[Problem] = []
        self._into: Any = []
        self._key: Any = _NO_KEY
        self._open_around: list[tuple[Any, Any, Any, int]] = []
        self._repeated: list[tuple[int, FieldPath, Any]] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._nodes = 0
        self._aliased = 0
        self._has_null = False
        self._has_scalar_text = False
        self._line = 1

    def consume(self, parser: Any) -> None:
        handlers: dict[type[Any], Callable[[Any], None]] = {
            ScalarEvent: self._add_scalar,
            MappingStartEvent: self._open_mapping,
            SequenceStartEvent: self._open_sequence,
            MappingEndEvent: self._close_collection,
            SequenceEndEvent: self._close_collection,
            AliasEvent: self._add_alias,
            DocumentStartEvent: self._start_document,
            DocumentEndEvent: self._finish_document,
        }
        next_event = parser.get_event
        find = handlers.get
        while (event := next_event()) is not None:
            if handle := find(type(event)):
                handle(event)

    def _start_document(self, _event: Any) -> None:
        self._anchors.clear()
        self._nodes = 0
        self._has_null = False
        self._has_scalar_text = False

    def _finish_document(self, _event: Any) -> None:
        content = self._into.pop()
        if content is not None:
            values = positions.replace_scalar_texts(content) if self._has_scalar_text else content
            self.documents.append(Document(values, self._line, len(self.documents), self._has_null, content))

    def _add_scalar(self, event: Any) -> None:
        value = event.value
        if event.implicit[0]:
            value = positions.parse_written_scalar(value)
        elif event.tag is not None:
            value = parse_tagged_scalar(event)
        if value is None:
            self._has_null = True
        elif type(value) is positions.ScalarText:
            self._has_scalar_text = True
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, 1)
        self._count_nodes(1, event)
        self._add_value(value, event)

    def _open_mapping(self, event: Any) -> None:
        self._open_collection({}, event, "map")

    def _open_sequence(self, event: Any) -> None:
        self._open_collection([], event, "seq")

    def _open_collection(self, collection: Any, event: Any, tag: str) -> None:
        if event.tag is not None:
            check_collection_tag(event, tag)
        self._count_nodes(1, event)
        self._open_around.append((self._into, self._key, event, self._nodes))
        self._check_depth(0, event)
        self._into = collection
        self._key = _NO_KEY

    def _close_collection(self, _event: Any) -> None:
        collection = self._into
        self._into, self._key, start, before = self._open_around.pop()
        if start.anchor is not None:
            self._anchors[start.anchor] = (collection, self._nodes - before + 1)
        self._add_value(collection, start)

    def _add_alias(self, event: Any) -> None:
        if event.anchor not in self._anchors:
            raise RefusedYamlError(
                f"*{event.anchor} names nothing written before it",
                event.start_mark,
                hint=f"Mark the value to repeat with &{event.anchor}, or quote it if it is text",
            )
        value, nodes = self._anchors[event.anchor]
        self._aliased += nodes
        if self._aliased > MAX_ALIASED:
            raise RefusedYamlError(
                f"aliases expand to more than {MAX_ALIASED:,} values", event.start_mark, hint="Write them out"
            )
        self._count_nodes(nodes, event)
        self._check_depth(_compute_depth(value), event)
        self._add_value(value, event)

    def _check_depth(self, inside: int, event: Any) -> None:
        if len(self._open_around) + inside > MAX_DEPTH:
            raise RefusedYamlError(
                f"is nested more than {MAX_DEPTH} levels deep", event.start_mark, hint="No manifest needs that"
            )

    def _count_nodes(self, nodes: int, event: Any) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            raise RefusedYamlError(
                f"holds more than {MAX_NODES:,} values in one document", event.start_mark, hint="Split it"
            )

    def _add_value(self, value: Any, event: Any) -> None:
        into = self._into
        if type(into) is list:
            into.append(value)
            if not self._open_around:
                self._line = event.start_mark.line + 1
        elif self._key is _NO_KEY:
            self._key = intern(value) if self._is_usable_key(value, event) else _REFUSED_KEY
        else:
            if self._key is not _REFUSED_KEY:
                into[self._key] = value
            self._key = _NO_KEY

    def _is_usable_key(self, key: Any, event: Any) -> bool:
        if type(key) is not str:
            text = getattr(event, "value", "")
            hint = f'Quote it: "{text}"' if text else "Quote it, if text was meant"
            self._complain(event, text, f"a key must be text, and this is {describe_value(key)}", hint)
        elif key == "<<" and not self._may_merge:
            self._complain(event, key, "merge keys are not part of YAML 1.2", "Write the keys out, or use an overlay")
        elif key in self._into:
            self._repeated.append((len(self.documents), self._build_path(key), event.start_mark))
        else:
            return True
        return False

    def _complain(self, event: Any, key: str, message: str, hint: str) -> None:
        mark = event.start_mark
        field = format_path(self._build_path(key) if key else self._build_path(key)[:-1])
        self.problems.append(Problem(self.file, mark.line + 1, mark.column + 1, field, message, hint))

    def _build_path(self, key: str) -> FieldPath:
        path: list[str | int] = []
        for into, waiting, _, _ in self._open_around[1:]:
            if type(into) is list:
                path.append(len(into))
            elif type(waiting) is str:
                path.append(waiting)
        return (*path, key)

    def find_duplicate_keys(self, raw: bytes) -> Iterator[Problem]:
        known = find_spots(raw) if self._repeated else ()
        for number, path, mark in self._repeated:
            first = known[number].get(path) if number < len(known) else None
            where = f", first on line {first.line}" if first is not None else ""
            message = f"is written twice in one mapping{where}"
            yield Problem(self.file, mark.line + 1, mark.column + 1, format_path(path), message, "Keep one of the two")


def _compute_depth(value: Any) -> int:
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(_compute_depth, value.values() if isinstance(value, dict) else value), default=0)
