"""No wrong document gets an answer in a library's words, or none."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.manifests.models import validate_draft
from reconciler.manifests.overlays import Draft
from reconciler.manifests.yaml_documents import parse_yaml

KINDS = sorted((Path(__file__).parent.parent / "cases" / "kinds").glob("*.yaml"))
WHOLE = [
    document.content
    for file in KINDS
    for document in parse_yaml(file.read_bytes(), file.name).documents
    if b"${var" not in repr(document.content).encode()
]
ODD = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        10**30,
        1.5,
        float("inf"),
        float("nan"),
        "",
        " ",
        "yes",
        "12",
        "a b",
        "ü",
        "x" * 300,
        "${env:X}",
        [],
        [None],
        [[]],
        {},
        {"a": {}},
    ]
)
FOREIGN = re.compile(
    r"[Ii]nput should|[Vv]alue error|pydantic|https://errors|Extra inputs|Field required"
    r"|unhashable|NoneType|\bdict\b|\bstr\b"
)


def draft_with(content: Any, *, has_null: bool = False) -> Draft:
    return Draft(content, lambda: content, (), has_null)


def _places(content: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    keys = content.keys() if isinstance(content, dict) else range(len(content)) if isinstance(content, list) else ()
    for key in keys:
        found.append((content, key))
        found += _places(content[key])
    return found


@settings(max_examples=600)
@given(st.sampled_from(WHOLE), st.integers(0, 10_000), ODD, st.sampled_from(["set", "drop", "add", "rename"]))
def test_any_change_to_a_manifest_is_read_or_refused_in_plain_words(whole: Any, where: int, odd: Any, how: str) -> None:
    content = copy.deepcopy(whole)
    places = _places(content)
    collection, key = places[where % len(places)]
    if how == "set" or isinstance(collection, list):
        collection[key] = odd
    elif how == "drop":
        del collection[key]
    elif how == "add":
        collection["surprising"] = odd
    else:
        collection[f"{key}s"] = collection.pop(key)
    resource, complaints = validate_draft(draft_with(content, has_null=True))
    assert (resource is None) == bool(complaints)
    for complaint in complaints:
        assert complaint.message
        assert complaint.hint
        said = f"{complaint.message}. {complaint.hint}"
        assert not FOREIGN.search(said), said
        assert not said.endswith(".."), said


@given(st.sampled_from(WHOLE), st.integers(0, 10_000))
def test_a_complaint_points_to_what_is_written_or_to_what_is_missing_below_it(whole: Any, where: int) -> None:
    content = copy.deepcopy(whole)
    places = _places(content)
    collection, key = places[where % len(places)]
    collection[key] = {"surprising": 1}
    _, complaints = validate_draft(draft_with(content))
    for complaint in complaints:
        here = content
        for part in complaint.at[:-1]:
            here = here[part]


def test_a_resource_that_was_read_reads_back_from_its_own_json() -> None:
    for content in WHOLE:
        resource, complaints = validate_draft(draft_with(content))
        assert resource is not None, complaints
        assert type(resource).model_validate(resource.to_json()) == resource
        again, complaints = validate_draft(draft_with(resource.to_json()))
        assert again == resource, complaints
