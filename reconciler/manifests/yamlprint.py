"""YAML laid out in the canonical way: two spaces a level, one blank line at most, comments where they belong."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from reconciler.manifests.yamltree import NotLaidOutError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from reconciler.manifests.yamltree import Entry, Node, Page

MAX_WIDTH: Final = 120
_STEP: Final = "  "
_HEADER: Final = re.compile(r"(&\S+ +)?([|>][+-]?)\s*(#.*)?")

_ROOT_ORDER: Final = ("apiVersion", "kind", "metadata", "spec")
_METADATA_ORDER: Final = ("name", "namespace", "cluster", "labels")


def print_pages(pages: Sequence[Page]) -> Iterator[str]:
    """Yield the lines of all documents."""
    for number, page in enumerate(pages):
        if number:
            yield "---"
        yield from _tidy(_page(page))


def _page(page: Page) -> Iterator[str]:
    yield from page.above
    root = page.root
    if root is None:
        return
    _order_manifest(root)
    if root.kind != "scalar" and not _fits(root, "", ""):
        if root.anchor:
            raise NotLaidOutError
        yield from _entries(root, "")
    else:
        yield from _placed("", "", root)
        yield from root.below


def _order_manifest(root: Node) -> None:
    keys = {entry.key.text for entry in root.entries if entry.key is not None}
    if not {"apiVersion", "kind"} <= keys:
        return
    _order(root.entries, _ROOT_ORDER)
    for entry in root.entries:
        if entry.key is not None and entry.key.text == "metadata":
            _order(entry.value.entries, _METADATA_ORDER)


def _order(entries: list[Entry], names: Sequence[str]) -> None:
    def rank(entry: Entry) -> int:
        text = entry.key.text if entry.key is not None else ""
        return names.index(text) if text in names else len(names)

    entries.sort(key=rank)


def _entries(node: Node, indent: str) -> Iterator[str]:
    for number, entry in enumerate(node.entries):
        above = entry.above if number else _without_leading_blanks(entry.above)
        yield from (f"{indent}{text}" if text else "" for text in above)
        yield from _entry(entry, indent)
    yield from (f"{indent}{text}" if text else "" for text in node.below)


def _entry(entry: Entry, indent: str) -> Iterator[str]:
    beside = f" {entry.beside}" if entry.beside else ""
    if entry.key is not None:
        yield from _placed(f"{indent}{entry.key.text}:", beside, entry.value, indent)
        return
    value = entry.value
    if value.kind != "scalar" and not _fits(value, f"{indent}- ", beside) and not value.anchor:
        # The first line of what is nested follows the dash.
        first, *rest = _entries(value, indent + _STEP)
        if first.strip().startswith("#"):
            raise NotLaidOutError
        if entry.beside:
            yield f"{indent}{entry.beside}"
        yield f"{indent}- {first.removeprefix(indent + _STEP)}"
        yield from rest
    else:
        yield from _placed(f"{indent}-", beside, value, indent)


def _placed(lead: str, beside: str, value: Node, indent: str = "") -> Iterator[str]:
    """Yield a value after its key or dash."""
    if value.kind == "scalar":
        yield from _scalar(lead, beside, value, indent)
    elif _fits(value, lead, beside):
        yield _spaced(lead, _flow(value)) + beside
    else:
        yield _spaced(lead, value.anchor) + beside
        yield from _entries(value, indent + _STEP)


def _scalar(lead: str, beside: str, value: Node, indent: str) -> Iterator[str]:
    first, *rest = value.text.split("\n")
    if value.is_block_scalar:
        header = _HEADER.fullmatch(first)
        if header is None:
            raise NotLaidOutError
        yield _spaced(lead, (header[1] or "") + header[2]) + beside
        yield from _block_text(rest, indent + _STEP, keeps_end="+" in header[2])
    else:
        lines = [_spaced(lead, first), *(f"{indent}{_STEP}{line.lstrip()}" if line.strip() else "" for line in rest)]
        yield from lines[:-1]
        yield lines[-1] + beside


def _block_text(lines: list[str], indent: str, *, keeps_end: bool) -> Iterator[str]:
    if lines and not lines[-1].strip():
        lines = lines[:-1]  # what follows the last line's end
    if not keeps_end:
        while lines and not lines[-1].strip():
            lines = lines[:-1]
    written = [line for line in lines if line.strip()]
    if not written or written[0] != lines[0]:
        raise NotLaidOutError  # an indentation that the first line does not show
    margin = len(written[0]) - len(written[0].lstrip(" "))
    yield from (f"{indent}{line[margin:]}" if line[margin:] else "" for line in lines)


def _fits(node: Node, lead: str, beside: str) -> bool:
    """Tell whether a collection stands on the line of its key: written in brackets, and short enough."""
    if not node.entries:
        return True
    if not node.is_flow:
        return False
    text = _flow(node)
    return "\n" not in text and len(lead) + 1 + len(text) + len(beside) <= MAX_WIDTH


def _flow(node: Node) -> str:
    if node.kind == "scalar":
        if not node.text:
            raise NotLaidOutError
        return node.text
    parts = (
        _flow(entry.value) if entry.key is None else f"{entry.key.text}: {_flow(entry.value)}" for entry in node.entries
    )
    inside = ", ".join(parts)
    return _spaced(node.anchor, f"{{{inside}}}" if node.kind == "mapping" else f"[{inside}]")


def _spaced(lead: str, text: str) -> str:
    return f"{lead} {text}" if lead and text else lead or text


def _without_leading_blanks(lines: list[str]) -> list[str]:
    start = next((number for number, line in enumerate(lines) if line), len(lines))
    return lines[start:]


def _tidy(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines with no blank one at either end. Blank lines that belong to texts are kept."""
    found = list(lines)
    while found and not found[0]:
        del found[0]
    yield from found
