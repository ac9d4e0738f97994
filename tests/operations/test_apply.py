from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.applying.events import ActionDone, ActionStarted, Event, PlanMade, ResultMissing, RunRecovered, Summary
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import (
    BlockedError,
    IncompleteError,
    InterruptedRunError,
    LeaseError,
    PartialError,
    StalePlanError,
    UsageError,
    UserError,
)
from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.open import open_store
from reconciler.operations.apply import ApplyOptions
from reconciler.operations.show import show
from reconciler.operations.state_edit import state_unlock
from reconciler.operations.steps.approval import ChangedPlanError
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.recorded import LocalSpool
from reconciler.operations.steps.runner import Stop
from reconciler.operations.steps.workspace import open_work
from reconciler.planning.same_or_less import Why
from reconciler.state.journal import ActionEnded, read_journal
from reconciler.state.lockfile import Lockfile, read_lockfile
from reconciler.state.snapshots import read_snapshot
from tests.embedded.deaths import cluster_in, opened
from tests.operations.stage import alter_topic
from tests.servers.proxy import FailedChore, Proxy

if TYPE_CHECKING:
    from conftest import Bench

    from reconciler.objectstore.base import ObjectStore
    from reconciler.operations.plan import PlanResult
    from reconciler.planning.plan import Plan
    from tests.servers.weed import S3Server


ASK = ApplyOptions()
FILE = ApplyOptions(file=Path("p.json"))
MORE = """\
apiVersion: reconciler/v1
kind: Topic
metadata: {name: refunds, namespace: shop, cluster: west}
spec: {partitions: 1}
"""


def ids(plan: Plan) -> list[str]:
    return [action.id for action in plan.actions]


def state_of(bench: Bench) -> DirectoryStore:
    return DirectoryStore(bench.folder / ".reconciler")


def alter_behind_our_back(bench: Bench, **configs: str) -> None:
    set_ = {key.replace("_", "."): value for key, value in configs.items()}
    acting = bench.acting("topic alter", no_state=True)
    alter_topic(acting, "topic/west/shop:orders", set_)


def test_a_run_leaves_what_it_set_out_to_do_and_how_it_ended(applied: Bench) -> None:
    runs = list((applied.folder / ".reconciler/runs").iterdir())
    run, result = (json.loads((runs[0] / name).read_text()) for name in ("run.json", "result.json"))
    wanted = ["create:cluster/west", "create:namespace/west/shop", "create:topic/west/shop:orders"]
    assert [action["id"] for action in run["actions"]] == wanted
    assert (run["who"], run["base_serial"], run["options"]["wanted"]["is_destroy"]) == ("anna@build-7", 0, False)
    assert (result["status"], result["done"], result["serial"]) == ("done", wanted, 1)
    # One after the other: each leans on the one before, so its intent waits for the other's end.
    written = read_journal(state_of(applied), run["run"])
    assert [(entry.type, getattr(entry, "id", "")) for entry in written.entries] == [
        *((kind, name) for name in wanted for kind in ("intent", "done")),
        ("closed", ""),
    ]


def test_events_begin_with_the_plan_and_end_with_the_summary(applied: Bench) -> None:
    first, *between, last = applied.events
    assert isinstance(first, PlanMade)
    assert first.document["summary"]["create"] == 3
    assert [event.id for event in between if isinstance(event, ActionDone)] == first_ids(first)
    assert isinstance(last, Summary)
    assert (last.done, last.failed, last.serial) == (3, 0, 1)


def test_a_run_with_nothing_to_do_says_so_too(applied: Bench) -> None:
    applied.events.clear()
    assert applied.apply().result is None
    plan, summary = applied.events
    assert isinstance(plan, PlanMade)
    assert isinstance(summary, Summary)
    assert (summary.done, summary.failed, summary.not_started, summary.serial) == (0, 0, 0, 1)


def first_ids(event: PlanMade) -> list[str]:
    return [action["id"] for action in event.document["actions"]]


def test_the_lease_is_free_afterwards_and_its_epoch_counts_on(applied: Bench) -> None:
    applied.write("manifests/refunds.yaml", MORE)
    applied.apply()
    found = read_lockfile(state_of(applied))
    assert found is not None
    assert (found.lockfile.lease.status, found.lockfile.lease.epoch, found.lockfile.serial) == ("free", 2, 2)


