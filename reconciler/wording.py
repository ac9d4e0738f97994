"""What is wrong with a file of ours, in plain sentences: what libraries say of it never reaches people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    import orjson
    from pydantic import ValidationError

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
    "value_error": "{error}",
}


def refusal(error: ValidationError) -> str:
    """Return the first thing a model refused: its field, and what is wrong with it."""
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    said = _SENTENCES.get(first["type"], "is not valid").format(**first.get("ctx", {}))
    if first["type"] == "value_error":
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
