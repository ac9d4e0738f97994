"""`reconciler export`, as it is typed."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import pytest

from reconciler.cli.text.export_text import format_export, format_workspace_advice
from reconciler.cli.text.lines import to_plain_text
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.export import ExportResult
from reconciler.operations.export_archives import Archives
from reconciler.resources.address import address_of
from tests.embedded.mounts.recovered_topics import TOPIC, source_in

if TYPE_CHECKING:
    from tests.cli.conftest import Call


SCHEMA = Path(__file__).parents[2] / "schemas" / "export.json"
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
  embedded: {root: "file://lost"}
  objectStorage: "file://bucket"
"""


def lost(folder: Path) -> EmbeddedCluster:
    """Make a workspace whose cluster's root is not there, but what it uploaded is."""
    (folder / "manifests").mkdir()
    (folder / "reconciler.yaml").write_text(WORKSPACE)
    (folder / "manifests" / "west.yaml").write_text(CLUSTER)
    return source_in(DirectoryStore(folder / "bucket"), partitions=2)


def test_what_is_recoverable_is_told_with_its_next_offsets_and_what_is_not_is_named(
    typed: Call, tmp_path: Path
) -> None:
    west = lost(tmp_path)
    said = typed("export", "west", "--from-object-storage", "-o", "recovered")
    assert said.code == 0, said.err
    lines = said.out.splitlines()
    assert lines[:2] == ["+ namespace/west/shop", "+ topic/west/shop:orders"]
    assert lines[2].startswith(f"    from {TOPIC}/{west.cluster_id}/1: 2 partitions, 24 records, ")
    assert lines[3] == "    next offset: 12 of partition 0, 12 of partition 1; what came from there on is lost"
    assert lines[5].startswith("Not in object storage: records that were not uploaded, access rules, ")
    assert lines[-1].startswith("Wrote 2 manifests: ")
    checked = typed("validate")
    assert checked.code == 0
    (tmp_path / "recovered").rename(tmp_path / "manifests" / "recovered")
    checked = typed("validate")
    assert checked.code == 0, checked.err
    assert checked.out == "Valid: workspace shop, 1 cluster, 1 namespace, 1 topic\n"


def test_the_same_as_json(typed: Call, tmp_path: Path) -> None:
    west = lost(tmp_path)
    broken = tmp_path / "bucket" / "topics" / west.cluster_id / "7" / "topic.json"
    broken.parent.mkdir()
    broken.write_bytes(b"{")
    said = typed("export", "west", "--from-object-storage", "-o", "recovered", "--format", "json")
    assert said.code == 8
    document = json.loads(said.out)
    jsonschema.validate(document, json.loads(SCHEMA.read_bytes()))
    assert document["format"] == "reconciler.export/1"
    assert [each["address"] for each in document["exported"]] == ["namespace/west/shop", "topic/west/shop:orders"]
    assert document["exported"][1]["recovery"]["ends"] == [
        {"partition": 0, "start": 0, "end": 12},
        {"partition": 1, "start": 0, "end": 12},
    ]
    assert [each["place"] for each in document["left_out"]] == [f"topics/{west.cluster_id}/7/topic.json"]


def test_a_large_workspace_is_counted_by_kind_and_a_layout_of_small_namespaces_has_an_advice() -> None:
    namespaces = [address_of("namespace", "west", f"shop:{number}") for number in range(20)]
    topics = [address_of("topic", "west", f"shop:{number % 20}:v{number}") for number in range(60)]
    files = tuple(Path(f"/work/topics/manifests/namespaces/shop/{number}.yaml") for number in range(20))
    exported = ExportResult("west", files, (*namespaces, *topics), Archives())
    assert to_plain_text(format_export(exported)).splitlines() == [
        "+ 20 namespaces, 60 topics",
        "Wrote 80 manifests in 20 files under /work/topics/manifests/namespaces/shop",
    ]
    assert to_plain_text(list(format_workspace_advice(exported, "my topics"))).splitlines() == [
        "20 namespaces for 60 topics. For fewer, delete the folder and export again with --min-topics 10;",
        "    with --min-topics 0, only prefixes of access rules become namespaces.",
        "",
        "Next:  cd 'my topics', then  reconciler plan",
    ]
    few = replace(exported, addresses=(*namespaces[:2], *topics))
    assert to_plain_text(list(format_workspace_advice(few, "."))).splitlines() == ["", "Next:  reconciler plan"]