def test_nothing_to_do_asks_nothing_and_writes_no_state(applied: Bench) -> None:
    applied.asked.clear()
    again = applied.apply()
    assert (again.result, again.verdict, applied.asked) == (None, None, [])
    assert len(list((applied.folder / ".reconciler/state").iterdir())) == 1


def test_only_yes_confirms(bench: Bench) -> None:
    with pytest.raises(UserError, match="not confirmed"):
        bench.apply(options=ASK, confirm=lambda _planned: False)
    assert not (bench.folder / ".clusters").exists()
    assert not (bench.folder / ".reconciler").exists()


def test_a_confirmed_plan_is_asked_about_once_and_done(bench: Bench) -> None:
    assert bench.apply(options=ASK).verdict is None
    assert len(bench.asked) == 1
    assert bench.plan().plan.is_empty


def test_a_saved_plan_brings_its_options(bench: Bench) -> None:
    bench.write("manifests/refunds.yaml", MORE)
    bench.plan(Select(excludes=("*refunds",)), out=Path("p.json"))
    bench.apply(options=FILE)
    assert ids(bench.plan().plan) == ["create:topic/west/shop:refunds"]
    with pytest.raises(UsageError, match="FILE"):
        bench.apply(Select(targets=("*",)), FILE)


def test_what_a_saved_plan_no_longer_needs_is_skipped_and_said(bench: Bench) -> None:
    bench.plan(out=Path("p.json"))
    bench.apply()
    done = bench.apply(options=FILE)
    assert (done.result, done.verdict) == (None, None)
    assert done.skipped == (
        "create:cluster/west",
        "create:namespace/west/shop",
        "create:topic/west/shop:orders",
    )
    with pytest.raises(StalePlanError, match="--strict"):
        bench.apply(options=ApplyOptions(file=Path("p.json"), strict=True))


def test_a_topic_that_changed_between_plan_and_apply_stops_it(applied: Bench) -> None:
    applied.write("manifests/orders.yaml", (applied.folder / "manifests/orders.yaml").read_text().replace("7d", "9d"))
    applied.plan(out=Path("p.json"))
    alter_behind_our_back(applied, retention_ms="3d")
    with pytest.raises(StalePlanError, match=r"update:topic/west/shop:orders: .*changed on the cluster"):
        applied.apply(options=FILE)
    before = applied.plan().plan.actions[0]
    assert [(change.before, change.after) for change in before.changes] == [("259200000", "777600000")]  # type: ignore[union-attr]  # an Update


def test_errors_of_a_plan_are_all_listed_and_nothing_is_done(applied: Bench) -> None:
    applied.write("manifests/refunds.yaml", MORE.replace("shop,", "nowhere,"))
    applied.write("manifests/wide.yaml", MORE.replace("shop,", "elsewhere,"))
    with pytest.raises(UserError, match="2 errors") as caught:
        applied.apply()
    assert "nowhere" in caught.value.message
    assert "elsewhere" in caught.value.message


EAST = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: east}
spec:
  embedded: {root: "file://.clusters/east"}
