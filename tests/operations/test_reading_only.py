"""Commands that look write nothing: not by luck, but because what they are given cannot write."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.errors import BrokenInvariantError, UserError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.memory import MemoryStore
from reconciler.objectstore.wrappers import wrap_read_only
from reconciler.operations.apply import ApplyOptions
from reconciler.operations.drift import drift
from reconciler.operations.show import explain, show
from reconciler.operations.state_views import state_history, state_list, state_show
from reconciler.operations.steps.invocation import Select
from tests.servers.proxy import Proxy

if TYPE_CHECKING:
    from conftest import Bench

    from tests.servers.weed import S3Server

ORDERS = "topic/west/shop:orders"

LOOKS: dict[str, Callable[[Bench], object]] = {
    "plan": lambda bench: bench.plan(),
    "drift": lambda bench: drift(bench.invocation, Select(), fail_on=["pending"]),
    "show": lambda bench: show(bench.invocation, Select(), None),
    "explain": lambda bench: explain(bench.invocation, Select(), ORDERS),
    "state list": lambda bench: state_list(bench.invocation, Select()),
    "state show": lambda bench: state_show(bench.invocation, Select(), ORDERS),
    "state history": lambda bench: state_history(bench.invocation, Select()),
}


def make_it_worth_measuring(bench: Bench) -> None:
    """Let a plan depend on what a topic holds and on who reads it: then more is asked of a cluster."""
    path = bench.folder / "manifests/orders.yaml"
    path.write_text(path.read_text().replace("7d", "1d"))


def into_a_bucket(bench: Bench, url: str) -> None:
    workspace = bench.folder / "reconciler.yaml"
    workspace.write_text(workspace.read_text() + f"spec: {{state: {url}/state}}\n")
    west = bench.folder / "manifests/west.yaml"
    west.write_text(west.read_text().replace("file://.clusters/west", f"{url}/west"))


@pytest.mark.parametrize("write", ["put", "swap", "delete", "copy_from", "probe"])
def test_a_view_for_readers_refuses_to_write_and_nothing_is_changed(write: str) -> None:
    inner = MemoryStore("reading")
    inner.put("a", b"1")
    view = wrap_read_only(inner, now_ms=lambda: 7)
    calls: dict[str, Callable[[], object]] = {
        "put": lambda: view.put("b", b"2"),
        "swap": lambda: view.swap("a", b"2", expected=None),
        "delete": lambda: view.delete(["a"]),
        "copy_from": lambda: view.copy_from("b", inner, "a"),
        "probe": view.find_violated_conditions,
    }
    with pytest.raises(BrokenInvariantError, match=f"tried to {write}"):
        calls[write]()
    assert [listed.key for listed in inner.list("")] == ["a"]
    assert view.get("a") == inner.get("a")


def test_a_view_of_a_folder_tells_the_time_without_making_a_file(tmp_path: Path) -> None:
    view = wrap_read_only(DirectoryStore(tmp_path / "store"), now_ms=lambda: 7)
    assert view.read_clock_ms() == 7
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS.keys())
def test_looking_changes_no_byte_of_a_folder(applied: Bench, look: Callable[[Bench], object]) -> None:
    make_it_worth_measuring(applied)
    before = {path: path.stat().st_mtime_ns for path in applied.folder.rglob("*")}
    look(applied)
    assert {path: path.stat().st_mtime_ns for path in applied.folder.rglob("*")} == before


@pytest.mark.thorough
def test_looking_asks_an_s3_server_for_nothing_but_reading(
    bench: Bench, s3_server: S3Server, s3_environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert s3_environ
    into_a_bucket(bench, s3_server.url("looking"))
    assert bench.apply().verdict is None
    make_it_worth_measuring(bench)
    with Proxy(s3_server.endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
        for look in LOOKS.values():
            look(bench)
    assert {asked.method for asked in proxy.asked} == {"GET", "HEAD"}


@pytest.mark.thorough
def test_who_may_only_read_and_list_can_look_and_cannot_apply(
    bench: Bench, s3_server: S3Server, s3_environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert s3_environ
    into_a_bucket(bench, s3_server.url("reader"))
    assert bench.apply().verdict is None
    make_it_worth_measuring(bench)
    for name, value in s3_server.environ("reader").items():
        monkeypatch.setenv(name, value)
    for look in LOOKS.values():
        look(bench)
    with pytest.raises(UserError, match="denied"):
        bench.apply(options=ApplyOptions(yes=True))


AS_A_PLAIN_USER = """
import os, sys, time, uuid
from pathlib import Path
from reconciler.operations.drift import drift
from reconciler.operations.show import explain
from reconciler.operations.steps.invocation import Invocation, Select
from reconciler.operations.plan import plan
from reconciler.operations.show import show
here = Invocation(cwd=Path(sys.argv[1]), environ={}, now_ms=lambda: time.time_ns() // 10**6,
    new_id=lambda: str(uuid.uuid4()), new_run=lambda: "run", tool="0.1.0", who="eve@laptop")
def look():
    planned, shown = plan(here, Select()), show(here, Select(), None)
    explained = explain(here, Select(), "topic/west/shop:orders")
    return planned.plan.actions[0].id, len(drift(here, Select()).findings), len(shown), explained.shown.address
look()  # what is imported on the way may lie where only root can read
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
print(*look())
"""


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A folder that every user may enter, which those of tests are not."""
    folder = Path(tempfile.mkdtemp(prefix="read-only-"))
    folder.chmod(0o755)
    yield folder
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.thorough
def test_a_folder_that_may_only_be_read_can_be_looked_at(applied: Bench, elsewhere: Path) -> None:
    make_it_worth_measuring(applied)
    shutil.copytree(applied.folder, elsewhere / "shop")
    for path in (elsewhere / "shop").rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    (elsewhere / "shop").chmod(0o555)
    command = [sys.executable, "-B", "-c", AS_A_PLAIN_USER, str(elsewhere / "shop")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [f"update:{ORDERS}", "1", "3", ORDERS]
