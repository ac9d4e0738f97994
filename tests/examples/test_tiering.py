"""The story of tiered storage, as its readers run it: it insists on every figure it tells."""

from __future__ import annotations

import importlib.util
import io
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.cli.main import main

if TYPE_CHECKING:
    from types import ModuleType

DEMO = Path(__file__).resolve().parents[2] / "examples" / "tiering" / "demo.py"


def loaded(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the demo as a module whose commands are typed in this process."""
    spec = importlib.util.spec_from_file_location("tiering_demo", DEMO)
    assert spec is not None
    assert spec.loader is not None
    monkeypatch.setattr(sys, "argv", [str(DEMO), str(workspace)])
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def typed(*arguments: str) -> tuple[int, str]:
        monkeypatch.chdir(workspace)
        told = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", told)
            code = main(arguments)
            told.flush()
        return code, told.buffer.getvalue().decode()  # type: ignore[attr-defined]  # it is the BytesIO made above

    module.typed = typed
    return module  # type: ignore[no-any-return]  # a module whose function was replaced


@pytest.mark.fact("F-R-022", "F-R-035", "F-R-069", "F-K-057", "F-K-061", "F-K-064", "F-K-065")
def test_readings_move_to_object_storage_outlive_their_cluster_and_stay_readable_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = loaded(tmp_path / "workspace", monkeypatch).main()
    told = capsys.readouterr()
    assert code == 0, told.out + told.err
    assert told.out.count("\n── ") == 9
    assert "data loss: about" in told.out
    assert 'reconciler_cloud_storage_segments{cluster="west",topic="readings"} 5' in told.out
    assert "All as the story says" in told.out


@pytest.mark.soak
def test_the_story_comes_out_the_same_when_its_commands_are_run(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, DEMO, tmp_path / "workspace"], capture_output=True, text=True, encoding="utf-8", check=False
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert "All as the story says" in told.stdout


def test_a_figure_that_is_different_ends_the_story(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    demo = loaded(tmp_path / "workspace", monkeypatch)
    demo.CHAPTERS = (demo.begin, lambda: demo.storage(local=(0, 1), remote=None))
    assert demo.main() == 1
    assert "local offsets are not (0, 1)" in capsys.readouterr().err