"""


def test_where_another_cluster_answers_the_hint_names_what_leaves_it_out(applied: Bench) -> None:
    applied.write("manifests/east.yaml", EAST)
    applied.apply()
    shutil.rmtree(applied.folder / ".clusters/east")
    cluster_in(DirectoryStore(applied.folder / ".clusters/east"))
    applied.write("manifests/more.yaml", MORE)
    with pytest.raises(UserError, match=r"when it was recorded, but .* answers") as caught:
        applied.apply()
    assert caught.value.hint == "No --allow lifts these. To do the rest: --exclude '*/east/*'"
    assert applied.apply(Select(excludes=("*/east/*",))).verdict is None


def test_where_nothing_can_be_left_out_no_hint_says_so(bench: Bench) -> None:
    far = EAST.replace("east", "far")
    bench.write("manifests/east.yaml", f'{EAST}  objectStorage: {{url: "file://.clusters/far/remote"}}\n---\n{far}')
    with pytest.raises(UserError, match="are the same location or one contains the other") as caught:
        bench.apply()
    assert caught.value.hint == "No --allow lifts these."


def test_a_second_apply_waits_for_the_first_and_gives_up_in_time(bench: Bench) -> None:
    entered, leave = threading.Event(), threading.Event()

    def hold(_planned: PlanResult) -> bool:
        entered.set()
        return leave.wait(30)

    first = threading.Thread(target=bench.apply, kwargs={"confirm": hold})
    first.start()
    try:
        assert entered.wait(30)
        with pytest.raises(LeaseError, match="anna@build-7"):
            bench.apply(options=ApplyOptions(yes=True, lock_timeout_s=1))
        assert any("the lease is held by anna@build-7" in line for line in bench.warned)
    finally:
        leave.set()
        first.join()
    assert bench.plan().plan.is_empty


def test_a_plan_takes_no_lease(bench: Bench) -> None:
    seen: list[Plan] = []

    def look(_planned: PlanResult) -> bool:
        seen.append(bench.plan().plan)
        return True

    bench.apply(confirm=look)
    assert len(seen[0].actions) == 3


def test_a_stop_before_anything_started_changes_nothing(bench: Bench) -> None:
    bench.stop.request()
    with pytest.raises(InterruptedRunError):
        bench.apply()
    assert not (bench.folder / ".clusters").exists()
    found = read_lockfile(state_of(bench))
    assert found is not None
    assert found.lockfile.lease.status == "free"


def test_a_stop_on_the_way_keeps_what_is_done_and_says_what_is_left(bench: Bench) -> None:
    def stop_after_the_cluster(event: object) -> None:
        if isinstance(event, ActionDone):
            bench.stop.request()

    stopped = bench.apply(report=stop_after_the_cluster)
    assert stopped.verdict is not None
    assert stopped.verdict.exit_code == 4
    assert stopped.result is not None
    assert stopped.result.done == ("create:cluster/west",)
    assert ids(bench.plan().plan) == ["create:namespace/west/shop", "create:topic/west/shop:orders"]


def test_a_failed_action_fails_only_what_leans_on_it(bench: Bench) -> None:
    def obstruct(_planned: PlanResult) -> bool:
        # Somebody makes the topic, and not as we would, after the plan was made.
        cluster = EmbeddedCluster.create(
            DirectoryStore(bench.folder / ".clusters/west"),
            now_ms=bench.invocation.now_ms,
            new_id=bench.invocation.new_id,
        )
        cluster.create_namespace("shop")
        cluster.create_topic("shop:orders", partitions=1)
        return True

    bench.write("manifests/refunds.yaml", MORE)
    done = bench.apply(confirm=obstruct)
    assert isinstance(done.verdict, PartialError)
    assert done.result is not None
    assert [failed.id for failed in done.result.failed] == ["create:topic/west/shop:orders"]
    assert "create:topic/west/shop:refunds" in done.result.done
    assert ids(bench.plan().plan) == ["adopt:topic/west/shop:orders", "update:topic/west/shop:orders"]


def test_a_summary_that_cannot_be_written_is_told_and_everything_else_is_as_it_would_be(bench: Bench) -> None:
    def report(event: Event) -> None:
        bench.events.append(event)
        if isinstance(event, ActionStarted):
            (run,) = (bench.folder / ".reconciler/runs").iterdir()
            (run / "result.json").write_text("somebody else's")

    applied = bench.apply(report=report)
    assert applied.verdict is None
    *_, summary, missing = bench.events
    assert isinstance(summary, Summary)
    assert isinstance(missing, ResultMissing)
    assert (summary.done, summary.serial, missing.serial) == (3, 1, 1)
    assert "result.json" in missing.error
    found = read_lockfile(state_of(bench))
    assert found is not None
    assert (found.lockfile.lease.status, found.lockfile.open_run, found.lockfile.serial) == ("free", None, 1)
    assert bench.plan().plan.is_empty


# A state that can no longer be written: what is known is kept beside the manifests, and the next run takes it up.


MORE_TOPICS = """\
apiVersion: reconciler/v1
kind: Topic
metadata: {name: more, namespace: shop, cluster: west}
spec: {partitions: 1}
"""
CREATE = "create:topic/west/shop:more"
EXPIRED = FailedChore(400, "ExpiredToken")
READ_ONLY = FailedChore(403, "AccessDenied")
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
    bench.write("manifests/more.yaml", MORE_TOPICS)
    return url


def spooled_state(server: S3Server, url: str) -> ObjectStore:
    return open_store(server.settings(url=f"{url}/state"))


def breaks_off(bench: Bench, proxy: Proxy, refused: FailedChore) -> IncompleteError:
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
    bench: Bench, place: str, proxy: Proxy, s3_server: S3Server, refused: FailedChore
) -> None:
    error = breaks_off(bench, proxy, refused)
    (kept,) = spools(bench)
    assert str(kept) in error.hint
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    entries = json.loads(kept.read_bytes())["entries"]
    assert [(entry["type"], entry["id"]) for entry in entries] == [("done", CREATE)]
    assert "state unlock" in error.hint

    state = spooled_state(s3_server, place)
    free(bench, state)
    assert bench.apply().verdict is None
    recovered = [event for event in bench.events if isinstance(event, RunRecovered)]
    assert [(event.run, dict(event.settled)) for event in recovered] == [(kept.stem, {})]
    assert not (bench.folder / ".reconciler").exists()
    snapshot = read_snapshot(state)
    assert snapshot is not None
    assert {item.run for address, item in snapshot.record.items() if address.endswith("more")} == {kept.stem}
    assert bench.plan().plan.is_empty


@pytest.mark.thorough
def test_on_another_machine_what_happened_is_found_by_looking(
    bench: Bench, place: str, proxy: Proxy, s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> None:
    breaks_off(bench, proxy, EXPIRED)
    there = tmp_path_factory.mktemp("there")
    shutil.copytree(bench.folder, there, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".reconciler"))
    other = replace(bench, folder=there, invocation=replace(bench.invocation, cwd=there, who="carol@ci"))
    free(other, spooled_state(s3_server, place))
    assert other.apply().verdict is None
    settled = [dict(event.settled) for event in other.events if isinstance(event, RunRecovered)]
    assert settled == [{CREATE: "done"}]
    assert other.plan().plan.is_empty


def edited(body: bytes, **fields: object) -> bytes:
    return json.dumps({**json.loads(body), **fields}).encode()


HARMS: Mapping[str, tuple[Callable[[bytes], bytes], str]] = {
    "torn": (lambda body: body[: len(body) // 2], "it ends in the middle"),
    "empty": (lambda _: b"", "there is nothing in it"),
    "bytes": (lambda _: b"\xff\xfe", "it is not text"),
    "list": (lambda _: b"[]", "it belongs to another run, or has an unknown format"),
    "foreign": (lambda body: edited(body, run="another"), "it belongs to another run, or has an unknown format"),
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
    kept = Path(spool.store_entries("a-run", [entry]))
    assert spool.read_entries("a-run") == (entry,)
    kept.write_bytes(harm(kept.read_bytes()))
    assert spool.read_entries("a-run") == ()
    (line,) = told
    assert f"{kept} cannot be used: {why}" in line
    assert "\n" not in line
    assert list(kept.parent.iterdir()) == [kept.with_suffix(".damaged")]


def test_what_was_kept_of_a_run_and_cannot_be_removed_is_told_in_a_line(tmp_path: Path) -> None:
    told: list[str] = []
    spool = LocalSpool(tmp_path, told.append)
    in_the_way = tmp_path / ".reconciler/spool/a-run.json"
    in_the_way.mkdir(parents=True)
    spool.delete_entries("a-run")
    (line,) = told
    assert line.startswith(f"{in_the_way} is no longer needed and cannot be removed: ")


@pytest.mark.thorough
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
    free(bench, spooled_state(s3_server, place))
    warned: list[str] = []
    bench = replace(bench, invocation=replace(bench.invocation, warn=warned.append))
    assert bench.apply().verdict is None
    (line,) = [line for line in warned if "spool" in line]
    assert f"{kept} cannot be used: {why}" in line
    assert f"set aside as {kept.stem}.damaged" in line
    assert "\n" not in line
    assert spools(bench) == [kept.with_suffix(".damaged")]
    assert [dict(event.settled) for event in bench.events if isinstance(event, RunRecovered)] == [{CREATE: "done"}]
    assert bench.plan().plan.is_empty


@pytest.mark.thorough
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
    free(other, spooled_state(s3_server, place))
    assert other.apply().verdict is None
    assert spools(bench) == [kept, foreign]
    bench.apply()
    assert spools(bench) == [foreign]


def test_resuming_after_that_finishes_the_run(bench: Bench, place: str, proxy: Proxy, s3_server: S3Server) -> None:
    breaks_off(bench, proxy, EXPIRED)
    free(bench, spooled_state(s3_server, place))
    done = bench.apply(options=ApplyOptions(resumes=True))
    assert done.verdict is None
    assert spools(bench) == []
    assert bench.plan().plan.is_empty


@pytest.mark.thorough
def test_where_the_disk_is_full_nothing_is_kept_and_the_next_run_finds_what_happened_by_looking(
    bench: Bench, place: str
) -> None:
    local = bench.folder / "reconciler.yaml"
    local.write_text(local.read_text().replace(f"{place}/state", "file://state"))
    for path in ("more.yaml", "orders.yaml"):
        (bench.folder / "manifests" / path).unlink()
    taking_over = Select(allow=("adopt:*",))  # a state elsewhere is another owner
    assert bench.apply(taking_over).verdict is None
    bench.write("manifests/more.yaml", MORE_TOPICS)
    ran = subprocess.run([sys.executable, "-c", FULL, str(bench.folder)], capture_output=True, text=True, check=False)
    assert (ran.returncode, "Traceback" in ran.stderr) == (4, False), ran.stdout + ran.stderr
    assert "the state cannot be written" in ran.stdout
    assert "What is known could not be kept on this machine either: " in ran.stdout
    assert "file too large. Nothing is lost: the next run looks at the clusters." in ran.stdout
    assert spools(bench) == []
    free(bench, open_work(bench.invocation, Select()).state)
    assert bench.apply().verdict is None
    assert [dict(event.settled) for event in bench.events if isinstance(event, RunRecovered)] == [{CREATE: "done"}]
    assert bench.plan().plan.is_empty


# A run that leaves its jobs to another stays open; whoever looks is told, and the next one finishes it.


NO_JAVA = {"PATH": "/nonexistent", "JAVA_HOME": "/nonexistent"}
LEAVING = ApplyOptions(yes=True, leaves_jobs=True)
RESUMING = ApplyOptions(resumes=True)
LINK = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: east}
spec:
  embedded: {root: "file://.clusters/east"}
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {name: shop, cluster: east}
---
apiVersion: reconciler/v1
kind: MirrorLink
metadata: {name: from-west, cluster: east}
spec:
  source: west
  mirrorTopics: [{source: "shop:orders"}]
"""


