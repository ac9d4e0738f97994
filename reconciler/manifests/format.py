"""Format YAML files in canonical form, including comments."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final, Literal, NamedTuple

from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from reconciler.manifests.positions import PARSER, ManifestError
from reconciler.manifests.yaml_documents import parse_yaml
from reconciler.runtime.dataclass import dataclass, field


class TextPosition(NamedTuple):
    """A position in the text, counted from 0."""

    line: int
    column: int


class NotLaidOutError(Exception):
    """The text has rare YAML syntax, which the formatter leaves unchanged."""


@dataclass(eq=False)
class Node:
    """A YAML value. `text` is a scalar with quotes, or an alias with `*`."""

    kind: Literal["scalar", "mapping", "sequence"]
    start: TextPosition
    end: TextPosition
    text: str = ""
    is_flow: bool = False
    in_brackets: bool = False
    """Whether the collection was written in flow style."""
    anchor: str = ""
    is_block_scalar: bool = False
    entries: list[Entry] = field(default_factory=list)
    below: list[str] = field(default_factory=list)


@dataclass(eq=False)
class Entry:
    """A key with its value, or a list entry, with comments. An empty comment is a blank line."""

    key: Node | None
    value: Node
    above: list[str] = field(default_factory=list)
    beside: str = ""

    @property
    def start(self) -> TextPosition:
        """Position of the first token."""
        return (self.key or self.value).start


@dataclass(eq=False)
class Page:
    """A document with the comments before it."""

    start: TextPosition
    root: Node | None = None
    above: list[str] = field(default_factory=list)


def read_pages(text: str) -> list[Page]:
    """Parse the documents of a valid YAML text, without comments.

    Raises:
        NotLaidOutError: The text has directives, tags of collections, or complex keys.
    """
    reader = _PageReader(text.split("\n"))
    events = PARSER(text.encode())
    while (event := events.get_event()) is not None:
        reader.consume(event)
    return reader.pages


class _PageReader:
    def __init__(self, lines: list[str]) -> None:
        self.pages: list[Page] = []
        self._lines = lines
        self._stack: list[Node] = []
        self._keys: list[Node | None] = []

    def consume(self, event: Any) -> None:
        match event:
            case DocumentStartEvent():
                if event.version is not None or event.tags:
                    raise NotLaidOutError
                self.pages.append(Page(_to_position(event.start_mark)))
            case MappingStartEvent() | SequenceStartEvent():
                self._open_collection(event)
            case MappingEndEvent() | SequenceEndEvent():
                node = self._stack.pop()
                self._keys.pop()
                node.end = _to_position(event.end_mark)
                self._add_node(node)
            case ScalarEvent() | AliasEvent():
                self._add_node(self._build_leaf(event))
            case _:
                pass

    def _open_collection(self, event: Any) -> None:
        if event.tag is not None:
            raise NotLaidOutError
        start = _to_position(event.start_mark)
        kind: Literal["mapping", "sequence"] = "mapping" if isinstance(event, MappingStartEvent) else "sequence"
        anchor = f"&{event.anchor}" if event.anchor is not None else ""
        is_flow = bool(event.flow_style)
        self._stack.append(Node(kind, start, start, is_flow=is_flow, in_brackets=is_flow, anchor=anchor))
        self._keys.append(None)

    def _build_leaf(self, event: Any) -> Node:
        start, end = _to_position(event.start_mark), _to_position(event.end_mark)
        is_block = isinstance(event, ScalarEvent) and event.style in {"|", ">"}
        text = "" if start == end else self._extract_text(start, end)
        return Node("scalar", start, end, text=text, is_block_scalar=is_block)

    def _extract_text(self, start: TextPosition, end: TextPosition) -> str:
        if start.line == end.line:
            return self._lines[start.line][start.column : end.column]
        first, *between = self._lines[start.line : end.line]
        return "\n".join([first[start.column :], *between, self._lines[end.line][: end.column]])

    def _add_node(self, node: Node) -> None:
        if not self._stack:
            self.pages[-1].root = node
            return
        parent = self._stack[-1]
        if parent.kind == "sequence":
            parent.entries.append(Entry(None, node))
        elif self._keys[-1] is None:
            self._keys[-1] = self._check_key(node)
        else:
            parent.entries.append(Entry(self._keys[-1], node))
            self._keys[-1] = None

    def _check_key(self, node: Node) -> Node:
        before = self._lines[node.start.line][: node.start.column].rstrip()
        is_simple = node.kind == "scalar" and bool(node.text) and "\n" not in node.text
        if not is_simple or node.text.startswith("*") or before.endswith("?"):
            raise NotLaidOutError
        return node


def walk_nodes(node: Node) -> Iterator[Node]:
    """Yield a node and its descendants, in order."""
    yield node
    for entry in node.entries:
        if entry.key is not None:
            yield entry.key
        yield from walk_nodes(entry.value)


def _to_position(mark: Any) -> TextPosition:
    return TextPosition(mark.line, mark.column)


MAX_WIDTH: Final = 120
_STEP: Final = "  "
_HEADER: Final = re.compile(r"(&\S+ +)?([|>][+-]?)\s*(#.*)?")

_ROOT_ORDER: Final = ("apiVersion", "kind", "metadata", "spec")
_METADATA_ORDER: Final = ("name", "namespace", "cluster", "labels")


def format_pages(pages: Sequence[Page]) -> Iterator[str]:
    """Yield the lines of the formatted file."""
    says = False
    for page in pages:
        if says:
            yield "---"
        yield from _trim_blank_lines(_format_page(page))
        says |= not _is_empty(page.root)


def _is_empty(root: Node | None) -> bool:
    return root is None or (root.kind == "scalar" and not root.text)


def _format_page(page: Page) -> Iterator[str]:
    root = page.root
    if root is None or _is_empty(root):
        comments = [*page.above, *(root.below if root is not None else ())]
        yield from reversed(_drop_leading_blanks(comments[::-1]))
        return
    yield from page.above
    _order_manifest(root)
    if root.kind != "scalar" and not _fits_on_line(root, "", ""):
        if root.anchor:
            raise NotLaidOutError
        yield from _format_entries(root, "")
    else:
        yield from _format_value("", "", root)
        yield from root.below


def _order_manifest(root: Node) -> None:
    keys = {entry.key.text for entry in root.entries if entry.key is not None}
    if not {"apiVersion", "kind"} <= keys:
        return
    anchored = _list_anchors(root)
    _sort_entries(root.entries, _ROOT_ORDER)
    for entry in root.entries:
        if entry.key is not None and entry.key.text == "metadata":
            _sort_entries(entry.value.entries, _METADATA_ORDER)
    if _list_anchors(root) != anchored:
        raise NotLaidOutError  # In canonical order, an alias would precede its anchor.


def _list_anchors(root: Node) -> list[str]:
    return [text for node in walk_nodes(root) if (text := node.anchor or node.text)[:1] in {"&", "*"}]


def _sort_entries(entries: list[Entry], names: Sequence[str]) -> None:
    def rank(entry: Entry) -> int:
        text = entry.key.text if entry.key is not None else ""
        return names.index(text) if text in names else len(names)

    entries.sort(key=rank)


def _format_entries(node: Node, indent: str) -> Iterator[str]:
    for number, entry in enumerate(node.entries):
        above = entry.above if number else _drop_leading_blanks(entry.above)
        yield from (f"{indent}{text}" if text else "" for text in above)
        yield from _format_entry(entry, indent)
    yield from (f"{indent}{text}" if text else "" for text in node.below)


def _format_entry(entry: Entry, indent: str) -> Iterator[str]:
    beside = f" {entry.beside}" if entry.beside else ""
    if entry.key is not None:
        yield from _format_value(f"{indent}{entry.key.text}:", beside, entry.value, indent)
        return
    value = entry.value
    if value.kind != "scalar" and not _fits_on_line(value, f"{indent}- ", beside) and not value.anchor:
        first, *rest = _format_entries(value, indent + _STEP)
        if first.strip().startswith("#"):
            raise NotLaidOutError
        if entry.beside:
            yield f"{indent}{entry.beside}"
        yield f"{indent}- {first.removeprefix(indent + _STEP)}"
        yield from rest
    else:
        yield from _format_value(f"{indent}-", beside, value, indent)


def _format_value(lead: str, beside: str, value: Node, indent: str = "") -> Iterator[str]:
    if value.kind == "scalar":
        yield from _format_scalar(lead, beside, value, indent)
    elif _fits_on_line(value, lead, beside):
        yield _join_with_space(lead, _format_flow(value)) + beside
    else:
        yield _join_with_space(lead, value.anchor) + beside
        yield from _format_entries(value, indent + _STEP)


def _format_scalar(lead: str, beside: str, value: Node, indent: str) -> Iterator[str]:
    first, *rest = value.text.split("\n")
    if value.is_block_scalar:
        header = _HEADER.fullmatch(first)
        if header is None:
            raise NotLaidOutError
        if rest and rest[-1].strip() and "-" not in header[2]:
            raise NotLaidOutError  # Formatting would add a line end to the string.
        yield _join_with_space(lead, (header[1] or "") + header[2]) + beside
        yield from _format_block_text(rest, indent + _STEP, keeps_end="+" in header[2])
    else:
        lines = [
            _join_with_space(lead, first),
            *(f"{indent}{_STEP}{line.lstrip()}" if line.strip() else "" for line in rest),
        ]
        yield from lines[:-1]
        yield lines[-1] + beside


def _format_block_text(lines: list[str], indent: str, *, keeps_end: bool) -> Iterator[str]:
    if lines and not lines[-1].strip():
        lines = lines[:-1]
    if not keeps_end:
        while lines and not lines[-1].strip():
            lines = lines[:-1]
    written = [line for line in lines if line.strip()]
    if not written or written[0] != lines[0]:
        raise NotLaidOutError  # Leading blank lines hide the scalar's indentation.
    margin = len(written[0]) - len(written[0].lstrip(" "))
    yield from (f"{indent}{line[margin:]}" if line[margin:] else "" for line in lines)


def _fits_on_line(node: Node, lead: str, beside: str) -> bool:
    if not node.entries:
        return True
    if not node.is_flow:
        return False
    text = _format_flow(node)
    return "\n" not in text and len(lead) + 1 + len(text) + len(beside) <= MAX_WIDTH


def _format_flow(node: Node) -> str:
    if node.kind == "scalar":
        if not node.text:
            raise NotLaidOutError
        return node.text
    parts = (
        _format_flow(entry.value) if entry.key is None else f"{entry.key.text}: {_format_flow(entry.value)}"
        for entry in node.entries
    )
    inside = ", ".join(parts)
    return _join_with_space(node.anchor, f"{{{inside}}}" if node.kind == "mapping" else f"[{inside}]")


def _join_with_space(lead: str, text: str) -> str:
    return f"{lead} {text}" if lead and text else lead or text


def _drop_leading_blanks(lines: list[str]) -> list[str]:
    start = next((number for number, line in enumerate(lines) if line), len(lines))
    return lines[start:]


def _trim_blank_lines(lines: Iterable[str]) -> Iterator[str]:
    remaining = list(lines)
    while remaining and not remaining[0]:
        del remaining[0]
    yield from remaining


class Comments:
    """Comments and blank lines of a file, taken once and in order."""

    def __init__(self, lines: list[str], pages: list[Page]) -> None:
        covered = sorted(
            _find_text_range(node) for page in pages if page.root for node in walk_nodes(page.root) if node.text
        )
        self._own: list[tuple[int, int, str]] = []
        self._beside: dict[int, tuple[int, str]] = {}
        self._taken = 0
        for number, line in enumerate(lines):
            if not line.strip():
                if not _is_covered(TextPosition(number, 0), covered):
                    self._own.append((number, -1, ""))
            elif (column := _find_comment_column(number, line, covered)) is not None:
                if line[:column].strip():
                    self._beside[number] = (column, line[column:].rstrip())
                else:
                    self._own.append((number, column, line[column:].rstrip()))

    def take_comments_above(self, line: int) -> list[str]:
        """Take the remaining comments before `line`."""
        comments: list[str] = []
        while self._taken < len(self._own) and self._own[self._taken][0] < line:
            comments.append(self._own[self._taken][2])
            self._taken += 1
        return comments

    def take_comments_below(self, column: int, before: int) -> list[str]:
        """Take comments before line `before` with an indent of at least `column`."""
        end = self._taken
        for position in range(self._taken, len(self._own)):
            number, at, _ = self._own[position]
            if number >= before or 0 <= at < column:
                break
            if at >= 0:
                end = position + 1
        comments = [text for _, _, text in self._own[self._taken : end]]
        self._taken = end
        return comments

    def skip_blanks(self, line: int) -> None:
        """Drop blank lines up to `line`."""
        while self._taken < len(self._own) and self._own[self._taken][0] <= line and not self._own[self._taken][2]:
            self._taken += 1

    def take_trailing_comment(self, line: int) -> str:
        """Take the comment at a line's end; empty if none."""
        return self._beside.pop(line, (0, ""))[1]

    def has_comment_inside(self, node: Node) -> bool:
        """Return whether a flow collection contains a comment."""
        lines = range(node.start.line, node.end.line + 1)
        if any(number in lines and text for number, _, text in self._own):
            return True
        return any(
            node.start < TextPosition(line, self._beside[line][0]) < node.end for line in lines if line in self._beside
        )

    def take_remaining_comments(self) -> Iterator[str]:
        """Yield the remaining comments."""
        yield from (text for _, _, text in self._own[self._taken :] if text)
        yield from (text for _, text in self._beside.values())


