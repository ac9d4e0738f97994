"""One value changed where it stands: what the text says changes in this one place, and nothing around it moves."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.manifests.edit import (
    EditedFile,
    UneditableError,
    format_flow_value,
    format_patch,
    remove_value,
    set_value,
)
from reconciler.manifests.yaml_documents import parse_yaml


def after(file: EditedFile) -> str:
    return "".join(text for _, text in file.texts)


def setting(text: str, path: tuple[str | int, ...], value: Any) -> str:
    file = EditedFile(text)
    file.set_value(0, path, value)
    return after(file)


def removing(text: str, *path: str | int) -> str:
    file = EditedFile(text)
    file.remove_value(0, path)
    return after(file)


SET = [
    ("a: 1 # one\nb: 2\n", ("a",), 3, "a: 3 # one\nb: 2\n"),
    ("a: {b: 1, c: 2}\n", ("a", "b"), "x", "a: {b: x, c: 2}\n"),
    ("a: '1d'\n", ("a",), "2d", "a: '2d'\n"),
    ('a: "it\'s"\n', ("a",), "not", 'a: "not"\n'),
    ("a: 'x'\n", ("a",), "it's", "a: 'it''s'\n"),
    ("a: x\n", ("a",), "yes: no", 'a: "yes: no"\n'),
    ("a: x\n", ("a",), "12", 'a: "12"\n'),
    ("a: {}\n", ("a", "b"), 1, "a: {b: 1}\n"),
    ("a: {b: 1}\n", ("a", "c"), 2, "a: {b: 1, c: 2}\n"),
    ("a: {\n  b: 1, # one\n}\n", ("a", "c"), 2, "a: {\n  b: 1, c: 2, # one\n}\n"),
    ("a:\n  b: 1\n\n# next\nz: 1\n", ("a", "c"), 2, "a:\n  b: 1\n  c: 2\n\n# next\nz: 1\n"),
    ("a:\n    b: 1", ("a", "c"), 2, "a:\n    b: 1\n    c: 2"),
    ("a: 1\r\nb: 2\r\n", ("a",), 3, "a: 3\r\nb: 2\r\n"),
    ("a:\r\n  b: 1", ("a", "c"), 2, "a:\r\n  b: 1\r\n  c: 2"),
    ("a: 1\n", ("b", "c.d"), "1d", "a: 1\nb: {c.d: 1d}\n"),
    ("a:\n  - x\n  - y\nb: 1\n", ("a",), ["z"], "a: [z]\nb: 1\n"),
    ("a:\n  - b: 1\n    c: 2\n", ("a", 0, "d"), 3, "a:\n  - b: 1\n    c: 2\n    d: 3\n"),
    ("a:\n- b: 1\n", ("a", 0, "b"), 3, "a:\n- b: 3\n"),
    ("# top\n---\n# of it\na: 1\n...\n", ("a",), 2, "# top\n---\n# of it\na: 2\n...\n"),
]


@pytest.mark.parametrize(("text", "path", "value", "wanted"), SET)
def test_a_value_is_set_and_the_rest_stays(text: str, path: tuple[str | int, ...], value: Any, wanted: str) -> None:
    assert setting(text, path, value) == wanted


REMOVED = [
    ("a: 1\nb: 2 # two\nc: 3\n", ("b",), "a: 1\nc: 3\n"),
    ("a: {b: 1, c: 2}\n", ("a", "b"), "a: {c: 2}\n"),
    ("a: {b: 1, c: 2}\n", ("a", "c"), "a: {b: 1}\n"),
    ("z: 1\na:\n  b:\n    c: 1\n", ("a", "b", "c"), "z: 1\n"),
    ("z: 1\na: {b: {c: 1}}\n", ("a", "b", "c"), "z: 1\n"),
    ("a:\n  - x: 1\n    y: 2\n  # kept\n  - x: 3\n", ("a", 0), "a:\n  # kept\n  - x: 3\n"),
    ("a: [x, y, z]\n", ("a", 1), "a: [x, z]\n"),
    ("a: {\n  b: 1, # b\n  c: 2, # c\n  d: 3, # d\n}\n", ("a", "d"), "a: {\n  b: 1, # b\n  c: 2, # c\n}\n"),
    ("a: {\n  b: 1, # b\n  c: 2, # c\n  d: 3 # d\n}\n", ("a", "c"), "a: {\n  b: 1, # b\n  d: 3 # d\n}\n"),
    ("a: {\n  b: 1, # b\n  c: 2 # c\n}\n", ("a", "c"), "a: {\n  b: 1, # b\n}\n"),
    ("a: {\r\n  b: 1, # b\r\n  c: [2,\r\n    3]\r\n}\r\n", ("a", "c"), "a: {\r\n  b: 1, # b\r\n}\r\n"),
    ("a: {b: 1, # b\n  c: 2}\n", ("a", "c"), "a: {b: 1, # b\n  }\n"),
]


@pytest.mark.parametrize(("text", "path", "wanted"), REMOVED)
def test_an_entry_is_taken_out_with_what_it_leaves_empty(text: str, path: tuple[str | int, ...], wanted: str) -> None:
    assert removing(text, *path) == wanted


UNEDITABLE = [
    ("a: &x 1\nb: *x\n", ("a",)),
    ("a: &x {b: 1}\nc: *x\n", ("a", "b")),
    ("c: &x {b: 1}\na: *x\n", ("a", "b")),
    ("a: |\n  text\n", ("a",)),
    ("? a\n: 1\n", ("a",)),
    ("- a: 1\n", ("a",)),
    ("a: !!str 1\n", ("b",)),
]


@pytest.mark.parametrize(("text", "path"), UNEDITABLE)
def test_what_would_change_more_is_left_to_its_author(text: str, path: tuple[str | int, ...]) -> None:
    try:
        changed = setting(text, path, "new")
    except UneditableError:
        return
    before, now = (parse_yaml(each.encode(), "x").documents[0].content for each in (text, changed))
    set_value(before, path, "new")
    assert now == before


@pytest.mark.parametrize("text", ["a: 1\rb: 2\r", "a: 1\u2028b: 2\n", "%YAML 1.2\n---\na: 1\n"])
def test_a_file_with_rare_line_ends_or_directives_is_left_to_its_author(text: str) -> None:
    with pytest.raises(UneditableError):
        EditedFile(text).set_value(0, ("a",), 2)


scalars = st.one_of(st.integers(-99, 10**12), st.booleans(), st.text(st.characters(codec="utf-8"), max_size=12))
keys = st.text("abc.-", min_size=1, max_size=6).filter(lambda key: key[0] not in "-." and key != "...")
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3), st.dictionaries(keys, inner, min_size=1, max_size=3)
    ),
    max_leaves=8,
)
documents = st.dictionaries(keys, values, min_size=1, max_size=4)


def written(value: Any, indent: str, flows: Any) -> str:
    """Return a value in lines or brackets, as `flows` decides anew for each."""
    if not isinstance(value, dict | list) or flows():
        return f" {format_flow_value(value)} # said\n"
    if isinstance(value, dict):
        rows = (
            f"{indent}{format_flow_value(key)}:{written(item, indent + '  ', flows)}" for key, item in value.items()
        )
    else:
        rows = (f"{indent}-{written(item, indent + '  ', lambda: True)}" for item in value)
    return "\n" + "".join(rows)


def paths(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    rows = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, item in rows for found in [(*path, key), *paths(item, (*path, key))]]


@given(documents, scalars, st.data())
def test_whatever_the_layout_a_change_means_itself_or_is_refused(content: Any, value: Any, data: st.DataObject) -> None:
    text = written(content, "", lambda: data.draw(st.booleans())).removeprefix("\n").removeprefix(" ")
    known = parse_yaml(text.encode(), "x")
    if known.problems or [document.content for document in known.documents] != [content]:
        return  # a layout that YAML reads otherwise is no case of ours
    path = data.draw(st.sampled_from(paths(content)))
    is_removal = data.draw(st.booleans())
    file = EditedFile(text)
    try:
        file.remove_value(0, path) if is_removal else file.set_value(0, path, value)
    except UneditableError:
        assert after(file) == text
        return
    remove_value(content, path) if is_removal else set_value(content, path, value)
    assert [document.content for document in parse_yaml(after(file).encode(), "y").documents] == [content]


@settings(max_examples=40)
@given(st.lists(st.text("ab\n", max_size=12), min_size=1, max_size=4), st.data())
def test_a_patch_makes_of_one_text_the_other(parts: list[str], data: st.DataObject) -> None:
    import tempfile  # noqa: PLC0415 - a folder for each example

    texts = [part if part.endswith("\n") else f"{part}\n" for part in parts[:-1]] + [parts[-1]]
    news = [data.draw(st.sampled_from([text, "x\n" + text, text[::-1], "a\nb\na\n"])) for text in texts]
    news = [new if new.endswith("\n") or not new else f"{new}\n" for new in news[:-1]] + [news[-1]]
    before, wanted = "".join(texts), "".join(news)
    patch = format_patch("dir/a file.yaml", list(zip(texts, news, strict=True)))
    if before == wanted or not before:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "dir/a file.yaml"
        path.parent.mkdir()
        path.write_text(before)
        done = subprocess.run(["git", "apply", "-"], input=patch.encode(), cwd=folder, capture_output=True, check=False)
        assert done.returncode == 0, (done.stderr, patch)
        assert path.read_text() == wanted
