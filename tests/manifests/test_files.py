from __future__ import annotations

import os
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reconciler.errors import UserError
from reconciler.manifests.files import find_workspace
from reconciler.manifests.load import load_manifests, load_workspace
from reconciler.manifests.overlays import Variables
from reconciler.manifests.positions import ManifestError, Problem

TOPIC = "apiVersion: reconciler/v1\nkind: Topic\nmetadata: {name: orders, cluster: west}\nspec: {partitions: 1}\n"
LISTING = "apiVersion: reconciler/v1\nkind: Workspace\nmetadata: {name: shop}\nspec: {manifests: [%s]}\n"


def loaded(folder: Path) -> Any:
    return load_manifests(folder, environment=None, variables=Variables())


def problems_of(folder: Path) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        loaded(folder)
    return [str(problem) for problem in caught.value.problems]


def as_nobody(act: Callable[[], object]) -> bytes:
    """Run `act` in a child without rights and return what it raised: root may read everything."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the child only reads files and exits
        child = os.fork()
    if not child:
        try:
            if os.getuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            act()
            os.write(writing, b"raised nothing")
        except ManifestError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with open(reading, "rb") as answer:  # noqa: PTH123 - from a descriptor
        return answer.read()


def test_every_yaml_file_below_a_listed_path_is_read_but_none_that_is_hidden(workspace: Any, clusters: str) -> None:
    folder = workspace(
        {
            "manifests/a.yaml": clusters,
            "manifests/deep/er/b.yml": TOPIC,
            "manifests/.git/c.yaml": TOPIC,
            "manifests/.github/workflows/d.yaml": "no: manifest",
            "manifests/..data/e.yaml": TOPIC,  # of a mounted ConfigMap, which links to its files from beside it
            "manifests/.moved/shop/f.yaml": TOPIC,
            "manifests/.hidden.yaml": "not: read",
            "manifests/README.md": "not read",
            "manifests/deep/notes.txt": "not read",
            "manifests/.DS_Store": "not read",
        }
    )
    found = loaded(folder)
    assert set(found.desired) == {"cluster/west", "cluster/east", "policy/standard", "topic/west/orders"}
    (warning,) = found.warnings
    assert str(warning) == (
        "manifests: not read: manifests/.hidden.yaml, manifests/.moved/, manifests/README.md, manifests/deep/notes.txt."
        " Only *.yaml and *.yml are manifests; move the rest away to silence this"
    )


def test_a_name_that_is_not_utf_8_is_refused_where_a_manifest_has_it_and_else_written_out(
    workspace: Any, clusters: str
) -> None:
    folder = workspace({"manifests/a.yaml": clusters, "manifests/caf\udce9.txt": ""})
    (warning,) = loaded(folder).warnings
    assert "not read: manifests/caf\\udce9.txt." in str(warning)
    (folder / "manifests/caf\udce9.yaml").write_text(TOPIC)
    assert problems_of(folder) == ["manifests/caf\\udce9.yaml: has a name that is not UTF-8. Rename it"]


def test_many_other_files_are_counted_and_not_all_named(workspace: Any, clusters: str) -> None:
    others = {f"manifests/{name}.txt": "" for name in "abcdefgh"}
    (warning,) = loaded(workspace({"manifests/a.yaml": clusters, **others})).warnings
    assert "manifests/e.txt and 3 more" in warning.message


def test_a_file_that_is_listed_twice_is_read_once(workspace: Any, clusters: str) -> None:
    folder = workspace(
        {"reconciler.yaml": LISTING % "manifests, manifests/a.yaml, ./manifests", "manifests/a.yaml": clusters}
    )
    assert len(loaded(folder).desired) == 3


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ("nowhere", "nowhere: is listed in spec.manifests and does not exist. Create it, or correct spec.manifests"),
        (
            '"*.yaml"',
            "*.yaml: is listed in spec.manifests and does not exist. Patterns are not expanded: name the folder",
        ),
        (
            "empty",
            "empty: holds no *.yaml or *.yml file. Write a manifest there, or take the folder out of spec.manifests",
        ),
        ("pipe.yaml", "pipe.yaml: is not a regular file. Name a file of YAML"),
    ],
)
def test_a_listed_path_that_is_missing_or_empty_is_an_error(workspace: Any, listed: str, said: str) -> None:
    folder = workspace({"reconciler.yaml": LISTING % listed, "empty/notes.md": ""})
    os.mkfifo(folder / "pipe.yaml")
    (problem,) = problems_of(folder)
    assert problem.startswith(said)


def test_an_unreadable_file_or_folder_is_an_error_beside_all_others(workspace: Any) -> None:
    folder = workspace(
        {
            "reconciler.yaml": LISTING % "manifests, closed",
            "manifests/a.yaml": "kind: Nothing",
            "manifests/secret.yaml": TOPIC,
            "closed/b.yaml": TOPIC,
        }
    )
    for above in (folder, *folder.parents):
        if above.stat().st_uid == os.getuid() and above != above.parent:
            above.chmod(above.stat().st_mode | 0o055)
    (folder / "manifests" / "secret.yaml").chmod(0)
    (folder / "closed").chmod(0)
    said = as_nobody(lambda: loaded(folder)).decode()
    (folder / "closed").chmod(0o700)
    assert "manifests/secret.yaml: cannot be read: permission denied. Check the path and its permissions" in said
    assert "closed: cannot be read: permission denied" in said
    assert "manifests/a.yaml:1:1: kind: is the text 'Nothing'" in said


def test_links_that_lead_in_circles_are_followed_once(workspace: Any, clusters: str) -> None:
    folder = workspace({"manifests/a.yaml": clusters, "manifests/deep/b.yaml": TOPIC})
    (folder / "manifests" / "deep" / "up").symlink_to(folder / "manifests")
    assert len(loaded(folder).desired) == 4


def test_links_to_nothing_or_to_themselves_cannot_be_read(workspace: Any) -> None:
    folder = workspace({"manifests/z.yaml": TOPIC})
    (folder / "manifests" / "gone.yaml").symlink_to(folder / "nowhere.yaml")
    (folder / "manifests" / "self.yaml").symlink_to("self.yaml")
    said = problems_of(folder)
    assert "manifests/gone.yaml: cannot be read: no such file or directory. Check the path and its permissions" in said
    assert any(problem.startswith("manifests/self.yaml: cannot be read: too many levels") for problem in said)


def test_a_folder_named_like_a_manifest_is_a_folder(workspace: Any, clusters: str) -> None:
    assert len(loaded(workspace({"manifests/a.yaml/b.yaml": clusters})).desired) == 3


def test_the_nearest_workspace_upwards_is_found(workspace: Any) -> None:
    folder = workspace({"deep/er/x": ""})
    assert find_workspace(folder / "deep" / "er") == folder.resolve()
    assert find_workspace(folder) == folder.resolve()


def test_a_missing_workspace_names_the_way_to_begin_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no reconciler.yaml in .* or any folder above it. .*reconciler init"):
        find_workspace(tmp_path)


def test_a_workspace_by_another_ending_is_not_read_silently(tmp_path: Path) -> None:
    (tmp_path / "reconciler.yml").write_text("")
    with pytest.raises(UserError, match=r"Rename it to reconciler.yaml"):
        find_workspace(tmp_path)


def test_the_workspace_alone_is_read_without_its_manifests(workspace: Any) -> None:
    folder = workspace({"manifests/broken.yaml": "a: b: c"})
    assert load_workspace(folder, environment=None, variables=Variables()).metadata.name == "shop"


def test_an_error_of_manifests_keeps_its_problems_when_pickled(workspace: Any) -> None:
    with pytest.raises(ManifestError) as caught:
        loaded(workspace({"manifests/a.yaml": "kind: Nothing"}))
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own error
    assert again.problems == caught.value.problems
    assert str(again) == str(caught.value)


def test_a_problem_says_only_what_is_known_of_its_place() -> None:
    assert str(Problem("a.yaml", 1, 2, "spec.x", "is wrong", "Mend it")) == "a.yaml:1:2: spec.x: is wrong. Mend it"
    assert str(Problem("a.yaml", None, None, "", "is wrong", "Mend it")) == "a.yaml: is wrong. Mend it"
