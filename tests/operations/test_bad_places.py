"""Places that are not as they should be: each gets a clear error, and nothing is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import ReconcilerError, UserError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.apply import ApplyOptions

if TYPE_CHECKING:
    from conftest import Bench

pytestmark = pytest.mark.thorough


NOBODY = 65534
AS_NOBODY = f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})" if os.geteuid() == 0 else ""

# Run by another process, whose rights or limits are not ours to get back.
CHILD = """
import io, os, resource, signal, sys, time, uuid
from pathlib import Path
from reconciler.errors import ReconcilerError
from reconciler.operations.steps.invocation import Invocation, Select
from reconciler.operations.steps.runner import SiteOptions, Stop

here = Invocation(cwd=Path(sys.argv[1]), environ={}, now_ms=lambda: time.time_ns() // 10**6,
    new_id=lambda: str(uuid.uuid4()), new_run=lambda: str(uuid.uuid4()), tool="0.1.0", who="anna@build-7")

# Everything is imported before rights are dropped: nobody may read an interpreter in somebody's home.
def prepared(command):
    from reconciler.objectstore import directory
    from reconciler.providers.embedded import provider
    if command in {"plan", "out"}:
        from reconciler.operations.plan import plan
        return lambda: plan(here, Select(), out=Path("p.json") if command == "out" else None).verdict()
    if command == "init":
        from reconciler.operations.init import init
        return lambda: init(here, Path("new")) and None
    if command == "apply":
        from reconciler.operations.apply import ApplyOptions, Hooks, apply
        hooks = Hooks(lambda _: True, lambda _: None, Stop())
        return lambda: apply(here, Select(), ApplyOptions(yes=True), hooks).verdict
    from reconciler.operations.clusters.consume import ProduceOptions, produce
    row = b'{"a": "' + os.urandom(300_000).hex().encode() + b'"}'
    reach = SiteOptions(invocation=here, select=Select())
    return lambda: produce(reach, "topic/west/shop:orders", ProduceOptions(input_format="jsonl"),
        stdin=io.BytesIO(row), report=lambda *_: None) and None

run = prepared(sys.argv[2])
LIMITS
try:
    verdict = run()
except ReconcilerError as error:
    verdict = error
if verdict is not None:
    print(type(verdict).__name__, verdict)
    sys.exit(verdict.exit_code)
