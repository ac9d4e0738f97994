"""Documents laid out at once stand as `fmt` would lay them out, and say what they were made of."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.manifests.edit import format_document
from reconciler.manifests.format import format_text
from reconciler.manifests.yaml_documents import parse_yaml

TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Zl", "Zp"]), max_size=30) | st.sampled_from(
    ["", "true", "12", "a: b", "# no comment", "User:checkout", "*", "x" * 130]
)
KEYS = st.sampled_from(["retention.ms", "names", "User:a", "12", "on", "x" * 40])
VALUES = st.recursive(
    TEXTS | st.booleans() | st.integers(-(2**40), 2**40),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.thorough
@settings(max_examples=150)
@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_what_is_laid_out_is_as_fmt_would_have_it(spec: dict[str, Any]) -> None:
    content = {
        "apiVersion": "reconciler/v1",
        "kind": "Topic",
        "metadata": {"name": "orders", "cluster": "west"},
        **({"spec": spec} if spec else {}),
    }
    text = format_document(content)
    assert format_text(text) == text
    [document] = parse_yaml(text.encode(), "x.yaml").documents
    assert document.content == content
