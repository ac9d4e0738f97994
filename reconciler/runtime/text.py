"""Text for people: words of others made safe to print, amounts, names, errors of parsers, and "Did you mean …?".

Nothing in it moves a cursor, changes a colour, reorders a line, begins one, or is taken for a command by what reads the
log of a pipeline (`::error::` at the beginning of a line, `##[…]` and `##vso[…]` anywhere).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    import orjson
    from pydantic import ValidationError


# Controls (C0, DEL, C1), line and paragraph separators, everything that changes the direction or the width of
# what follows it, what is no character, and halves of characters that no encoding can write.
_HIDDEN: Final = (
    "\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff"
)
_UNSAFE: Final = re.compile(f"[\x00-\x1f{_HIDDEN}]")
_IN_JSON: Final = re.compile(f"[{_HIDDEN}]")
_COMMAND: Final = re.compile(r"^((?:\s|\x1b\[[0-9;]*m)*)::|##(?=\[|vso\[)", re.MULTILINE)
_COMMANDS: Final = ("::", "##[", "##vso[")
_LONGEST: Final = 2_000
"""Characters of one message of others; a page of HTML is none."""


def visible(text: str) -> str:
    r"""Return `text` with what cannot be seen written out: an escape becomes `\x1b`. One line stays one line."""
    return _UNSAFE.sub(_written_out, text) if not text.isascii() or not text.isprintable() else text


def one_line(text: str) -> str:
    """Return a message of others as a part of one line of ours: without lines of its own, and not without end."""
    found = " ".join(text.split())
    return found if len(found) <= _LONGEST else f"{found[:_LONGEST]} …"


def without_commands(text: str) -> str:
    """Return text of many lines so that no pipeline takes one of them for a command of its own."""
    return _COMMAND.sub(_disarmed, text) if any(each in text for each in _COMMANDS) else text


def json_shown(body: bytes) -> bytes:
    r"""Return JSON that says the same and may be shown: what cannot be seen is an escape, as `\u202e`."""
    if not body.isascii() or b"\x7f" in body:
        body = _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", body.decode()).encode()
    return body.replace(b"##[", b"#\\u0023[").replace(b"##vso[", b"#\\u0023vso[")


def in_utf8(text: str) -> str:
    """Return a name of a file with the bytes that are not UTF-8 written out: JSON cannot hold them."""
    return text.encode("utf-8", "backslashreplace").decode()


def plain(value: object) -> Any:
    """Return a value as JSON has it: dicts for mappings, lists for tuples."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in cast("Mapping[object, object]", value).items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def _disarmed(match: re.Match[str]) -> str:
    return "#\\x23" if match[1] is None else f"{match[1]}\\x3a:"


def _written_out(match: re.Match[str]) -> str:
    code = ord(match[0])
    named = {9: r"\t", 10: r"\n", 13: r"\r"}
    return named.get(code) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")  # noqa: PLR2004 - one byte


# What is wrong with a file of ours, in plain sentences: what libraries say of it never reaches people.


_SENTENCES: Final[Mapping[str, str]] = {
    "missing": "is missing",
    "extra_forbidden": "is no field of it",
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
    "union_tag_not_found": "does not say of which kind it is",
    "refused": "{message}",
    "value_error": "{error}",
}


def refusal(error: ValidationError) -> str:
    """Return the first thing a model refused: its field, and what is wrong with it."""
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    said = _SENTENCES.get(first["type"], "is not valid").format(**first.get("ctx", {}))
    if first["type"] in {"value_error", "refused"}:
        return f"{field}: {said}" if field else said
    return f"{field or 'it'} {said}"


def no_json(error: orjson.JSONDecodeError, body: bytes) -> str:
    """Return why a body is no JSON."""
    if not body.strip():
        return "there is nothing in it"
    try:
        body.decode()
    except UnicodeDecodeError:
        return "it is not text"
    return "it ends in the middle" if error.msg == "unexpected end of data" else f"it is not JSON ({error})"


