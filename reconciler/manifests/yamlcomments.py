"""Comments brought to what they speak of: above an entry, beside it, or at the end of a block."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from reconciler.manifests.yamltree import Entry, Mark, Node, Page, walk

if TYPE_CHECKING:
    from collections.abc import Iterator


class Comments:
    """The comments and blank lines of a text, taken line by line in the order they are written."""

    def __init__(self, lines: list[str], pages: list[Page]) -> None:
        covered = sorted(_text_of(node) for page in pages if page.root for node in walk(page.root) if node.text)
        self._own: list[tuple[int, int, str]] = []
        self._beside: dict[int, tuple[int, str]] = {}
        self._taken = 0
        for number, line in enumerate(lines):
            if not line.strip():
                if not _within(Mark(number, 0), covered):
                    self._own.append((number, -1, ""))
            elif (column := _comment_column(number, line, covered)) is not None:
                if line[:column].strip():
                    self._beside[number] = (column, line[column:].rstrip())
                else:
                    self._own.append((number, column, line[column:].rstrip()))

    def above(self, line: int) -> list[str]:
        """Take what stands on lines of its own before `line`."""
        found: list[str] = []
        while self._taken < len(self._own) and self._own[self._taken][0] < line:
            found.append(self._own[self._taken][2])
            self._taken += 1
        return found

    def below(self, column: int, before: int) -> list[str]:
        """Take the comments that stand at least as far right as `column`, after the last entry of a block."""
        end = self._taken
        for position in range(self._taken, len(self._own)):
            number, at, _ = self._own[position]
            if number >= before or 0 <= at < column:
                break
            if at >= 0:
                end = position + 1
        found = [text for _, _, text in self._own[self._taken : end]]
        self._taken = end
        return found

    def skip_blanks(self, line: int) -> None:
        """Drop the blank lines up to `line`: those within a flow collection say nothing."""
        while self._taken < len(self._own) and self._own[self._taken][0] <= line and not self._own[self._taken][2]:
            self._taken += 1

    def beside(self, line: int) -> str:
        """Take the comment at the end of a line."""
        return self._beside.pop(line, (0, ""))[1]

    def inside(self, node: Node) -> bool:
        """Tell whether a flow collection holds a comment."""
        lines = range(node.start.line, node.end.line + 1)
        if any(number in lines and text for number, _, text in self._own):
            return True
        return any(node.start < Mark(line, self._beside[line][0]) < node.end for line in lines if line in self._beside)

    def left(self) -> Iterator[str]:
        """Yield what nothing has taken."""
        yield from (text for _, _, text in self._own[self._taken :] if text)
        yield from (text for _, text in self._beside.values())


def attach(page: Page, comments: Comments, end: int) -> None:
    """Give every comment of a document, which ends before line `end`, to what it speaks of."""
    page.above = [*comments.above(page.start.line), *_on_marker(page, comments)]
    if page.root is not None:
        first = page.root.entries[0].start if page.root.entries and not page.root.is_flow else page.root.start
        page.above += comments.above(first.line)
        _attach(page.root, comments, end)
        page.root.below += comments.below(0, end)
    else:
        page.above += comments.above(end)


def _on_marker(page: Page, comments: Comments) -> list[str]:
    """Take the comment on the line of `---`, where nothing else stands on it."""
    if page.root is not None and page.root.start.line == page.start.line:
        return []
    beside = comments.beside(page.start.line)
    return [beside] if beside else []


def _attach(node: Node, comments: Comments, end: int, column: int = -1) -> None:
    """Give the comments of a value that ends before line `end`, below a key at `column`."""
    if node.is_flow and comments.inside(node):
        node.is_flow = False
    if node.kind == "scalar" or node.is_flow:
        if node.is_flow:
            comments.skip_blanks(node.end.line - 1)
        return
    starts = [entry.start.line for entry in node.entries]
    for position, entry in enumerate(node.entries):
        entry.above = comments.above(entry.start.line)
        beside = _beside_key(entry, comments)
        following = starts[position + 1] if position + 1 < len(starts) else end
        _attach(entry.value, comments, following, _column(node))
        entry.beside = " ".join(filter(None, (beside, _beside_value(entry, comments))))
    if node.in_brackets:
        node.below = comments.above(node.end.line)
    elif node.entries:
        # At the column of the key above it a comment speaks of what follows that key.
        node.below = comments.below(max(_column(node), column + 1), end)


def _column(node: Node) -> int:
    """Return where the entries of a block collection begin."""
    return node.entries[0].start.column if node.kind == "mapping" else node.start.column


def _beside_key(entry: Entry, comments: Comments) -> str:
    value = entry.value
    if entry.key is None:
        return ""
    is_below = value.start.line > entry.key.start.line or value.is_block_scalar
    is_block = value.kind != "scalar" and (not value.in_brackets or comments.inside(value))
    return comments.beside(entry.key.start.line) if is_below or is_block else ""


def _beside_value(entry: Entry, comments: Comments) -> str:
    value = entry.value
    is_on_its_line = value.in_brackets or (value.kind == "scalar" and not value.is_block_scalar)
    return comments.beside(value.end.line) if is_on_its_line else ""


def _text_of(node: Node) -> tuple[Mark, Mark]:
    """Return from where to where # is text, and blank lines are."""
    if not node.is_block_scalar:
        return node.start, node.end
    header, *lines = node.text.split("\n")
    if "+" not in header:  # the blank lines below it are not its own
        while lines and not lines[-1].strip():
            lines.pop()
    return Mark(node.start.line + 1, 0), Mark(node.start.line + 1 + len(lines), 0)


def _within(mark: Mark, covered: list[tuple[Mark, Mark]]) -> bool:
    position = bisect_right(covered, (mark, Mark(mark.line + 1, 0))) - 1
    return position >= 0 and covered[position][0] <= mark < covered[position][1]


def _comment_column(number: int, line: str, covered: list[tuple[Mark, Mark]]) -> int | None:
    column = line.find("#")
    while column >= 0:
        if (column == 0 or line[column - 1] in " \t") and not _within(Mark(number, column), covered):
            return column
        column = line.find("#", column + 1)
    return None
