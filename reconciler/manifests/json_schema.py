"""Build the JSON Schemas of manifests, for editors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from reconciler.resources.inventory import MANIFEST_KINDS
from reconciler.version import __site__, __version__

if TYPE_CHECKING:
    from pydantic_core import core_schema


DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_VARIABLE: Final = {
    "type": "string",
    "pattern": r"\$\{var\.[A-Za-z_][A-Za-z0-9_-]*\}",
    "description": "A variable; alone it keeps the type of its value.",
}
_USE_VARIABLE: Final = {"$ref": "#/$defs/Variable"}
_ABOUT: Final = ("description", "examples", "default", "secret")
_FIXED: Final = ("apiVersion", "kind")


def build_schema_identity(name: str) -> dict[str, str]:
    """Return `$schema` and `$id` of a schema. The id is a URL of this version."""
    return {"$schema": DIALECT, "$id": f"{__site__}/{__version__}/schemas/{name}.json"}


def build_schemas() -> Mapping[str, dict[str, Any]]:
    """Map lower-case kinds to JSON Schemas, and `manifest` to the schema for any kind."""
    definitions = _build_definitions()
    by_kind = {kind.lower(): _build_kind_schema(kind, definitions) for kind in MANIFEST_KINDS}
    return {"manifest": _build_any_schema(definitions), **dict(sorted(by_kind.items()))}


def _build_kind_schema(kind: str, definitions: Mapping[str, Any]) -> dict[str, Any]:
    used = {name: definitions[name] for name in sorted(_collect_references(definitions[kind], definitions, set()))}
    return {**build_schema_identity(kind.lower()), "title": kind, **definitions[kind], "$defs": used}


def _build_any_schema(definitions: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **build_schema_identity("manifest"),
        "title": "Manifest",
        "description": "Any document of a workspace; `kind` names its type.",
        "type": "object",
        "required": ["apiVersion", "kind"],
        "properties": {
            "apiVersion": {"const": "reconciler/v1", "description": "Form of this document."},
            "kind": {"enum": list(MANIFEST_KINDS), "description": "What this document declares."},
        },
        "allOf": [
            {"if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]}, "then": {"$ref": f"#/$defs/{kind}"}}
            for kind in MANIFEST_KINDS
        ],
        "$defs": dict(sorted(definitions.items())),
    }


def build_model_definitions() -> Mapping[str, Any]:
    """Return the schemas of manifest models by name, without support for variables."""
    models = [(model, "validation") for model in MANIFEST_KINDS.values()]
    _, schema = models_json_schema(models, schema_generator=_Generator)  # type: ignore[arg-type] # a tuple's literal
    definitions: Mapping[str, Any] = schema["$defs"]
    return definitions


def _build_definitions() -> dict[str, Any]:
    definitions = {name: _allow_variables(definition) for name, definition in build_model_definitions().items()}
    for kind in MANIFEST_KINDS:
        definitions[kind]["required"] = [*_FIXED, *definitions[kind]["required"]]
    return {**definitions, "Variable": dict(_VARIABLE)}


class _Generator(GenerateJsonSchema):
    """Excludes null, because manifests reject keys without a value."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> dict[str, Any]:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> dict[str, Any]:
        result = super().default_schema(schema)
        if result.get("default", ...) is None:
            del result["default"]
        return result


def _allow_variables(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_allow_variables(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    done: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties":
            done[key] = {name: _allow_property_variables(name, field) for name, field in value.items()}
        elif key in {"items", "additionalProperties", "anyOf", "allOf", "oneOf"}:
            done[key] = _allow_variables(value)
        elif key != "title":
            done[key] = value
    return done


def _allow_property_variables(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    written: dict[str, Any] = _allow_variables(schema)
    is_free = written.get("type") == "string" and "pattern" not in written and "enum" not in written
    if name in _FIXED or is_free or "$ref" in written:
        return written
    about: dict[str, Any] = {key: written.pop(key) for key in _ABOUT if key in written}
    choices = written["anyOf"] if set(written) == {"anyOf"} else [written]
    return {**about, "anyOf": [*choices, dict(_USE_VARIABLE)]}


def _collect_references(schema: Any, definitions: Mapping[str, Any], names: set[str]) -> set[str]:
    if isinstance(schema, dict):
        name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
        if name and name not in names:
            names.add(name)
            _collect_references(definitions[name], definitions, names)
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        _collect_references(part, definitions, names)
    return names
