"""Validate documents against resource models, and translate errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, get_args

from pydantic import BaseModel, ValidationError

from reconciler.manifests.overlays import DELETE, Draft
from reconciler.manifests.positions import (
    FieldPath,
    ScalarText,
    describe_value,
    format_scalar,
    is_text,
    replace_scalar_texts,
)
from reconciler.resources.base import FieldProblem
from reconciler.resources.cluster import Cluster
from reconciler.resources.cluster_properties import EMBEDDED_PROPERTIES, REFERENCES
from reconciler.resources.configs import EMBEDDED_CONFIGS
from reconciler.resources.inventory import MANIFEST_KINDS, Resource
from reconciler.runtime.text import find_similar_spelling, format_suggestion, list_choices

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

    from reconciler.resources.workspace import Workspace


def list_model_fields(model: type[BaseModel]) -> Mapping[str, FieldInfo]:
    """Return a model's fields by their names in manifests."""
    model.model_rebuild()  # Fields of a model that is not built have no aliases.
    return {field.alias or name: field for name, field in model.model_fields.items()}


def find_model(model: type[BaseModel], path: FieldPath) -> type[BaseModel] | None:
    """Return the model at a path, or `None`."""
    current: type[BaseModel] | None = model
    for part in path:
        if isinstance(part, int):
            continue
        field = list_model_fields(current).get(part) if current is not None else None
        current = _find_nested_model(field.annotation) if field is not None else None
    return current


def find_field(model: type[BaseModel], path: FieldPath) -> FieldInfo | None:
    """Return the field at a path, or `None`. A list entry has its list's field."""
    names = [part for part in path if isinstance(part, str)]
    parent = find_model(model, tuple(names[:-1])) if names else None
    return list_model_fields(parent).get(names[-1]) if parent is not None else None


_PROPERTIES: Final = ("spec", "properties")


def is_secret(model: type[BaseModel], path: FieldPath) -> bool:
    """Return whether a field or cluster property is secret."""
    if model is Cluster and path[:-1] == _PROPERTIES:
        return path[-1] in REFERENCES
    field = find_field(model, path)
    return field is not None and _is_marked_secret(field)


def _is_marked_secret(field: FieldInfo) -> bool:
    # The mark of an optional secret is on a member of the union.
    inner = [mark for part in get_args(field.annotation) for mark in getattr(part, "__metadata__", ())]
    for source in (field, *inner):
        extra = getattr(source, "json_schema_extra", None)
        if isinstance(extra, dict) and extra.get("secret") is True:
            return True
    return False


def _find_nested_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in get_args(annotation):
        if model := _find_nested_model(part):
            return model
    return None


def translate_validation_error(
    error: ValidationError, model: type[BaseModel], as_written: Any
) -> Iterator[FieldProblem]:
    """Convert pydantic errors to complaints with document paths."""
    content = replace_scalar_texts(as_written)
    for details in error.errors(include_url=False):
        path = _shorten_to_written(details["loc"], content, is_missing=details["type"] == "missing")
        if details["type"] == "refused":
            for complaint in details["ctx"]["complaints"]:
                at = (*path, *complaint.at)
                message = _append_value(complaint.message, _read_value(content, at))
                yield FieldProblem(message, complaint.hint or _build_hint(model, at), at)
        else:
            # Validators may have changed pydantic's copy of the value.
            message, hint = _build_message(details, model, path, _read_value(as_written, path))
            yield FieldProblem(message, hint, path)


def _shorten_to_written(loc: tuple[int | str, ...], content: Any, *, is_missing: bool) -> FieldPath:
    current = content
    for depth, part in enumerate(loc):
        if not _has_part(current, part):
            return loc[: depth + 1] if is_missing and isinstance(current, dict) else loc[:depth]
        current = current[part]
    return loc


def _read_value(content: Any, path: FieldPath) -> Any:
    for part in path:
        if not _has_part(content, part):
            return None
        content = content[part]
    return content


def _has_part(content: Any, part: str | int) -> bool:
    if isinstance(content, dict):
        return part in content
    return isinstance(content, list) and isinstance(part, int) and part < len(content)


def _build_message(details: ErrorDetails, model: type[BaseModel], path: FieldPath, as_written: Any) -> tuple[str, str]:
    kind = details["type"]
    match = replace_scalar_texts(as_written)
    limits: Mapping[str, Any] = details.get("ctx", {})
    match kind:
        case "missing":
            return "is required", _build_hint(model, path)
        case "extra_forbidden":
            return _describe_unknown_field(model, path)
        case "value_error":
            return _append_value(str(limits["error"]), match), _build_hint(model, path)
        case "string_type":
            return f"wants text, found {describe_value(match)}", _build_quoting_hint(as_written)
        case "too_short" | "string_too_short":
            return "must not be empty", _build_hint(model, path)
        case "literal_error":
            allowed = re.findall(r"'([^']*)'", limits["expected"])
            hint = format_suggestion(
                find_similar_spelling(str(match), allowed), otherwise=f"Write one of {', '.join(allowed)}"
            )
            return f"is {describe_value(match)}, not one of {', '.join(allowed)}", hint
        case _:
            wanted = _WANTED.get(kind, _describe_unknown)(limits)
            return f"{wanted}, found {describe_value(match)}", _build_hint(model, path, match)


