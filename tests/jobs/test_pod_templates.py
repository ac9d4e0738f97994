"""Pod templates of the example, read by the Kubernetes client that Spark reads them with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from tests.jobs.jvm import jvm
from tests.jobs.standalone import HOME

pytestmark = pytest.mark.thorough

TEMPLATES = Path(__file__).parents[2] / "examples" / "kubernetes"
ROLES = ("driver", "executor")
# The model keeps fields that the API does not have apart from those that it has.
UNKNOWN = re.compile(r"additionalProperties=\{([^}]+)\}")


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with jvm(tmp_path_factory.mktemp("kubernetes"), f"{HOME}/jars/*") as classes:
        yield classes.io.fabric8.kubernetes.client.utils.KubernetesSerialization()


@pytest.mark.parametrize("role", ROLES)
def test_a_pod_template_has_only_fields_of_the_api(kubernetes: Any, role: str) -> None:
    pod = kubernetes.unmarshal((TEMPLATES / f"{role}.yaml").read_text(encoding="utf-8"))
    assert pod.getClass().getName() == "io.fabric8.kubernetes.api.model.Pod"
    assert UNKNOWN.findall(pod.toString()) == []
    assert [container.getName() for container in pod.getSpec().getContainers()] == [role]


@pytest.mark.parametrize("role", ROLES)
def test_a_misspelt_field_of_a_pod_template_is_found(kubernetes: Any, role: str) -> None:
    template = (TEMPLATES / f"{role}.yaml").read_text(encoding="utf-8")
    pod = kubernetes.unmarshal(template.replace("allowPrivilegeEscalation", "allowPrivilegesEscalation"))
    assert UNKNOWN.findall(pod.toString()) == ["allowPrivilegesEscalation=false"]


@pytest.mark.parametrize("role", ROLES)
def test_a_value_of_another_type_in_a_pod_template_is_found(kubernetes: Any, role: str) -> None:
    template = (TEMPLATES / f"{role}.yaml").read_text(encoding="utf-8")
    with pytest.raises(Py4JJavaError, match="runAsUser"):
        kubernetes.unmarshal(template.replace("runAsUser: 10001", "runAsUser: reconciler"))
