"""Validate documents against the models of resources, and translate validation errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, get_args

from pydantic import BaseModel, ValidationError

from reconciler.manifests.overlays import DELETE, Draft
from reconciler.manifests.positions import FieldPath, ScalarText, is_text, kind_of_value, text_of, values_of
from reconciler.resources.base import Complaint
from reconciler.resources.cluster import Cluster
from reconciler.resources.cluster_properties import EMBEDDED_PROPERTIES, REFERENCES
from reconciler.resources.configs import EMBEDDED_CONFIGS
from reconciler.resources.inventory import MANIFEST_KINDS, Resource
from reconciler.runtime.text import did_you_mean, list_choices, nearest_spelling

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

    from reconciler.resources.workspace import Workspace


def fields_of(model: type[BaseModel]) -> Mapping[str, FieldInfo]:
    """Return the fields of a model by their name in manifests."""
    model.model_rebuild()  # models are built lazily, and have no aliases before
    return {field.alias or name: field for name, field in model.model_fields.items()}


def find_model(model: type[BaseModel], path: FieldPath) -> type[BaseModel] | None:
    """Return the model at a path, or `None` if there is none."""
    current: type[BaseModel] | None = model
    for part in path:
        if isinstance(part, int):
            continue
        field = fields_of(current).get(part) if current is not None else None
        current = _model_in(field.annotation) if field is not None else None
    return current


def find_field(model: type[BaseModel], path: FieldPath) -> FieldInfo | None:
    """Return the field at a path; for a list entry, the field of the list."""
    names = [part for part in path if isinstance(part, str)]
    parent = find_model(model, tuple(names[:-1])) if names else None
    return fields_of(parent).get(names[-1]) if parent is not None else None


_PROPERTIES: Final = ("spec", "properties")


def is_secret(model: type[BaseModel], path: FieldPath) -> bool:
    """Return whether the field or cluster property at a path is secret."""
    if model is Cluster and path[:-1] == _PROPERTIES:
        return path[-1] in REFERENCES
    field = find_field(model, path)
    return field is not None and _is_marked(field)


def _is_marked(field: FieldInfo) -> bool:
    # the mark of `SecretReference | None` is inside the union
    inner = [mark for part in get_args(field.annotation) for mark in getattr(part, "__metadata__", ())]
    for source in (field, *inner):
        extra = getattr(source, "json_schema_extra", None)
        if isinstance(extra, dict) and extra.get("secret") is True:
            return True
    return False


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in get_args(annotation):
        if model := _model_in(part):
            return model
    return None


def translate_validation_error(error: ValidationError, model: type[BaseModel], as_written: Any) -> Iterator[Complaint]:
    """Convert pydantic's errors to complaints with paths of the document."""
    content = values_of(as_written)
    for details in error.errors(include_url=False):
        path = _cut_to_written(details["loc"], content, is_missing=details["type"] == "missing")
        if details["type"] == "refused":
            for complaint in details["ctx"]["complaints"]:
                at = (*path, *complaint.at)
                message = _append_value(complaint.message, _value_at(content, at))
                yield Complaint(message, complaint.hint or _advice(model, at), at)
        else:
            # pydantic reports values that validators may have changed, so the document's value is shown
            message, hint = _sentence(details, model, path, _value_at(as_written, path))
            yield Complaint(message, hint, path)


def _cut_to_written(loc: tuple[int | str, ...], content: Any, *, is_missing: bool) -> FieldPath:
    """Cut a location of pydantic to the path that the document has: a URL is a string there, but a model."""
    current = content
    for depth, part in enumerate(loc):
        if not _has(current, part):
            return loc[: depth + 1] if is_missing and isinstance(current, dict) else loc[:depth]
        current = current[part]
    return loc


def _value_at(content: Any, path: FieldPath) -> Any:
    for part in path:
        if not _has(content, part):
            return None
        content = content[part]
    return content


def _has(content: Any, part: str | int) -> bool:
    if isinstance(content, dict):
        return part in content
    return isinstance(content, list) and isinstance(part, int) and part < len(content)