def _describe_unknown(_limits: Mapping[str, Any]) -> str:
    return "wants something else here"


def _describe_always(wanted: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda _limits: wanted


_WANTED: Final[dict[str, Callable[[Mapping[str, Any]], str]]] = {
    "greater_than": lambda limits: f"must be more than {limits['gt']}",
    "greater_than_equal": lambda limits: f"must be at least {limits['ge']}",
    "less_than": lambda limits: f"must be less than {limits['lt']}",
    "less_than_equal": lambda limits: f"must be at most {limits['le']}",
    **dict.fromkeys(
        ("int_type", "int_parsing", "int_parsing_size", "int_from_float"), _describe_always("wants a whole number")
    ),
    **dict.fromkeys(("bool_type", "bool_parsing"), _describe_always("wants true or false")),
    **dict.fromkeys(("list_type", "tuple_type"), _describe_always("wants a list")),
    **dict.fromkeys(
        ("dict_type", "model_type", "model_attributes_type", "mapping_type"), _describe_always("wants a mapping")
    ),
}


def _append_value(message: str, value: Any) -> str:
    return f"{_format_value(value)} is {message}" if message.startswith("not ") else message


def _format_value(value: Any) -> str:
    match value:
        case str():
            return repr(value)
        case _:
            return describe_value(value)


def _build_quoting_hint(value: Any) -> str:
    match value:
        case str() | int() | float():
            return f'Quote it: "{format_scalar(value)}"'
        case _:
            return "Write one text, in quotes if it is not plain"


_OLD_BOOLEANS: Final = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}


def _build_hint(model: type[BaseModel], path: FieldPath, field_info: Any = None) -> str:
    name = next((part for part in reversed(path) if isinstance(part, str)), "")
    if isinstance(field_info, str) and field_info.lower() in _OLD_BOOLEANS:
        return f"In YAML 1.2 `{field_info}` is text: write {_OLD_BOOLEANS[field_info.lower()]}"
    if isinstance(field_info, str) and field_info and not is_text(field_info):
        return f"Leave the quotes out: {field_info}"
    field = find_field(model, path)
    inside = find_model(model, path)
    if inside is not None and (field is None or not field.examples):
        return f"Known there: {list_choices(list_model_fields(inside))}"
    if field is not None and field.examples:
        return f"For example `{name}: {format_example(field.examples[0])}`"
    if (key := EMBEDDED_CONFIGS.get(name)) is not None:
        return f"{name}: {key.description[0].lower()}{key.description[1:].rstrip('.')}"
    if field is not None and field.description:
        return field.description.rstrip(".")
    return "See `reconciler schema` for what is known here"


_BESIDE_OR_IN_A_BLOCK: Final = 2


def _describe_unknown_field(model: type[BaseModel], path: FieldPath) -> tuple[str, str]:
    name = str(path[-1])
    parent = find_model(model, path[:-1])
    known = list_model_fields(parent) if parent is not None else {}
    message = "is not a field here"
    if name == DELETE:
        return message, "Only a document of an overlay can drop an address"
    if "configs" in known and name in EMBEDDED_CONFIGS:
        return message, "It is a config: write it below `configs`"
    if near := find_similar_spelling(name, known):
        return message, format_suggestion(near)
    for block in list_model_fields(model) if len(path) <= _BESIDE_OR_IN_A_BLOCK else ():
        inside = find_model(model, (block,))
        if inside is not None and inside is not parent and name in list_model_fields(inside):
            return message, f"It belongs below `{block}`"
    return message, f"Known here: {list_choices(known)}"


