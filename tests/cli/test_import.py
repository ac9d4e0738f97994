"""`reconciler import`, as it is typed."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import pytest

from tests.importers.samples_of_tools import SAMPLES, TOOLS

if TYPE_CHECKING:
    from tests.cli.conftest import Call

SCHEMA = Path(__file__).parents[2] / "schemas" / "import.json"
WORKSPACE = """\
apiVersion: reconciler/v1
kind: Workspace
metadata: {name: shop}
spec: {manifests: [manifests]}
"""
CLUSTER = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: west}
spec:
  provider: kafka
  kafka: {bootstrapServers: ["broker-1:9092"], namespaceSeparator: "-"}
"""
REDPANDA = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: west}
spec:
  provider: redpanda
  redpanda: {bootstrapServers: ["broker-1:9092"], adminUrls: ["https://broker-1:9644"], namespaceSeparator: "-"}
"""
STATE = """\
topics:
  pay-orders: {partitions: 3, replication: 1, configs: {retention.ms: 604800000}}
  clicks: {partitions: 6, replication: 1}
"""


def workspace(folder: Path, **files: str) -> None:
    """Make a workspace that declares one Kafka cluster, beside a state of kafka-gitops."""
    (folder / "manifests").mkdir()
    (folder / "reconciler.yaml").write_text(WORKSPACE)
    (folder / "manifests" / "west.yaml").write_text(CLUSTER)
    for name, text in {"state": STATE, **files}.items():
        (folder / f"{name}.yaml").write_text(text)


def test_manifests_name_the_cluster_that_is_declared_and_declare_none(typed: Call, tmp_path: Path) -> None:
    workspace(tmp_path)
    said = typed("import", "--from", "kafka-gitops", "state.yaml", "--out", "manifests/imported")
    assert said.code == 0, said.err
    assert said.out.splitlines() == [
        "+ topic/west/clicks",
        "+ topic/west/pay-orders",
        f"Wrote 2 manifests: {tmp_path}/manifests/imported/topics.yaml",
    ]
    assert "kind: Cluster" not in (tmp_path / "manifests" / "imported" / "topics.yaml").read_text()
    checked = typed("validate")
    assert checked.code == 0, checked.err
    assert checked.out == "Valid: workspace shop, 1 cluster, 2 topics\n"


@pytest.mark.parametrize("cluster", [CLUSTER, REDPANDA], ids=["kafka", "redpanda"])
def test_the_separator_of_the_declared_cluster_ends_a_namespace(typed: Call, tmp_path: Path, cluster: str) -> None:
    workspace(tmp_path)
    (tmp_path / "manifests" / "west.yaml").write_text(cluster)
    said = typed("import", "--from", "kafka-gitops", "state.yaml", "-o", "out", "--min-topics", "1")
    assert said.code == 0, said.err
    assert "+ topic/west/pay:orders" in said.out
    clash = typed("import", "--from", "kafka-gitops", "state.yaml", "-o", "out2", "--namespace-separator", "_")
    assert clash.code == 64
    assert "cluster west is declared with the separator '-'" in clash.err


@pytest.mark.parametrize(("cluster", "code"), [(CLUSTER, 8), (REDPANDA, 0)], ids=["kafka", "redpanda"])
def test_redpandas_names_of_tiering_configs_become_those_of_files(
    typed: Call, tmp_path: Path, cluster: str, code: int
) -> None:
    workspace(tmp_path, state=STATE.replace("retention.ms: 604800000", "redpanda.remote.write: true"))
    (tmp_path / "manifests" / "west.yaml").write_text(cluster)
    said = typed("import", "--from", "kafka-gitops", "state.yaml", "-o", "manifests/imported")
    assert said.code == code, said.err
    assert ("redpanda.remote.write left out: kafka has no such config" in said.out) == (code == 8)
    written = "".join(path.read_text() for path in (tmp_path / "manifests" / "imported").iterdir())
    assert bool(re.search(r"remote\.?[Ww]rite: true", written)) == (code == 0)
    assert "redpanda." not in written
    checked = typed("validate")
    assert checked.code == 0, checked.err


def test_what_is_declared_already_is_left_out_and_told(typed: Call, tmp_path: Path) -> None:
    workspace(tmp_path)
    assert typed("import", "--from", "kafka-gitops", "state.yaml", "-o", "manifests/one").code == 0
    again = typed("import", "--from", "kafka-gitops", "state.yaml", "-o", "manifests/two")
    assert again.code == 1
    assert "topic/west/clicks is declared already, at manifests/one/topics.yaml:1" in again.out
    assert "all resources that kafka-gitops's files in state.yaml declare were left out" in again.err
    assert not (tmp_path / "manifests" / "two").exists()


def test_a_folder_that_holds_something_is_left_alone(typed: Call, tmp_path: Path) -> None:
    workspace(tmp_path)
    said = typed("import", "--from", "kafka-gitops", "state.yaml", "--out", "manifests")
    assert said.code == 1
    assert "manifests is not empty" in said.err
    assert [path.name for path in (tmp_path / "manifests").iterdir()] == ["west.yaml"]
    forced = typed("import", "--from", "kafka-gitops", "state.yaml", "--out", "manifests", "--force")
    assert forced.code == 0, forced.err
    topics = tmp_path / "manifests" / "topics.yaml"
    before = topics.read_text().replace("name: ", "name: other-")  # so that nothing is declared already
    topics.write_text(before)
    again = typed("import", "--from", "kafka-gitops", "state.yaml", "--out", "manifests", "--force")
    assert again.code == 1
    assert "topics.yaml is there already" in again.err
    assert topics.read_text() == before


def test_a_workspace_that_cannot_be_read_is_told_and_read_as_asked(typed: Call, tmp_path: Path) -> None:
    workspace(tmp_path)
    west = tmp_path / "manifests" / "west.yaml"
    west.write_text(CLUSTER.replace("broker-1:9092", "${var.brokers}"))
    (tmp_path / "overlays" / "prod").mkdir(parents=True)
    (tmp_path / "overlays" / "prod" / "values.yaml").write_text("brokers: b:9092\n")
    words = ("import", "--from", "kafka-gitops", "state.yaml", "-o", "manifests/imported")
    said = typed(*words)
    assert said.code == 1
    assert "the variable brokers is not defined" in said.err
    for given in (("-e", "prod"), ("--var", "brokers=b:9092")):
        read = typed(*words, *given)
        assert read.code == 0, read.err
        assert "+ topic/west/clicks" in read.out
        shutil.rmtree(tmp_path / "manifests" / "imported")


def test_a_workspace_without_manifests_takes_the_first_from_an_import(typed: Call, tmp_path: Path) -> None:
    workspace(tmp_path)
    (tmp_path / "manifests" / "west.yaml").unlink()
    said = typed("import", "--from", "kafka-gitops", "state.yaml", "-o", "manifests/imported")
    assert said.code == 0, said.err
    assert "No Cluster kafka is declared here" in said.out


def test_a_folder_that_the_workspace_does_not_read_is_told(typed: Call, tmp_path: Path) -> None:
    workspace(tmp_path)
    said = typed("import", "--from", "kafka-gitops", "state.yaml", "-o", "imported")
    assert said.code == 0, said.err
    assert "the workspace does not read imported: add it to spec.manifests" in said.err


NAMESPACE = """\
apiVersion: reconciler/v1
kind: Namespace
metadata: {name: pay, cluster: west}
spec:
  configs: {retention.ms: 1h}
  acls: [{principal: "User:a", resources: [groups], names: ["x"], operations: [read]}]
