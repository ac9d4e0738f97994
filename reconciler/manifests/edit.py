"""Edit manifests as text, and format patches."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Any, Final, NamedTuple

from reconciler.manifests.format import MAX_WIDTH, Entry, Node, NotLaidOutError, Page, TextPosition, read_pages
from reconciler.manifests.positions import FieldPath, is_text, parse_plain_scalar
from reconciler.manifests.yaml_documents import parse_yaml


def read_value(content: Any, path: FieldPath) -> Any:
    """Return the value at `path`; `None` if missing."""
    for part in path:
        match content, part:
            case dict(), str() if part in content:
                content = content[part]
            case list(), int() if part < len(content):
                content = content[part]
            case _:
                return None
    return content


def set_value(content: Any, path: FieldPath, value: Any) -> None:
    """Set the value at `path`; create missing mappings."""
    for part in path[:-1]:
        content = content.setdefault(part, {}) if isinstance(content, dict) else content[part]
    content[path[-1]] = value


def remove_value(content: Any, path: FieldPath) -> None:
    """Remove the value at `path` and parents that become empty, except the root."""
    parent = read_value(content, path[:-1])
    del parent[path[-1]]
    if not parent and len(path) > 1:
        remove_value(content, path[:-1])


def copy_value(content: Any) -> Any:
    """Return a deep copy. Aliased values become separate copies."""
    match content:
        case dict():
            return {key: copy_value(value) for key, value in content.items()}
        case list():
            return [copy_value(value) for value in content]
        case _:
            return content


_PLAIN: Final = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./+-]*")


def format_flow_value(value: Any, like: str = "") -> str:
    """Format a value in YAML flow style. Strings get the quotes of `like`, the replaced scalar."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case str():
            return _quote(value, like)
        case Mapping():
            return (
                "{" + ", ".join(f"{_quote(str(key))}: {format_flow_value(item)}" for key, item in value.items()) + "}"
            )
        case Sequence():
            return "[" + ", ".join(format_flow_value(item) for item in value) + "]"
        case _:
            message = f"{type(value).__name__} cannot be written in a manifest"
            raise TypeError(message)


def unquote_key(text: str) -> str:
    """Return a YAML key without quotes and escapes."""
    if text.startswith('"'):
        try:
            return str(json.loads(text))
        except ValueError:
            return text
    return text[1:-1].replace("''", "'") if text.startswith("'") else text


def _quote(text: str, like: str = "") -> str:
    if like.startswith("'") and text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    if _PLAIN.fullmatch(text) and is_text(text) and not like.startswith('"'):
        return text
    return json.dumps(text, ensure_ascii=False)


_LINE_END: Final = re.compile(r"\s*,?\s*(#.*)?")


class UneditableError(Exception):
    """The edit would change other parts of the file."""


def set_text(text: str, path: FieldPath, value: Any) -> str:
    """Return `text` with `value` at `path`; missing parents are created.

    Raises:
        UneditableError: The layout of the text does not allow the edit.
    """
    page = _EditableText(text)
    chain = page.find_entries(path)
    if len(chain) == len(path):
        return page.replace_value(chain[-1], value)
    return page.insert_key(chain[-1].value if chain else page.root, path[len(chain) :], value)


def append_text(text: str, path: FieldPath, value: Any) -> str:
    """Return `text` with `value` appended to the list at `path`, which may be missing."""
    page = _EditableText(text)
    chain = page.find_entries(path)
    if len(chain) < len(path) or not chain[-1].value.entries:
        return set_text(text, path, [value])
    return page.append_entry(chain[-1].value, value)


def remove_text(text: str, path: FieldPath) -> str:
    """Return `text` without the value at `path` and parents that become empty."""
    page = _EditableText(text)
    chain = page.find_entries(path)
    if len(chain) < len(path):
        raise UneditableError
    nodes = [page.root, *(entry.value for entry in chain)]
    depth = len(chain) - 1
    while depth > 0 and len(nodes[depth].entries) == 1:
        depth -= 1
    return page.remove_entry(nodes[depth], chain[depth])