def attach_comments(page: Page, comments: Comments, end: int) -> None:
    """Attach comments to a document's nodes. The document ends before line `end`."""
    page.above = [*comments.take_comments_above(page.start.line), *_take_marker_comment(page, comments)]
    if page.root is not None:
        first = page.root.entries[0].start if page.root.entries and not page.root.is_flow else page.root.start
        page.above += comments.take_comments_above(first.line)
        _attach_below(page.root, comments, end)
        page.root.below += comments.take_comments_below(0, end)
    else:
        page.above += comments.take_comments_above(end)


def _take_marker_comment(page: Page, comments: Comments) -> list[str]:
    if page.root is not None and page.root.start.line == page.start.line:
        return []
    beside = comments.take_trailing_comment(page.start.line)
    return [beside] if beside else []


def _attach_below(node: Node, comments: Comments, end: int, column: int = -1) -> None:
    if node.is_flow and comments.has_comment_inside(node):
        node.is_flow = False
    if node.kind == "scalar" or node.is_flow:
        if node.is_flow:
            comments.skip_blanks(node.end.line - 1)
        return
    starts = [entry.start.line for entry in node.entries]
    for position, entry in enumerate(node.entries):
        entry.above = comments.take_comments_above(entry.start.line)
        beside = _take_key_comment(entry, comments)
        following = starts[position + 1] if position + 1 < len(starts) else end
        _attach_below(entry.value, comments, following, _find_column(node))
        entry.beside = " ".join(filter(None, (beside, _take_value_comment(entry, comments))))
    if node.in_brackets:
        node.below = comments.take_comments_above(node.end.line)
    elif node.entries:
        # A comment in the key's column belongs to the next key.
        node.below = comments.take_comments_below(max(_find_column(node), column + 1), end)


