from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reconciler.errors import UsageError, UserError
from reconciler.manifests.files import list_environments
from reconciler.manifests.load import load_manifests
from reconciler.manifests.overlays import Variables, parse_typed_value

TOPIC = (
    "apiVersion: reconciler/v1\nkind: Topic\nmetadata: {name: orders, cluster: west}\nspec: {partitions: '${var.n}'}\n"
)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("12", 12),
        ("true", True),
        ("orders", "orders"),
        ("", ""),
        ("null", "null"),
        ('"12"', "12"),
        ("'x'", "x"),
        ("a: b", "a: b"),
    ],
)
def test_a_variable_of_the_command_line_is_a_scalar_and_quotes_make_it_text(text: str, meant: Any) -> None:
    value = parse_typed_value(text, "--var").value
    assert value == meant
    assert type(value) is type(meant)


@pytest.mark.parametrize("text", ["novalue", "=x", "1a=x", "a b=x"])
def test_what_is_no_name_and_value_is_a_wrong_call(text: str) -> None:
    with pytest.raises(UsageError, match="is not NAME=VALUE"):
        Variables.parse([text], environ={})


def test_files_environment_and_command_line_override_each_other_in_this_order(
    workspace: Any, clusters: str, tmp_path: Path
) -> None:
    lists = "apiVersion: reconciler/v1\nkind: Workspace\nmetadata: {name: shop}\nspec: {values: [a.yaml, b.yaml]}\n"
    extra = tmp_path / "extra" / "vars.yaml"
    folder = workspace(
        {
            "reconciler.yaml": lists,
            "a.yaml": "n: 1",
            "b.yaml": "n: 2",
            "overlays/prod/values.yaml": "n: 3",
            "extra/vars.yaml": "n: 4",
            "manifests/a.yaml": clusters + "---\n" + TOPIC,
        }
    )

    def partitions(environment: str | None, variables: Variables) -> int:
        topic: Any = (
            load_manifests(folder, environment=environment, variables=variables).desired["topic/west/orders"].resource
        )
        return topic.spec.partitions

    environ = {"RECONCILER_VAR_n": "5"}
    assert partitions(None, Variables()) == 2
    assert partitions("prod", Variables()) == 3
    assert partitions("prod", Variables(files=(extra,))) == 4
    assert partitions("prod", Variables(files=(extra,), environ=environ)) == 5
    assert partitions("prod", Variables.parse(["n=6", "n=7"], files=[extra], environ=environ)) == 7


@pytest.mark.parametrize("name", ["PROD", "a/b", "..", "", "x" * 41])
def test_what_cannot_name_an_environment_is_a_wrong_call(workspace: Any, name: str) -> None:
    with pytest.raises(UsageError, match="is not a name of an environment"):
        load_manifests(workspace({"manifests/a.yaml": ""}), environment=name, variables=Variables())


def test_an_unknown_environment_is_an_error_that_names_the_nearest(workspace: Any) -> None:
    folder = workspace({"overlays/prod/a.yaml": "", "overlays/stage/a.yaml": "", "overlays/README.md": ""})
    assert list_environments(folder) == ("prod", "stage")
    with pytest.raises(UserError, match=r"there is no environment prd. Did you mean prod\?"):
        load_manifests(folder, environment="prd", variables=Variables())
    with pytest.raises(UserError, match="Create overlays/qa/; known: prod, stage"):
        load_manifests(folder, environment="qa", variables=Variables())


def test_an_environment_may_differ_in_values_alone_or_in_nothing(workspace: Any, clusters: str) -> None:
    folder = workspace({"manifests/a.yaml": clusters, "overlays/prod/.gitkeep": ""})
    assert len(load_manifests(folder, environment="prod", variables=Variables()).desired) == 3


def test_a_variable_that_nothing_uses_is_warned_about(workspace: Any, clusters: str) -> None:
    folder = workspace({"manifests/a.yaml": clusters})
    (warning,) = load_manifests(folder, environment=None, variables=Variables.parse(["n=1"], environ={})).warnings
    assert str(warning) == "--var: n: the variable n is used nowhere. Check its name"


def test_a_setting_that_is_text_is_taken_as_it_is_written(workspace: Any) -> None:
    folder = workspace(
        {
            "reconciler.yaml": (
                "apiVersion: reconciler/v1\nkind: Workspace\nmetadata: {name: shop}\n"
                "spec: {spark: {conf: {spark.app.name: '${var.commit}', spark.v: 1.10, spark.executor.cores: 4}}}\n"
            ),
            "manifests/a.yaml": (
                "apiVersion: reconciler/v1\nkind: Cluster\nmetadata: {name: west}\nspec:\n"
                "  embedded: {root: 'file://.clusters/west'}\n"
                "  properties: {cloud_storage_azure_storage_account: 48e1230, cloud_storage_max_connections: 0x14}\n"
            ),
        }
    )
    loaded = load_manifests(folder, environment=None, variables=Variables.parse(["commit=0042"], environ={}))
    assert loaded.workspace.spec.spark.conf == {
        "spark.app.name": "0042",
        "spark.v": "1.10",
        "spark.executor.cores": "4",
    }
    cluster: Any = loaded.desired["cluster/west"].resource
    assert cluster.spec.properties == {
        "cloud_storage_azure_storage_account": "48e1230",
        "cloud_storage_max_connections": "20",
    }
