"""Find owners of files by each forge's CODEOWNERS rules.

GitHub uses the last matching .gitignore pattern; so does GitLab in each section. Gitea uses all matching regular
expressions; `!` negates one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from reconciler.runtime.dataclass import dataclass, field

if TYPE_CHECKING:
    from reconciler.forges.protocol import Kind


_PATHS: Final[dict[Kind, tuple[str, ...]]] = {
    "github": (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS"),
    "gitlab": ("CODEOWNERS", "docs/CODEOWNERS", ".gitlab/CODEOWNERS"),
    "gitea": ("CODEOWNERS", "docs/CODEOWNERS", ".gitea/CODEOWNERS"),
}
_MAX_FILE_BYTES: Final = 3 << 20
_OWNER: Final = re.compile(r"@[A-Za-z0-9_](?:[A-Za-z0-9_./-]*[A-Za-z0-9_-])?")
_SECTION: Final = re.compile(r"\^?\[([^\]]+)\](?:\[\d+\])?(.*)")
_SPACE: Final = re.compile(r"(?<!\\)\s+")


@dataclass(slots=True, eq=False)
class _Section:
    owners: list[str]
    lines: list[tuple[re.Pattern[str], list[str]]] = field(default_factory=list)


def find_owners(root: Path, kind: Kind, files: Iterable[str]) -> tuple[str, ...]:
    """Return the sorted owners of files relative to `root`; empty without a CODEOWNERS file."""
    text = _read_codeowners(root, kind)
    named = list(files)
    match kind:
        case "gitea":
            owners = {owner for file in named for owner in _match_gitea_expressions(text, file)}
        case "github" | "gitlab":
            sections = _parse_sections(text, has_sections=kind == "gitlab")
            owners = {owner for file in named for section in sections for owner in _match_section(section, file)}
    return tuple(sorted(owner for owner in owners if _OWNER.fullmatch(owner)))


def find_repository_root(folder: Path) -> Path | None:
    """Return the root of the Git repository that contains a folder, or `None`."""
    folder = folder.resolve()
    return next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), None)


def _read_codeowners(root: Path, kind: Kind) -> str:
    for place in _PATHS[kind]:
        path = root / place
        if path.is_file() and path.resolve().is_relative_to(root.resolve()):
            with path.open("rb") as file:
                return file.read(_MAX_FILE_BYTES).decode(errors="replace")
    return ""


def _parse_sections(text: str, *, has_sections: bool) -> list[_Section]:
    sections = [_Section([])]
    by_name: dict[str, _Section] = {}
    for line in text.splitlines():
        content = line.strip()
        if not content or content.startswith("#"):
            continue
        head = _SECTION.fullmatch(content) if has_sections else None
        if head:
            name = head[1].strip().lower()
            if name not in by_name:
                by_name[name] = _Section(head[2].split())
                sections.append(by_name[name])
            else:
                sections.append(sections.pop(sections.index(by_name[name])))
            continue
        pattern, *owners = _SPACE.split(content.split(" #", 1)[0].strip())
        sections[-1].lines.append((_compile_pattern(pattern.replace("\\ ", " ").replace("\\#", "#")), owners))
    return sections


def _match_section(section: _Section, file: str) -> list[str]:
    for pattern, owners in reversed(section.lines):
        if pattern.fullmatch(file):
            return owners or section.owners
    return []


def _compile_pattern(glob: str) -> re.Pattern[str]:
    is_rooted = "/" in glob.rstrip("/")
    body = re.sub(r"(\*\*/)+", "**/", glob.strip("/"))
    parts = re.split(r"(\*\*/|/\*\*|\*|\?)", body)
    signs = {"**/": "(?:.*/)?", "/**": "/.*", "*": "[^/]*", "?": "[^/]"}
    text = "".join(signs.get(part, re.escape(part)) for part in parts)
    start = "" if is_rooted else "(?:.*/)?"
    if glob.endswith("/"):
        end = "/.*"
    elif body.endswith("/*"):
        end = ""
    else:
        end = "(?:/.*)?"
    return re.compile(start + text + end)


def _match_gitea_expressions(text: str, file: str) -> list[str]:
    matching_owners: list[str] = []
    for line in text.splitlines():
        pattern, *owners = _SPACE.split(line.split("#", 1)[0].strip())
        is_turned, expression = pattern.startswith("!"), pattern.removeprefix("!")
        try:
            is_match = bool(expression) and re.fullmatch(expression, file) is not None
        except re.error:
            continue
        if owners and is_match is not is_turned:
            matching_owners += owners
    return matching_owners
