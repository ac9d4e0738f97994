"""Every example is applied, and then there is nothing to do."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.objectstore.open import open_store
from tests.servers.weed import S3Server

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
Run = Callable[..., subprocess.CompletedProcess[str]]

CASES = [
    pytest.param("quickstart", (), id="quickstart"),
    pytest.param("environments", (), id="environments"),
    pytest.param("environments", ("-e", "dev"), id="environments-dev"),
    pytest.param("environments", ("-e", "prod"), id="environments-prod"),
    pytest.param("flights", (), id="flights", marks=pytest.mark.spark),
    pytest.param("tiering", (), id="tiering"),
    pytest.param("hibernate", (), id="hibernate"),
    pytest.param("disaster-recovery", (), id="disaster-recovery"),
]
# In `make test` the first of them; the rest in soak.
BUCKETS = [
    pytest.param(*case.values, id=case.id, marks=[*case.marks, *([pytest.mark.soak] if at else [])])
    for at, case in enumerate(CASES)
]


def copied(name: str, target: Path) -> Path:
    made = shutil.ignore_patterns(".*", "__pycache__")
    return Path(shutil.copytree(EXAMPLES / name, target / name, ignore=made))


@pytest.mark.parametrize(("name", "environment"), CASES)
def test_an_example_is_applied_and_then_there_is_nothing_to_do(
    name: str, environment: tuple[str, ...], tmp_path: Path, typed: Run
) -> None:
    folder = copied(name, tmp_path)
    validated = typed(folder, "validate", *environment)
    assert validated.returncode == 0, validated.stderr
    before = typed(folder, "plan", "--detailed-exitcode", *environment)
    assert before.returncode == 2, before.stderr
    applied = typed(folder, "apply", "--yes", *environment)
    assert applied.returncode == 0, applied.stderr
    after = typed(folder, "plan", "--detailed-exitcode", *environment)
    assert after.returncode == 0, after.stdout + after.stderr


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "environment"), BUCKETS)
def test_an_example_lives_in_a_bucket_as_well_as_in_folders(
    name: str, environment: tuple[str, ...], tmp_path: Path, reconciler: Run, s3_server: S3Server
) -> None:
    folder, url = copied(name, tmp_path), s3_server.url(name)
    moved = 0
    for path in folder.rglob("*.yaml"):
        text = path.read_text()
        moved += text.count("file://")
        path.write_text(text.replace("file://.", f"{url}/"))
    assert moved >= 2, "a state and a cluster"
    bucket = s3_server.environ()
    applied = reconciler(folder, "apply", "--yes", *environment, environ=bucket)
    assert applied.returncode == 0, applied.stderr
    after = reconciler(folder, "plan", "--detailed-exitcode", *environment, environ=bucket)
    assert after.returncode == 0, after.stdout + after.stderr
    kept = [listed.key for listed in open_store(s3_server.settings(url=url)).list("")]
    assert any(key.startswith("reconciler/") and key.endswith("lockfile.json") for key in kept)
    assert any(key.startswith("clusters/") and key.endswith("cluster.json") for key in kept)
    assert not (folder / ".reconciler").exists()
    assert not (folder / ".clusters").exists()


@pytest.mark.parametrize("name", ["quickstart", "environments", "flights", "tiering", "hibernate", "disaster-recovery"])
def test_an_example_is_written_as_fmt_would_write_it(name: str, tmp_path: Path, typed: Run) -> None:
    checked = typed(copied(name, tmp_path), "fmt", "--check")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_example_is_tried() -> None:
    folders = {path.name for path in EXAMPLES.iterdir() if (path / "README.md").exists()}
    has_no_files_before_it_runs = {"kafka", "redpanda", "confluent"}
    is_for_prometheus_and_grafana = {"monitoring"}  # tests/cli/kafka/test_monitoring.py
    is_a_script = {"notebook"}  # below
    others = has_no_files_before_it_runs | is_for_prometheus_and_grafana | is_a_script
    assert folders == {case.values[0] for case in CASES} | others


def test_one_environment_never_plans_another_away(tmp_path: Path, typed: Run) -> None:
    folder = copied("environments", tmp_path)
    for environment in ("dev", "prod"):
        assert typed(folder, "apply", "--yes", "-e", environment).returncode == 0
    for environment in ("dev", "prod"):
        assert typed(folder, "plan", "--detailed-exitcode", "-e", environment).returncode == 0


@pytest.mark.spark
def test_the_notebook_plans_applies_and_reads_what_it_wrote(tmp_path: Path) -> None:
    folder = copied("quickstart", tmp_path)
    done = subprocess.run(
        [sys.executable, EXAMPLES / "notebook" / "shop.py", folder], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("5 to add\n  create:cluster/local\n")
    assert "5 added\nnothing to do\n+" in done.stdout
    assert [line.split("|")[1:3] for line in done.stdout.splitlines() if "order " in line] == [
        ["customer 0", "order 0"],
        ["customer 1", "order 1"],
        ["customer 0", "order 2"],
    ]
