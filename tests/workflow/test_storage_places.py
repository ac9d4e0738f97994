"""Where objectStorage cannot lie is said by the plan, and nothing is written there or at the root."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.errors import ReconcilerError

if TYPE_CHECKING:
    from conftest import Bench


def declare(bench: Bench, name: str, root: str, storage: str | None = None) -> None:
    said = "" if storage is None else f'  objectStorage: "{storage}"\n'
    text = f"apiVersion: reconciler/v1\nkind: Cluster\nmetadata: {{name: {name}}}\n"
    shop = f"---\napiVersion: reconciler/v1\nkind: Namespace\nmetadata: {{name: shop, cluster: {name}}}\n"
    bench.write(f"manifests/{name}.yaml", f'{text}spec:\n  embedded: {{root: "{root}"}}\n{said}{shop}')


def refusal(bench: Bench) -> str:
    """Return what a plan says against it; there is something."""
    try:
        found = bench.plan().plan.errors
    except ReconcilerError as error:
        return str(error)
    return " ".join(f"{error.address}: {error.message}" for error in found)


@pytest.mark.parametrize("storage", ["file://.west", "file://.west/obj", "file://.west/../.west/"])
def test_a_cluster_never_tiers_into_its_own_root(bench: Bench, storage: str) -> None:
    declare(bench, "west", "file://.west", storage)
    assert "its objectStorage cannot be used" in refusal(bench)
    assert not (bench.folder / ".west").exists()
    declare(bench, "west", "file://.west", "file://.objects")
    bench.apply()
    assert (bench.folder / ".objects" / "storage.json").exists()


def test_nor_into_that_of_another(bench: Bench) -> None:
    declare(bench, "east", "file://.east")
    declare(bench, "west", "file://.west", "file://.east")
    assert "cluster/west: its objectStorage file://.east and file://.east, the root of cluster east," in refusal(bench)


@pytest.mark.parametrize("is_there", [True, False])
def test_where_the_root_is_spelled_otherwise_the_folder_tells(bench: Bench, *, is_there: bool) -> None:
    if is_there:
        declare(bench, "west", "file://.west")
        bench.apply()
    declare(bench, "west", "file://.west", f"file://{bench.folder}/.west")
    assert "are one place or lie in each other" in refusal(bench)
    assert not (bench.folder / ".west" / "storage.json").exists()


@pytest.mark.parametrize("is_there", [True, False])
def test_a_file_is_no_object_storage(bench: Bench, *, is_there: bool) -> None:
    if is_there:
        declare(bench, "west", "file://.west")
        bench.apply()
    (bench.folder / "file").write_text("mine")
    declare(bench, "west", "file://.west", "file://file")
    said = refusal(bench)
    assert "its objectStorage cannot be used" in said
    assert "a file stands where a folder should be" in said
