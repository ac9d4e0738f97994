"""Commands in the log of a pipeline: folds on GitHub and GitLab, and on GitHub errors at their file and line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, assert_never

from reconciler.runtime.text import ended_sentence, visible

if TYPE_CHECKING:
    from reconciler.cli.text.remarks import Remarks


Pipeline: TypeAlias = Literal["github", "gitlab", "other"]

_ERASE: Final = "\r\x1b[0K"
_MOST: Final = 10
"""So many of each level GitHub shows of one step; the log has all."""
_PLACE: Final = re.compile(r"(?P<file>.+?):(?P<line>\d+)(?::\d+)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Fold:
    """A fold in a log; both of its ends are empty where a log has none. Times are seconds since 1970.

    Sources: "Workflow commands" of GitHub's documentation, "Custom collapsible sections" of GitLab's.
    """

    pipeline: Pipeline
    title: str
    began: float

    @property
    def begin(self) -> str:
        """What begins it."""
        match self.pipeline:
            case "github":
                return f"::group::{_data(self.title)}\n"
            case "gitlab":
                start = f"section_start:{self.began:.0f}:{self._name}[collapsed=true]"
                return f"\x1b[0K{start}{_ERASE}{visible(self.title)}\n"
            case "other":
                return ""
            case _:
                assert_never(self.pipeline)

    def end(self, ended: float) -> str:
        """Return what ends it; GitLab shows how long that took."""
        match self.pipeline:
            case "github":
                return "::endgroup::\n"
            case "gitlab":
                return f"\x1b[0Ksection_end:{ended:.0f}:{self._name}{_ERASE}\n"
            case "other":
                return ""
            case _:
                assert_never(self.pipeline)

    @property
    def _name(self) -> str:
        """GitLab tells sections of a job apart by their names: two commands may have one of the same title."""
        return re.sub(r"[^a-z0-9_]", "_", f"{self.title.lower()}_{self.began * 1000:.0f}")


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
