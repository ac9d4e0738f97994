"""`examples/monitoring`: every name in it is written by a run on an embedded cluster and on Kafka; every rule reads.

The rules are read by a parser of PromQL, the dashboard by Grafana's own description of dashboards.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml
from confluent_kafka import Consumer, TopicPartition
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from reconciler.lifecycles import LinkStatus, MirrorStatus
from reconciler.operations.drift import CLASSES
from tests.cli.conftest import Call
from tests.cli.kafka.conftest import WORKSPACE
from tests.cli.kafka.mirrored import FILES
from tests.cli.test_metrics import Scraped, scraped
from tests.servers.kafka import Kafka
from tests.servers.kafkatopics import forget_links

HERE = Path(__file__).resolve().parents[3] / "examples" / "monitoring"
RULES: dict[str, Any] = yaml.safe_load((HERE / "alerts.yaml").read_text())
DASHBOARD: dict[str, Any] = json.loads((HERE / "dashboard.json").read_text())
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
STATES = {*map(str, LinkStatus), *map(str, MirrorStatus), "IN_ERROR", "NOT_CONFIGURED", "LINK_UNAVAILABLE"}
TIERED = """\
---
apiVersion: reconciler/v1
kind: TieringPolicy
metadata: {name: archive}
spec: {remoteWrite: true, remoteRead: true, segmentBytes: 10KiB}
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: tiered, cluster: west}
spec: {partitions: 1, tieringPolicy: archive}
"""


def expressions() -> Iterator[tuple[str, str]]:
    """Yield where an expression stands, and the expression as Prometheus gets it."""
    for alert in ALERTS:
        yield alert["alert"], alert["expr"]
    for panel in PANELS:
        for target in panel["targets"]:
            yield panel["title"], target["expr"].replace("$__rate_interval", "5m").replace("$cluster", "west")


def selectors(expression: Any) -> Iterator[Any]:
    match expression:
        case promql.VectorSelector():
            yield expression
        case promql.MatrixSelector():
            yield expression.vector_selector
        case promql.BinaryExpr():
            yield from (*selectors(expression.lhs), *selectors(expression.rhs))
        case promql.Call():
            yield from (found for given in expression.args for found in selectors(given))
        case promql.NumberLiteral() | promql.StringLiteral():
            pass
        case _:
            yield from selectors(expression.expr)


@pytest.mark.parametrize(("where", "text"), list(expressions()))
def test_every_expression_is_one_of_prometheus(where: str, text: str) -> None:
    assert list(selectors(promql.parse(text))), where


def test_rules_have_the_form_that_prometheus_reads() -> None:
    assert RULES.keys() == {"groups"}
    assert all(group.keys() == {"name", "rules"} for group in RULES["groups"])
    names = [alert["alert"] for alert in ALERTS]
    assert len(set(names)) == len(names)
    assert len({group["name"] for group in RULES["groups"]}) == len(RULES["groups"])
    for alert in ALERTS:
        assert alert.keys() - {"for"} == {"alert", "expr", "labels", "annotations"}
        assert promql.parse_duration(alert.get("for", "1s")).total_seconds() > 0
        assert alert["labels"] in ({"severity": "warning"}, {"severity": "critical"})
        assert alert["annotations"].keys() == {"summary", "description"}
        for text in alert["annotations"].values():
            assert text.count("{{") == text.count("}}")


def test_no_two_panels_lie_on_each_other_and_each_says_what_it_shows() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken
        assert at["x"] + at["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert all(panel["description"] and panel["targets"] for panel in PANELS)


def test_the_dashboard_has_only_what_grafana_knows() -> None:
    register_default_plugins()
    read = json.loads(JSONEncoder().encode(Dashboard.from_json(DASHBOARD)))
    assert list(lost(DASHBOARD, read)) == []


def lost(written: Any, read: Any, path: str = "") -> Iterator[str]:
    """Yield what was written and has not been read as it is."""
    match written, read:
        case dict(), dict():
            for name, value in written.items():
                yield from lost(value, read[name], f"{path}.{name}") if name in read else (f"{path}.{name}",)
        case list(), list() if len(written) == len(read):
            for number, value in enumerate(written):
                yield from lost(value, read[number], f"{path}[{number}]")
        case _:
            if written != read:
                yield path


# -- a run on an embedded cluster and on Kafka


@pytest.fixture
def told(typed: Call, kafka_broker: Kafka, kafka_prefix: str) -> Iterator[tuple[Scraped, str]]:
    """Return what `run` and `drift` wrote of a source in a folder and a late mirror on Kafka that a group reads."""
    Path("reconciler.yaml").write_text(WORKSPACE)
    Path("manifests").mkdir()
    fields = {
        "west": '{embedded: {root: "file://west"}, objectStorage: "file://bucket"}',
        "east": f'{{provider: kafka, kafka: {{bootstrapServers: ["{kafka_broker.bootstrap()}"]}}}}',
        "prefix": kafka_prefix,
        "mirrors": f'{{source: "{kafka_prefix}:orders"}}',
    }
    Path("manifests/all.yaml").write_text(FILES.format(**fields) + TIERED)

    def done(*words: str, stdin: bytes = b"") -> None:
        said = typed(*words, stdin=stdin)
        assert said.code == 0, said.err

    def produce(topic: str, *rows: dict[str, int]) -> None:
        form = ("--input", "-", "--input-format", "jsonl", "--timestamp-field", "at", "--partition", "0")
        stdin = "".join(json.dumps(row) + "\n" for row in rows).encode()
        done("topic", "produce", f"topic/west/{topic}", *form, stdin=stdin)

    now_ms = 1_700_000_000_000
    done("apply", "--yes")
    produce("tiered", *({"at": now_ms, "n": number} for number in range(300)))
    produce("tiered", {"at": now_ms})
    produce(f"{kafka_prefix}:orders", {"at": now_ms}, {"at": now_ms + 1_000})
    done("run", "--once", "--metrics", "run.prom")
    produce(f"{kafka_prefix}:orders", {"at": now_ms + 5_000}, {"at": now_ms + 9_500}, {"at": now_ms + 2_000})
    consumer = Consumer({"bootstrap.servers": kafka_broker.bootstrap(), "group.id": f"{kafka_prefix}-readers"})
    consumer.commit(offsets=[TopicPartition(f"{kafka_prefix}.orders", 0, 1)], asynchronous=False)
    consumer.close()
    done("run", "--once", "--only", "upload", "--metrics", "run.prom")
    done("drift", "--metrics", "drift.prom")
    yield scraped(Path("run.prom").read_text() + Path("drift.prom").read_text()), kafka_prefix
    forget_links(kafka_broker)


@pytest.mark.thorough
def test_a_run_on_kafka_tells_lags_sizes_and_records_under_the_names_of_embedded_clusters(
    told: tuple[Scraped, str],
) -> None:
    read, prefix = told
    topic = {"cluster": "east", "topic": f"{prefix}:orders"}
    mirror = {**topic, "link": f"link-{prefix}"}
    assert read.of("cluster_link_mirror_topic_offset_lag", **mirror) == 3
    assert read.of("cluster_link_mirror_topic_lag_seconds", **mirror) == 8.5
    assert read.of("group_lag", group=f"{prefix}-readers", **topic) >= 1
    assert read.of("topic_records", **topic) >= 2
    assert read.of("topic_partitions", **topic) == 2
    assert read.of("topic_bytes", **topic) > 0
    assert read.of("cluster_link_count", cluster="east", state="ACTIVE") == 1
    of_topics = {name for name in read.names() if name.startswith(("topic_", "cluster_", "group_"))}
    for name in of_topics - {"cluster_link_mirror_topic_bytes"}:
        clusters = {dict(labels)["cluster"] for each, labels in read.values if each == f"reconciler_{name}"}
        assert "east" in clusters, name


@pytest.mark.thorough
def test_every_metric_label_and_state_of_the_example_is_one_that_is_written(told: tuple[Scraped, str]) -> None:
    read, _ = told
    written: dict[str, set[str]] = {}
    for name, given in read.values:
        # What is scraped has the label `job` of Prometheus itself, which calls ours `exported_job`.
        names = {"exported_job" if label == "job" else label for label, _ in given}
        written.setdefault(name, set()).update(names)
    for where, text in expressions():
        labels: set[str] = set()
        for selector in selectors(promql.parse(text)):
            assert selector.name in written, f"{where}: {selector.name}"
            labels |= written[selector.name]
            for matcher in selector.matchers.matchers:
                assert matcher.name in written[selector.name], f"{where}: {selector.name}{{{matcher.name}}}"
                if matcher.name == "state":
                    assert set(matcher.value.split("|")) <= STATES, where
        for label in named_in(where):
            assert label in labels | {"job"}, f"{where}: {label}"
    kinds = {dict(given)["class"] for name, given in read.values if name == "reconciler_drift_findings"}
    assert kinds == set(CLASSES)


def named_in(where: str) -> set[str]:
    """Return the labels that the texts of an alert or panel name."""
    texts: list[str] = []
    alert: Mapping[str, Any] | None = next((each for each in ALERTS if each["alert"] == where), None)
    if alert is not None:
        texts += alert["annotations"].values()
    else:
        panel = next(each for each in PANELS if each["title"] == where)
        legends = [target["legendFormat"] for target in panel["targets"]]
        return {label for legend in legends for label in re.findall(r"\{\{(\w+)\}\}", legend)}
    return {label for text in texts for label in re.findall(r"\$labels\.(\w+)", text)}
