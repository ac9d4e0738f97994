"""What a release needs of the tree: that a tag is the version, and the notes that CHANGELOG.md has for it.

`python .ci/release.py notes v1.2.3` prints the notes, and fails where tag, version and changelog do not agree.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
_SECTION = re.compile(r"^## \[([^\]]+)\](?: - (\d{4}-\d{2}-\d{2}))?$", re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?:|#)([^)\s]+)\)")
HOME = "https://github.com/stream-reconciler/reconciler"


class UnfitError(Exception):
    """The tree is not one that the tag may release; says what to change."""


def notes(tag: str, package: str, changelog: str) -> str:
    """Return the section of `changelog` for `tag`, its links as absolute ones.

    Args:
        tag: As in git, such as `v1.2.3`.
        package: The text of `reconciler/version.py`.
        changelog: The text of `CHANGELOG.md`.

    Raises:
        UnfitError: The tag is not the version, or the changelog has no dated section for it, or an empty one.
    """
    found = _VERSION.search(package)
    version = found[1] if found else "missing"
    if tag != f"v{version}":
        raise UnfitError(f"the tag is {tag}, and reconciler.__version__ is {version}: tag v{version}, or change it")
    headings = list(_SECTION.finditer(changelog))
    for heading, after in zip(headings, [*headings[1:], None], strict=True):
        if heading[1] != version:
            continue
        if heading[2] is None:
            raise UnfitError(f"CHANGELOG.md has no date for {version}: write ## [{version}] - YYYY-MM-DD")
        section = changelog[heading.end() : after.start() if after else None].strip()
        if not section:
            raise UnfitError(f"CHANGELOG.md says nothing about {version}")
        return _LINK.sub(rf"]({HOME}/blob/{tag}/\1)", section) + "\n"
    raise UnfitError(f"CHANGELOG.md has no section for {version}: rename [Unreleased] to [{version}] - YYYY-MM-DD")


def main(arguments: list[str]) -> int:
    """Print the notes of a tag; return 1 where it cannot be released."""
    match arguments:
        case ["notes", tag]:
            package = (ROOT / "reconciler" / "version.py").read_text("utf-8")
            try:
                sys.stdout.write(notes(tag, package, (ROOT / "CHANGELOG.md").read_text("utf-8")))
            except UnfitError as error:
                sys.stderr.write(f"Error: {error}\n")
                return 1
            return 0
        case _:
            sys.stderr.write("usage: python .ci/release.py notes TAG\n")
            return 64


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
