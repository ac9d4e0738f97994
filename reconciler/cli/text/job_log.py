"""Commands in the log of a pipeline: folds on GitHub and GitLab, and on GitHub errors at their file and line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, assert_never

from reconciler.runtime.text import ended_sentence, visible

if TYPE_CHECKING:
    from reconciler.cli.text.remarks import Remarks


Pipeline: TypeAlias = Literal["github", "gitlab", "other"]

_ERASE: Final = "\r\x1b[0K"
_MOST: Final = 10
"""So many of each level GitHub shows of one step; the log has all."""
_PLACE: Final = re.compile(r"(?P<file>.+?):(?P<line>\d+)(?::\d+)?", re.DOTALL)


def fold(pipeline: Pipeline, title: str, seconds: float) -> tuple[str, str]:
    """Return what begins and what ends a fold, both empty where a log has none; `seconds` is the time since 1970.

    Sources: "Workflow commands" of GitHub's documentation, "Custom collapsible sections" of GitLab's.
    """
    match pipeline:
        case "github":
            return f"::group::{_data(title)}\n", "::endgroup::\n"
        case "gitlab":
            name = re.sub(r"[^a-z0-9_]", "_", title.lower())
            begin = f"\x1b[0Ksection_start:{seconds:.0f}:{name}[collapsed=true]{_ERASE}{visible(title)}\n"
            return begin, f"\x1b[0Ksection_end:{seconds:.0f}:{name}{_ERASE}\n"
        case "other":
            return "", ""
        case _:
            assert_never(pipeline)


def at_lines(remarks: Remarks, prefix: str) -> Iterator[str]:
    """Yield commands that let GitHub show what is wrong, and what is dangerous, at its line of a pull request.

    `prefix`: the way from the root of the repository to the workspace.
    """
    for level in ("error", "warning"):
        placed = (each for each in remarks.rows if each.level == level and not each.is_skipped)
        found = [(at, each) for each in placed if (at := _PLACE.fullmatch(each.source or "")) is not None]
        for at, each in found[:_MOST]:
            title = f",title={_property(each.about)}" if each.about != at["file"] else ""
            said = f"{ended_sentence(each.message)} {each.hint}".rstrip()
            yield f"::{level} file={_property(prefix + at['file'])},line={at['line']}{title}::{_data(said)}\n"


def _data(text: str) -> str:
    """Escape what ends a command; what cannot be seen is written out first."""
    return visible(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Escape also what ends a property."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
