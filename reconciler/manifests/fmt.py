"""`fmt`: the canonical form of a YAML file. Says the same, keeps every comment, and changes nothing the second time."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Final

from reconciler.errors import BrokenInvariantError
from reconciler.manifests.documents import parse
from reconciler.manifests.problems import ManifestError
from reconciler.manifests.yamlcomments import Comments, attach
from reconciler.manifests.yamlprint import print_pages
from reconciler.manifests.yamltree import NotLaidOutError, Page, read_pages

if TYPE_CHECKING:
    from collections.abc import Iterator

_OTHER_LINE_ENDS: Final = ("\x85", "\u2028", "\u2029", "\t")


def format_text(text: str, file: str = "the text") -> str:
    """Return a YAML file in canonical form.

    Two spaces a level, `apiVersion`, `kind`, `metadata`, `spec` in this order, one blank line at most between entries,
    collections in brackets on one line as long as they fit and else as blocks; quotes stay as written. A file that
    uses what is rarely used (directives, complex keys) stays as it is.

    Raises:
        ManifestError: It is not YAML.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    parsed = parse(text.encode(errors="surrogatepass"), file)
    if parsed.problems:
        raise ManifestError(parsed.problems, hint="Mend them first; nothing was changed")
    try:
        done = _laid_out(text)
    except NotLaidOutError:
        return text
    _check(text, done)
    return done


def _laid_out(text: str) -> str:
    if any(other in text for other in _OTHER_LINE_ENDS):
        raise NotLaidOutError
    lines = text.split("\n")
    pages = read_pages(text)
    if not pages:
        return _only_comments(lines)
    comments = Comments(lines, pages)
    ends = [*(page.start.line for page in pages[1:]), len(lines)]
    for page, end in zip(pages, ends, strict=True):
        attach(page, comments, end)
    if any(comments.left()):
        raise NotLaidOutError
    for page in pages:
        _squeeze(page)
    return "\n".join([*print_pages(pages), ""])


def _squeeze(page: Page) -> None:
    """Leave one blank line where several follow each other."""
    page.above = list(_squeezed(page.above))
    nodes = [page.root] if page.root is not None else []
    while nodes:
        node = nodes.pop()
        node.below = list(_squeezed(node.below))
        for entry in node.entries:
            entry.above = list(_squeezed(entry.above))
            nodes.append(entry.value)


def _squeezed(lines: list[str]) -> Iterator[str]:
    for text, group in groupby(lines):
        yield from group if text else [text]


def _only_comments(lines: list[str]) -> str:
    kept = [line.strip() for line in lines]
    return "\n".join([*_squeezed(kept), ""]).strip("\n") + "\n" if any(kept) else ""


def _check(before: str, after: str) -> None:
    """Refuse to give back anything that does not say the same: a formatter must never change a plan."""
    old, new = parse(before.encode(), "before"), parse(after.encode(), "after")
    same = [document.content for document in old.documents] == [document.content for document in new.documents]
    if not same or new.problems or _words(before) != _words(after):
        raise BrokenInvariantError(
            "formatting would change what the file says", hint="Nothing was changed. Please report the file"
        )


def _words(text: str) -> Counter[str]:
    """Count the comments, by their text."""
    pages = read_pages(text)
    comments = Comments(text.split("\n"), pages)
    return Counter(word for comment in comments.left() for word in comment.split())
