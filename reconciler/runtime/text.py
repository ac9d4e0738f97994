"""Text for people: escaping, amounts, lists of names, parser errors, and "Did you mean …?".

Escaped text cannot control a terminal or a CI pipeline (`::error::` at a line's beginning, `##[…]` and `##vso[…]`
anywhere).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    import orjson
    from pydantic import ValidationError


# Invisible: controls, line and paragraph separators, direction and width marks, noncharacters, surrogates.
_HIDDEN: Final = (
    "\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff"
)
_UNSAFE: Final = re.compile(f"[\x00-\x1f{_HIDDEN}]")
_IN_JSON: Final = re.compile(f"[{_HIDDEN}]")
_COMMAND: Final = re.compile(r"^((?:\s|\x1b\[[0-9;]*m)*)::|##(?=\[|vso\[)", re.MULTILINE)
_COMMANDS: Final = ("::", "##[", "##vso[")
_MAX_MESSAGE_CHARS: Final = 2_000
"""Maximum length of a quoted message, which may be a page of HTML."""


def escape_invisible(text: str) -> str:
    r"""Return `text` on one line with invisible characters escaped: `\x1b`."""
    return _UNSAFE.sub(_escape_character, text) if not text.isascii() or not text.isprintable() else text


def to_one_line(text: str) -> str:
    """Return a message of another program on one line, cut at 2,000 characters."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_MESSAGE_CHARS else f"{line[:_MAX_MESSAGE_CHARS]} …"


def escape_commands(text: str) -> str:
    """Escape pipeline commands in a text."""
    return _COMMAND.sub(_escape_command, text) if any(command in text for command in _COMMANDS) else text


def escape_json(body: bytes) -> bytes:
    r"""Return equivalent JSON with invisible characters escaped, as `\u202e`."""
    if not body.isascii() or b"\x7f" in body:
        body = _IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", body.decode()).encode()
    return body.replace(b"##[", b"#\\u0023[").replace(b"##vso[", b"#\\u0023vso[")


def escape_non_utf8(text: str) -> str:
    """Return a file name for JSON, with invalid bytes escaped."""
    return text.encode("utf-8", "backslashreplace").decode()


def to_json_types(value: object) -> Any:
    """Return a value with dicts for mappings and lists for tuples."""
    if isinstance(value, Mapping):
        return {str(key): to_json_types(item) for key, item in cast("Mapping[object, object]", value).items()}
    return [to_json_types(item) for item in value] if isinstance(value, list | tuple) else value


def _escape_command(match: re.Match[str]) -> str:
    return "#\\x23" if match[1] is None else f"{match[1]}\\x3a:"


def _escape_character(match: re.Match[str]) -> str:
    code = ord(match[0])
    named = {9: r"\t", 10: r"\n", 13: r"\r"}
    return named.get(code) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")  # noqa: PLR2004 - one byte


_SENTENCES: Final[Mapping[str, str]] = {
    "missing": "is missing",
    "extra_forbidden": "is not one of its fields",
    "model_type": "is not an object",
    "model_attributes_type": "is not an object",
    "dict_type": "is not an object",
    "list_type": "is not a list",
    "tuple_type": "is not a list",
    "string_type": "is not text",
    "int_type": "is not a whole number",
    "int_from_float": "is not a whole number",
    "float_type": "is not a number",
    "bool_type": "is neither true nor false",
    "string_too_short": "is empty",
    "string_pattern_mismatch": "is malformed",
    "greater_than_equal": "is less than {ge}",
    "greater_than": "is not greater than {gt}",
    "literal_error": "is not {expected}",
    "union_tag_invalid": "is of none of the kinds there are",
    "union_tag_not_found": "has no kind",
    "refused": "{message}",
    "value_error": "{error}",
}


def explain_invalid(error: ValidationError) -> str:
    """Return the first error of a model's validation in plain words, with its field."""
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    problem = _SENTENCES.get(first["type"], "is not valid").format(**first.get("ctx", {}))
    if first["type"] in {"value_error", "refused"}:
        return f"{field}: {problem}" if field else problem
    return f"{field or 'it'} {problem}"


def explain_invalid_json(error: orjson.JSONDecodeError, body: bytes) -> str:
    """Return why JSON cannot be parsed."""
    if not body.strip():
        return "there is nothing in it"
    try:
        body.decode()
    except UnicodeDecodeError:
        return "it is not text"
    return "it ends in the middle" if error.msg == "unexpected end of data" else f"it is not JSON ({error})"


