from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.manifests.load import LoadedWorkspace, load_manifests
from reconciler.manifests.overlays import Variables
from reconciler.manifests.positions import ManifestError

FOLDER = Path(__file__).parent.parent / "cases" / "manifests"
CASES = [
    pytest.param(case, id=f"{file.stem}: {case['why']}")
    for file in sorted(FOLDER.glob("*.yaml"))
    for case in yaml.load_all(file.read_bytes(), yaml.CSafeLoader)
]


def _load(case: Mapping[str, Any], write: Callable[[Mapping[str, str]], Path], clusters: str) -> LoadedWorkspace:
    files = {"manifests/clusters.yaml": clusters} if case.get("clusters") else {}
    return load_manifests(
        write({**files, **case["files"]}),
        environment=case.get("environment"),
        variables=Variables.parse(case.get("var", []), environ=case.get("environ", {})),
    )


@pytest.mark.parametrize("case", [case for case in CASES if case.values[0].get("problems")])
def test_every_problem_is_found_in_one_run_and_named_where_it_is_written(
    case: Any, workspace: Any, clusters: str
) -> None:
    with pytest.raises(ManifestError) as caught:
        _load(case, workspace, clusters)
    assert [str(problem) for problem in caught.value.problems] == case["problems"]


@pytest.mark.parametrize("case", [case for case in CASES if not case.values[0].get("problems")])
def test_what_the_files_say_is_what_is_desired(case: Any, workspace: Any, clusters: str) -> None:
    loaded = _load(case, workspace, clusters)
    assert [str(warning) for warning in loaded.warnings] == case.get("warnings", [])
    if "desired" in case:
        assert {address: declared.source for address, declared in loaded.desired.items()} == case["desired"]
    for address, expected in case.get("resources", {}).items():
        found = loaded.desired[address].resource.to_json()
        assert {part: found[part] for part in expected} == expected
