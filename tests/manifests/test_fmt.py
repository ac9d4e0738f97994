from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.manifests.format import NotLaidOutError, _format_once, format_text
from reconciler.manifests.positions import ManifestError
from reconciler.manifests.yaml_documents import parse_yaml

ROOT = Path(__file__).parent.parent.parent
MANIFESTS = [
    *sorted((ROOT / "tests" / "cases" / "kinds").glob("*.yaml")),
    *sorted((ROOT / "examples").glob("*/**/*.yaml")),
]

WILD = """\
# yaml-language-server: $schema=x

# about orders
kind:   Topic   # the kind
apiVersion: reconciler/v1
metadata: {cluster:   west, name: orders,
   namespace: "shop:eu" }
spec:
    # how many
    partitions:    12



    configs:
        retention.ms: 7d   # a week
        # cleanup.policy: compact
    acls:
    - principal: User:x
      operations: [ read,   write ]   # both
    # the other
    -   principal: User:y
        operations:
          - read
    note: >-
        folded # not a comment

        text
    inner: [a,
       # second
       b]
    # end of spec
# end of document
---
# second

a:
- b

# about c
c: "x # y
   z"
d: &q [1]
e: *q
f: {}
g:
"""

TAME = """\
# yaml-language-server: $schema=x

# about orders
apiVersion: reconciler/v1
kind: Topic # the kind
metadata: {name: orders, namespace: "shop:eu", cluster: west}
spec:
  # how many
  partitions: 12

  configs:
    retention.ms: 7d # a week
    # cleanup.policy: compact
  acls:
    - principal: User:x
      operations: [read, write] # both
    # the other
    - principal: User:y
      operations:
        - read
  note: >-
    folded # not a comment

    text
  inner:
    - a
    # second
    - b
  # end of spec
# end of document
---
# second

a:
  - b

# about c
c: "x # y
  z"
d: &q [1]
e: *q
f: {}
g:
"""


def test_the_canonical_form_keeps_every_comment_where_it_belongs() -> None:
    assert format_text(WILD) == TAME
    assert format_text(TAME) == TAME


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_manifest_says_the_same_in_canonical_form(file: Path) -> None:
    once = format_text(file.read_text())
    assert format_text(once) == once
    assert yaml.safe_load_all(once) is not None
    contents = [document.content for document in parse_yaml(once.encode(), "after").documents]
    assert contents == [document.content for document in parse_yaml(file.read_bytes(), "before").documents]


def test_lists_of_lists_and_texts_in_blocks_are_laid_out_as_well() -> None:
    before = (
        "a:\n-   - 1\n    -    2\n- b:   3\n  c: 4\n- |+\n   kept\n\n- |-\n   text\n\n\n"
        "d: |\n      deep\n        er\n\n\n---\n---\n# c\nlast:   x\n"
    )
    after = (
        "a:\n  - - 1\n    - 2\n  - b: 3\n    c: 4\n  - |+\n    kept\n\n  - |-\n    text\n\n"
        "d: |\n  deep\n    er\n---\n---\n# c\nlast: x\n"
    )
    assert format_text(before) == after


def test_what_does_not_fit_a_line_becomes_a_block() -> None:
    names = ", ".join(f"name-{number}" for number in range(20))
    lines = format_text(f"names: [{names}] # all\n").splitlines()
    assert lines[:2] == ["names: # all", "  - name-0"]
    assert len(lines) == 21