def _find_column(node: Node) -> int:
    return node.entries[0].start.column if node.kind == "mapping" else node.start.column


def _take_key_comment(entry: Entry, comments: Comments) -> str:
    value = entry.value
    if entry.key is None:
        return ""
    is_below = value.start.line > entry.key.start.line or value.is_block_scalar
    is_block = value.kind != "scalar" and (not value.in_brackets or comments.has_comment_inside(value))
    return comments.take_trailing_comment(entry.key.start.line) if is_below or is_block else ""


def _take_value_comment(entry: Entry, comments: Comments) -> str:
    value = entry.value
    is_on_its_line = value.in_brackets or (value.kind == "scalar" and not value.is_block_scalar)
    return comments.take_trailing_comment(value.end.line) if is_on_its_line else ""


def _find_text_range(node: Node) -> tuple[TextPosition, TextPosition]:
    if not node.is_block_scalar:
        return node.start, node.end
    header, *lines = node.text.split("\n")
    if lines and not lines[-1].strip():
        lines.pop()
    if "+" not in header:  # Without "+", the scalar excludes trailing blank lines.
        while lines and not lines[-1].strip():
            lines.pop()
    return TextPosition(node.start.line + 1, 0), TextPosition(node.start.line + 1 + len(lines), 0)


def _is_covered(mark: TextPosition, covered: list[tuple[TextPosition, TextPosition]]) -> bool:
    position = bisect_right(covered, (mark, TextPosition(mark.line + 1, 0))) - 1
    return position >= 0 and covered[position][0] <= mark < covered[position][1]


