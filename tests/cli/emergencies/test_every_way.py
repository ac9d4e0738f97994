"""Each command acts with broken files, without a workspace, without a state, and leaves other clusters alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.emergencies.ways import (
    OF_LINKS,
    OF_MIRRORS,
    OF_MOUNTS,
    OF_NAMESPACES,
    OF_TOPICS,
    WAYS,
    Case,
    broken_files,
    named_clusters,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.emergencies.ways import Bench, Command
    from tests.cli.sample_workspaces import Shop, Twins

CASES = [
    pytest.param(case, id=f"{noun}: {case.name}")
    for noun, cases in (
        ("mirror", OF_MIRRORS),
        ("link", OF_LINKS),
        ("topic", OF_TOPICS),
        ("namespace", OF_NAMESPACES),
    )
    for case in cases
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("case", CASES)
def test_a_command_acts_whatever_of_its_workspace_is_gone(
    twins: Twins, case: Case, way: Callable[[Bench], Command]
) -> None:
    for command in case.prepare:
        twins.said(*command)
    assert case.shows(twins) == case.before
    done = twins.typed(*case.typed, *way(twins))
    assert (done.code, case.shows(twins)) == (0, case.after), done.err


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("case", OF_MOUNTS, ids=lambda case: case.name)
def test_a_topic_is_mounted_and_unmounted_whatever_of_its_workspace_is_gone(
    shop: Shop, case: Case, way: Callable[[Bench], Command]
) -> None:
    for command in case.prepare:
        shop.said(*command)
    assert case.shows(shop) == case.before
    done = shop.typed(*case.typed, *way(shop))
    assert (done.code, case.shows(shop)) == (0, case.after), done.err


@pytest.mark.parametrize(
    "case", [OF_MIRRORS[0], OF_LINKS[0], OF_TOPICS[0], OF_NAMESPACES[1], OF_MOUNTS[0]], ids=lambda case: case.typed[0]
)
def test_a_command_of_each_noun_acts_on_clusters_that_are_named_alone(
    request: pytest.FixtureRequest, case: Case
) -> None:
    bench: Bench = request.getfixturevalue("shop" if case in OF_MOUNTS else "twins")
    assert case.shows(bench) == case.before
    broken_files(bench)
    refused = bench.typed(*case.typed, "--no-state")
    assert "--state URL, as `spec.state` has it, or --no-state --cluster NAME=URL" in refused.err
    done = bench.typed(*case.typed, *named_clusters(bench))
    assert (done.code, case.shows(bench)) == (0, case.after), done.err


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("kind: Topic", "Every document has apiVersion, kind, metadata and spec"),
        ("", "clusters.yaml declares no Cluster"),
        (None, "clusters.yaml: cannot be read"),
    ],
)
def test_a_file_without_clusters_is_refused(twins: Twins, content: str | None, says: str) -> None:
    if content is not None:
        (twins.folder / "clusters.yaml").write_text(content)
    done = twins.typed("link", "pause", "link/east/twin", "--no-state", "--cluster", "clusters.yaml")
    assert (done.code, says in done.err) == (1, True), done.err


def test_from_another_folder_a_relative_root_is_named_as_such(
    twins: Twins, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    done = twins.typed("link", "pause", "link/east/twin", "--state", f"file://{twins.folder}/.state")
    assert done.code == 1
    assert "Its root file://.clusters/east is relative to the folder of the workspace" in done.err