@pytest.fixture
def linked(bench: Bench) -> Bench:
    """A topic and a mirror of it, which only a job can fill; there is no Java."""
    bench.write("manifests/east.yaml", LINK)
    return bench.with_(environ=NO_JAVA)


def lockfile(bench: Bench) -> Lockfile:
    found = read_lockfile(open_work(bench.invocation, Select()).state)
    assert found is not None
    return found.lockfile


def test_leaving_the_jobs_does_the_rest_without_spark_and_ends_well(linked: Bench) -> None:
    done = linked.apply(options=LEAVING)
    assert done.verdict is None
    assert done.result is not None
    assert done.result.not_started == ("mirror:mirror/east/shop:orders",)
    assert "create:mirror/east/shop:orders" in done.result.done
    left = lockfile(linked)
    assert (left.lease.status, left.open_run is None) == ("free", False)
    (result,) = (linked.folder / ".reconciler/runs").glob("*/result.json")
    assert json.loads(result.read_bytes())["status"] == "detached"


def test_who_plans_or_looks_while_a_run_is_open_is_told_whose_it_is_and_what_is_left(linked: Bench) -> None:
    linked.apply(options=LEAVING)
    opened = lockfile(linked).open_run
    assert opened is not None
    for look in (linked.plan, lambda: show(linked.invocation, Select(), None)):
        linked.warned.clear()
        look()
        (line,) = linked.warned
        assert f"run {opened.run[-8:]} of anna@build-7, begun 20" in line
        assert "left the rest to other processes: 1 action not begun. " in line
        assert "apply --resume" in line


