"""How hard our English is to read: words that hide who does what, long sentences, and the Flesch-Kincaid grade."""

from __future__ import annotations

import re

AVOIDED = re.compile(r"\b(nobody|whoever|somebody)(?:'s)?\b", re.IGNORECASE)
"""Words that hide who does what: the subject is the thing."""
_CODE = re.compile(r"`[^`]*`")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_ENDS = re.compile(r"[.!?](?:\s+|$)")
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
_VOWELS = re.compile(r"[aeiouy]+")


def sentences(markdown: str) -> list[list[str]]:
    """Return the words of each sentence of running text: no tables, headings, lists of links, code or addresses."""
    found: list[list[str]] = []
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*[-*|#>])", markdown):
        text = paragraph.strip()
        if not text or text[0] in "|#>":
            continue
        text = _CODE.sub("it", _LINK.sub(r"\1", " ".join(text.split())))
        found += [words for each in _ENDS.split(text) if len(words := _WORD.findall(each)) > 2]
    return found


def grade(found: list[list[str]]) -> float:
    """Return the Flesch-Kincaid grade: years of school that the text asks for."""
    words = [word for sentence in found for word in sentence]
    if not words:
        return 0.0
    return 0.39 * len(words) / len(found) + 11.8 * sum(map(_syllables, words)) / len(words) - 15.59


def _syllables(word: str) -> int:
    plain = word.lower()
    count = len(_VOWELS.findall(plain))
    if plain.endswith("e") and not plain.endswith("le") and count > 1:
        count -= 1
    return max(1, count)