@pytest.mark.parametrize(
    "text",
    [
        "%YAML 1.2\n---\na:   1\n",
        "? a\n: b\n",
        "a:   !!map {b: c}\n",
        "a: |2\n    b\n   c\nd:   1\n",
        "a:\t1\n",
        "a:   1\nb: |\n  the file ends\n  within it",
        "- >-\n\n   folded\n",
        "- # beside a dash\n  a: 1\n",
        "scalar   # beside\n",
        "&x\na:   1\n",
        "a: {b: , c: 1}\n",
        "a:   !!str 12\nb: !!seq [1]\n",
        "spec:  {configs: &c {retention.ms: 1d}}\nmetadata: {labels: *c}\napiVersion: reconciler/v1\nkind: Topic\n",
        "apiVersion: reconciler/v1\nkind: Topic\nmetadata:   {cluster: &w west, name: *w}\n",
        "- |+\n   kept\n-\n\n  a:   1\n",
        "a: |+\n  kept\nkind:   Topic\n\nb: 1\napiVersion: reconciler/v1\n",
        "a: |\n  a line of one space\n   \nb:   1\n",
        "a: |\n  the file ends within it\n   ",
        "   ...",
        "a: &x\n-\n   # beside nothing\n",
    ],
)
def test_what_is_rare_stays_as_it_is(text: str) -> None:
    assert format_text(text) == text


@pytest.mark.parametrize(
    ("text", "done"),
    [
        ("", ""),
        ("\n\n", ""),
        ("# only\n\n\n# this", "# only\n\n# this\n"),
        ("---\na: 1\n...\n", "a: 1\n"),
        ("---\n---\n", ""),
        ("---\n# the file\n---\na: 1\n", "# the file\na: 1\n"),
        ("a: 1\n---\n# over", "a: 1\n---\n# over\n"),
        ("--- # x\n\n", "# x\n"),
    ],
)
def test_files_without_much_in_them_are_files_too(text: str, done: str) -> None:
    assert format_text(text) == done
    assert format_text(done) == done


def test_a_comment_below_a_text_that_keeps_its_end_stays() -> None:
    assert format_text("a: |+\n  kept\n\n# of b\nb:   1\n") == "a: |+\n  kept\n\n# of b\nb: 1\n"


def test_line_ends_of_windows_and_byte_order_marks_go() -> None:
    assert format_text("\ufeffa:  1\r\nb:  2\r\n") == "a: 1\nb: 2\n"


def test_what_is_no_yaml_is_refused_with_its_place() -> None:
    with pytest.raises(ManifestError, match=r"a.yaml:1:5: a ': ' is where no key can be"):
        format_text("a: b: c", "a.yaml")


TEXTS = st.text(alphabet="ab #:-'\"\n{}[],|>%@&*!?", max_size=12)
KEYS = st.text(alphabet="abcdef.-", min_size=1, max_size=6)
TREES = st.recursive(
    TEXTS | st.integers() | st.booleans() | st.just("x" * 130),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=50)
@given(
    st.lists(st.dictionaries(KEYS, TREES, min_size=1, max_size=4), min_size=1, max_size=3),
    st.sampled_from([None, True, False]),
    st.integers(2, 6),
    st.integers(0, 2**32),
)
def test_whatever_is_written_and_however_says_the_same_and_settles_at_once(
    documents: list[Any], flow: Any, indent: int, seed: int
) -> None:
    """`format_text` leaves a file as it is rather than change what it says or lose a comment: none of these is left."""
    text = yaml.dump_all(documents, default_flow_style=flow, indent=indent, sort_keys=False, width=40)
    text = _commented(text, random.Random(seed))  # noqa: S311 - no secret
    if not parse_yaml(text.encode(), "text").problems:
        done = format_text(text)
        try:
            assert done == _format_once(text)
        except NotLaidOutError:
            assert done == text
        assert format_text(done) == done


def _commented(text: str, chance: random.Random) -> str:
    lines: list[str] = []
    for line in text.split("\n"):
        if chance.random() < 0.2:
            lines.append(" " * chance.choice([0, 2, 4, 6]) + f"# above {chance.randrange(9)}")
        if chance.random() < 0.1:
            lines.append("")
        lines.append(f"{line} # beside {chance.randrange(9)}" if chance.random() < 0.1 else line)
    return "\n".join(lines)
