"""What is wrong with the files: all of it at once, each with its place and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reconciler.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Problem(NamedTuple):
    """One thing that is wrong, and where: `manifests/topics.yaml:12:3: spec.partitions: what is wrong. hint`.

    `line` and `column` count from 1 and are `None` where the whole file is meant; `field` is empty where the whole
    document is.
    """

    file: str
    line: int | None
    column: int | None
    field: str
    message: str
    hint: str

    def __str__(self) -> str:
        """Say it on one line."""
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        field = f" {self.field}:" if self.field else ""
        return f"{place}:{field} {self.message}. {self.hint}"


class ManifestError(UserError):
    """The files do not say something that can be. `problems` holds all that is wrong, sorted by place."""

    def __init__(self, problems: Sequence[Problem], *, hint: str) -> None:
        """Keep every problem; the message lists them, one a line."""
        self.problems = tuple(sorted(problems, key=_place))
        count = len(self.problems)
        files = len({problem.file for problem in self.problems})
        heading = f"{count} {'problem' if count == 1 else 'problems'} in {files} {'file' if files == 1 else 'files'}"
        super().__init__("\n".join([heading, *map(str, self.problems)]), hint=hint)


def _place(problem: Problem) -> tuple[str, int, int, str, str]:
    return problem.file, problem.line or 0, problem.column or 0, problem.field, problem.message


def path_text(path: Sequence[str | int]) -> str:
    """Return a path as people write it: `spec.acls[0].principal`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text
