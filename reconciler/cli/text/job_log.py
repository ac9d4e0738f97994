"""Commands for CI runners: folds (GitHub, GitLab) and annotations (GitHub)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, assert_never

from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.text import end_sentence, escape_invisible

if TYPE_CHECKING:
    from reconciler.cli.text.remarks import Remarks


Pipeline: TypeAlias = Literal["github", "gitlab", "other"]

_ERASE_LINE: Final = "\r\x1b[0K"
_MAX_ANNOTATIONS: Final = 10
_SOURCE_POSITION: Final = re.compile(r"(?P<file>.+?):(?P<line>\d+)(?::\d+)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class LogFold:
    """A fold in a CI log; times are seconds since 1970.

    See "Workflow commands" (GitHub) and "Custom collapsible sections" (GitLab).
    """

    pipeline: Pipeline
    title: str
    start_s: float

    @property
    def opening_text(self) -> str:
        """Text that opens the fold; empty outside GitHub and GitLab."""
        match self.pipeline:
            case "github":
                return f"::group::{_escape_data(self.title)}\n"
            case "gitlab":
                start = f"section_start:{self.start_s:.0f}:{self._section_name}[collapsed=true]"
                return f"\x1b[0K{start}{_ERASE_LINE}{escape_invisible(self.title)}\n"
            case "other":
                return ""
            case _:
                assert_never(self.pipeline)

    def build_closing_text(self, ended: float) -> str:
        """Return the text that closes the fold at time `ended`."""
        match self.pipeline:
            case "github":
                return "::endgroup::\n"
            case "gitlab":
                return f"\x1b[0Ksection_end:{ended:.0f}:{self._section_name}{_ERASE_LINE}\n"
            case "other":
                return ""
            case _:
                assert_never(self.pipeline)

    @property
    def _section_name(self) -> str:
        return re.sub(r"[^a-z0-9_]", "_", f"{self.title.lower()}_{self.start_s * 1000:.0f}")


def list_annotation_commands(remarks: Remarks, prefix: str) -> Iterator[str]:
    """Yield commands that annotate a pull request on GitHub with errors and warnings.

    `prefix` is the workspace's path in the repository.
    """
    for level in ("error", "warning"):
        placed = (remark for remark in remarks.rows if remark.level == level and not remark.is_skipped)
        placed_rows = [
            (at, remark) for remark in placed if (at := _SOURCE_POSITION.fullmatch(remark.source or "")) is not None
        ]
        for at, remark in placed_rows[:_MAX_ANNOTATIONS]:
            title = f",title={_escape_property(remark.about)}" if remark.about != at["file"] else ""
            text = f"{end_sentence(remark.message)} {remark.hint}".rstrip()
            file = _escape_property(prefix + at["file"])
            yield f"::{level} file={file},line={at['line']}{title}::{_escape_data(text)}\n"


def _escape_data(text: str) -> str:
    return escape_invisible(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_data(text).replace(":", "%3A").replace(",", "%2C")