def end_sentence(text: str) -> str:
    """Return `text` with a full stop unless it ends with punctuation."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_KIB: Final = 1024
_ROUND: Final = 100
_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86_400
_MILLION: Final = 1_000_000
_BILLION: Final = 1_000_000_000


def format_bytes(count: int) -> str:
    """Return a size, with one decimal below 100: `41.2 GiB`."""
    amount, unit = float(count), 0
    while float(_format_amount(amount)) >= _KIB and unit < len(_SIZES) - 1:
        amount, unit = amount / _KIB, unit + 1
    return f"{_format_amount(amount)} {_SIZES[unit]}"


def format_count(count: int) -> str:
    """Return an exact count: `1,284`."""
    return f"{count:,}"


def format_rough_count(count: int) -> str:
    """Return a rounded count: `4.1 M`."""
    if count < _MILLION:
        return format_count(count)
    millions = _format_amount(count / _MILLION)
    return f"{millions} M" if float(millions) < _BILLION / _MILLION else f"{_format_amount(count / _BILLION)} G"


def pluralize(count: int, noun: str, plural: str | None = None, *, grouping: str = ",") -> str:
    """Return a count and its noun: `1 topic`, `2,000 topics`; `grouping` separates thousands."""
    return f"{count:{grouping}} {noun if count == 1 else plural or noun + 's'}"


def format_estimate(seconds: float) -> str:
    """Return an estimated duration: `about 2 min`."""
    if (whole := round(seconds)) < _MINUTE:
        return f"about {max(1, whole)} s"
    if (minutes := round(seconds / _MINUTE)) < _HOUR / _MINUTE:
        return f"about {minutes} min"
    return f"about {_format_amount(seconds / _HOUR)} h" if seconds < 2 * _DAY else f"about {round(seconds / _DAY)} days"


def format_elapsed(seconds: float) -> str:
    """Return an elapsed duration: `1.1 s`, `12 min 5 s`."""
    if float(shown := _format_amount(seconds)) < _MINUTE:
        return f"{shown} s"
    whole = max(_MINUTE, int(seconds))
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"


def _format_amount(amount: float) -> str:
    rounded = round(amount, 1)
    return f"{rounded:.0f}" if rounded >= _ROUND or rounded.is_integer() else f"{rounded:.1f}"


FEW: Final = 3
_MAX_WORDS: Final = 12


_SHORT_RUN: Final = 8


def shorten_run_id(run: str | None) -> str:
    """Return the last eight characters of a run's id; the first encode the time."""
    return (run or "")[-_SHORT_RUN:]


def is_run_id(typed: str, run: str | None) -> bool:
    """Return whether `typed` is this run's id or its end of at least eight characters."""
    return typed == run or (len(typed) >= _SHORT_RUN and (run or "").endswith(typed))


def list_first(names: Sequence[str], most: int = FEW, *, grouping: str = ",") -> str:
    """Return the first names on one line, and the number of the others."""
    named = ", ".join(names[:most])
    return named if len(names) <= most else f"{named} and {len(names) - most:{grouping}} more"


def list_choices(words: Iterable[str]) -> str:
    """Return at most 12 of the words, sorted."""
    known = sorted(words)
    shown = ", ".join(known[:_MAX_WORDS])
    return shown + (f" and {len(known) - _MAX_WORDS} more" if len(known) > _MAX_WORDS else "") if known else "none"


LIKENESS: Final = 0.6
"""Minimum similarity of suggestions, from 0 to 1."""


def find_similar(word: str, known: Iterable[str], *, most: int = 1, likeness: float = LIKENESS) -> list[str]:
    """Return the known words similar to `word`, most similar first.

    Addresses are compared part by part; an equal kind or cluster does not count.
    """
    from difflib import get_close_matches  # noqa: PLC0415 - needed for errors only

    if "/" not in word:
        return get_close_matches(word, list(known), n=most, cutoff=likeness)
    alike = get_close_matches(word, list(known), n=_MAX_CANDIDATES, cutoff=likeness)
    return [candidate for candidate in alike if _is_near(word, candidate)][:most]


_MAX_CANDIDATES: Final = 50


def _is_near(address: str, other: str) -> bool:
    parts, others = (name.replace(":", "/").split("/") for name in (address, other))
    pairs = zip(parts, others, strict=True) if len(parts) == len(others) else [(parts[-1], others[-1])]
    is_of_kind = address.partition("/")[0] == other.partition("/")[0]
    return is_of_kind and all(_count_edits(*pair) <= (max(map(len, pair)) + 1) // _LETTERS_PER_EDIT for pair in pairs)


_LETTERS_PER_EDIT: Final = 4


def _count_edits(one: str, other: str) -> int:
    rows: list[list[int]] = [[*range(len(other) + 1)]]
    for row, letter in enumerate(one, 1):
        above = rows[-1]
        rows.append([row])
        for column, letter_of_other in enumerate(other, 1):
            ways = [above[column] + 1, rows[row][column - 1] + 1, above[column - 1] + (letter != letter_of_other)]
            if one[row - 2 : row] == other[column - 2 : column][::-1] and min(row, column) > 1:
                ways.append(rows[row - 2][column - 2] + 1)
            rows[row].append(min(ways))
    return rows[-1][-1]


def find_similar_spelling(word: str, known: Iterable[str]) -> list[str]:
    """Return the known word most similar to `word`, ignoring case, `-` and `_`."""
    words = sorted(known)
    folded = _fold_case(word)
    same = next((candidate for candidate in words if _fold_case(candidate) == folded), None)
    return find_similar(word, words) if same is None else [same]


def format_suggestion(near: Sequence[str], *, otherwise: str = "", then: str = "") -> str:
    """Return "Did you mean …?" for `near`, or `otherwise` if it is empty; append `then`."""
    question = f"Did you mean {' or '.join(near)}?" if near else otherwise
    return f"{question} {then}" if question and then else question or then


def _fold_case(word: str) -> str:
    return word.replace("_", "").replace("-", "").lower()
