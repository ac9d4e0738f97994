"""YAML as its author laid it out: collections, scalars as written, and comments with the entry they speak of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from reconciler.manifests.documents import PARSER

if TYPE_CHECKING:
    from collections.abc import Iterator


class Mark(NamedTuple):
    """A place in a text, counted from 0."""

    line: int
    column: int


class NotLaidOutError(Exception):
    """The text uses something rare whose layout is better left to its author."""


@dataclass(eq=False)
class Node:
    """One value. `text` is a scalar as written, quotes and all; an alias with its star."""

    kind: Literal["scalar", "mapping", "sequence"]
    start: Mark
    end: Mark
    text: str = ""
    is_flow: bool = False
    in_brackets: bool = False
    """Written as a flow collection, whatever becomes of it."""
    anchor: str = ""
    is_block_scalar: bool = False
    entries: list[Entry] = field(default_factory=list)
    below: list[str] = field(default_factory=list)
    """Comments after the last entry of a block collection."""


@dataclass(eq=False)
class Entry:
    """A key with its value, or an entry of a list, and the comments that speak of it; an empty text is a blank line."""

    key: Node | None
    value: Node
    above: list[str] = field(default_factory=list)
    beside: str = ""

    @property
    def start(self) -> Mark:
        """Where it begins."""
        return (self.key or self.value).start


@dataclass(eq=False)
class Page:
    """One document: where it begins, what it says, the comments before it."""

    start: Mark
    root: Node | None = None
    above: list[str] = field(default_factory=list)


def read_pages(text: str) -> list[Page]:
    """Return the documents of a text that is known to be YAML, without comments.

    Raises:
        NotLaidOutError: It holds directives, tags of collections, or keys that are no plain texts.
    """
    reader = _Reader(text.split("\n"))
    events = PARSER(text.encode())
    while (event := events.get_event()) is not None:
        reader.take(event)
    return reader.pages


class _Reader:
    def __init__(self, lines: list[str]) -> None:
        self.pages: list[Page] = []
        self._lines = lines
        self._stack: list[Node] = []
        self._keys: list[Node | None] = []

    def take(self, event: Any) -> None:
        match event:
            case DocumentStartEvent():
                if event.version is not None or event.tags:
                    raise NotLaidOutError
                self.pages.append(Page(_mark(event.start_mark)))
            case MappingStartEvent() | SequenceStartEvent():
                self._open(event)
            case MappingEndEvent() | SequenceEndEvent():
                node = self._stack.pop()
                self._keys.pop()
                node.end = _mark(event.end_mark)
                self._add(node)
            case ScalarEvent() | AliasEvent():
                self._add(self._leaf(event))
            case _:
                pass  # the ends of documents and of the stream say nothing

    def _open(self, event: Any) -> None:
        if event.tag is not None:
            raise NotLaidOutError
        start = _mark(event.start_mark)
        kind: Literal["mapping", "sequence"] = "mapping" if isinstance(event, MappingStartEvent) else "sequence"
        anchor = f"&{event.anchor}" if event.anchor is not None else ""
        is_flow = bool(event.flow_style)
        self._stack.append(Node(kind, start, start, is_flow=is_flow, in_brackets=is_flow, anchor=anchor))
        self._keys.append(None)

    def _leaf(self, event: Any) -> Node:
        start, end = _mark(event.start_mark), _mark(event.end_mark)
        is_block = isinstance(event, ScalarEvent) and event.style in {"|", ">"}
        text = "" if start == end else self._source(start, end)
        return Node("scalar", start, end, text=text, is_block_scalar=is_block)

    def _source(self, start: Mark, end: Mark) -> str:
        if start.line == end.line:
            return self._lines[start.line][start.column : end.column]
        first, *between = self._lines[start.line : end.line]
        return "\n".join([first[start.column :], *between, self._lines[end.line][: end.column]])

    def _add(self, node: Node) -> None:
        if not self._stack:
            self.pages[-1].root = node
            return
        parent = self._stack[-1]
        if parent.kind == "sequence":
            parent.entries.append(Entry(None, node))
        elif self._keys[-1] is None:
            self._keys[-1] = self._key(node)
        else:
            parent.entries.append(Entry(self._keys[-1], node))
            self._keys[-1] = None

    def _key(self, node: Node) -> Node:
        before = self._lines[node.start.line][: node.start.column].rstrip()
        is_simple = node.kind == "scalar" and bool(node.text) and "\n" not in node.text
        if not is_simple or node.text.startswith("*") or before.endswith("?"):
            raise NotLaidOutError
        return node


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all below it, in the order they are written."""
    yield node
    for entry in node.entries:
        if entry.key is not None:
            yield entry.key
        yield from walk(entry.value)


def _mark(mark: Any) -> Mark:
    return Mark(mark.line, mark.column)
