"""Owners of files, as each forge reads CODEOWNERS."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.forges.owners import find_owners, find_repository_root
from reconciler.forges.protocol import Kind

SAME = """\
# the last line that matches counts
*                 @all
*.md              docs@example.com @writers
/manifests/       @acme/streams @anna   # both
manifests/eu/**   @acme/eu
/only/*           @acme/flat
build/            @builders
**/secret.yaml    @acme/sec
with\\ space.yaml @spaced
/nobody/
"""
SECTIONS = """\
* @all
[Streams][2] @acme/streams @lead
/manifests/
/manifests/eu/ @acme/eu
^[Docs]
*.md @writers
[streams]
/manifests/late.yaml @late
"""
ALIKE = """\
[A] @x
[B] @x
[B]
*.py @bob
[A]
*.py @alice
"""
EXPRESSIONS = """\
.*\\.yaml @yaml
manifests/eu/.* @acme/eu
!manifests/.* @elsewhere
( @broken
"""
CASES: list[tuple[Kind, str, str, tuple[str, ...]]] = [
    ("github", SAME, "reconciler.yaml", ("@all",)),
    ("github", SAME, "docs/a.md", ("@writers",)),
    ("github", SAME, "manifests/topics.yaml", ("@acme/streams", "@anna")),
    ("github", SAME, "manifests/eu/a/b.yaml", ("@acme/eu",)),
    ("github", SAME, "x/manifests/topics.yaml", ("@all",)),
    ("github", SAME, "only/a.yaml", ("@acme/flat",)),
    ("github", SAME, "only/below/a.yaml", ("@all",)),
    ("github", SAME, "x/build/a.yaml", ("@builders",)),
    ("github", SAME, "secret.yaml", ("@acme/sec",)),
    ("github", SAME, "x/y/secret.yaml", ("@acme/sec",)),
    ("github", SAME, "with space.yaml", ("@spaced",)),
    ("github", SAME, "nobody/a.yaml", ()),
    ("gitlab", SECTIONS, "reconciler.yaml", ("@all",)),
    ("gitlab", SECTIONS, "manifests/a.yaml", ("@acme/streams", "@all", "@lead")),
    ("gitlab", SECTIONS, "manifests/eu/a.md", ("@acme/eu", "@all", "@writers")),
    ("gitlab", SECTIONS, "manifests/late.yaml", ("@all", "@late")),
    ("gitlab", ALIKE, "a.py", ("@alice", "@bob")),
    ("gitea", EXPRESSIONS, "manifests/eu/a.yaml", ("@acme/eu", "@yaml")),
    ("gitea", EXPRESSIONS, "x.yaml", ("@elsewhere", "@yaml")),
    ("github", "* @a<b> @ok @-no @x/y `@tick` @", "a", ("@ok", "@x/y")),
    ("github", "", "a", ()),
]


@pytest.mark.parametrize(("kind", "text", "file", "owners"), CASES)
def test_owners_are_those_that_the_forge_would_ask(
    tmp_path: Path, kind: Kind, text: str, file: str, owners: tuple[str, ...]
) -> None:
    (tmp_path / "CODEOWNERS").write_text(text)
    assert find_owners(tmp_path, kind, [file]) == owners


def test_a_link_out_of_the_repository_is_no_file_of_owners(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    root.mkdir()
    (tmp_path / "elsewhere").write_text("* @all")
    (root / "CODEOWNERS").symlink_to(tmp_path / "elsewhere")
    assert find_owners(root, "github", ["a"]) == ()
    (root / "docs").mkdir()
    (root / "docs/CODEOWNERS").write_text("* @docs")
    assert find_owners(root, "github", ["a"]) == ("@docs",)


def test_the_repository_is_the_nearest_folder_with_git(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/.git").write_text("gitdir: elsewhere")
    assert find_repository_root(tmp_path / "a/b") == (tmp_path / "a").resolve()
