"""One change to the text of one document, by the places its parser tells: everything else stays byte for byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reconciler.manifests.editing.scalartext import key_of, yaml_text
from reconciler.manifests.yamltree import Mark, Node, NotLaidOutError, read_pages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.manifests.positions import Path
    from reconciler.manifests.yamltree import Entry


class UneditableError(Exception):
    """The text is laid out so that a change would touch more than what is to be changed."""


def set_text(text: str, path: Path, value: Any) -> str:
    """Return `text` with `value` at `path`; what is missing on the way is written, too.

    Raises:
        UneditableError: It is laid out in a way that is better changed by hand.
    """
    page = _Text(text)
    chain = page.chain(path)
    if len(chain) == len(path):
        return page.replaced(chain[-1], value)
    return page.inserted(chain[-1].value if chain else page.root, path[len(chain) :], value)


def append_text(text: str, path: Path, value: Any) -> str:
    """Return `text` with one entry more in the list at `path`, which is made where there is none."""
    page = _Text(text)
    chain = page.chain(path)
    if len(chain) < len(path) or not chain[-1].value.entries:
        return set_text(text, path, [value])
    return page.appended(chain[-1].value, value)


def remove_text(text: str, path: Path) -> str:
    """Return `text` without what stands at `path`, and without the collections that it leaves empty."""
    page = _Text(text)
    chain = page.chain(path)
    if len(chain) < len(path):
        raise UneditableError
    nodes = [page.root, *(entry.value for entry in chain)]
    depth = len(chain) - 1
    while depth > 0 and len(nodes[depth].entries) == 1:
        depth -= 1
    return page.removed(nodes[depth], chain[depth])


class _Text:
    """A document as lines, and as what they mean."""

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

    def chain(self, path: Path) -> list[Entry]:
        """Return the entries that lead to `path`, as far as they are written."""
        found: list[Entry] = []
        node = self.root
        for part in path:
            entry = _entry(node, part)
            if entry is None:
                break
            found.append(entry)
            node = entry.value
        return found

    def replaced(self, entry: Entry, value: Any) -> str:
        node = entry.value
        if node.is_block_scalar or node.anchor or not (node.text or node.entries or node.is_flow):
            raise UneditableError
        if node.kind == "scalar" or node.is_flow:
            return self._with(node.start, node.end, yaml_text(value, node.text))
        # A block becomes a line: it begins below its key, and ends with its last entry.
        if entry.key is None or node.start.line == entry.key.end.line:
            raise UneditableError
        last = _last_line(node)
        if any("#" in line for line in self.lines[entry.key.end.line : last + 1]):
            raise UneditableError
        end = Mark(last, len(self.lines[last].rstrip("\r")))
        return self._with(entry.key.end, end, f": {yaml_text(value)}")

    def inserted(self, node: Node, path: Sequence[str | int], value: Any) -> str:
        """Return the text with a key more in a mapping; deeper parts of `path` are written behind it in brackets."""
        if node.kind != "mapping" or any(isinstance(part, int) for part in path):
            raise UneditableError
        for part in reversed(path[1:]):
            value = {part: value}
        text = f"{yaml_text(str(path[0]))}: {yaml_text(value)}"
        if node.is_flow:
            return self._into_brackets(node, text)
        first = node.entries[0].start
        if self.lines[first.line][: first.column].strip(" -"):
            raise UneditableError
        return self._below(node, " " * first.column + text)

    def appended(self, node: Node, value: Any) -> str:
        """Return the text with an entry more at the end of a list."""
        if node.kind != "sequence":
            raise UneditableError
        if node.is_flow:
            return self._into_brackets(node, yaml_text(value))
        line = self.lines[node.entries[0].start.line]
        dash = line[: node.entries[0].start.column].rstrip()
        if dash.strip() != "-":
            raise UneditableError
        return self._below(node, f"{dash} {yaml_text(value)}")

    def removed(self, node: Node, entry: Entry) -> str:
        """Return the text without an entry of a collection that keeps others, or of the document."""
        if node.is_flow:
            return self._out_of_brackets(node, entry)
        start, last = entry.start, _last_line(entry.value)
        before = self.lines[start.line][: start.column].strip()
        if before != ("" if entry.key is not None else "-"):
            raise UneditableError
        return "\n".join([*self.lines[: start.line], *self.lines[last + 1 :]])

    def _into_brackets(self, node: Node, text: str) -> str:
        if node.entries:
            end = node.entries[-1].value.end
            return self._with(end, end, f", {text}")
        closing = Mark(node.end.line, node.end.column - 1)
        return self._with(Mark(node.start.line, node.start.column + 1), closing, text)

    def _out_of_brackets(self, node: Node, entry: Entry) -> str:
        place = node.entries.index(entry)
        if place + 1 < len(node.entries):
            return self._with(entry.start, node.entries[place + 1].start, "")
        before = node.entries[place - 1].value.end if place else Mark(node.start.line, node.start.column + 1)
        return self._with(before, entry.value.end, "")

    def _below(self, node: Node, line: str) -> str:
        last = _last_line(node)
        lines = list(self.lines)
        if last == len(lines) - 1:
            lines[last] += self._end
            return "\n".join([*lines, line])
        return "\n".join([*lines[: last + 1], line + self._end, *lines[last + 1 :]])

    def _with(self, start: Mark, end: Mark, text: str) -> str:
        first, last = self.lines[start.line][: start.column], self.lines[end.line][end.column :]
        return "\n".join([*self.lines[: start.line], first + text + last, *self.lines[end.line + 1 :]])


def _entry(node: Node, part: str | int) -> Entry | None:
    if isinstance(part, int):
        return node.entries[part] if node.kind == "sequence" and part < len(node.entries) else None
    if node.kind != "mapping":
        return None
    return next((entry for entry in node.entries if entry.key is not None and key_of(entry.key.text) == part), None)


def _last_line(node: Node) -> int:
    """Return the last line something is written on; the parser ends blocks where the next thing begins."""
    if node.kind != "scalar" and not node.is_flow and node.entries:
        return _last_line(node.entries[-1].value)
    if node.is_block_scalar:
        raise UneditableError
    return node.end.line
