"""What a model says about a field that a path leads to: for hints, suggestions and secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic.fields import FieldInfo

    from reconciler.manifests.positions import Path


def fields_of(model: type[BaseModel]) -> Mapping[str, FieldInfo]:
    """Return the fields of a model by the names people write."""
    model.model_rebuild()  # models are built when first used, and only then know their aliases
    return {field.alias or name: field for name, field in model.model_fields.items()}


def model_at(model: type[BaseModel], path: Path) -> type[BaseModel] | None:
    """Return the model of what stands at a path; `None` where no model describes it."""
    here: type[BaseModel] | None = model
    for part in path:
        if isinstance(part, int):
            continue
        field = fields_of(here).get(part) if here is not None else None
        here = _model_in(field.annotation) if field is not None else None
    return here


def field_at(model: type[BaseModel], path: Path) -> FieldInfo | None:
    """Return the field a path ends in; of an entry of a list, the list's field."""
    names = [part for part in path if isinstance(part, str)]
    parent = model_at(model, tuple(names[:-1])) if names else None
    return fields_of(parent).get(names[-1]) if parent is not None else None


def is_secret(model: type[BaseModel], path: Path) -> bool:
    """Tell whether the field at a path is marked secret."""
    field = field_at(model, path)
    return field is not None and _is_marked(field)


def _is_marked(field: FieldInfo) -> bool:
    # `SecretReference | None` keeps its mark inside the union, a bare one on the field itself.
    inner = [found for part in get_args(field.annotation) for found in getattr(part, "__metadata__", ())]
    for source in (field, *inner):
        extra = getattr(source, "json_schema_extra", None)
        if isinstance(extra, dict) and extra.get("secret") is True:
            return True
    return False


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in get_args(annotation):
        if found := _model_in(part):
            return found
    return None