def _sentence(details: ErrorDetails, model: type[BaseModel], path: FieldPath, as_written: Any) -> tuple[str, str]:
    kind = details["type"]
    match = values_of(as_written)
    limits: Mapping[str, Any] = details.get("ctx", {})
    match kind:
        case "missing":
            return "is required", _advice(model, path)
        case "extra_forbidden":
            return _unknown(model, path)
        case "value_error":
            return _append_value(str(limits["error"]), match), _advice(model, path)
        case "string_type":
            return f"wants text, found {kind_of_value(match)}", _quoting(as_written)
        case "too_short" | "string_too_short":
            return "must not be empty", _advice(model, path)
        case "literal_error":
            allowed = re.findall(r"'([^']*)'", limits["expected"])
            hint = did_you_mean(nearest_spelling(str(match), allowed), otherwise=f"Write one of {', '.join(allowed)}")
            return f"is {kind_of_value(match)}, not one of {', '.join(allowed)}", hint
        case _:
            wanted = _WANTED.get(kind, _fallback)(limits)
            return f"{wanted}, found {kind_of_value(match)}", _advice(model, path, match)


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


def _append_value(message: str, value: Any) -> str:
    return f"{_show(value)} is {message}" if message.startswith("not ") else message


def _show(value: Any) -> str:
    match value:
        case str():
            return repr(value)
        case _:
            return kind_of_value(value)


def _quoting(value: Any) -> str:
    match value:
        case str() | int() | float():
            return f'Quote it: "{text_of(value)}"'
        case _:
            return "Write one text, in quotes if it is not plain"


_OLD_BOOLEANS: Final = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}


def _advice(model: type[BaseModel], path: FieldPath, field_info: Any = None) -> str:
    name = next((part for part in reversed(path) if isinstance(part, str)), "")
    if isinstance(field_info, str) and field_info.lower() in _OLD_BOOLEANS:
        return f"In YAML 1.2 `{field_info}` is text: write {_OLD_BOOLEANS[field_info.lower()]}"
    if isinstance(field_info, str) and field_info and not is_text(field_info):
        return f"Leave the quotes out: {field_info}"
    field = find_field(model, path)
    inside = find_model(model, path)
    if inside is not None and (field is None or not field.examples):
        return f"Known there: {list_choices(fields_of(inside))}"
    if field is not None and field.examples:
        return f"For example `{name}: {flow(field.examples[0])}`"
    if (key := EMBEDDED_CONFIGS.get(name)) is not None:
        return f"{name}: {key.description[0].lower()}{key.description[1:].rstrip('.')}"
    if field is not None and field.description:
        return field.description.rstrip(".")
    return "See `reconciler schema` for what is known here"


_BESIDE_OR_IN_A_BLOCK: Final = 2


def _unknown(model: type[BaseModel], path: FieldPath) -> tuple[str, str]:
    name = str(path[-1])
    parent = find_model(model, path[:-1])
    known = fields_of(parent) if parent is not None else {}
    message = "is not a field here"
    if name == DELETE:
        return message, "Only a document of an overlay can drop an address"
    if "configs" in known and name in EMBEDDED_CONFIGS:
        return message, "It is a config: write it below `configs`"
    if near := nearest_spelling(name, known):
        return message, did_you_mean(near)
    for block in fields_of(model) if len(path) <= _BESIDE_OR_IN_A_BLOCK else ():
        inside = find_model(model, (block,))
        if inside is not None and inside is not parent and name in fields_of(inside):
            return message, f"It belongs below `{block}`"
    return message, f"Known here: {list_choices(known)}"


def flow(value: Any) -> str:
    """Format a value on one line in YAML flow style."""
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


API_VERSION: Final = "reconciler/v1"

Writable: TypeAlias = "Workspace | Resource"

_SHAPE: Final = "Every document has apiVersion, kind, metadata and spec"


