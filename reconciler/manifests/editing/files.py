"""A file of manifests that is being changed: its documents apart, each change checked by what it says afterwards."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from reconciler.manifests.documents import parse
from reconciler.manifests.editing.contents import at, copied, put, take
from reconciler.manifests.editing.textedits import UneditableError, append_text, remove_text, set_text
from reconciler.manifests.scalars import resolve
from reconciler.manifests.yamltree import NotLaidOutError, read_pages

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.manifests.positions import Path
    from reconciler.manifests.yamltree import Page

_SCHEMA_LINE: Final = "# yaml-language-server:"
_OTHER_LINE_ENDS: Final = ("\x85", "\u2028", "\u2029")


class EditedFile:
    """One file, before and after. Documents keep their numbers, also when one before them is dropped."""

    def __init__(self, text: str) -> None:
        """Take a file as it is.

        Raises:
            UneditableError: It uses what is rarely used, and is better changed by hand.
        """
        if any(other in text for other in _OTHER_LINE_ENDS) or "\r" in text.replace("\r\n", ""):
            raise UneditableError
        try:
            pages = read_pages(text)
        except NotLaidOutError as error:
            raise UneditableError from error
        lines = with_ends(text)
        bounds = [0, *(page.start.line for page in pages[1:]), len(lines)]
        self._before = ["".join(lines[start:end]) for start, end in pairwise(bounds)]
        self._after = list(self._before)
        self._places = [place for place, page in enumerate(pages) if not _is_empty(page)]

    @property
    def pieces(self) -> list[tuple[str, str]]:
        """The file in pieces, each before and after; together they are the whole of it."""
        is_left = any(_means_something(part) for part in self._after)
        return list(zip(self._before, self._after if is_left else [""] * len(self._after), strict=True))

    def content(self, number: int) -> Any:
        """Return what a document says now; `None` where it was dropped."""
        documents = parse(self._after[self._places[number]].encode(), "now").documents
        return copied(documents[0].content) if documents else None

    def set(self, number: int, path: Path, value: Any) -> None:
        """Write a value.

        Raises:
            UneditableError: That would change more than this value; nothing was changed.
        """
        self._edit(number, lambda text: set_text(text, path, value), lambda content: put(content, path, value))

    def append(self, number: int, path: Path, value: Any) -> None:
        """Write one entry more into a list.

        Raises:
            UneditableError: As `set`.
        """
        self._edit(
            number,
            lambda text: append_text(text, path, value),
            lambda content: put(content, path, [*(at(content, path) or []), value]),
        )

    def remove(self, number: int, path: Path) -> None:
        """Take out an entry, and the collections that it leaves empty.

        Raises:
            UneditableError: As `set`.
        """
        self._edit(number, lambda text: remove_text(text, path), lambda content: take(content, path))

    def drop(self, number: int) -> None:
        """Take out a whole document; comments that stand before it as a heading of the file, or behind it, stay."""
        place = self._places[number]
        text = self._after[place]
        is_last = place == len(self._after) - 1
        self._after[place] = (_heading(text) if place == 0 else "") + ("" if is_last else _below(text))

    def _edit(self, number: int, change: Callable[[str], str], mean: Callable[[Any], None]) -> None:
        wanted = self.content(number)
        if wanted is None:
            raise UneditableError
        place = self._places[number]
        text = change(self._after[place])
        mean(wanted)
        found = parse(text.encode(errors="surrogatepass"), "then")
        if found.problems or [document.content for document in found.documents] != [wanted]:
            raise UneditableError
        self._after[place] = text


def with_ends(text: str) -> list[str]:
    """Return the lines of a text with their ends: LF alone ends one, what stands before it is kept as it is."""
    *lines, last = text.split("\n")
    return [*(f"{line}\n" for line in lines), *([last] if last else [])]


def _is_empty(page: Page) -> bool:
    root = page.root
    return root is None or (root.kind == "scalar" and root.text[:1] not in {'"', "'"} and resolve(root.text) is None)


def _means_something(text: str) -> bool:
    return any(line.strip() and not line.lstrip().startswith(("#", "---")) for line in text.split("\n"))


def _heading(text: str) -> str:
    """Return the comments at the top that speak of the file.

    All that stand before its first `---`; where there is none, all but those right above what it says first.
    """
    comments: list[str] = []
    for line in with_ends(text):
        if line.startswith("---"):
            return "".join(comments)
        if line.strip() and not line.startswith("#"):
            break
        comments.append(line)
    while comments and comments[-1].strip() and not comments[-1].startswith(_SCHEMA_LINE):
        comments.pop()
    return "".join(comments)


def _below(text: str) -> str:
    """Return the comments that stand before the next `---`: they are of the document that it begins."""
    lines = with_ends(text)
    first = len(lines)
    while first and (lines[first - 1].startswith("#") or not lines[first - 1].strip()):
        first -= 1
    return "".join(lines[first:]).lstrip("\r\n")
