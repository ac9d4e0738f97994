"""Markers are read as they were written, and a text that is cut stays sound."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.forges.protocol import Marker, collapse_comment_text, fit_comment, parse_marker


@pytest.mark.parametrize(
    "marker",
    [
        Marker("plan", "shop"),
        Marker("plan", "shop", "prod", "7c41", 0),
        Marker("drift", "shop", None, "", 12),
        Marker("validate", "shop.eu-1", "prod_2"),
    ],
)
@pytest.mark.parametrize("end", ["", "\n", "\r\n", " \nmore"])
def test_a_marker_is_read_as_it_was_written(marker: Marker, end: str) -> None:
    assert parse_marker(f"{marker.line}{end}") == marker


def test_a_marker_of_an_older_or_newer_version_is_about_the_same() -> None:
    now = Marker("plan", "shop", "prod", "7c41", 3)
    for line in (
        "<!-- reconciler:plan workspace=shop environment=prod digest=99 -->",
        "<!-- reconciler:plan workspace=shop environment=prod digest=99 items=0 later=x -->",
    ):
        assert now.is_at_start_of(line)
    assert not now.is_at_start_of("<!-- reconciler:plan workspace=shop digest=99 -->")


@pytest.mark.parametrize("name", ["a--b", "-->", "über", "a b", "x=y", "\u202e", "a\nb"])
def test_names_of_any_kind_make_a_marker_that_is_found_again(name: str) -> None:
    marker = Marker("plan", name, name)
    assert marker.is_at_start_of(marker.line)
    assert marker.line.count("-->") == 1


PARTS = st.sampled_from(
    [
        "text\n",
        "<details>\n",
        "</details>\n",
        "```diff\n",
        "```\n",
        "`````\n",
        "~~~\n",
        "| a | b |\n",
        "ü" * 40 + "\n",
        "\n",
    ]
)


@given(st.lists(PARTS, min_size=1, max_size=120), st.integers(400, 900))
def test_a_text_that_is_cut_fits_and_closes_what_it_opened(parts: list[str], limit: int) -> None:
    text = f"{Marker('plan', 'shop').line}\n{''.join(parts)}"
    cut = fit_comment(text, limit)
    assert len(cut) <= limit
    assert cut.startswith(Marker("plan", "shop").line)
    if len(text) <= limit:
        assert cut == text
        return
    body, _, sentence = cut.rstrip("\n").rpartition("\n")
    assert sentence.startswith("**The rest does not fit here")
    assert open_after(body) == []


def open_after(text: str) -> list[str]:
    """Return what is open after a text, as a reader of markdown would see it."""
    fence, folds = "", 0
    for line in text.splitlines():
        mark = re.match(r"(`{3,}|~{3,})(.*)", line)
        if fence:
            if mark and mark[1].startswith(fence) and not mark[2].strip():
                fence = ""
        elif mark:
            fence = mark[1]
        else:
            folds = max(0, folds + len(re.findall("<details", line)) - len(re.findall("</details", line)))
    return [fence] * bool(fence) + ["fold"] * folds


def test_one_line_longer_than_all_leaves_the_marker_and_the_sentence() -> None:
    cut = fit_comment(f"{Marker('plan', 'shop').line}\n{'x' * 5_000}", 1_000)
    assert cut.splitlines()[0] == Marker("plan", "shop").line
    assert "1 more line" in cut


def test_an_older_result_is_folded_away_and_not_found_again() -> None:
    marker = Marker("plan", "shop", "prod", "7c41", 3)
    rows = "+ topic\n" * 200
    old = f"{marker.line}\n### Plan\n\n```diff\n{rows}```\n"
    folded = collapse_comment_text(marker, old, 1_000)
    assert len(folded) <= 1_000
    assert not marker.is_at_start_of(folded)
    assert "### Plan" in folded
    assert folded.splitlines()[1] == "<details>"
    assert open_after(folded) == []


def test_an_older_result_of_any_length_fits_where_it_is_folded_away() -> None:
    marker = Marker("plan", "shop")
    texts = (f"{marker.line}\n{'x' * length}" for length in range(1_000))
    assert all(len(collapse_comment_text(marker, text, 1_000)) <= 1_000 for text in texts)