def _find_comment_column(number: int, line: str, covered: list[tuple[TextPosition, TextPosition]]) -> int | None:
    column = line.find("#")
    while column >= 0:
        if (column == 0 or line[column - 1] in " \t") and not _is_covered(TextPosition(number, column), covered):
            return column
        column = line.find("#", column + 1)
    return None


_OTHER_LINE_ENDS: Final = ("\x85", "\u2028", "\u2029", "\t")


def format_text(text: str, file: str = "the text") -> str:
    """Return a YAML file in canonical form.

    Quotes and short flow collections stay. Files with directives or complex keys are returned unchanged.

    Raises:
        ManifestError: The text is not valid YAML.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    parsed = parse_yaml(text.encode(errors="surrogatepass"), file)
    if parsed.problems:
        raise ManifestError(parsed.problems, hint="Mend them first; nothing was changed")
    try:
        done = _format_once(text)
        settles = done == text or (_is_equivalent(text, done) and _format_once(done) == done)
    except NotLaidOutError:
        return text
    return done if settles else text


def _format_once(text: str) -> str:
    if any(other in text for other in _OTHER_LINE_ENDS):
        raise NotLaidOutError
    lines = text.split("\n")
    pages = read_pages(text)
    if not pages:
        return _format_comments(lines)
    comments = Comments(lines, pages)
    ends = [*(page.start.line for page in pages[1:]), len(lines)]
    for page, end in zip(pages, ends, strict=True):
        attach_comments(page, comments, end)
    if any(comments.take_remaining_comments()):
        raise NotLaidOutError
    for page in pages:
        _collapse_page_blanks(page)
    return "\n".join([*format_pages(pages), ""])


def _collapse_page_blanks(page: Page) -> None:
    page.above = list(_collapse_blanks(page.above))
    nodes = [page.root] if page.root is not None else []
    while nodes:
        node = nodes.pop()
        node.below = list(_collapse_blanks(node.below))
        for entry in node.entries:
            entry.above = list(_collapse_blanks(entry.above))
            nodes.append(entry.value)


def _collapse_blanks(lines: list[str]) -> Iterator[str]:
    for text, group in groupby(lines):
        yield from group if text else [text]


def _format_comments(lines: list[str]) -> str:
    stripped = [line.strip() for line in lines]
    return "\n".join([*_collapse_blanks(stripped), ""]).strip("\n") + "\n" if any(stripped) else ""


def _is_equivalent(before: str, after: str) -> bool:
    old, new = parse_yaml(before.encode(), "before"), parse_yaml(after.encode(), "after")
    same = [document.content for document in old.documents] == [document.content for document in new.documents]
    return same and not new.problems and _count_comment_words(before) == _count_comment_words(after)


def _count_comment_words(text: str) -> Counter[str]:
    pages = read_pages(text)
    comments = Comments(text.split("\n"), pages)
    return Counter(word for comment in comments.take_remaining_comments() for word in comment.split())