def ended_sentence(text: str) -> str:
    """Return a text that another sentence may follow."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


# Sizes, counts and times.


_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_KIB: Final = 1024
_ROUND: Final = 100
_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86_400
_MILLION: Final = 1_000_000
_BILLION: Final = 1_000_000_000


def bytes_text(count: int) -> str:
    """Return a size with one decimal where it says something: `41.2 GiB`."""
    amount, unit = float(count), 0
    while float(_short(amount)) >= _KIB and unit < len(_SIZES) - 1:
        amount, unit = amount / _KIB, unit + 1
    return f"{_short(amount)} {_SIZES[unit]}"


def count_text(count: int) -> str:
    """Return a count as it is: `1,284`."""
    return f"{count:,}"


def rough_count(count: int) -> str:
    """Return a count for orientation: `4.1 M`."""
    if count < _MILLION:
        return count_text(count)
    millions = _short(count / _MILLION)
    return f"{millions} M" if float(millions) < _BILLION / _MILLION else f"{_short(count / _BILLION)} G"


def counted(count: int, noun: str, plural: str | None = None, *, grouping: str = ",") -> str:
    """Return a count and what is counted: `1 topic`, `2,000 topics`; `grouping` stands between thousands."""
    return f"{count:{grouping}} {noun if count == 1 else plural or noun + 's'}"


def about(seconds: float) -> str:
    """Return a time to come: `about 2 min`."""
    if (whole := round(seconds)) < _MINUTE:
        return f"about {max(1, whole)} s"
    if (minutes := round(seconds / _MINUTE)) < _HOUR / _MINUTE:
        return f"about {minutes} min"
    return f"about {_short(seconds / _HOUR)} h" if seconds < 2 * _DAY else f"about {round(seconds / _DAY)} days"


def took(seconds: float) -> str:
    """Return a time that has passed: `1.1 s`, `12 min 5 s`."""
    if float(shown := _short(seconds)) < _MINUTE:
        return f"{shown} s"
    whole = max(_MINUTE, int(seconds))
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"


def _short(amount: float) -> str:
    rounded = round(amount, 1)
    return f"{rounded:.0f}" if rounded >= _ROUND or rounded.is_integer() else f"{rounded:.1f}"


# Lists of names.


FEW: Final = 3
"""As many names as fit into a sentence."""
_SHOWN: Final = 12


def first_few(names: Sequence[str], most: int = FEW, *, grouping: str = ",") -> str:
    """Return names for one line, however many there are: the first few, and how many more."""
    named = ", ".join(names[:most])
    return named if len(names) <= most else f"{named} and {len(names) - most:{grouping}} more"


def one_of(words: Iterable[str]) -> str:
    """Return a list of words for a hint, cut where it gets long."""
    known = sorted(words)
    shown = ", ".join(known[:_SHOWN])
    return shown + (f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else "") if known else "none"


# What was probably meant by a word that is not known.

LIKENESS: Final = 0.6
"""How much of two words is the same where one is suggested for the other; 1 is all of it."""


def nearest(word: str, known: Iterable[str], *, most: int = 1, likeness: float = LIKENESS) -> list[str]:
    """Return the known words that look like `word`, the most alike first.

    Of addresses each part is compared: equal kinds and clusters do not make two names alike.
    """
    from difflib import get_close_matches  # noqa: PLC0415 - needed only once something is wrong

    if "/" not in word:
        return get_close_matches(word, list(known), n=most, cutoff=likeness)
    alike = get_close_matches(word, list(known), n=_ALIKE, cutoff=likeness)
    return [each for each in alike if _is_near(word, each)][:most]


_ALIKE: Final = 50
"""Of ten thousand addresses only these are compared letter by letter."""


def _is_near(address: str, other: str) -> bool:
    """Tell whether few letters of each part differ; a name without its namespace is near, too."""
    parts, others = (each.replace(":", "/").split("/") for each in (address, other))
    pairs = zip(parts, others, strict=True) if len(parts) == len(others) else [(parts[-1], others[-1])]
    is_of_kind = address.partition("/")[0] == other.partition("/")[0]
    return is_of_kind and all(_edits(*pair) <= (max(map(len, pair)) + 1) // _LETTERS_PER_EDIT for pair in pairs)


_LETTERS_PER_EDIT: Final = 4


def _edits(one: str, other: str) -> int:
    """Return how many letters were added, left out, replaced or swapped."""
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


def nearest_spelling(word: str, known: Iterable[str]) -> list[str]:
    """Return the known word that looks like `word`; one that differs in case, `-` and `_` only comes before others."""
    words = sorted(known)
    folded = _folded(word)
    same = next((each for each in words if _folded(each) == folded), None)
    return nearest(word, words) if same is None else [same]


def did_you_mean(near: Sequence[str], *, otherwise: str = "", then: str = "") -> str:
    """Return the question whether one of `near` was meant, or `otherwise` where there is none; `then` follows both."""
    asked = f"Did you mean {' or '.join(near)}?" if near else otherwise
    return f"{asked} {then}" if asked and then else asked or then


def _folded(word: str) -> str:
    return word.replace("_", "").replace("-", "").lower()