class _EditableText:
    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self._end = "\r" if "\r\n" in text else ""
        try:
            roots = [page.root for page in read_pages(text) if page.root is not None]
        except NotLaidOutError as error:
            raise UneditableError from error
        if len(roots) != 1 or roots[0].kind != "mapping":
            raise UneditableError
        self.root = roots[0]

    def find_entries(self, path: FieldPath) -> list[Entry]:
        entries: list[Entry] = []
        node = self.root
        for part in path:
            entry = _find_entry(node, part)
            if entry is None:
                break
            entries.append(entry)
            node = entry.value
        return entries

    def replace_value(self, entry: Entry, value: Any) -> str:
        node = entry.value
        if node.is_block_scalar or node.anchor or not (node.text or node.entries or node.is_flow):
            raise UneditableError
        if node.kind == "scalar" or node.is_flow:
            return self._replace_span(node.start, node.end, format_flow_value(value, node.text))
        # Only a block collection that begins below its key can be replaced.
        if entry.key is None or node.start.line == entry.key.end.line:
            raise UneditableError
        last = _find_last_line(node)
        if any("#" in line for line in self.lines[entry.key.end.line : last + 1]):
            raise UneditableError
        end = TextPosition(last, len(self.lines[last].rstrip("\r")))
        return self._replace_span(entry.key.end, end, f": {format_flow_value(value)}")

    def insert_key(self, node: Node, path: Sequence[str | int], value: Any) -> str:
        if node.kind != "mapping" or any(isinstance(part, int) for part in path):
            raise UneditableError
        for part in reversed(path[1:]):
            value = {part: value}
        text = f"{format_flow_value(str(path[0]))}: {format_flow_value(value)}"
        if node.is_flow:
            return self._insert_in_brackets(node, text)
        first = node.entries[0].start
        if self.lines[first.line][: first.column].strip(" -"):
            raise UneditableError
        return self._insert_below(node, " " * first.column + text)

    def append_entry(self, node: Node, value: Any) -> str:
        if node.kind != "sequence":
            raise UneditableError
        if node.is_flow:
            return self._insert_in_brackets(node, format_flow_value(value))
        line = self.lines[node.entries[0].start.line]
        dash = line[: node.entries[0].start.column].rstrip()
        if dash.strip() != "-":
            raise UneditableError
        return self._insert_below(node, f"{dash} {format_flow_value(value)}")

    def remove_entry(self, node: Node, entry: Entry) -> str:
        if node.is_flow:
            return self._remove_from_brackets(node, entry)
        start, last = entry.start, _find_last_line(entry.value)
        before = self.lines[start.line][: start.column].strip()
        if before != ("" if entry.key is not None else "-"):
            raise UneditableError
        return "\n".join([*self.lines[: start.line], *self.lines[last + 1 :]])

    def _insert_in_brackets(self, node: Node, text: str) -> str:
        if node.entries:
            end = node.entries[-1].value.end
            return self._replace_span(end, end, f", {text}")
        closing = TextPosition(node.end.line, node.end.column - 1)
        return self._replace_span(TextPosition(node.start.line, node.start.column + 1), closing, text)

    def _remove_from_brackets(self, node: Node, entry: Entry) -> str:
        start, end = entry.start, entry.value.end
        if not self.lines[start.line][: start.column].strip() and _LINE_END.fullmatch(
            self.lines[end.line][end.column :]
        ):
            return "\n".join([*self.lines[: start.line], *self.lines[end.line + 1 :]])
        place = node.entries.index(entry)
        if place + 1 < len(node.entries):
            return self._replace_span(start, node.entries[place + 1].start, "")
        before = node.entries[place - 1].value.end if place else TextPosition(node.start.line, node.start.column + 1)
        is_commented = before.line != start.line and "#" in self.lines[before.line][before.column :]
        return self._replace_span(start if is_commented else before, end, "")

    def _insert_below(self, node: Node, line: str) -> str:
        last = _find_last_line(node)
        lines = list(self.lines)
        if last == len(lines) - 1:
            lines[last] += self._end
            return "\n".join([*lines, line])
        return "\n".join([*lines[: last + 1], line + self._end, *lines[last + 1 :]])

    def _replace_span(self, start: TextPosition, end: TextPosition, text: str) -> str:
        first, last = self.lines[start.line][: start.column], self.lines[end.line][end.column :]
        return "\n".join([*self.lines[: start.line], first + text + last, *self.lines[end.line + 1 :]])


def _find_entry(node: Node, part: str | int) -> Entry | None:
    if isinstance(part, int):
        return node.entries[part] if node.kind == "sequence" and part < len(node.entries) else None
    if node.kind != "mapping":
        return None
    return next(
        (entry for entry in node.entries if entry.key is not None and unquote_key(entry.key.text) == part), None
    )


def _find_last_line(node: Node) -> int:
    if node.kind != "scalar" and not node.is_flow and node.entries:
        return _find_last_line(node.entries[-1].value)
    if node.is_block_scalar:
        raise UneditableError
    return node.end.line


