"""A cluster that we applied to and that is not there any more: no command takes it for one that was never made."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.applying.events import ActionFailed, ActionStarted, Event, RunRecovered, Summary
from reconciler.errors import IncompleteError, PartialError, RetryableError
from reconciler.objectstore import s3_client as s3client
from reconciler.objectstore import swap
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.clusters.consume import ConsumeOptions, ProduceOptions, consume, produce
from reconciler.operations.clusters.groups import GroupChange, delete_group, describe_group, list_groups, reset_group
from reconciler.operations.clusters.namespaces import list_namespaces
from reconciler.operations.clusters.topics import describe_topic, list_topics
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.observe import ObservedClusters
from reconciler.operations.steps.runner import SiteOptions
from reconciler.resources.inventory import Observed
from reconciler.resources.topic import Topic
from reconciler.state.lockfile import Lockfile, read_lockfile
from tests.operations.stage import create_namespace, delete_namespace, move_topics
from tests.servers.proxy import FailedChore, Lost, Proxy

if TYPE_CHECKING:
    from conftest import Bench

    from reconciler.operations.apply import ApplyOutcome
    from tests.servers.weed import S3Server


ORDERS = "topic/west/shop:orders"
CHANGE = GroupChange(cluster="west", group="g")


def consumed(bench: Bench, address: str, options: ConsumeOptions) -> object:
    return consume(
        SiteOptions(invocation=bench.invocation, select=Select()),
        address,
        options,
        stdout=io.BytesIO(),
        stop=bench.stop,
    )


def produced(bench: Bench) -> object:
    options, stdin = ProduceOptions(input_format="jsonl"), io.BytesIO(b"{}\n")
    return produce(
        SiteOptions(invocation=bench.invocation, select=Select()),
        ORDERS,
        options,
        stdin=stdin,
        report=lambda _r, _s: None,
    )


def test_topics_that_the_platform_made_for_itself_do_not_count_as_read() -> None:
    def seen(name: str, *, is_internal: bool) -> Observed:
        spec = {"kind": "Topic", "metadata": {"name": name, "cluster": "live"}, "spec": {"partitions": 1}}
        return Observed(Topic.model_validate(spec), "1", name, is_internal=is_internal)

    both = (seen("orders", is_internal=False), seen("__consumer_offsets", is_internal=True))
    assert ObservedClusters({each.resource.address: each for each in both}, {}, {}, {}).topics == 1


COMMANDS: dict[str, Callable[[Bench], Any]] = {
    "plan": lambda b: b.plan(),
    "topic list": lambda b: list_topics(SiteOptions(invocation=b.invocation, select=Select()), None),
    "topic describe": lambda b: describe_topic(SiteOptions(invocation=b.invocation, select=Select()), ORDERS),
    "topic consume": lambda b: consumed(b, ORDERS, ConsumeOptions()),
    "topic consume --regex": lambda b: consumed(b, "west", ConsumeOptions(regex=".*")),
    "topic consume --group": lambda b: consumed(b, ORDERS, ConsumeOptions(group="g")),
    "topic produce": produced,
    "group list": lambda b: list_groups(SiteOptions(invocation=b.invocation, select=Select()), "west"),
    "group describe": lambda b: describe_group(SiteOptions(invocation=b.invocation, select=Select()), "west", "g"),
    "group reset": lambda b: reset_group(
        SiteOptions(invocation=b.invocation, select=Select()), CHANGE, "earliest", confirm=lambda _reset: True
    ),
    "group delete": lambda b: delete_group(
        SiteOptions(invocation=b.invocation, select=Select()), CHANGE, confirm=lambda _deletion: True
    ),
    "namespace list": lambda b: list_namespaces(SiteOptions(invocation=b.invocation, select=Select()), "west"),
    "namespace create": lambda b: create_namespace(b.acting(), "west", "new", {}),
    "namespace move": lambda b: move_topics(b.acting(), "west", "shop", "", []),
    "namespace delete": lambda b: delete_namespace(b.acting(), "west", "shop"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_recorded_cluster_that_is_gone_is_said_to_be(applied: Bench, command: str) -> None:
    shutil.rmtree(applied.folder / ".clusters/west")
    with pytest.raises(RetryableError, match="west: it is recorded in the state, but its location is empty") as refused:
        COMMANDS[command](applied)
    assert "Check that its root is mounted" in refused.value.hint
    assert "pply" not in str(refused.value)


# A cluster that stops answering in the middle of an apply: the others go on, and nobody guesses what became of it.


EAST = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {{name: east}}
spec:
  provider: embedded
  embedded: {{root: {{url: "{url}", endpoint: "{endpoint}", forcePathStyle: true}}}}
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {{name: shop, cluster: east}}
"""
TOPIC = """\
---
apiVersion: reconciler/v1
kind: Topic
metadata: {{name: {name}, namespace: shop, cluster: {cluster}}}
spec: {{partitions: 2}}
"""
WEST = [f"create:topic/west/shop:w{number}" for number in range(3)]
LAST = "create:topic/east/shop:e2"
ALWAYS = 10_000
DOWN = FailedChore(503, "ServiceUnavailable")