def format_example(value: Any) -> str:
    """Format a value on one line in YAML flow style."""
    match value:
        case dict():
            return "{" + ", ".join(f"{key}: {format_example(item)}" for key, item in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(format_example(item) for item in value) + "]"
        case bool():
            return "true" if value else "false"
        case str() if not value or value[0] in "*&!%@`'\"{}[]#|>" or ": " in value:
            return f'"{value}"'
        case _:
            return str(value)


API_VERSION: Final = "reconciler/v1"

Writable: TypeAlias = "Workspace | Resource"

_SHAPE: Final = "Every document has apiVersion, kind, metadata and spec"


def validate_draft(
    draft: Draft, specs: dict[str, BaseModel] | None = None
) -> tuple[Writable | None, list[FieldProblem]]:
    """Return a draft's resource, or `None`, with all complaints.

    `specs` collects valid specs by kind and text: resources with equal specs share one, which saves time and memory.
    """
    specs = {} if specs is None else specs
    complaints = [*draft.complaints, *(find_null_complaints(draft.content) if draft.has_null else ())]
    headers = list(find_header_complaints(draft.content))
    if headers:
        return None, _add_new_complaints(complaints, headers)
    content = draft.content
    model = MANIFEST_KINDS[content["kind"]]
    complaints = _add_new_complaints(complaints, _find_misplaced_secrets(draft, model))
    if model is Cluster or content["kind"] == "Workspace":
        _keep_spelling(draft, _PROPERTIES if model is Cluster else _SPARK_CONF)
    text = f"{content['kind']} {content.get('spec')}"
    try:
        resource = model.model_validate(
            {**content, "spec": specs[text]} if text in specs else content, by_alias=True, by_name=False
        )
    except ValidationError as error:
        errors = translate_validation_error(error, model, draft.as_written())
        return None, _add_new_complaints(complaints, (_add_variable_origin(complaint, draft) for complaint in errors))
    specs[text] = resource.spec
    return (None if complaints else resource), complaints


_SPARK_CONF: Final = ("spec", "spark", "conf")


def _keep_spelling(draft: Draft, path: FieldPath) -> None:
    settings = _read_value(draft.as_written(), path)
    for name, value in settings.items() if isinstance(settings, dict) else ():
        key = EMBEDDED_PROPERTIES.get(name)
        if isinstance(value, ScalarText) and (path is _SPARK_CONF if key is None else key.type == "string"):
            _read_value(draft.content, path)[name] = str(value)


def _add_new_complaints(complaints: list[FieldProblem], more: Iterable[FieldProblem]) -> list[FieldProblem]:
    paths = {complaint.at for complaint in complaints}
    return [*complaints, *(complaint for complaint in more if complaint.at not in paths)]


def _find_misplaced_secrets(draft: Draft, model: type[Writable]) -> Iterator[FieldProblem]:
    for path in draft.secrets:
        if not is_secret(model, path):
            message = "only secrets are read from the environment or a file"
            yield FieldProblem(message, "Use a variable: ${var.name} and --var", path)


def _add_variable_origin(complaint: FieldProblem, draft: Draft) -> FieldProblem:
    if complaint.at in draft.variables:
        return complaint._replace(message=f"{complaint.message} ({draft.variables[complaint.at]})")
    return complaint


def find_header_complaints(content: Any) -> Iterator[FieldProblem]:
    """Yield complaints about `apiVersion` and `kind`."""
    if type(content) is not dict:
        yield FieldProblem(f"a manifest is a mapping, found {describe_value(content)}", _SHAPE)
        return
    if content.get("apiVersion") != API_VERSION:
        yield _build_version_complaint(content)
    kind = content.get("kind")
    if kind is None:
        yield FieldProblem("is required", f"Write one of {', '.join(MANIFEST_KINDS)}", ("kind",))
    elif not isinstance(kind, str) or kind not in MANIFEST_KINDS:
        yield _build_kind_complaint(kind)


def _build_version_complaint(content: dict[str, Any]) -> FieldProblem:
    at = ("apiVersion",)
    if content.get("apiVersion") is None:
        return FieldProblem("is required", f"Add `apiVersion: {API_VERSION}`. {_SHAPE}", at)
    version = describe_value(content["apiVersion"])
    return FieldProblem(f"is {version}, and this version reads {API_VERSION}", f"Write `apiVersion: {API_VERSION}`", at)


def _build_kind_complaint(kind: Any) -> FieldProblem:
    if kind == "MirrorTopic":
        hint = "Write an entry in the mirrorTopics of its MirrorLink"
        return FieldProblem("MirrorTopic is no manifest kind: mirrors are entries of their link", hint, ("kind",))
    known = MANIFEST_KINDS if isinstance(kind, str) else ()
    hint = format_suggestion(
        find_similar_spelling(str(kind), known), otherwise=f"Write one of {', '.join(MANIFEST_KINDS)}"
    )
    return FieldProblem(f"is {describe_value(kind)}, which is not a kind", hint, ("kind",))


def find_null_complaints(content: Any, path: FieldPath = ()) -> Iterator[FieldProblem]:
    """Yield complaints about keys without a value and empty list entries."""
    match content:
        case None:
            yield FieldProblem("has no value", "Give it one, or leave it out", path)
        case dict():
            for key, value in content.items():
                yield from find_null_complaints(value, (*path, key))
        case list():
            for index, value in enumerate(content):
                yield from find_null_complaints(value, (*path, index))
        case _:
            pass