def test_who_plans_while_a_run_is_under_way_is_told_what_it_does(linked: Bench) -> None:
    def look(_event: object) -> None:
        linked.warned.clear()
        linked.plan()
        told.extend(linked.warned)

    told: list[str] = []
    linked.apply(options=LEAVING, report=look)
    assert any("anna@build-7 holds the lease since" in line and ": apply, " in line for line in told), told


def test_nothing_is_read_for_a_run_that_is_not_open(applied: Bench) -> None:
    applied.plan()
    assert applied.warned == []


def test_the_next_plain_apply_closes_what_was_left_and_leaves_it_again_where_asked(linked: Bench) -> None:
    linked.apply(options=LEAVING)
    first = lockfile(linked).open_run
    again = linked.apply(options=LEAVING)
    assert again.result is not None
    assert again.result.not_started == ("mirror:mirror/east/shop:orders",)
    second = lockfile(linked).open_run
    assert first is not None
    assert second is not None
    assert first.run != second.run
    assert [event.run for event in linked.events if isinstance(event, RunRecovered)] == [first.run]


def test_resuming_where_nothing_is_open_says_so(applied: Bench) -> None:
    with pytest.raises(UserError, match="nothing to resume: no run is open"):
        applied.apply(options=RESUMING)
    assert lockfile(applied).lease.status == "free"


