"""Input made to hurt: each gets one clear problem, quickly, and in little memory."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from typing import Any

import pytest
import yaml

from reconciler.manifests import yaml_documents
from reconciler.manifests.load import load_manifests
from reconciler.manifests.overlays import Variables
from reconciler.manifests.positions import ManifestError
from reconciler.manifests.yaml_documents import parse_yaml

LAUGHS = "a: &a [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n" + "".join(
    f"{chr(98 + level)}: &{chr(98 + level)} [{', '.join(['*' + chr(97 + level)] * 9)}]\n" for level in range(9)
)


def problems_of(raw: bytes | str) -> list[str]:
    return [str(problem) for problem in parse_yaml(raw if isinstance(raw, bytes) else raw.encode(), "f").problems]


def test_a_billion_laughs_are_refused_in_milliseconds() -> None:
    began = time.perf_counter()
    (problem,) = problems_of(LAUGHS)
    assert time.perf_counter() - began < 1
    assert problem == "f:6:8: aliases expand to more than 100,000 values. Write them out"


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? ", "[{a: "])
def test_deep_nesting_is_refused_before_any_stack_is_full(opening: str) -> None:
    began = time.perf_counter()
    (problem,) = problems_of(opening * 200_000)
    assert time.perf_counter() - began < 5
    assert "is nested more than 100 levels deep. No manifest needs that" in problem


def test_aliases_nest_no_deeper_than_what_is_written_out(workspace: Any, clusters: str) -> None:
    variable = '"${var.x}"'
    chain = [f"l{n}: &l{n} {'[' * 60}{f'*l{n - 1}' if n else variable}{']' * 60}\n" for n in range(40)]
    folder = workspace({"manifests/a.yaml": clusters, "manifests/b.yaml": "".join(chain)})
    with pytest.raises(ManifestError) as caught:
        load_manifests(folder, environment=None, variables=Variables())
    assert "manifests/b.yaml:2:69: is nested more than 100 levels deep. No manifest needs that" in str(caught.value)


def test_as_much_nesting_as_is_allowed_is_read() -> None:
    parsed = parse_yaml(("[" * 100 + "]" * 100).encode(), "f")
    assert not parsed.problems


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"a: b\x00c", "f:1:5: holds a NUL byte, which YAML does not allow"),
        (b"a:\n  b\x07", "f:2:4: holds the control character U+0007"),
        ("a: b".encode("utf-16"), "f: is written in UTF-16. Save it as UTF-8"),
        ("a: b".encode("utf-16-be"), "f:1:1: holds a NUL byte"),
        ("a: b".encode("utf-32"), "f: is written in UTF-16. Save it as UTF-8"),
        (b"a: b\n  c: \xff", "f:2:6: is not UTF-8: the byte 0xff begins no character. Save it as UTF-8"),
        ("a: ü".encode("latin-1"), "f:1:4: is not UTF-8: the byte 0xfc begins no character"),
        (b'a: "\xed\xa0\x80"', "f:1:5: is not UTF-8"),
        (b"\x7fELF\x02\x01\x01\x00", "f:1:1: holds the control character U+007F"),
    ],
)
def test_wrong_encodings_are_named_with_their_place(raw: bytes, said: str) -> None:
    (problem,) = problems_of(raw)
    assert problem.startswith(said)


def test_a_byte_order_mark_and_line_ends_of_windows_are_read() -> None:
    (document,) = parse_yaml(b"\xef\xbb\xbfa: b\r\nc: d\r\n", "f").documents
    assert document.content == {"a": "b", "c": "d"}


@pytest.mark.thorough
def test_more_values_than_a_document_needs_are_refused_in_little_memory() -> None:
    program = (
        "import resource, sys\n"
        "from reconciler.manifests.yaml_documents import parse_yaml\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "problems = parse_yaml(b'[' + b'a,' * 4_000_000 + b']', 'f').problems\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
        "print(problems[0])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    kibibytes, problem = done.stdout.splitlines()
    assert "holds more than 1,000,000 values in one document" in problem
    assert int(kibibytes) < 150 * 1024


def test_a_file_of_100_megabytes_is_refused_without_reading_it(workspace: Any) -> None:
    folder = workspace({"manifests/a.yaml": ""})
    with (folder / "manifests" / "a.yaml").open("wb") as file:
        file.truncate(100 * 2**20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ManifestError) as caught:
        load_manifests(folder, environment=None, variables=Variables())
    assert "manifests/a.yaml: is too big: 100 MiB, more than 32. Split it into several files" in str(caught.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 * 1024


def test_without_libyaml_the_same_is_read_and_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [
        "a: [1, 2.5, 0x10, yes, 'x', ~]\nb: &b {c: d}\ne: *b\n---\nf: |\n  g\n",
        LAUGHS,
        "[" * 1000,
        "a: &x [*x]",
        "a: !!python/name:os.system x",
        "a: 1\na: 2\n<<: {b: c}\n1: 2\n",
        "a: b\0",
        "a: b: c",
        "%YAML 1.1\n---\na: yes\n",
    ]
    fast = [parse_yaml(text.encode(), "f") for text in texts]
    monkeypatch.setattr(yaml_documents, "PARSER", yaml.SafeLoader)
    slow = [parse_yaml(text.encode(), "f") for text in texts]
    assert [each.documents for each in slow] == [each.documents for each in fast]
    assert [len(each.problems) for each in slow] == [len(each.problems) for each in fast]
