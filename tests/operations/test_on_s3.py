"""State and clusters in a bucket: what a workspace does there, and what a bad day costs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.errors import IncompleteError, RetryableError, UserError
from reconciler.objectstore import s3_client as s3client
from reconciler.objectstore import swap
from reconciler.objectstore.open import open_store
from reconciler.operations.apply import ApplyOptions
from reconciler.operations.init import init
from reconciler.operations.manifest_files import validate
from reconciler.operations.state_edit import state_unlock
from reconciler.operations.steps.invocation import Select
from reconciler.state.lockfile import read_lockfile
from tests.servers.proxy import FailedChore, Lost, Proxy, Stripped

if TYPE_CHECKING:
    from conftest import Bench

    from reconciler.objectstore.base import ObjectStore
    from tests.servers.weed import S3Server

TOPICS = """\
apiVersion: reconciler/v1
kind: Topic
metadata: {{name: topic-{number}, namespace: shop, cluster: west}}
spec: {{partitions: 2}}
"""
CONDITIONS = ("if-match", "if-none-match")


@pytest.fixture
def proxy(s3_server: S3Server, s3_environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """What stands between the workspace and its bucket."""
    assert s3_environ
    monkeypatch.setattr(s3client, "ATTEMPTS", 2)
    monkeypatch.setattr(swap, "TRIES", 3)
    with Proxy(s3_server.endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
        yield proxy


@pytest.fixture
def place(bench: Bench, proxy: Proxy, s3_server: S3Server) -> str:
    """Move the workspace of these tests into a fresh place in the bucket."""
    assert proxy.endpoint
    url = s3_server.url("workspace")
    workspace = bench.folder / "reconciler.yaml"
    workspace.write_text(workspace.read_text() + f"spec: {{state: {url}/state}}\n")
    west = bench.folder / "manifests/west.yaml"
    west.write_text(west.read_text().replace("file://.clusters/west", f"{url}/west"))
    return url


def names(server: S3Server, url: str) -> list[str]:
    return [listed.key for listed in open_store(server.settings(url=url)).list("")]


def free(bench: Bench, state: ObjectStore) -> None:
    """Take the lease from a run that could not give it back, as `state unlock RUN` does."""
    found = read_lockfile(state)
    if found is not None and found.lockfile.lease.status == "held":
        state_unlock(bench.invocation, Select(), found.lockfile.lease.run, confirm=lambda _line: True, stop=bench.stop)


def test_a_plan_saved_with_one_key_is_applied_with_the_next(
    bench: Bench, place: str, s3_server: S3Server, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bench.apply().verdict is None
    bench.write("manifests/topic-1.yaml", TOPICS.format(number=1))
    planned = bench.plan(out=Path("p.json")).plan
    for name, value in s3_server.environ("successor", endpoint=proxy.endpoint).items():
        monkeypatch.setenv(name, value)
    assert bench.plan().plan.digest == planned.digest
    assert bench.apply(options=ApplyOptions(file=Path("p.json"))).verdict is None
    assert bench.plan().plan.is_empty
    assert "cluster.json" in names(s3_server, f"{place}/west")


def test_what_is_applied_in_a_bucket_is_there_and_then_there_is_nothing_to_do(
    bench: Bench, place: str, s3_server: S3Server
) -> None:
    assert bench.apply().verdict is None
    assert bench.plan().plan.is_empty
    assert "lockfile.json" in names(s3_server, f"{place}/state")
    assert "cluster.json" in names(s3_server, f"{place}/west")
    assert {path.name for path in bench.folder.iterdir()} == {"reconciler.yaml", "manifests"}


@pytest.mark.thorough
def test_who_may_only_read_can_plan_and_is_told_when_applying(
    bench: Bench, place: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert place
    assert bench.apply().verdict is None
    for name, value in s3_server.environ("reader").items():
        if "KEY" in name:
            monkeypatch.setenv(name, value)
    assert bench.plan().plan.is_empty
    bench.write("manifests/more.yaml", TOPICS.format(number=7))
    assert [action.id for action in bench.plan().plan.actions] == ["create:topic/west/shop:topic-7"]
    with pytest.raises(UserError, match="access denied") as caught:
        bench.apply()
    assert "s3:PutObject" in caught.value.hint


def test_answers_that_are_lost_all_along_are_not_noticed(bench: Bench, place: str, proxy: Proxy) -> None:
    assert place
    for key in ("lockfile.json", "cluster.json", "head.json", "journal"):
        proxy.on("PUT", Lost(), key=key, times=4)
    assert bench.apply().verdict is None
    assert bench.plan().plan.is_empty


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("passed", "code"),
    [
        (0, "RequestTimeTooSkewed"),
        (4, "ExpiredToken"),
        (8, "AccessDenied"),
        *(pytest.param(*each, marks=pytest.mark.soak) for each in ((12, "AccessDenied"), (16, "ExpiredToken"))),
        *(pytest.param(passed, "ExpiredToken", marks=pytest.mark.soak) for passed in (8, 10, 12)),  # tried for 25 s
    ],
)
def test_a_run_whose_credentials_end_in_the_middle_is_finished_by_the_next(
    passed: int, code: str, bench: Bench, place: str, proxy: Proxy, s3_server: S3Server
) -> None:
    for number in range(5):
        bench.write(f"manifests/{number}.yaml", TOPICS.format(number=number))
    proxy.let_pass("PUT", passed)
    proxy.on("PUT", FailedChore(403, code), times=10_000)
    proxy.on("POST", FailedChore(403, code), times=10_000)
    with pytest.raises((IncompleteError, RetryableError, UserError)) as caught:
        bench.apply()
    assert caught.value.hint
    proxy.heal()
    free(bench, open_store(s3_server.settings(url=f"{place}/state")))
    assert bench.apply().verdict is None
    assert bench.plan().plan.is_empty


@pytest.mark.thorough
def test_a_bucket_that_ignores_conditions_holds_no_state_and_no_cluster(
    bench: Bench, place: str, proxy: Proxy, s3_server: S3Server
) -> None:
    proxy.on("PUT", Stripped(CONDITIONS), times=10_000)
    with pytest.raises(UserError, match="cannot keep a state: it overwrites an object"):
        bench.apply()
    assert names(s3_server, place) == []
    workspace = bench.folder / "reconciler.yaml"
    workspace.write_text(workspace.read_text().replace(f"{place}/state", "file://.reconciler"))
    assert bench.apply().verdict is not None
    assert names(s3_server, place) == []


@pytest.mark.thorough
def test_init_probes_the_bucket_of_its_state(bench: Bench, proxy: Proxy, s3_server: S3Server) -> None:
    url = s3_server.url("state")
    made = init(bench.invocation, Path("made"), state=url)
    assert made.state == url
    assert f"state: {url} #" in (bench.folder / "made/reconciler.yaml").read_text()
    here = bench.with_(cwd=bench.folder / "made")
    assert validate(here.invocation, Select()).verdict is None
    proxy.on("PUT", Stripped(CONDITIONS), times=100)
    with pytest.raises(UserError, match="it overwrites an object that was to be created only if absent"):
        init(bench.invocation, Path("careless"), state=s3_server.url("state"))
    assert not (bench.folder / "careless/reconciler.yaml").exists()


def test_init_names_a_bucket_that_is_not_there(bench: Bench, proxy: Proxy) -> None:
    assert proxy
    with pytest.raises(UserError, match="there is no such bucket"):
        init(bench.invocation, Path("made"), state="s3://not-there/state")
    assert not (bench.folder / "made/reconciler.yaml").exists()


@pytest.mark.parametrize("state", ["nowhere", "s3://", "ftp://host/x", "file://a # b"])
def test_init_refuses_what_is_no_place(state: str, bench: Bench) -> None:
    with pytest.raises(UserError):
        init(bench.invocation, Path("made"), state=state)
    assert not (bench.folder / "made/reconciler.yaml").exists()
