"""Each tool's sample becomes the manifests that stand beside it, and a word on everything that none of them says."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.manifests.format import format_text
from reconciler.manifests.load import load
from reconciler.manifests.overlays import Variables
from reconciler.operations.manifest_files import validate
from reconciler.operations.steps.invocation import Select
from tests.manifests.importing.sampling import SAMPLES, TOOLS, imported, invocation_in, losses, manifests_in

MARK = "correct-horse-battery"
"""Stands for a password wherever a sample has one."""


@pytest.mark.parametrize("tool", TOOLS)
def test_a_sample_becomes_the_manifests_beside_it(tool: str, tmp_path: Path) -> None:
    imported(tool, tmp_path / "shop")
    expected = SAMPLES / tool / "expected"
    wanted = {path.relative_to(expected).as_posix(): path.read_text() for path in sorted(expected.rglob("*.yaml"))}
    assert manifests_in(tmp_path / "shop") == wanted


@pytest.mark.parametrize("tool", TOOLS)
def test_what_has_no_place_is_told_with_file_line_field_and_reason(tool: str, tmp_path: Path) -> None:
    found = imported(tool, tmp_path / "shop")
    assert losses(found) == (SAMPLES / tool / "expected" / "losses.txt").read_text()
    assert found.verdict is not None
    assert found.verdict.exit_code == 8


@pytest.mark.parametrize("tool", TOOLS)
def test_the_workspace_that_is_written_is_valid_without_a_warning(tool: str, tmp_path: Path) -> None:
    imported(tool, tmp_path / "shop")
    validated = validate(invocation_in(tmp_path / "shop"), Select())
    assert validated.verdict is None
    assert validated.warnings == ()


@pytest.mark.parametrize("tool", TOOLS)
def test_no_secret_is_copied_anywhere(tool: str, tmp_path: Path) -> None:
    found = imported(tool, tmp_path / "shop")
    written = "".join(path.read_text() for path in (tmp_path / "shop").rglob("*") if path.is_file())
    assert MARK not in written
    assert MARK not in losses(found)


@pytest.mark.parametrize("tool", TOOLS)
def test_what_is_written_is_in_canonical_form(tool: str, tmp_path: Path) -> None:
    imported(tool, tmp_path / "shop")
    for text in manifests_in(tmp_path / "shop").values():
        assert format_text(text) == text


@pytest.mark.parametrize("tool", TOOLS)
def test_prefixes_become_namespaces_and_every_topic_keeps_its_flat_name(tool: str, tmp_path: Path) -> None:
    def flat(folder: Path) -> set[str]:
        loaded = load(folder, environment=None, variables=Variables())
        return {address.replace(":", ".") for address in loaded.desired if address.startswith("topic/")}

    imported(tool, tmp_path / "flat")
    imported(tool, tmp_path / "factored", at_least=1)
    assert flat(tmp_path / "flat") == flat(tmp_path / "factored")
    assert validate(invocation_in(tmp_path / "factored"), Select()).verdict is None


@pytest.mark.parametrize("tool", TOOLS)
def test_twice_the_same_files_give_the_same_bytes(tool: str, tmp_path: Path) -> None:
    imported(tool, tmp_path / "one" / "shop")
    imported(tool, tmp_path / "two" / "shop")
    assert manifests_in(tmp_path / "one" / "shop") == manifests_in(tmp_path / "two" / "shop")
