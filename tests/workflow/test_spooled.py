"""A state that can no longer be written: what is known is kept beside the manifests, and the next run takes it up."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.applying.events import Recovered
from reconciler.errors import IncompleteError
from reconciler.objectstore.open import open_store
from reconciler.operations.apply import ApplyOptions
from reconciler.operations.state_edit import state_unlock
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import LocalSpool
from reconciler.operations.steps.workspace import open_work
from reconciler.state.journal import ActionEnded
from reconciler.state.lockfile import read_lockfile
from reconciler.state.snapshots import read_snapshot
from tests.servers.proxy import Proxy, Refused

if TYPE_CHECKING:
    from conftest import Bench

    from reconciler.objectstore.base import ObjectStore
    from tests.servers.weed import S3Server

MORE = """\
apiVersion: reconciler/v1
kind: Topic
metadata: {name: more, namespace: shop, cluster: west}
spec: {partitions: 1}
"""
CREATE = "create:topic/west/shop:more"
EXPIRED = Refused(400, "ExpiredToken")
READ_ONLY = Refused(403, "AccessDenied")
BEFORE_ITS_END = 4
"""Writes of the state until an action is about to be done: lease, run, open run, intent."""

# The disk is full from the moment an action is handed to its cluster, which is elsewhere.
FULL = """
import os, resource, signal, sys, time, uuid
from pathlib import Path
from reconciler.operations.apply import ApplyOptions, Hooks, apply
from reconciler.operations.steps.invocation import Invocation, Select
from reconciler.operations.steps.runner import Stop

def fill(event):
    if type(event).__name__ == "ActionStarted":
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))

here = Invocation(cwd=Path(sys.argv[1]), environ=dict(os.environ), now_ms=lambda: time.time_ns() // 10**6,
    new_id=lambda: str(uuid.uuid4()), new_run=lambda: "the-full-run", tool="0.1.0", who="bob@laptop")
try:
    apply(here, Select(), ApplyOptions(yes=True), Hooks(lambda _: True, fill, Stop()))
except Exception as error:
    print(type(error).__name__, error)
    os._exit(error.exit_code)
