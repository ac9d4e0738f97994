"""What is suggested for a word that is not known, and how the question is put."""

import pytest

from reconciler.runtime.text import find_similar, find_similar_spelling, format_suggestion

KNOWN = ("retention.ms", "retention.bytes", "segment.ms")


@pytest.mark.parametrize(
    ("near", "said"),
    [
        (["a"], "Did you mean a? See the list."),
        (["a", "b"], "Did you mean a or b? See the list."),
        ([], "Remove it. See the list."),
    ],
)
def test_a_question_names_what_is_near_and_what_follows_it(near: list[str], said: str) -> None:
    assert format_suggestion(near, otherwise="Remove it.", then="See the list.") == said


def test_without_a_near_word_only_what_follows_is_said() -> None:
    assert format_suggestion([], then="See the list.") == "See the list."
    assert format_suggestion([]) == ""


@pytest.mark.parametrize(
    ("word", "most", "found"),
    [
        ("retention.mss", 1, ["retention.ms"]),
        ("retention.mss", 2, ["retention.ms", "retention.bytes"]),
        ("compaction", 1, []),
    ],
)
def test_the_most_alike_word_comes_first(word: str, most: int, found: list[str]) -> None:
    assert find_similar(word, KNOWN, most=most) == found


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("topic/west/shop:ordres", ["topic/west/shop:orders"]),
        ("topic/west/orders", ["topic/west/shop:orders"]),
        ("topic/wst/shop:order", ["topic/west/shop:orders"]),
        ("topic/west/shop:readers", []),
        ("topic/north/shop:orders", []),
        ("mirror/west/shop:orders", []),
        ("topic/west/x", []),
    ],
)
def test_only_an_address_with_a_near_name_is_suggested(word: str, found: list[str]) -> None:
    assert find_similar(word, ["topic/west/shop:orders", "topic/west/y"]) == found


@pytest.mark.parametrize("word", ["Mirror-Link", "mirror_link", "MIRRORLINK"])
def test_case_and_dashes_alone_make_no_other_word(word: str) -> None:
    assert find_similar_spelling(word, ["MirrorLinks", "mirrorLink"]) == ["mirrorLink"]
