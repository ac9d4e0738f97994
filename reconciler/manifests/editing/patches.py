"""Changes as a patch: unified, with `a/` and `b/`, for `git apply` and `patch -p1` alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final, NamedTuple

from reconciler.manifests.editing.files import with_ends

_CONTEXT: Final = 3
_NOTHING: Final = "/dev/null"


class _Hunk(NamedTuple):
    """Lines that differ: from where to where, before and after."""

    start: int
    end: int
    new_start: int
    new_end: int


def patch_of(label: str, pieces: Sequence[tuple[str, str]], *, is_new: bool = False, is_gone: bool = False) -> str:
    """Return the patch of one file, given in pieces before and after; empty where nothing changed.

    There is no `diff --git` line: names of such a patch count from the top of a repository, and these from the
    workspace, wherever in a repository that is.
    """
    before = [line for old, _ in pieces for line in with_ends(old)]
    after = [line for _, new in pieces for line in with_ends(new)]
    hunks = list(_hunks(pieces))
    if not hunks:
        return ""
    name = f"{label}\t" if " " in label else label
    old_name, new_name = (_NOTHING if is_new else f"a/{name}"), (_NOTHING if is_gone else f"b/{name}")
    body = [text for group in _groups(hunks) for text in _shown(group, before, after)]
    return "".join([f"--- {old_name}\n", f"+++ {new_name}\n", *body])


def _hunks(pieces: Sequence[tuple[str, str]]) -> Iterator[_Hunk]:
    """Yield what differs; only pieces that were changed are compared, for a file may hold ten thousand documents."""
    start = new_start = 0
    for old, new in pieces:
        old_lines, new_lines = with_ends(old), with_ends(new)
        if old != new:
            codes = SequenceMatcher(None, old_lines, new_lines, autojunk=False).get_opcodes()
            yield from (
                _Hunk(start + i1, start + i2, new_start + j1, new_start + j2)
                for tag, i1, i2, j1, j2 in codes
                if tag != "equal"
            )
        start, new_start = start + len(old_lines), new_start + len(new_lines)


def _groups(hunks: Sequence[_Hunk]) -> Iterator[list[_Hunk]]:
    """Yield hunks that share their context."""
    group = [hunks[0]]
    for hunk in hunks[1:]:
        if hunk.start - group[-1].end > 2 * _CONTEXT:
            yield group
            group = []
        group.append(hunk)
    yield group


def _shown(group: Sequence[_Hunk], before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    start = max(0, group[0].start - _CONTEXT)
    end = min(len(before), group[-1].end + _CONTEXT)
    new_start = group[0].new_start - (group[0].start - start)
    new_end = group[-1].new_end + (end - group[-1].end)
    yield f"@@ -{_range(start, end)} +{_range(new_start, new_end)} @@\n"
    here = start
    for hunk in group:
        yield from (_line(" ", line) for line in before[here : hunk.start])
        yield from (_line("-", line) for line in before[hunk.start : hunk.end])
        yield from (_line("+", line) for line in after[hunk.new_start : hunk.new_end])
        here = hunk.end
    yield from (_line(" ", line) for line in before[here:end])


def _range(start: int, end: int) -> str:
    length = end - start
    # A range of nothing is named by the line before it.
    return f"{start if length == 0 else start + 1},{length}"


def _line(sign: str, line: str) -> str:
    return f"{sign}{line}" if line.endswith("\n") else f"{sign}{line}\n\\ No newline at end of file\n"
