"""A cluster of many that does not answer: the others are planned, compared and applied."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.errors import PartialError, RetryableError, UserError
from reconciler.operations.apply import ApplyOptions
from reconciler.operations.drift import drift
from reconciler.operations.plan import parse_fail_on
from reconciler.operations.steps.invocation import Select
from tests.operations.conftest import ORDERS, WORKSPACE, Bench

SETTINGS = """\
apiVersion: reconciler/v1
kind: Workspace
metadata: {name: shop}
spec: {clusters: {parallel: 1, timeout: 3s}}
"""

SPECS = {
    "kafka": 'provider: kafka, kafka: {bootstrapServers: ["HOST"]}',
    "redpanda": 'provider: redpanda, redpanda: {bootstrapServers: ["HOST"], adminUrls: ["http://HOST"]}',
    "confluent": 'provider: confluent, confluent: {restEndpoint: "http://HOST", clusterId: lkc-1, type: platform}',
}


@pytest.fixture
def hanging() -> Iterator[str]:
    """A port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def silent() -> Iterator[str]:
    """A port whose queue of connections is full, so that it drops packets as a firewall does."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, socket.create_connection(server.getsockname()):
        yield f"127.0.0.1:{server.getsockname()[1]}"


def add_cluster(bench: Bench, provider: str, host: str) -> None:
    bench.write("reconciler.yaml", SETTINGS)
    bench.write(
        "manifests/hung.yaml",
        "apiVersion: reconciler/v1\nkind: Cluster\nmetadata: {name: hung}\n"
        f"spec: {{{SPECS[provider].replace('HOST', host)}}}\n---\n" + ORDERS.replace("west", "hung"),
    )


@pytest.fixture(params=[*((provider, "hanging") for provider in SPECS), ("kafka", "silent")])
def fleet(request: pytest.FixtureRequest, bench: Bench) -> Bench:
    """A workspace with a healthy embedded cluster, and one of another kind that does not answer."""
    provider, port = request.param
    add_cluster(bench, provider, request.getfixturevalue(port))
    return bench


@pytest.mark.thorough
def test_a_cluster_that_hangs_is_left_out_of_plan_apply_and_drift_which_say_so(fleet: Bench) -> None:
    planned = fleet.plan(out=Path("p.json"))
    assert {action.cluster for action in planned.plan.actions} == {"west"}
    assert planned.header.unread == ("hung",)
    (warning,) = [warning for warning in planned.plan.warnings if warning.address == "cluster/hung"]
    assert warning.message == ("cluster hung cannot be read, and nothing on it is planned: it was not read within 3 s")
    verdict = planned.verdict(parse_fail_on([]))
    assert isinstance(verdict, RetryableError)
    assert verdict.exit_code == 1
    assert "cannot read cluster hung: it was not read within 3 s" in verdict.message
    assert "*/hung/*" in verdict.hint

    applied = fleet.apply()
    assert isinstance(applied.verdict, PartialError)
    assert applied.verdict.message.endswith("was not read within 3 s; nothing on it was done")
    assert applied.result is not None
    assert not applied.result.failed

    assert fleet.plan().plan.is_empty
    compared = drift(fleet.invocation, Select())
    assert not compared.findings
    assert compared.verdict is not None
    assert compared.verdict.exit_code == 1
    assert "hung" in compared.verdict.message


@pytest.mark.thorough
def test_a_plan_saved_without_a_cluster_applies_without_it(bench: Bench, hanging: str) -> None:
    add_cluster(bench, "redpanda", hanging)
    saved = bench.plan(out=Path("p.json"))
    assert bench.apply(options=ApplyOptions(file=Path("p.json"), yes=True)).verdict is None
    assert not bench.plan().plan.actions
    assert saved.plan.actions


@pytest.mark.thorough
def test_confirmation_covers_the_clusters_that_were_read(bench: Bench, hanging: str) -> None:
    add_cluster(bench, "confluent", hanging)
    applied = bench.apply(options=ApplyOptions())
    assert len(bench.asked) == 1
    assert isinstance(applied.verdict, PartialError)
    assert applied.result is not None
    assert [str(done) for done in applied.result.not_started] == []


def test_an_approved_plan_does_nothing_while_one_of_its_clusters_is_gone(bench: Bench) -> None:
    east = "apiVersion: reconciler/v1\nkind: Cluster\nmetadata: {name: east}\nspec: {embedded: {root: 'file://east'}}\n"
    bench.write("manifests/east.yaml", east)
    bench.apply()
    bench.write("manifests/topics.yaml", ORDERS.replace("west", "east").replace("namespace: shop, ", ""))
    bench.plan(out=Path("p.json"))
    (bench.folder / "east").rename(bench.folder / "gone")
    with pytest.raises(RetryableError, match="cannot read cluster east"):
        bench.apply(options=ApplyOptions(file=Path("p.json"), yes=True))


@pytest.mark.thorough
def test_nothing_is_destroyed_while_a_cluster_hangs(bench: Bench, hanging: str) -> None:
    add_cluster(bench, "redpanda", hanging)
    bench.apply()
    with pytest.raises(RetryableError, match="cannot read cluster hung"):
        bench.destroy(recursive=True)


def test_a_cluster_whose_secret_is_missing_stops_the_plan(bench: Bench) -> None:
    add_cluster(bench, "confluent", "localhost:1")
    bench.write("reconciler.yaml", WORKSPACE)
    path = bench.folder / "manifests/hung.yaml"
    login = "apiKey: '${env:RECONCILER_K}', apiSecret: '${env:RECONCILER_S}'"
    path.write_text(path.read_text().replace("http://", "https://").replace("type: platform", login))
    with pytest.raises(UserError, match="RECONCILER_K"):
        bench.plan()
