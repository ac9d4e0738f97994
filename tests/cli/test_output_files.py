"""What an option writes replaces nothing but what the same option wrote before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

import pytest

from reconciler.cli.app import COMMANDS, build_root_command
from reconciler.cli.options import OutputFormat

if TYPE_CHECKING:
    from tests.cli.conftest import Call

TOPIC: Final = "topic/west/shop:orders"
WRITING: Final = {
    ("plan", "--out"): ("plan", "--out", "FILE"),
    ("state rollback-plan", "--out"): ("state", "rollback-plan", "1", "--out", "FILE"),
    ("run", "--metrics"): ("run", "--once", "--metrics", "FILE"),
    ("drift", "--known"): ("drift", "--known", "FILE"),
    ("drift", "--metrics"): ("drift", "--metrics", "FILE"),
    ("drift", "--report"): ("drift", "--report", "html=FILE"),
    ("plan", "--report"): ("plan", "--report", "json=FILE"),
    ("validate", "--report"): ("validate", "--report", "json=FILE"),
    ("topic consume", "--output"): ("topic", "consume", TOPIC, "--output", "FILE"),
}
"""Every option that writes one file, and a command that would."""
OF_FOLDERS: Final = {("schema", "--out"), ("import", "--out"), ("export", "--out")}
VICTIMS: Final = {
    "the workspace file": "reconciler.yaml",
    "a manifest": "manifests/shop.yaml",
    "the state": ".reconciler/lockfile.json",
    "a new file in the state": ".reconciler/journal/000099.json",
    "a new manifest": "manifests/plan.yaml",
    "a file of a cluster": ".clusters/west/catalog/head.json",
    "a new file of a cluster": ".clusters/west/parts/x",
    "somebody's notes": "notes.txt",
    "somebody's JSON": "package.json",
    "somebody's page": "index.html",
    "a copy of the state": "backup.json",
    "a link to the state": "link.json",
    "a link to a manifest": "link.txt",
    "a folder": "manifests",
    "a name in .git": ".git/config",
}


def options() -> Iterator[tuple[str, str]]:
    """Yield every option of every command whose value is a path and whose name says that something goes there."""
    app = build_root_command()
    for entry in COMMANDS:
        command = app.get_command(None, entry.name)  # type: ignore[arg-type]
        names = [(entry.name, command)]
        if entry.entries:
            names = [(f"{entry.name} {each.name}", command.get_command(None, each.name)) for each in entry.entries]  # type: ignore[union-attr]
        for name, each in names:
            for parameter in each.params:  # type: ignore[union-attr]
                if {"--out", "--output", "--metrics", "--known", "--report"} & set(parameter.opts):
                    yield name, parameter.opts[0]


def test_no_option_that_writes_is_left_out_here() -> None:
    assert set(options()) == {*WRITING, *OF_FOLDERS}


@pytest.fixture
def applied(call: Call, tmp_path: Path) -> Call:
    """A workspace with something of everything that must not be lost."""
    assert call("apply", "--yes").code == 0
    (tmp_path / "notes.txt").write_text("mine\n")
    (tmp_path / "package.json").write_text('{"format": "package/1", "name": "our-reconciler", "runs": []}\n')
    (tmp_path / "index.html").write_text("<!doctype html>\n<p>Our topics are kept by reconciler.</p>\n")
    (tmp_path / "link.json").symlink_to(".reconciler/lockfile.json")
    (tmp_path / "link.txt").symlink_to(next(path.relative_to(tmp_path) for path in tmp_path.glob("manifests/*.yaml")))
    (tmp_path / "backup.json").write_bytes((tmp_path / ".reconciler/lockfile.json").read_bytes())
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").write_text("[core]\n")
    return call


def held(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("option", WRITING, ids=" ".join)
def test_an_option_that_writes_replaces_nothing_of_others(
    applied: Call, tmp_path: Path, option: tuple[str, str]
) -> None:
    before = held(tmp_path)
    for what, victim in VICTIMS.items():
        said = applied(*(part.replace("FILE", victim) for part in WRITING[option]))
        assert (said.code, f"{option[1]} {victim}" in said.err) == (64, True), f"{what}: {said.err}"
        assert held(tmp_path) == before, what


@pytest.mark.parametrize("option", WRITING, ids=" ".join)
def test_what_an_option_wrote_it_replaces(applied: Call, tmp_path: Path, option: tuple[str, str]) -> None:
    for _ in range(2):
        said = applied(*(part.replace("FILE", "made.out") for part in WRITING[option]))
        assert said.code == 0, said.err
    assert (tmp_path / "made.out").is_file()


@pytest.mark.parametrize("form", [*(each for each in get_args(OutputFormat) if each != "text"), "gitlab"])
def test_a_report_of_each_form_replaces_its_last_one_also_after_an_error(
    applied: Call, tmp_path: Path, form: str
) -> None:
    commands = ("plan", "drift") if form == "html" else ("plan", "drift", "validate")
    for command in commands:
        assert [applied(command, "--report", f"{form}={command}.out").code for _ in range(2)] == [0, 0]
    (tmp_path / "manifests/broken.yaml").write_text("kind: [\n")
    for command in commands:
        said = [applied(command, "--report", f"{form}={command}.out") for _ in range(2)]
        assert [each.code for each in said] == [1, 1], said[-1].err


def test_schemas_replace_schemas_and_nothing_else(applied: Call, tmp_path: Path) -> None:
    assert [applied("schema", "--out", "made").code for _ in range(2)] == [0, 0]
    (tmp_path / "made/topic.json").write_text("{}")
    before = held(tmp_path)
    said = applied("schema", "--out", "made")
    assert (said.code, "made/topic.json is there already" in said.err) == (64, True)
    assert applied("schema", "--out", ".reconciler").code == 64
    assert held(tmp_path) == before


@pytest.mark.parametrize(
    "folder", [".reconciler", ".reconciler/new", ".clusters/west", ".clusters/west/new", ".git/new"]
)
@pytest.mark.parametrize(
    "words",
    [("export", "west", "--out"), ("import", "notes.txt", "--from", "jikkou", "--out"), ("init",)],
    ids=lambda words: words[0],
)
def test_no_folder_of_a_state_cluster_or_repository_gets_manifests(
    applied: Call, tmp_path: Path, words: tuple[str, ...], folder: str
) -> None:
    before = held(tmp_path)
    said = applied(*words, folder)
    assert (said.code, f"{folder} is in" in said.err) == (64, True), said.err
    assert held(tmp_path) == before


@pytest.mark.parametrize("form", ["values", "parquet"])
def test_records_of_each_form_replace_only_their_own(applied: Call, tmp_path: Path, form: str) -> None:
    asked = ("topic", "consume", TOPIC, "--output-format", form, "--output")
    codes = [applied(*asked, "made").code for _ in range(2)]
    assert codes == [0, 0]  # The values of no record are nothing, and nothing is replaced.
    assert applied(*asked, "notes.txt").code == 64
    assert (tmp_path / "notes.txt").read_text() == "mine\n"