"""


@pytest.fixture
def proxy(s3_server: S3Server, s3_environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """What stands between the workspace and its bucket."""
    assert s3_environ
    with Proxy(s3_server.endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
        yield proxy


@pytest.fixture
def place(bench: Bench, proxy: Proxy, s3_server: S3Server) -> str:
    """Move the workspace of these tests into a fresh place in the bucket, and apply it; one topic more is to come."""
    assert proxy.endpoint
    url = s3_server.url("spooled")
    workspace = bench.folder / "reconciler.yaml"
    workspace.write_text(workspace.read_text() + f"spec: {{state: {url}/state}}\n")
    west = bench.folder / "manifests/west.yaml"
    west.write_text(west.read_text().replace("file://.clusters/west", f"{url}/west"))
    assert bench.apply().verdict is None
    bench.write("manifests/more.yaml", MORE)
    return url


def state_of(server: S3Server, url: str) -> ObjectStore:
    return open_store(server.settings(url=f"{url}/state"))


def breaks_off(bench: Bench, proxy: Proxy, refused: Refused) -> IncompleteError:
    """Apply until the topic is made; that it is can no longer be written."""
    proxy.let_pass("PUT", BEFORE_ITS_END, key="/state/")
    proxy.on("PUT", refused, key="/state/", times=1_000)
    with pytest.raises(IncompleteError, match="the state cannot be written") as caught:
        bench.apply()
    proxy.heal()
    return caught.value


def free(bench: Bench, state: ObjectStore) -> None:
    """Take the lease from the run that could not give it back, as `state unlock RUN` does."""
    found = read_lockfile(state)
    assert found is not None
    assert found.lockfile.lease.status == "held"
    state_unlock(bench.invocation, Select(), found.lockfile.lease.run, confirm=lambda _line: True, stop=bench.stop)


def spools(bench: Bench) -> list[Path]:
    return sorted(path for path in (bench.folder / ".reconciler").rglob("*") if path.is_file())


@pytest.mark.parametrize(
    "refused", [EXPIRED, pytest.param(READ_ONLY, marks=pytest.mark.soak)], ids=["expired", "read-only"]
)
def test_what_is_done_and_could_not_be_written_is_kept_and_taken_up_by_the_next_run(
    bench: Bench, place: str, proxy: Proxy, s3_server: S3Server, refused: Refused
) -> None:
    error = breaks_off(bench, proxy, refused)
    (kept,) = spools(bench)
    assert str(kept) in error.hint
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    entries = json.loads(kept.read_bytes())["entries"]
    assert [(entry["type"], entry["id"]) for entry in entries] == [("done", CREATE)]
    assert "state unlock" in error.hint

    state = state_of(s3_server, place)
    free(bench, state)
    assert bench.apply().verdict is None
    recovered = [event for event in bench.events if isinstance(event, Recovered)]
    assert [(event.run, dict(event.settled)) for event in recovered] == [(kept.stem, {})]
    assert not (bench.folder / ".reconciler").exists()
    snapshot = read_snapshot(state)
    assert snapshot is not None
    assert {item.run for address, item in snapshot.record.items() if address.endswith("more")} == {kept.stem}
    assert bench.plan().plan.is_empty


def test_on_another_machine_what_happened_is_found_by_looking(
    bench: Bench, place: str, proxy: Proxy, s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> None:
    breaks_off(bench, proxy, EXPIRED)
    there = tmp_path_factory.mktemp("there")
    shutil.copytree(bench.folder, there, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".reconciler"))
    other = replace(bench, folder=there, invocation=replace(bench.invocation, cwd=there, who="carol@ci"))
    free(other, state_of(s3_server, place))
    assert other.apply().verdict is None
    settled = [dict(event.settled) for event in other.events if isinstance(event, Recovered)]
    assert settled == [{CREATE: "done"}]
    assert other.plan().plan.is_empty


def edited(body: bytes, **fields: object) -> bytes:
    return json.dumps({**json.loads(body), **fields}).encode()


HARMS: Mapping[str, tuple[Callable[[bytes], bytes], str]] = {
    "torn": (lambda body: body[: len(body) // 2], "it ends in the middle"),
    "empty": (lambda _: b"", "there is nothing in it"),
    "bytes": (lambda _: b"\xff\xfe", "it is not text"),
    "list": (lambda _: b"[]", "it is of another run or format"),
    "foreign": (lambda body: edited(body, run="another"), "it is of another run or format"),
    "many": (lambda body: edited(body, entries=[{"type": "done", "id": "x"}] * 10_000), "it was changed after"),
    "tampered": (lambda body: body.replace(b"done", b"skip"), "it was changed after"),
}


@pytest.mark.parametrize(("harm", "why"), HARMS.values(), ids=HARMS)
def test_what_was_kept_and_cannot_be_used_is_told_in_a_line_and_set_aside(
    tmp_path: Path, harm: Callable[[bytes], bytes], why: str
) -> None:
    told: list[str] = []
    spool = LocalSpool(tmp_path, told.append)
    entry = ActionEnded(id=CREATE)
    kept = Path(spool.keep("a-run", [entry]))
    assert spool.kept("a-run") == (entry,)
    kept.write_bytes(harm(kept.read_bytes()))
    assert spool.kept("a-run") == ()
    (line,) = told
    assert f"{kept} cannot be used: {why}" in line
    assert "\n" not in line
    assert list(kept.parent.iterdir()) == [kept.with_suffix(".damaged")]


@pytest.mark.parametrize(
    ("harm", "why"),
    [pytest.param(*HARMS[name], id=name, marks=[pytest.mark.soak] if at else []) for at, name in enumerate(HARMS)],
)
def test_what_was_kept_and_cannot_be_used_is_set_aside_and_what_happened_is_found_by_looking(
    bench: Bench, place: str, proxy: Proxy, s3_server: S3Server, harm: Callable[[bytes], bytes], why: str
) -> None:
    breaks_off(bench, proxy, EXPIRED)
    (kept,) = spools(bench)
    kept.write_bytes(harm(kept.read_bytes()))
    free(bench, state_of(s3_server, place))
    warned: list[str] = []
    bench = replace(bench, invocation=replace(bench.invocation, warn=warned.append))
    assert bench.apply().verdict is None
    (line,) = [line for line in warned if "spool" in line]
    assert f"{kept} cannot be used: {why}" in line
    assert f"set aside as {kept.stem}.damaged" in line
    assert "\n" not in line
    assert spools(bench) == [kept.with_suffix(".damaged")]
    assert [dict(event.settled) for event in bench.events if isinstance(event, Recovered)] == [{CREATE: "done"}]
    assert bench.plan().plan.is_empty


def test_what_is_kept_of_a_run_that_ended_elsewhere_is_removed_and_what_is_of_another_state_stays(
    bench: Bench, place: str, proxy: Proxy, s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> None:
    breaks_off(bench, proxy, EXPIRED)
    (kept,) = spools(bench)
    foreign = kept.with_name("run-of-another-state.json")
    foreign.write_bytes(kept.read_bytes())
    there = tmp_path_factory.mktemp("there")
    shutil.copytree(bench.folder, there, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".reconciler"))
    other = replace(bench, folder=there, invocation=replace(bench.invocation, cwd=there, who="carol@ci"))
    free(other, state_of(s3_server, place))
    assert other.apply().verdict is None
    assert spools(bench) == [kept, foreign]
    bench.apply()
    assert spools(bench) == [foreign]


def test_resuming_after_that_finishes_the_run(bench: Bench, place: str, proxy: Proxy, s3_server: S3Server) -> None:
    breaks_off(bench, proxy, EXPIRED)
    free(bench, state_of(s3_server, place))
    done = bench.apply(options=ApplyOptions(resumes=True))
    assert done.verdict is None
    assert spools(bench) == []
    assert bench.plan().plan.is_empty


def test_where_the_disk_is_full_nothing_is_kept_and_the_next_run_finds_what_happened_by_looking(
    bench: Bench, place: str
) -> None:
    local = bench.folder / "reconciler.yaml"
    local.write_text(local.read_text().replace(f"{place}/state", "file://state"))
    for path in ("more.yaml", "orders.yaml"):
        (bench.folder / "manifests" / path).unlink()
    assert bench.apply().verdict is None
    bench.write("manifests/more.yaml", MORE)
    ran = subprocess.run([sys.executable, "-c", FULL, str(bench.folder)], capture_output=True, text=True, check=False)
    assert (ran.returncode, "Traceback" in ran.stderr) == (4, False), ran.stdout + ran.stderr
    assert "the state cannot be written" in ran.stdout
    assert "What is known could not be kept on this machine either: " in ran.stdout
    assert "file too large. Nothing is lost: the next run looks at the clusters." in ran.stdout
    assert spools(bench) == []
    free(bench, open_work(bench.invocation, Select()).state)
    assert bench.apply().verdict is None
    assert [dict(event.settled) for event in bench.events if isinstance(event, Recovered)] == [{CREATE: "done"}]
    assert bench.plan().plan.is_empty