def test_resuming_takes_neither_a_file_nor_a_selection(applied: Bench) -> None:
    with pytest.raises(UsageError, match="its own plan"):
        applied.apply(options=replace(RESUMING, file=applied.folder / "plan.json"))
    with pytest.raises(UsageError, match="its own plan"):
        applied.apply(Select(targets=("topic/west/*",)), RESUMING)
    with pytest.raises(UsageError, match="its own plan"):
        applied.apply(options=replace(RESUMING, only_drift=True))


def test_what_is_left_and_planned_no_more_is_not_dropped_in_silence(linked: Bench) -> None:
    linked.apply(options=LEAVING)
    opened = lockfile(linked).open_run
    manifest = linked.folder / "manifests/east.yaml"
    manifest.write_text(manifest.read_text().partition("  mirrorTopics")[0])
    with pytest.raises(ChangedPlanError, match="mirror:mirror/east/shop:orders: it was left to do") as caught:
        linked.apply(options=RESUMING)
    assert (caught.value.exit_code, "git pull" in caught.value.hint) == (6, True)
    assert [each.whys for each in caught.value.held.difference.more] == [(Why.MISSING,)]
    left = lockfile(linked)
    assert (left.lease.status, left.open_run) == ("free", opened)


def stopped_before(bench: Bench, manifests: str) -> None:
    """Stop a run when it is about to do what `manifests` add."""
    bench.apply()
    bench.write("manifests/more.yaml", manifests)
    bench.apply(report=lambda event: bench.stop.request() if isinstance(event, ActionDone) else None)
    bench.stop = Stop()


LATER = """\
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {name: later, cluster: west}
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: a, namespace: later, cluster: west}
spec: {partitions: 2, configs: {retention.ms: 1d}}
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: b, namespace: later, cluster: west}
spec: {partitions: 2}
"""
A, B = "create:topic/west/later:a", "create:topic/west/later:b"


def test_files_that_know_less_than_the_run_had_planned_are_refused_with_all_they_lack(bench: Bench) -> None:
    stopped_before(bench, LATER)
    path = bench.folder / "manifests/more.yaml"
    text = path.read_text()
    path.write_text("---".join(text.split("---")[:2]))
    with pytest.raises(ChangedPlanError, match="2 actions are not what") as caught:
        bench.apply(options=RESUMING)
    more = caught.value.held.difference.more
    assert [each.id for each in more] == [A, B]
    assert {field.path for field in more[0].fields} == {"partitions", "configs.retention.ms"}
    path.write_text(text)
    assert bench.apply(options=RESUMING).verdict is None
    assert bench.plan().plan.is_empty


def test_a_run_that_was_stopped_is_not_told_as_one_that_crashed(bench: Bench) -> None:
    stopped_before(bench, LATER)
    bench.plan()
    (line,) = bench.warned
    assert "was stopped: 2 actions not begun. " in line
    assert "in doubt" not in line
    bench.events.clear()
    bench.apply()
    (settled,) = [event for event in bench.events if isinstance(event, RunRecovered)]
    assert (settled.parting, settled.left, settled.settled) == ("stopped", 2, {})


