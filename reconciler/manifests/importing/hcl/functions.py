"""Those of Terraform's functions that declarations of topics are written with; none of them reads or runs anything."""

from __future__ import annotations

import json
import re
from itertools import chain, product
from typing import TYPE_CHECKING, Any, Final

from reconciler.manifests.importing.hcl.values import (
    MAX_ITEMS,
    UnresolvedError,
    bounded,
    items_of,
    number_of,
    text_of,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_VERB: Final = re.compile(r"%(0?\d*)([sdv%])")
_MAX_WIDTH: Final = 100


def call(name: str, arguments: list[Any]) -> Any:
    """Return what a function gives. Raises UnresolvedError for one that is not known here, or called wrongly."""
    function = _FUNCTIONS.get(name)
    if function is None:
        raise UnresolvedError(f"the function {name} is not known here")
    try:
        return bounded(function(*arguments))
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError, ZeroDivisionError) as error:
        raise UnresolvedError(f"the function {name} is called with what it does not take") from error


def _set(value: Any) -> list[Any]:
    if isinstance(value, dict):
        raise TypeError
    return sorted({text_of(each) if isinstance(each, str) else each for each in value}, key=str)


def _merge(*mappings: Any) -> dict[str, Any]:
    return dict(chain.from_iterable(mapping.items() for mapping in mappings if mapping is not None))


def _flatten(value: Any) -> list[Any]:
    found: list[Any] = []
    for each in value:
        found += _flatten(each) if isinstance(each, list) else [each]
    return found


def _format(template: str, *arguments: Any) -> str:
    if "%" in _VERB.sub("", template):
        raise ValueError
    waiting = list(reversed(arguments))

    def filled(verb: re.Match[str]) -> str:
        if verb[2] == "%":
            return "%"
        if int(verb[1] or 0) > _MAX_WIDTH:
            raise ValueError
        value = waiting.pop()
        return f"{int(number_of(value)):{verb[1]}}" if verb[2] == "d" else text_of(value).rjust(int(verb[1] or 0))

    return _VERB.sub(filled, template)


def _range(*arguments: Any) -> list[int]:
    steps = range(*(int(number_of(each)) for each in arguments))
    if len(steps) > MAX_ITEMS:
        raise ValueError
    return list(steps)


def _product(*lists: Any) -> list[list[Any]]:
    count = 1
    for each in lists:
        count *= len(each)
    if count > MAX_ITEMS:
        raise ValueError
    return [list(each) for each in product(*lists)]


def _lookup(mapping: Any, key: str, *default: Any) -> Any:
    return mapping.get(key, default[0]) if default else mapping[key]


def _coalesce(*values: Any) -> Any:
    return next(each for each in values if each not in (None, ""))


def _distinct(values: Any) -> list[Any]:
    found: list[Any] = []
    for each in values:
        if each not in found:
            found.append(each)
    return found


def _element(values: Any, index: Any) -> Any:
    return values[int(number_of(index)) % len(values)]


def _replace(text: str, old: str, new: str) -> str:
    if len(old) > 1 and old.startswith("/") and old.endswith("/"):
        raise ValueError  # a pattern: Go's are not ours
    return text.replace(old, new)


_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "abs": lambda value: abs(number_of(value)),
    "ceil": lambda value: -int(-number_of(value) // 1),
    "chunklist": lambda values, size: [values[at : at + size] for at in range(0, len(values), size)],
    "coalesce": _coalesce,
    "compact": lambda values: [each for each in values if each not in (None, "")],
    "concat": lambda *lists: list(chain.from_iterable(lists)),
    "contains": lambda values, value: value in values,
    "distinct": _distinct,
    "element": _element,
    "endswith": lambda text, end: text.endswith(end),
    "flatten": _flatten,
    "floor": lambda value: int(number_of(value) // 1),
    "format": _format,
    "join": lambda gap, values: gap.join(map(text_of, values)),
    "jsondecode": json.loads,
    "keys": lambda mapping: sorted(mapping.keys()),
    "length": len,
    "lookup": _lookup,
    "lower": lambda text: text.lower(),
    "max": lambda *values: max(map(number_of, values)),
    "merge": _merge,
    "min": lambda *values: min(map(number_of, values)),
    "pow": lambda base, power: whole(float(number_of(base)) ** float(number_of(power))),
    "range": _range,
    "replace": _replace,
    "reverse": lambda values: list(reversed(values)),
    "setproduct": _product,
    "slice": lambda values, start, end: values[start:end],
    "sort": lambda values: sorted(map(text_of, values)),
    "split": lambda gap, text: text.split(gap),
    "startswith": lambda text, start: text.startswith(start),
    "substr": lambda text, start, count: text[start:] if count < 0 else text[start : start + count],
    "sum": lambda values: sum(map(number_of, values)),
    "tobool": lambda value: {"true": True, "false": False}[text_of(value)],
    "tolist": lambda value: [each for _, each in items_of(value)],
    "tomap": dict,
    "tonumber": number_of,
    "toset": _set,
    "tostring": text_of,
    "trim": lambda text, signs: text.strip(signs),
    "trimprefix": lambda text, start: text.removeprefix(start),
    "trimspace": lambda text: text.strip(),
    "trimsuffix": lambda text, end: text.removesuffix(end),
    "upper": lambda text: text.upper(),
    "values": lambda mapping: [mapping[key] for key in sorted(mapping)],
    "zipmap": lambda names, values: dict(zip(names, values, strict=True)),
}