_SCHEMA_LINE: Final = "# yaml-language-server:"
_OTHER_LINE_ENDS: Final = ("\x85", "\u2028", "\u2029")


class EditedFile:
    """A YAML file before and after edits. Removed documents keep their numbers."""

    def __init__(self, text: str) -> None:
        if any(other in text for other in _OTHER_LINE_ENDS) or "\r" in text.replace("\r\n", ""):
            raise UneditableError
        try:
            pages = read_pages(text)
        except NotLaidOutError as error:
            raise UneditableError from error
        lines = split_keeping_ends(text)
        bounds = [0, *(page.start.line for page in pages[1:]), len(lines)]
        self._before = ["".join(lines[start:end]) for start, end in pairwise(bounds)]
        self._after = list(self._before)
        self._places = [place for place, page in enumerate(pages) if not _is_empty(page)]

    @property
    def texts(self) -> list[tuple[str, str]]:
        """Text of each document before and after the edits."""
        is_left = any(_has_content(part) for part in self._after)
        return list(zip(self._before, self._after if is_left else [""] * len(self._after), strict=True))

    def read_content(self, number: int) -> Any:
        """Return a document's edited content; `None` if removed."""
        documents = parse_yaml(self._after[self._places[number]].encode(), "now").documents
        return copy_value(documents[0].content) if documents else None

    def set_value(self, number: int, path: FieldPath, value: Any) -> None:
        """Set a value.

        Raises:
            UneditableError: The edit would change other values.
        """
        self._edit(number, lambda text: set_text(text, path, value), lambda content: set_value(content, path, value))

    def append_value(self, number: int, path: FieldPath, value: Any) -> None:
        """Append a value to a list, or raise `UneditableError`."""
        self._edit(
            number,
            lambda text: append_text(text, path, value),
            lambda content: set_value(content, path, [*(read_value(content, path) or []), value]),
        )

    def remove_value(self, number: int, path: FieldPath) -> None:
        """Remove a value and parents that become empty, or raise `UneditableError`."""
        self._edit(number, lambda text: remove_text(text, path), lambda content: remove_value(content, path))

    @contextmanager
    def apply_together(self) -> Iterator[None]:
        """Undo the edits of the `with` block if one raises `UneditableError`."""
        before = list(self._after)
        try:
            yield
        except UneditableError:
            self._after = before
            raise

    def remove_document(self, number: int) -> None:
        """Remove a document, but keep comments that belong to the file."""
        place = self._places[number]
        text = self._after[place]
        is_last = place == len(self._after) - 1
        head = split_keeping_ends(_extract_file_comments(text) if place == 0 else "")
        if not is_last and _SCHEMA_LINE in self._after[place + 1]:
            head = [line for line in head if not line.startswith(_SCHEMA_LINE)]
        self._after[place] = "".join(head) + ("" if is_last else _extract_trailing_comments(text))

    def _edit(self, number: int, change: Callable[[str], str], expect: Callable[[Any], None]) -> None:
        wanted = self.read_content(number)
        if wanted is None:
            raise UneditableError
        place = self._places[number]
        text = change(self._after[place])
        expect(wanted)
        reparsed = parse_yaml(text.encode(errors="surrogatepass"), "then")
        if reparsed.problems or [document.content for document in reparsed.documents] != [wanted]:
            raise UneditableError
        self._after[place] = text


def split_keeping_ends(text: str) -> list[str]:
    """Split a text at LF into lines with their line ends."""
    *lines, last = text.split("\n")
    return [*(f"{line}\n" for line in lines), *([last] if last else [])]


def _is_empty(page: Page) -> bool:
    root = page.root
    return root is None or (
        root.kind == "scalar" and root.text[:1] not in {'"', "'"} and parse_plain_scalar(root.text) is None
    )


def _has_content(text: str) -> bool:
    return any(line.strip() and not line.lstrip().startswith(("#", "---")) for line in text.split("\n"))


def _extract_file_comments(text: str) -> str:
    comments: list[str] = []
    for line in split_keeping_ends(text):
        if line.startswith("---"):
            return "".join(comments)
        if line.strip() and not line.startswith("#"):
            break
        comments.append(line)
    while comments and comments[-1].strip() and not comments[-1].startswith(_SCHEMA_LINE):
        comments.pop()
    return "".join(comments)


def _extract_trailing_comments(text: str) -> str:
    lines = split_keeping_ends(text)
    first = len(lines)
    while first and (lines[first - 1].startswith("#") or not lines[first - 1].strip()):
        first -= 1
    return "".join(lines[first:]).lstrip("\r\n")