def test_a_folder_that_holds_something_is_left_alone(typed: Call, tmp_path: Path) -> None:
    lost(tmp_path)
    said = typed("export", "west", "--from-object-storage", "-o", "manifests")
    assert said.code == 1
    assert "manifests is not empty" in said.err
    assert [path.name for path in (tmp_path / "manifests").iterdir()] == ["west.yaml"]


def test_a_cluster_that_is_not_declared_is_named_with_those_that_are(typed: Call, tmp_path: Path) -> None:
    lost(tmp_path)
    said = typed("export", "east", "-o", "out")
    assert said.code == 1
    assert "there is no cluster 'east' in this workspace" in said.err
    assert "Clusters here: west" in said.err


# `reconciler export` of a cluster that no file declares: what may be typed, and what it gets.


SERVER = ("--bootstrap-server", "127.0.0.1:1")
SCRAM = ("--security", "protocol=SASL_SSL", "--security", "mechanism=SCRAM-SHA-512")

REFUSED = [
    pytest.param(("--security", "protocol=SSL"), "only for a cluster that no manifest declares", id="no server"),
    pytest.param(
        ("--namespace-separator", "_"), "only for a cluster that no manifest declares", id="a separator alone"
    ),
    pytest.param((*SERVER, "--security", "SSL"), "'SSL' is not field=value", id="no field"),
    pytest.param(
        (*SERVER, "--security", "protocol=TLS"),
        "security.protocol: is the text 'TLS', not one of PLAINTEXT",
        id="no such protocol",
    ),
    pytest.param((*SERVER, "--security", "pasword=${env:X}"), "security.pasword: ", id="no such field"),
    pytest.param((*SERVER, *SCRAM), "security.username: is required with SCRAM-SHA-512", id="half of it"),
    pytest.param((*SERVER, "--namespace-separator", "/"), "'/' is not one of", id="no such separator"),
]


@pytest.mark.parametrize(("arguments", "told"), REFUSED)
def test_what_cannot_be_declared_is_refused_before_anything_is_asked(
    arguments: tuple[str, ...], told: str, typed: Call
) -> None:
    said = typed("export", "west", "-o", "out", *arguments)
    assert said.code == 64
    assert told in said.err


def test_a_secret_that_is_typed_out_is_refused_and_never_shown(typed: Call, tmp_path: Path) -> None:
    said = typed(
        *("export", "west", "-o", "out", *SERVER, *SCRAM),
        *("--security", "username=anna", "--security", "password=hunter2"),
    )
    assert said.code == 64
    assert "security.password: a secret must be a reference, never the secret itself" in said.err
    assert "Write ${env:NAME} or ${file:/path}" in said.err
    assert "hunter2" not in said.out + said.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("security", "told"),
    [
        pytest.param(
            ("protocol=SASL_PLAINTEXT", "mechanism=PLAIN", "username=anna", "password=${env:PASSWORD}"),
            "SASL_PLAINTEXT sends passwords over a connection without encryption",
            id="brokers",
        ),
        pytest.param(
            ("protocol=SASL_SSL", "mechanism=OAUTHBEARER", "clientId=anna", "clientSecret=${env:PASSWORD}"),
            "would send tokens without encryption",
            id="a token endpoint",
        ),
    ],
)
def test_a_password_that_would_go_in_clear_is_refused_before_anything_connects(
    security: tuple[str, ...], told: str, typed: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSWORD", "hunter2")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        fields = (*security, f"tokenEndpointUrl=http://{address}/token")
        options = tuple(word for field in fields for word in ("--security", field))
        said = typed("export", "west", "-o", "out", "--bootstrap-server", address, *options)
        assert said.code == 1
        assert told in said.err
        assert "allowPlaintextPasswords" in said.err
        server.settimeout(0)
        with pytest.raises(BlockingIOError):  # Nobody waits to be let in.
            server.accept()
    assert not (tmp_path / "out").exists()