def read(draft: Draft) -> tuple[Writable | None, list[Complaint]]:
    """Return the resource of a draft, or `None` with all complaints."""
    complaints = [*draft.complaints, *(find_null_complaints(draft.content) if draft.has_null else ())]
    headers = list(find_header_complaints(draft.content))
    if headers:
        return None, _join(complaints, headers)
    model = MANIFEST_KINDS[draft.content["kind"]]
    complaints = _join(complaints, _misplaced_secrets(draft, model))
    if model is Cluster or draft.content["kind"] == "Workspace":
        _take_texts(draft, _PROPERTIES if model is Cluster else _SPARK_CONF)
    try:
        resource = model.model_validate(draft.content, by_alias=True, by_name=False)
    except ValidationError as error:
        errors = translate_validation_error(error, model, draft.as_written())
        return None, _join(complaints, (_add_variable_origin(complaint, draft) for complaint in errors))
    return (None if complaints else resource), complaints


_SPARK_CONF: Final = ("spec", "spark", "conf")


def _take_texts(draft: Draft, path: FieldPath) -> None:
    settings = _value_at(draft.as_written(), path)
    for name, value in settings.items() if isinstance(settings, dict) else ():
        key = EMBEDDED_PROPERTIES.get(name)
        if isinstance(value, ScalarText) and (path is _SPARK_CONF if key is None else key.type == "string"):
            _value_at(draft.content, path)[name] = str(value)


def _join(complaints: list[Complaint], more: Iterable[Complaint]) -> list[Complaint]:
    paths = {complaint.at for complaint in complaints}
    return [*complaints, *(complaint for complaint in more if complaint.at not in paths)]


def _misplaced_secrets(draft: Draft, model: type[Writable]) -> Iterator[Complaint]:
    for path in draft.secrets:
        if not is_secret(model, path):
            message = "only secrets are read from the environment or a file"
            yield Complaint(message, "Use a variable: ${var.name} and --var", path)


def _add_variable_origin(complaint: Complaint, draft: Draft) -> Complaint:
    if complaint.at in draft.variables:
        return complaint._replace(message=f"{complaint.message} ({draft.variables[complaint.at]})")
    return complaint


def find_header_complaints(content: Any) -> Iterator[Complaint]:
    """Yield complaints about `apiVersion` and `kind`, which all other checks need."""
    if type(content) is not dict:
        yield Complaint(f"a manifest is a mapping, found {kind_of_value(content)}", _SHAPE)
        return
    if content.get("apiVersion") != API_VERSION:
        yield _version_complaint(content)
    kind = content.get("kind")
    if kind is None:
        yield Complaint("is required", f"Write one of {', '.join(MANIFEST_KINDS)}", ("kind",))
    elif not isinstance(kind, str) or kind not in MANIFEST_KINDS:
        yield _kind_complaint(kind)


def _version_complaint(content: dict[str, Any]) -> Complaint:
    at = ("apiVersion",)
    if content.get("apiVersion") is None:
        return Complaint("is required", f"Add `apiVersion: {API_VERSION}`. {_SHAPE}", at)
    version = kind_of_value(content["apiVersion"])
    return Complaint(f"is {version}, and this version reads {API_VERSION}", f"Write `apiVersion: {API_VERSION}`", at)


def _kind_complaint(kind: Any) -> Complaint:
    if kind == "MirrorTopic":
        hint = "Write an entry in the mirrorTopics of its MirrorLink"
        return Complaint("MirrorTopic is no manifest kind: mirrors are entries of their link", hint, ("kind",))
    known = MANIFEST_KINDS if isinstance(kind, str) else ()
    hint = did_you_mean(nearest_spelling(str(kind), known), otherwise=f"Write one of {', '.join(MANIFEST_KINDS)}")
    return Complaint(f"is {kind_of_value(kind)}, which is not a kind", hint, ("kind",))


def find_null_complaints(content: Any, path: FieldPath = ()) -> Iterator[Complaint]:
    """Yield complaints about keys without a value and empty list entries."""
    match content:
        case None:
            yield Complaint("has no value", "Give it one, or leave it out", path)
        case dict():
            for key, value in content.items():
                yield from find_null_complaints(value, (*path, key))
        case list():
            for index, value in enumerate(content):
                yield from find_null_complaints(value, (*path, index))
        case _:
            pass
