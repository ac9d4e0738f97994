"""Operators of HCL, and the functions that read: a file beside the declarations, and YAML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reconciler.manifests.documents import parse
from reconciler.manifests.importing.hcl.values import UnresolvedError, number_of, text_of, whole
from reconciler.manifests.importing.sources import merged

if TYPE_CHECKING:
    from collections.abc import Callable


def truth(value: Any) -> bool:
    """Return a value as a condition."""
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return bool(value == "true")
    raise UnresolvedError("a condition is neither true nor false")


def combined(sign: str, left: Any, right: Callable[[], Any]) -> Any:
    """Return what an operator gives; its right side is worked out only where it counts."""
    match sign:
        case "&&":
            return truth(left) and truth(right())
        case "||":
            return truth(left) or truth(right())
        case "==":
            return left == right()
        case "!=":
            return left != right()
        case "<" | ">" | "<=" | ">=":
            return _compared(sign, number_of(left), number_of(right()))
        case _:
            return _calculated(sign, number_of(left), number_of(right()))


def _compared(sign: str, left: float, right: float) -> bool:
    match sign:
        case "<":
            return left < right
        case ">":
            return left > right
        case "<=":
            return left <= right
        case _:
            return left >= right


def _calculated(sign: str, left: float, right: float) -> int | float:
    try:
        match sign:
            case "+":
                return whole(left + right)
            case "-":
                return whole(left - right)
            case "*":
                return whole(left * right)
            case "/":
                return whole(left / right)
            case _:
                return whole(left % right)
    except (ZeroDivisionError, OverflowError) as error:
        raise UnresolvedError("it divides by nothing, or comes out too big") from error


def decoded(word: str, value: Any, read_file: Callable[[str], str]) -> Any:
    """Return a file's text, or what YAML says; what is said to be sensitive is the value it is."""
    if word == "file":
        return read_file(text_of(value))
    if word != "yamldecode":
        return value
    parsed = parse(text_of(value).encode(), "", may_merge=True)
    if parsed.problems or len(parsed.documents) != 1:
        raise UnresolvedError("what yamldecode is given is not one document of YAML")
    return merged(parsed.documents[0].content)