_STEP = "  "


def format_document(content: Mapping[str, Any]) -> str:
    """Format a manifest with `spec` in block style, and deeper values in flow style if they fit on a line."""
    lines: list[str] = []
    for key, value in content.items():
        if key == "spec" and value:
            lines += ["spec:", *_format_entries(value, _STEP)]
        elif key != "spec":
            lines += _format_entry(key, value, "")
    return "".join(f"{line}\n" for line in lines)


def _format_entry(key: str, value: Any, indent: str) -> Iterator[str]:
    yield from _format_value(f"{indent}{format_flow_value(key)}:", value, indent)


def _format_value(lead: str, value: Any, indent: str) -> Iterator[str]:
    line = f"{lead} {format_flow_value(value)}"
    is_collection = isinstance(value, Mapping | list | tuple) and len(value) > 0
    if not is_collection or len(line) <= MAX_WIDTH:
        yield line
        return
    yield lead
    yield from _format_entries(value, indent + _STEP)


def _format_entries(value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _format_entry(str(key), item, indent)
        return
    for item in value:
        is_long = (
            len(f"{indent}- {format_flow_value(item)}") >= MAX_WIDTH
        )  # as in `fmt`, one column less than after a key
        if isinstance(item, Mapping | list | tuple) and item and is_long:
            first, *rest = _format_entries(item, indent + _STEP)
            yield f"{indent}- {first.removeprefix(indent + _STEP)}"
            yield from rest
        else:
            yield f"{indent}- {format_flow_value(item)}"


_CONTEXT: Final = 3
_NOTHING: Final = "/dev/null"


class _Hunk(NamedTuple):
    start: int
    end: int
    new_start: int
    new_end: int


def format_patch(label: str, texts: Sequence[tuple[str, str]], *, is_new: bool = False, is_gone: bool = False) -> str:
    """Format a unified diff of a file; empty if nothing changed."""
    before = [line for old, _ in texts for line in split_keeping_ends(old)]
    after = [line for _, new in texts for line in split_keeping_ends(new)]
    hunks = list(_find_hunks(texts))
    if not hunks:
        return ""
    name = f"{label}\t" if " " in label else label
    old_name, new_name = (_NOTHING if is_new else f"a/{name}"), (_NOTHING if is_gone else f"b/{name}")
    body = [text for group in _group_hunks(hunks) for text in _format_hunks(group, before, after)]
    return "".join([f"--- {old_name}\n", f"+++ {new_name}\n", *body])


def _find_hunks(texts: Sequence[tuple[str, str]]) -> Iterator[_Hunk]:
    start = new_start = 0
    for old, new in texts:
        old_lines, new_lines = split_keeping_ends(old), split_keeping_ends(new)
        if old != new:
            codes = SequenceMatcher(None, old_lines, new_lines, autojunk=False).get_opcodes()
            yield from (
                _Hunk(start + i1, start + i2, new_start + j1, new_start + j2)
                for tag, i1, i2, j1, j2 in codes
                if tag != "equal"
            )
        start, new_start = start + len(old_lines), new_start + len(new_lines)


def _group_hunks(hunks: Sequence[_Hunk]) -> Iterator[list[_Hunk]]:
    group = [hunks[0]]
    for hunk in hunks[1:]:
        if hunk.start - group[-1].end > 2 * _CONTEXT:
            yield group
            group = []
        group.append(hunk)
    yield group


def _format_hunks(group: Sequence[_Hunk], before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    start = max(0, group[0].start - _CONTEXT)
    end = min(len(before), group[-1].end + _CONTEXT)
    new_start = group[0].new_start - (group[0].start - start)
    new_end = group[-1].new_end + (end - group[-1].end)
    yield f"@@ -{_format_range(start, end)} +{_format_range(new_start, new_end)} @@\n"
    position = start
    for hunk in group:
        yield from (_format_line(" ", line) for line in before[position : hunk.start])
        yield from (_format_line("-", line) for line in before[hunk.start : hunk.end])
        yield from (_format_line("+", line) for line in after[hunk.new_start : hunk.new_end])
        position = hunk.end
    yield from (_format_line(" ", line) for line in before[position:end])


def _format_range(start: int, end: int) -> str:
    length = end - start
    return f"{start if length == 0 else start + 1},{length}"


def _format_line(sign: str, line: str) -> str:
    return f"{sign}{line}" if line.endswith("\n") else f"{sign}{line}\n\\ No newline at end of file\n"
