"""What a model refuses, in plain sentences with advice: pydantic's own wording never reaches people."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from reconciler.manifests.fields import field_at, fields_of, model_at
from reconciler.manifests.overlays import DELETE
from reconciler.manifests.scalars import is_text, kind_of_value
from reconciler.manifests.suggestions import did_you_mean, nearest, one_of
from reconciler.resources.base import Complaint
from reconciler.resources.configs import EMBEDDED_CONFIGS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

    from reconciler.manifests.positions import Path


def complaints_of(error: ValidationError, model: type[BaseModel], content: Any) -> Iterator[Complaint]:
    """Yield what is wrong with `content`, field by field, at the paths its author wrote."""
    for details in error.errors(include_url=False):
        path = _written(details["loc"], content, is_missing=details["type"] == "missing")
        if details["type"] == "refused":
            for complaint in details["ctx"]["complaints"]:
                at = (*path, *complaint.at)
                message = _with_value(complaint.message, _value_at(content, at))
                yield Complaint(message, complaint.hint or _advice(model, at), at)
        else:
            # Not what pydantic was given: validators have folded and parsed it by then.
            message, hint = _sentence(details, model, path, _value_at(content, path))
            yield Complaint(message, hint, path)


def _written(loc: tuple[int | str, ...], content: Any, *, is_missing: bool) -> Path:
    """Cut a location to what the author wrote: a URL is one text for them, and a model with a field for us."""
    here = content
    for depth, part in enumerate(loc):
        if not _has(here, part):
            return loc[: depth + 1] if is_missing and isinstance(here, dict) else loc[:depth]
        here = here[part]
    return loc


def _value_at(content: Any, path: Path) -> Any:
    for part in path:
        if not _has(content, part):
            return None
        content = content[part]
    return content


def _has(content: Any, part: str | int) -> bool:
    if isinstance(content, dict):
        return part in content
    return isinstance(content, list) and isinstance(part, int) and part < len(content)


def _sentence(details: ErrorDetails, model: type[BaseModel], path: Path, found: Any) -> tuple[str, str]:
    kind = details["type"]
    limits: Mapping[str, Any] = details.get("ctx", {})
    match kind:
        case "missing":
            return "is required", _advice(model, path)
        case "extra_forbidden":
            return _unknown(model, path)
        case "value_error":
            return _with_value(str(limits["error"]), found), _advice(model, path)
        case "string_type":
            return f"wants text, found {kind_of_value(found)}", _quoting(found)
        case "too_short" | "string_too_short":
            return "must not be empty", _advice(model, path)
        case "literal_error":
            allowed = re.findall(r"'([^']*)'", limits["expected"])
            hint = did_you_mean(str(found), allowed, otherwise=f"Write one of {', '.join(allowed)}")
            return f"is {kind_of_value(found)}, not one of {', '.join(allowed)}", hint
        case _:
            wanted = _WANTED.get(kind, _fallback)(limits)
            return f"{wanted}, found {kind_of_value(found)}", _advice(model, path, found)


def _fallback(_limits: Mapping[str, Any]) -> str:
    return "wants something else here"


def _always(wanted: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda _limits: wanted


_WANTED: Final[dict[str, Callable[[Mapping[str, Any]], str]]] = {
    "greater_than": lambda limits: f"must be more than {limits['gt']}",
    "greater_than_equal": lambda limits: f"must be at least {limits['ge']}",
    "less_than": lambda limits: f"must be less than {limits['lt']}",
    "less_than_equal": lambda limits: f"must be at most {limits['le']}",
    **dict.fromkeys(("int_type", "int_parsing", "int_parsing_size", "int_from_float"), _always("wants a whole number")),
    **dict.fromkeys(("bool_type", "bool_parsing"), _always("wants true or false")),
    **dict.fromkeys(("list_type", "tuple_type"), _always("wants a list")),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type", "mapping_type"), _always("wants a mapping")),
}


def _with_value(message: str, found: Any) -> str:
    """Name the value a validator refused with `not a …`."""
    return f"{_shown(found)} is {message}" if message.startswith("not ") else message


def _shown(found: Any) -> str:
    match found:
        case str():
            return repr(found)
        case _:
            return kind_of_value(found)


def _quoting(found: Any) -> str:
    match found:
        case bool():
            return f'Quote it: "{"true" if found else "false"}"'
        case int() | float():
            return f'Quote it: "{found}"'
        case _:
            return "Write one text, in quotes if it is not plain"


_OLD_BOOLEANS: Final = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}


def _advice(model: type[BaseModel], path: Path, found: Any = None) -> str:
    """Return an example of the field, else what it is for."""
    name = next((part for part in reversed(path) if isinstance(part, str)), "")
    if isinstance(found, str) and found.lower() in _OLD_BOOLEANS:
        return f"In YAML 1.2 `{found}` is text: write {_OLD_BOOLEANS[found.lower()]}"
    if isinstance(found, str) and found and not is_text(found):
        return f"Leave the quotes out: {found}"
    field = field_at(model, path)
    inside = model_at(model, path)
    if inside is not None and (field is None or not field.examples):
        return f"Known there: {one_of(fields_of(inside))}"
    if field is not None and field.examples:
        return f"For example `{name}: {flow(field.examples[0])}`"
    if (key := EMBEDDED_CONFIGS.get(name)) is not None:
        return f"{name}: {key.description[0].lower()}{key.description[1:].rstrip('.')}"
    if field is not None and field.description:
        return field.description.rstrip(".")
    return "See `reconciler schema` for what is known here"


_BESIDE_OR_IN_A_BLOCK: Final = 2
"""How long the path of a field is that may have slipped out of its block, or into the other one."""


def _unknown(model: type[BaseModel], path: Path) -> tuple[str, str]:
    name = str(path[-1])
    parent = model_at(model, path[:-1])
    known = fields_of(parent) if parent is not None else {}
    message = "is not a field here"
    if name == DELETE:
        return message, "Only a document of an overlay can drop an address"
    if "configs" in known and name in EMBEDDED_CONFIGS:
        return message, "It is a config: write it below `configs`"
    meant = nearest(name, known)
    if meant is not None:
        return message, f"Did you mean {meant}?"
    for block in fields_of(model) if len(path) <= _BESIDE_OR_IN_A_BLOCK else ():
        inside = model_at(model, (block,))
        if inside is not None and inside is not parent and name in fields_of(inside):
            return message, f"It belongs below `{block}`"
    return message, f"Known here: {one_of(known)}"


def flow(value: Any) -> str:
    """Return a value as YAML on one line."""
    match value:
        case dict():
            return "{" + ", ".join(f"{key}: {flow(item)}" for key, item in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(flow(item) for item in value) + "]"
        case bool():
            return "true" if value else "false"
        case str() if not value or value[0] in "*&!%@`'\"{}[]#|>" or ": " in value:
            return f'"{value}"'
        case _:
            return str(value)
