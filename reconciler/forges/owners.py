"""CODEOWNERS: who owns a file, as the forges read it.

GitHub: patterns as in .gitignore; of those that match a file the last one counts. GitLab: the same within each section,
whose owners stand behind its name where a line names none. Gitea: regular expressions, and all that match count; `!`
turns one around.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from reconciler.forges.protocol import Kind


_PLACES: Final[dict[Kind, tuple[str, ...]]] = {
    "github": (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS"),
    "gitlab": ("CODEOWNERS", "docs/CODEOWNERS", ".gitlab/CODEOWNERS"),
    "gitea": ("CODEOWNERS", "docs/CODEOWNERS", ".gitea/CODEOWNERS"),
}
_MOST_BYTES: Final = 3 << 20
"""GitHub reads no larger one."""
_OWNER: Final = re.compile(r"@[A-Za-z0-9_](?:[A-Za-z0-9_./-]*[A-Za-z0-9_-])?")
"""What is mentioned; an address of mail is not."""
_SECTION: Final = re.compile(r"\^?\[([^\]]+)\](?:\[\d+\])?(.*)")
_SPACE: Final = re.compile(r"(?<!\\)\s+")


@dataclass(slots=True, eq=False)  # two that say the same are two
class _Section:
    """A part of the file, of which at most one line counts for a file."""

    owners: list[str]
    lines: list[tuple[re.Pattern[str], list[str]]] = field(default_factory=list)


def owners_of(root: Path, kind: Kind, files: Iterable[str]) -> tuple[str, ...]:
    """Return who is to be mentioned for files, whose names are relative to the repository `root`; sorted.

    Where there is no file of owners, or it cannot be read, that is nobody.
    """
    text = _read(root, kind)
    named = list(files)
    match kind:
        case "gitea":
            found = {owner for file in named for owner in _of_expressions(text, file)}
        case "github" | "gitlab":
            sections = _sections(text, has_sections=kind == "gitlab")
            found = {owner for file in named for each in sections for owner in _last(each, file)}
    return tuple(sorted(owner for owner in found if _OWNER.fullmatch(owner)))


def repository_of(folder: Path) -> Path | None:
    """Return the folder of the repository that a folder is in; `None`: it is in none."""
    folder = folder.resolve()
    return next((each for each in (folder, *folder.parents) if (each / ".git").exists()), None)


def _read(root: Path, kind: Kind) -> str:
    for place in _PLACES[kind]:
        path = root / place
        if path.is_file() and path.resolve().is_relative_to(root.resolve()):
            with path.open("rb") as file:
                return file.read(_MOST_BYTES).decode(errors="replace")
    return ""


def _sections(text: str, *, has_sections: bool) -> list[_Section]:
    found = [_Section([])]
    by_name: dict[str, _Section] = {}
    for line in text.splitlines():
        said = line.strip()
        if not said or said.startswith("#"):
            continue
        head = _SECTION.fullmatch(said) if has_sections else None
        if head:
            name = head[1].strip().lower()
            if name not in by_name:
                by_name[name] = _Section(head[2].split())
                found.append(by_name[name])
            else:
                found.append(found.pop(found.index(by_name[name])))
            continue
        pattern, *owners = _SPACE.split(said.split(" #", 1)[0].strip())
        found[-1].lines.append((_pattern(pattern.replace("\\ ", " ").replace("\\#", "#")), owners))
    return found


def _last(section: _Section, file: str) -> list[str]:
    for pattern, owners in reversed(section.lines):
        if pattern.fullmatch(file):
            return owners or section.owners
    return []


def _pattern(glob: str) -> re.Pattern[str]:
    """Return what a pattern of .gitignore matches: files, and all below folders."""
    is_rooted = "/" in glob.rstrip("/")
    body = re.sub(r"(\*\*/)+", "**/", glob.strip("/"))
    parts = re.split(r"(\*\*/|/\*\*|\*|\?)", body)
    signs = {"**/": "(?:.*/)?", "/**": "/.*", "*": "[^/]*", "?": "[^/]"}
    text = "".join(signs.get(part, re.escape(part)) for part in parts)
    start = "" if is_rooted else "(?:.*/)?"
    if glob.endswith("/"):
        end = "/.*"
    elif body.endswith("/*"):
        end = ""  # what lies in a folder, and not below it
    else:
        end = "(?:/.*)?"
    return re.compile(start + text + end)


def _of_expressions(text: str, file: str) -> list[str]:
    found: list[str] = []
    for line in text.splitlines():
        pattern, *owners = _SPACE.split(line.split("#", 1)[0].strip())
        is_turned, expression = pattern.startswith("!"), pattern.removeprefix("!")
        try:
            is_match = bool(expression) and re.fullmatch(expression, file) is not None
        except re.error:
            continue  # Gitea leaves out what is no expression, too
        if owners and is_match is not is_turned:
            found += owners
    return found