@pytest.fixture
def proxy(s3_server: S3Server, s3_environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """What stands between us and cluster east, and between us and nothing else."""
    assert s3_environ
    monkeypatch.setattr(s3client, "ATTEMPTS", 1)
    monkeypatch.setattr(swap, "TRIES", 1)
    with Proxy(s3_server.endpoint) as proxy:
        yield proxy


@pytest.fixture
def both(bench: Bench, proxy: Proxy, s3_server: S3Server) -> Bench:
    """West is a folder, east a bucket behind the proxy; both are there, and have three topics to make."""
    bench.write("manifests/east.yaml", EAST.format(url=s3_server.url("east"), endpoint=proxy.endpoint))
    assert bench.apply().verdict is None
    for cluster in ("west", "east"):
        texts = (TOPIC.format(name=f"{cluster[0]}{number}", cluster=cluster) for number in range(3))
        bench.write(f"manifests/{cluster}-topics.yaml", "".join(texts))
    return bench


def lockfile_of(bench: Bench) -> Lockfile:
    found = read_lockfile(DirectoryStore(bench.folder / ".reconciler"))
    assert found is not None
    return found.lockfile


def apply_until(
    bench: Bench, cut: Callable[[], None], heal: Callable[[], None] | None = None
) -> tuple[ApplyOutcome, Summary]:
    """Apply; `cut` the line when the first call to east begins, and `heal` it when that call was given up."""
    said: list[Event] = []

    def report(event: Event) -> None:
        is_first = not any(isinstance(each, type(event)) for each in said if _is_east(each))
        if _is_east(event) and is_first:
            if isinstance(event, ActionStarted):
                cut()
            elif heal is not None:
                heal()
        said.append(event)

    applied = bench.apply(report=report)
    assert isinstance(said[-1], Summary)
    return applied, said[-1]


def _is_east(event: Event) -> bool:
    return isinstance(event, ActionStarted | ActionFailed) and "/east/" in event.id


def go_away(proxy: Proxy) -> None:
    for method in ("PUT", "GET", "HEAD", "POST"):
        proxy.on(method, DOWN, times=ALWAYS)


@pytest.mark.thorough
def test_where_it_stays_away_its_actions_are_in_doubt_and_the_others_are_done(both: Bench, proxy: Proxy) -> None:
    applied, summary = apply_until(both, lambda: go_away(proxy))
    result = applied.result
    assert result is not None
    assert sorted(result.done) == WEST
    assert {action.cluster for action in result.in_doubt} == {"east"}
    assert isinstance(applied.verdict, IncompleteError)
    assert applied.verdict.exit_code == 4
    assert "cluster east cannot be read" in applied.verdict.message
    assert "3 actions are in doubt" in applied.verdict.message
    assert len(summary.in_doubt) == 3
    lockfile = lockfile_of(both)
    assert (lockfile.lease.status, lockfile.serial) == ("free", 2)
    assert lockfile.open_run is not None

    # As long as it is away nothing is done, unless it is left out by name.
    with pytest.raises(IncompleteError, match="cluster east cannot be read"):
        both.apply()
    assert lockfile_of(both).open_run is not None

    proxy.heal()
    both.events.clear()
    assert both.apply().verdict is None
    (recovered,) = (event for event in both.events if isinstance(event, RunRecovered))
    assert set(recovered.settled.values()) == {"absent"}
    assert lockfile_of(both).open_run is None
    assert both.plan().plan.is_empty


def test_where_it_is_back_when_it_is_looked_at_what_did_not_happen_has_failed(both: Bench, proxy: Proxy) -> None:
    applied, summary = apply_until(both, lambda: go_away(proxy), proxy.heal)
    assert isinstance(applied.verdict, PartialError)
    assert applied.verdict.exit_code == 8
    assert applied.result is not None
    assert (sorted(applied.result.done), applied.result.in_doubt) == (WEST, ())
    assert (len(applied.result.failed), summary.in_doubt) == (3, ())
    assert [len(group.ids) for group in summary.failures] == [3]
    assert lockfile_of(both).open_run is None
    assert both.apply().verdict is None
    assert both.plan().plan.is_empty


def test_what_happened_though_its_answer_was_lost_is_found_done(both: Bench, proxy: Proxy) -> None:
    def lose_answers() -> None:
        proxy.on("PUT", Lost(proxy_cut), key="catalog", times=ALWAYS)

    def proxy_cut() -> None:
        proxy.on("GET", DOWN, times=ALWAYS)
        proxy.on("HEAD", DOWN, times=ALWAYS)

    applied, summary = apply_until(both, lose_answers, proxy.heal)
    assert applied.verdict is None
    assert applied.result is not None
    assert LAST in applied.result.done
    assert (summary.done, summary.failed, summary.in_doubt) == (6, 0, ())
    assert lockfile_of(both).open_run is None
    assert both.plan().plan.is_empty
    assert len(list(Path(both.folder / ".reconciler/runs").iterdir())) == 2


def test_what_leans_on_something_that_turns_out_to_be_done_is_left_to_the_next_apply(both: Bench, proxy: Proxy) -> None:
    text = EAST.partition("---")[2].replace("shop", "more").format()
    both.write("manifests/more.yaml", text + TOPIC.format(name="x", cluster="east").replace("shop", "more"))
    (both.folder / "manifests/east-topics.yaml").unlink()

    def lose_answers() -> None:
        proxy.on("PUT", Lost(lambda: proxy.on("GET", DOWN, times=ALWAYS)), key="catalog", times=ALWAYS)

    applied, _ = apply_until(both, lose_answers, proxy.heal)
    assert applied.result is not None
    assert "create:namespace/east/more" in applied.result.done
    assert [each.id for each in applied.result.skipped] == ["create:topic/east/more:x"]
    assert isinstance(applied.verdict, PartialError)
    assert both.apply().verdict is None
    assert both.plan().plan.is_empty
