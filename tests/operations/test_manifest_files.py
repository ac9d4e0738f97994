"""What is done to files alone: `init`, `validate`, `fmt`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import pytest
import yaml

from reconciler.errors import UserError
from reconciler.manifests.edit import EditedFile
from reconciler.manifests.json_schema import build_schemas
from reconciler.manifests.positions import ManifestError
from reconciler.operations.export import ExportOptions, export
from reconciler.operations.init import init
from reconciler.operations.manifest_files import format_files, validate
from reconciler.operations.steps.invocation import Select

if TYPE_CHECKING:
    from conftest import Bench


@pytest.fixture
def made(bench: Bench) -> Bench:
    init(bench.invocation, Path("made"))
    return bench.with_(cwd=bench.folder / "made")


def test_what_init_makes_is_valid_laid_out_and_applies(made: Bench) -> None:
    assert validate(made.invocation, Select()).verdict is None
    assert format_files(made.invocation, (), check=True).verdict is None
    assert made.apply().verdict is None
    assert made.plan().plan.is_empty


def test_what_init_makes_names_schemas_that_it_follows(made: Bench) -> None:
    made.apply()
    folder = made.invocation.cwd
    export(made.invocation, Select(), "west", ExportOptions(out=folder / "manifests/of/west"))
    written = ("reconciler.yaml", "manifests/example.yaml", "manifests/of/west/namespaces/shop.yaml")
    for path in (folder / name for name in written):
        for text in path.read_text().split("---\n"):  # editors read the line in each document by itself
            _, _, named = text.splitlines()[0].partition("# yaml-language-server: $schema=")
            schema = json.loads((path.parent / named).read_text())
            assert schema == json.loads(json.dumps(build_schemas()["manifest"]))
            jsonschema.validate(json.loads(json.dumps(yaml.safe_load(text))), schema)


def test_the_first_document_can_go_and_leaves_no_second_line_of_a_schema(made: Bench) -> None:
    documents = EditedFile((made.invocation.cwd / "manifests/example.yaml").read_text())
    documents.remove_document(0)
    assert "".join(after for _, after in documents.texts).count("# yaml-language-server") == 2


def test_settings_of_vs_code_name_the_schema_and_the_files_and_replace_no_others(bench: Bench) -> None:
    bench.write("other/.vscode/settings.json", "{}")
    for name in ("made", "other"):
        init(bench.invocation, Path(name))
    made = bench.folder / "made"
    ((schema, patterns),) = json.loads((made / ".vscode/settings.json").read_text())["yaml.schemas"].items()
    assert (made / schema).exists()
    assert [path.name for pattern in patterns for path in made.glob(pattern)] == ["reconciler.yaml", "example.yaml"]
    assert (bench.folder / "other/.vscode/settings.json").read_text() == "{}"


def test_init_leaves_state_and_clusters_out_of_git_and_keeps_what_stands_there(bench: Bench) -> None:
    bench.write("made/.gitignore", "*.log")
    init(bench.invocation, Path("made"))
    assert (bench.folder / "made/.gitignore").read_text() == "*.log\n.reconciler/\n.clusters/\n"


def test_init_overwrites_nothing(made: Bench) -> None:
    before = {path: path.read_bytes() for path in made.folder.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=r"reconciler\.yaml is there already"):
        init(made.invocation, Path())
    assert {path: path.read_bytes() for path in made.folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", ["Shop", "a b", "...", "Übung", "x" * 90])
def test_init_finds_a_name_for_every_folder(bench: Bench, name: str) -> None:
    init(bench.invocation, Path(name))
    assert validate(bench.with_(cwd=bench.folder / name).invocation, Select()).verdict is None


def test_init_where_a_file_stands_is_said(bench: Bench) -> None:
    bench.write("occupied", "")
    with pytest.raises(UserError, match="occupied"):
        init(bench.invocation, Path("occupied"))


def test_validating_counts_what_is_there_and_asks_no_cluster(bench: Bench) -> None:
    found = validate(bench.invocation, Select())
    assert found.counts == {"Cluster": 1, "Namespace": 1, "Topic": 1}
    assert (found.workspace, found.warnings, found.verdict) == ("shop", (), None)
    assert not (bench.folder / ".clusters").exists()


def test_validating_warns_of_a_namespace_it_cannot_see(bench: Bench) -> None:
    path = bench.folder / "manifests/orders.yaml"
    path.write_text(path.read_text().replace("shop", "bakery"))
    found = validate(bench.invocation, Select())
    assert found.verdict is None
    (warning,) = found.warnings
    assert warning.startswith("manifests/orders.yaml:3:")
    assert "bakery" in warning


def test_validating_finds_what_no_single_file_shows(bench: Bench) -> None:
    path = bench.folder / "manifests/west.yaml"
    path.write_text(path.read_text().split("---")[1])
    with pytest.raises(ManifestError, match="cluster west"):
        validate(bench.invocation, Select())


def test_validating_holds_the_files_to_the_workspace_s_own_rules(bench: Bench) -> None:
    bench.write(
        "reconciler.yaml",
        "apiVersion: reconciler/v1\nkind: Workspace\nmetadata: {name: shop}\nspec:\n  guards:\n    rules:\n"
        "      - {match: 'topic/*', require: {partitions: {min: 6}}, message: six at least}\n",
    )
    found = validate(bench.invocation, Select())
    assert len(found.findings) == 1
    assert isinstance(found.verdict, UserError)
    assert "six at least" in found.verdict.message


def test_validating_names_every_problem_of_every_file(bench: Bench) -> None:
    bench.write("manifests/a.yaml", "kind: Topic\n")
    bench.write("manifests/b.yaml", "{")
    with pytest.raises(ManifestError) as caught:
        validate(bench.invocation, Select())
    assert {problem.file for problem in caught.value.problems} == {"manifests/a.yaml", "manifests/b.yaml"}


def test_formatting_changes_only_what_is_not_in_form(bench: Bench) -> None:
    ugly = bench.write(
        "manifests/ugly.yaml", "kind:   Topic\napiVersion: reconciler/v1   # ours\nspec: {partitions:   3}\n"
    )
    checked = format_files(bench.invocation, (), check=True)
    assert checked.changed == (Path("manifests/ugly.yaml"),)
    assert isinstance(checked.verdict, UserError)
    assert "kind:   Topic" in ugly.read_text()

    done = format_files(bench.invocation, (), check=False)
    assert (done.changed, done.verdict, done.files) == (checked.changed, None, 4)
    assert "# ours" in ugly.read_text()
    assert format_files(bench.invocation, (), check=True).changed == ()


def test_formatting_files_by_name_needs_no_workspace(bench: Bench) -> None:
    (bench.folder / "reconciler.yaml").unlink()
    bench.write("elsewhere/ugly.yaml", "a:   1\n")
    assert format_files(bench.invocation, (Path("elsewhere"),), check=False).changed == (Path("elsewhere/ugly.yaml"),)
    assert format_files(bench.invocation, (Path("elsewhere/ugly.yaml"),), check=True).changed == ()


def test_formatting_changes_nothing_where_something_is_not_yaml(bench: Bench) -> None:
    ugly = bench.write("manifests/ugly.yaml", "a:   1\n")
    bench.write("manifests/broken.yaml", "a: [\n")
    bench.write("manifests/latin.yaml", "").write_bytes(b"a: \xff\n")
    with pytest.raises(ManifestError) as caught:
        format_files(bench.invocation, (), check=False)
    assert {problem.file for problem in caught.value.problems} == {"manifests/broken.yaml", "manifests/latin.yaml"}
    assert ugly.read_text() == "a:   1\n"


def test_formatting_what_is_not_there_is_said(bench: Bench) -> None:
    with pytest.raises(ManifestError, match="nothing"):
        format_files(bench.invocation, (Path("nothing"),), check=True)