def test_a_command_that_acted_at_once_and_died_is_settled_and_given_again_never_resumed(applied: Bench) -> None:
    def cut(event: Event) -> None:
        if isinstance(event, ActionStarted):
            shutil.copytree(applied.folder / ".reconciler", kept)

    kept = applied.folder / "kept"
    acting = replace(applied.acting("topic alter"), report=cut)
    alter_topic(acting, "topic/west/shop:orders", {"retention.ms": "2d"})
    shutil.rmtree(applied.folder / ".reconciler")
    kept.rename(applied.folder / ".reconciler")
    dead = lockfile(applied).lease.run
    state_unlock(applied.invocation, Select(), dead, confirm=lambda _line: True, stop=applied.stop)
    applied.warned.clear()
    applied.plan()
    (line,) = [line for line in applied.warned if "`reconciler apply` settles it; then" in line]
    assert "`topic alter` can be given again" in line
    assert "--resume" not in line


def test_every_field_that_would_be_otherwise_is_told_of_all_that_changed(bench: Bench) -> None:
    stopped_before(bench, LATER)
    path = bench.folder / "manifests/more.yaml"
    path.write_text(path.read_text().replace("partitions: 2", "partitions: 4"))
    with pytest.raises(ChangedPlanError) as caught:
        bench.apply(options=RESUMING)
    more = caught.value.held.difference.more
    assert [(each.id, each.whys, [field.path for field in each.fields]) for each in more] == [
        (A, (Why.RESULT,), ["partitions"]),
        (B, (Why.RESULT,), ["partitions"]),
    ]


def test_what_somebody_did_meanwhile_is_less_and_told(bench: Bench) -> None:
    stopped_before(bench, LATER)
    cluster = opened(DirectoryStore(bench.folder / ".clusters/west"))
    cluster.create_topic("later:a", partitions=2, configs={"retention.ms": "86400000"})
    resumed = bench.apply(options=RESUMING)
    assert resumed.verdict is None
    assert (resumed.skipped, [action.id for action in resumed.planned.plan.actions]) == ((A,), [B])
    assert lockfile(bench).open_run is None


# -- older files


def at_commit(bench: Bench, commit: str) -> Bench:
    """Return the same folder at a commit of a history in which numbers grow."""
    return bench.with_(git_commit=lambda _folder: commit, is_ancestor=lambda _folder, one, other: one < other)


def test_of_two_applies_at_once_the_one_of_older_files_is_blocked_under_its_lease(applied: Bench) -> None:
    older, newer = at_commit(applied, "aaaa0001"), at_commit(applied, "aaaa0002")
    orders = applied.folder / "manifests/orders.yaml"
    before = orders.read_text()

    def newer_first(planned: PlanResult) -> bool:
        changed = orders.read_text()
        orders.write_text(before)  # the newer commit takes the change back: nothing is to be done, nothing is stale
        assert newer.apply().result is None
        orders.write_text(changed)
        assert not planned.plan.has_older_files
        return True

    orders.write_text(before.replace("7d", "8d"))
    with pytest.raises(BlockedError, match="aaaa000, which is newer, was applied last"):
        older.apply(options=ASK, confirm=newer_first)
    assert lockfile(applied).commit == "aaaa0002"
    assert lockfile(applied).lease.status == "free"
    assert older.apply(options=ApplyOptions(yes=True, only_drift=True)).result is None
    assert older.apply(Select(allow=("older:aaaa0001",))).verdict is None
    assert lockfile(applied).commit == "aaaa0001"


def test_a_run_that_an_older_commit_resumes_is_blocked_and_a_command_keeps_the_commit(linked: Bench) -> None:
    at_commit(linked, "aaaa0002").apply(options=LEAVING)
    with pytest.raises(BlockedError, match="which is newer"):
        at_commit(linked, "aaaa0001").apply(options=RESUMING)
    assert at_commit(linked, "aaaa0002").apply(options=RESUMING).verdict is None
    acting = at_commit(linked, "aaaa0001").acting()
    alter_topic(acting, "topic/west/shop:orders", {"retention.ms": "9d"})
    assert lockfile(linked).commit == "aaaa0002"