"""
RULED = """\
apiVersion: kafka.strimzi.io/v1
kind: KafkaTopic
metadata: {name: pay-orders}
spec: {partitions: 3, config: {retention.ms: 604800000}}
---
apiVersion: kafka.strimzi.io/v1
kind: KafkaTopic
metadata: {name: pay-refunds}
spec: {partitions: 3}
---
apiVersion: kafka.strimzi.io/v1
kind: KafkaUser
metadata: {name: a}
spec:
  authorization:
    acls: [{resource: {type: group, name: pay-x}, operations: [Read, Describe]}]
"""


def test_what_topics_get_from_a_declared_namespace_and_rules_that_it_lacks_are_told(
    typed: Call, tmp_path: Path
) -> None:
    workspace(tmp_path, ruled=RULED)
    (tmp_path / "manifests" / "pay.yaml").write_text(NAMESPACE)
    said = typed("import", "--from", "strimzi", "ruled.yaml", "-o", "manifests/imported")
    assert said.code == 8, said.err
    assert said.out.splitlines()[:4] == [
        "+ topic/west/pay:orders",
        "+ topic/west/pay:refunds",
        (
            "! ruled.yaml:6: topic pay-refunds retention.ms left out: is set in no file, and the topic gets 1h from "
            "namespace/west/pay, at manifests/pay.yaml:1"
        ),
        (
            "! ruled.yaml:16: allow User:a describe on groups pay-x left out: namespace/west/pay is declared already, "
            "at manifests/pay.yaml:1, without this rule"
        ),
    ]
    assert "retention.ms: 7d" in (tmp_path / "manifests" / "imported" / "namespaces" / "pay.yaml").read_text()


def test_what_topics_get_from_the_policy_of_a_redpanda_cluster_is_told_by_its_configs(
    typed: Call, tmp_path: Path
) -> None:
    workspace(tmp_path, ruled=RULED)
    (tmp_path / "manifests" / "west.yaml").write_text(REDPANDA)
    policy = "apiVersion: reconciler/v1\nkind: TieringPolicy\nmetadata: {name: tiered}\nspec: {remoteWrite: true}\n"
    namespace = NAMESPACE.replace("configs: {retention.ms: 1h}", "tieringPolicy: tiered")
    (tmp_path / "manifests" / "pay.yaml").write_text(f"{namespace}---\n{policy}")
    said = typed("import", "--from", "strimzi", "ruled.yaml", "-o", "manifests/imported")
    assert "topic pay-orders remote.write left out: is set in no file, and the topic gets true from" in said.out
    assert "remote.storage.enable" not in said.out


def test_what_topics_share_stays_with_them_where_their_namespace_is_declared(typed: Call, tmp_path: Path) -> None:
    workspace(tmp_path, ruled=RULED.replace("partitions: 3}", "partitions: 3, config: {retention.ms: 604800000}}"))
    (tmp_path / "manifests" / "pay.yaml").write_text(NAMESPACE.replace("  configs: {retention.ms: 1h}\n", ""))
    typed("import", "--from", "strimzi", "ruled.yaml", "-o", "manifests/imported")
    written = (tmp_path / "manifests" / "imported" / "namespaces" / "pay.yaml").read_text()
    assert written.count("retention.ms: 7d") == 2


def test_outside_of_a_workspace_the_cluster_that_would_be_needed_is_shown(typed: Call, tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / "topicctl" / "files", tmp_path / "topicctl")
    said = typed("import", "--from", "topicctl", "topicctl", "--out", "out")
    assert said.code == 8
    assert "No Cluster ledger-prod is declared here; the files have:" in said.out
    assert "      clusterId: kR2xGc9ZQYK0y1Xn4mHV3A" in said.out
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["policies.yaml", "topics.yaml"]
    assert "Error: 4 left out of the import" in said.err


def test_init_makes_a_workspace_that_is_valid_at_once(typed: Call, tmp_path: Path) -> None:
    for tool in TOOLS:
        shutil.copytree(SAMPLES / tool / "files", tmp_path / tool)
        where = (
            ["--bootstrap-server", "b:9092"] if tool in {"jikkou", "kafka-gitops", "terraform-state"} else ["--init"]
        )
        said = typed("import", "--from", tool, tool, "--out", f"{tool}-made", *where)
        assert said.code == 8, said.err
        checked = typed("validate", "--workspace", f"{tool}-made")
        assert checked.code == 0, checked.err
        assert checked.err == ""


def test_init_without_a_word_on_where_the_brokers_are_says_what_to_add(typed: Call, tmp_path: Path) -> None:
    (tmp_path / "state.yaml").write_text(STATE)
    said = typed("import", "--from", "kafka-gitops", "state.yaml", "--out", "out", "--init")
    assert said.code == 1
    assert "the files do not name the brokers of cluster kafka" in said.err
    assert "--bootstrap-server HOST:PORT" in said.err
    assert not (tmp_path / "out").exists()


def test_clusters_are_called_as_asked(typed: Call, tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / "topicctl" / "files", tmp_path / "theirs")
    unclear = typed("import", "--from", "topicctl", "theirs", "-o", "one", "--init", "--cluster", "a=b")
    assert unclear.code == 64
    assert "no cluster 'a' is in these files" in unclear.err
    said = typed("import", "--from", "topicctl", "theirs", "-o", "two", "--init", "--cluster", "ledger-prod=berlin")
    assert said.code == 8, said.err
    assert "+ topic/berlin/" in said.out
    assert " manifests in 7 files: " in said.out
    assert "ledger-prod" not in said.out


def test_the_same_as_json(typed: Call, tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / "strimzi" / "files", tmp_path / "strimzi")
    said = typed("import", "--from", "strimzi", "strimzi", "--out", "out", "--format", "json")
    assert said.code == 8
    document = json.loads(said.out)
    jsonschema.validate(document, json.loads(SCHEMA.read_bytes()))
    assert document["format"] == "reconciler.import/1"
    assert document["imported"][1] == {"address": "topic/shop/Orders_v2", "source": "strimzi/topics.yaml:4"}
    assert document["clusters"][0]["declared"] is False
    assert document["left_out"][0]["file"] == "strimzi/topics.yaml"
    assert document["left_out"][0]["line"] == 34
    assert {each["field"] for each in document["unsaid"]} >= {"spec.quotas", "spec.authentication"}
    assert document["unread"] == []


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("import", "x", "--out", "o"), 64, "--from"),
        (("import", "--from", "ansible", "x", "--out", "o"), 64, "ansible"),
        (("import", "--from", "strimzi", "absent", "--out", "o"), 1, "there is no"),
        (("import", "--from", "terraform", ".", "--out", "o"), 1, "but of kafka-gitops (1 file)"),
    ],
)
def test_what_is_typed_wrongly_is_told(
    typed: Call, tmp_path: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    (tmp_path / "state.yaml").write_text(STATE)
    answer = typed(*arguments)
    assert answer.code == code
    assert said in answer.err
    assert "Traceback" not in answer.err


def test_names_of_others_are_printed_as_they_are_and_never_as_markup(typed: Call, tmp_path: Path) -> None:
    (tmp_path / "state.yaml").write_text('topics:\n  "[red]a[/red]\\u001b[2J": {partitions: 1, replication: 1}\n')
    said = typed("import", "--from", "kafka-gitops", "state.yaml", "--out", "out")
    assert said.code == 1
    assert "[red]a[/red]" in said.out
    assert "\x1b" not in said.out