"""


def run_as(limits: str, folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    program = CHILD.replace("LIMITS", limits)
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder), command], capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def without_rights(bench: Bench, command: str) -> subprocess.CompletedProcess[str]:
    """Run on a copy, as a user who may read everything there and write nothing."""
    with tempfile.TemporaryDirectory() as there:
        folder = Path(there) / "copy"
        shutil.copytree(bench.folder, folder)
        everything = (folder.parent, folder, *folder.rglob("*"))
        for path in everything:
            path.chmod(0o555 if path.is_dir() else 0o444)
        try:
            return run_as(AS_NOBODY, folder, command)
        finally:
            for path in everything:
                path.chmod(0o755)


def with_small_disk(folder: Path, command: str, size: int) -> subprocess.CompletedProcess[str]:
    """Run where no file grows beyond `size` bytes: what a full disk or an exhausted quota looks like."""
    limit = (
        f"signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))"
    )
    return run_as(limit, folder, command)


def west_at(root: Path, bench: Bench) -> EmbeddedCluster:
    return EmbeddedCluster.create(DirectoryStore(root), now_ms=bench.invocation.now_ms, new_id=bench.invocation.new_id)


def everything(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("command", ["plan", "out"])
def test_planning_reads_where_nothing_may_be_written(applied: Bench, command: str) -> None:
    done = without_rights(applied, command)
    if command == "plan":
        assert done.returncode == 0, done.stdout
    else:
        assert (done.returncode, "cannot write the plan" in done.stdout) == (1, True)


@pytest.mark.parametrize("command", ["apply", "init"])
def test_what_may_not_be_written_is_said(bench: Bench, command: str) -> None:
    done = without_rights(bench, command)
    assert done.returncode == 1
    assert "ermission" in done.stdout or "writable" in done.stdout
    assert not (bench.folder / ".clusters").exists()


@pytest.mark.parametrize("name", ["reconciler.yaml", "manifests/orders.yaml", "manifests"])
def test_files_that_may_not_be_read_are_named(bench: Bench, name: str) -> None:
    with tempfile.TemporaryDirectory() as there:
        folder = Path(there) / "copy"
        shutil.copytree(bench.folder, folder)
        for path in (folder.parent, folder):
            path.chmod(0o755)
        (folder / name).chmod(0)
        done = run_as(AS_NOBODY, folder, "plan")
        (folder / name).chmod(0o755)
    assert done.returncode == 1
    assert f"{name}: cannot be read: permission denied" in done.stdout


def test_a_folder_that_may_not_be_entered_is_named(bench: Bench) -> None:
    with tempfile.TemporaryDirectory() as there:
        folder = Path(there) / "copy"
        shutil.copytree(bench.folder, folder)
        folder.chmod(0)
        done = run_as(AS_NOBODY, folder, "plan")
        folder.chmod(0o755)
    assert (done.returncode, "permission denied" in done.stdout) == (1, True)


def test_a_full_disk_is_said_and_the_next_run_goes_on(bench: Bench) -> None:
    done = with_small_disk(bench.folder, "apply", 100)
    assert done.returncode == 1
    assert "too large" in done.stdout or "space" in done.stdout
    assert bench.apply().verdict is None
    assert bench.plan().plan.is_empty


def test_a_disk_that_fills_up_while_producing_loses_nothing_that_was_acknowledged(applied: Bench) -> None:
    done = with_small_disk(applied.folder, "produce", 100_000)
    assert done.returncode == 1
    assert "too large" in done.stdout or "space" in done.stdout
    assert run_as("", applied.folder, "produce").returncode == 0
    assert applied.plan().plan.is_empty


def test_a_cluster_with_another_id_than_declared_is_not_touched(bench: Bench) -> None:
    there = west_at(bench.folder / ".clusters/west", bench)
    before = everything(bench.folder / ".clusters")
    wanted = "67f5505a-32f3-4677-bcad-3c75a1a702a6"
    west = bench.folder / "manifests/west.yaml"
    west.write_text(west.read_text().replace("spec:\n", f"spec:\n  clusterId: {wanted}\n", 1))
    with pytest.raises(UserError, match=wanted) as caught:
        bench.apply()
    assert there.cluster_id in caught.value.message
    assert caught.value.exit_code == 1
    assert everything(bench.folder / ".clusters") == before


def test_a_root_that_belongs_to_another_cluster_than_recorded_is_not_touched(applied: Bench) -> None:
    (applied.folder / ".clusters/west").rename(applied.folder / "ours")
    theirs = west_at(applied.folder / ".clusters/west", applied)
    before = everything(applied.folder / ".clusters")
    with pytest.raises(UserError, match=theirs.cluster_id):
        applied.apply(options=ApplyOptions(yes=True))
    assert everything(applied.folder / ".clusters") == before


def test_a_root_that_is_no_cluster_is_not_touched(bench: Bench) -> None:
    mine = bench.write(".clusters/west/thesis.txt", "years of work")
    with pytest.raises(ReconcilerError):
        bench.apply()
    assert everything(bench.folder / ".clusters") == {mine: b"years of work"}


def test_a_state_of_another_workspace_is_refused(applied: Bench) -> None:
    path = applied.folder / "reconciler.yaml"
    path.write_text(path.read_text().replace("shop", "bakery"))
    for command in (applied.plan, applied.apply):
        with pytest.raises(UserError, match="workspace 'shop'"):
            command()


def test_a_lost_lockfile_is_never_made_anew(applied: Bench) -> None:
    (applied.folder / ".reconciler/lockfile.json").unlink()
    for command in (applied.plan, applied.apply):
        with pytest.raises(UserError, match="lost"):
            command()
    assert not (applied.folder / ".reconciler/lockfile.json").exists()


def test_a_damaged_state_is_said(applied: Bench) -> None:
    (snapshot,) = (applied.folder / ".reconciler/state").iterdir()
    snapshot.write_bytes(b"x" * 100)
    with pytest.raises(UserError, match="damaged"):
        applied.plan()


# Where objectStorage cannot lie is said by the plan, and nothing is written there or at the root.


def declare(bench: Bench, name: str, root: str, storage: str | None = None) -> None:
    said = "" if storage is None else f'  objectStorage: "{storage}"\n'
    text = f"apiVersion: reconciler/v1\nkind: Cluster\nmetadata: {{name: {name}}}\n"
    shop = f"---\napiVersion: reconciler/v1\nkind: Namespace\nmetadata: {{name: shop, cluster: {name}}}\n"
    bench.write(f"manifests/{name}.yaml", f'{text}spec:\n  embedded: {{root: "{root}"}}\n{said}{shop}')


def refusal(bench: Bench) -> str:
    """Return what a plan says against it; there is something."""
    try:
        found = bench.plan().plan.errors
    except ReconcilerError as error:
        return str(error)
    return " ".join(f"{error.address}: {error.message}" for error in found)


@pytest.mark.parametrize("storage", ["file://.west", "file://.west/obj", "file://.west/../.west/"])
def test_a_cluster_never_tiers_into_its_own_root(bench: Bench, storage: str) -> None:
    declare(bench, "west", "file://.west", storage)
    assert "its objectStorage cannot be used" in refusal(bench)
    assert not (bench.folder / ".west").exists()
    declare(bench, "west", "file://.west", "file://.objects")
    bench.apply()
    assert (bench.folder / ".objects" / "storage.json").exists()


def test_nor_into_that_of_another(bench: Bench) -> None:
    declare(bench, "east", "file://.east")
    declare(bench, "west", "file://.west", "file://.east")
    assert "cluster/west: its objectStorage file://.east and file://.east, the root of cluster east," in refusal(bench)


@pytest.mark.parametrize("is_there", [True, False])
def test_where_the_root_is_spelled_otherwise_the_folder_tells(bench: Bench, *, is_there: bool) -> None:
    if is_there:
        declare(bench, "west", "file://.west")
        bench.apply()
    declare(bench, "west", "file://.west", f"file://{bench.folder}/.west")
    assert "are the same location or one contains the other" in refusal(bench)
    assert not (bench.folder / ".west" / "storage.json").exists()


@pytest.mark.parametrize("is_there", [True, False])
def test_a_file_is_no_object_storage(bench: Bench, *, is_there: bool) -> None:
    if is_there:
        declare(bench, "west", "file://.west")
        bench.apply()
    (bench.folder / "file").write_text("mine")
    declare(bench, "west", "file://.west", "file://file")
    said = refusal(bench)
    assert "its objectStorage cannot be used" in said
    assert "a file is where a folder should be" in said
