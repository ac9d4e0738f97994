"""JSON Schemas of all JSON outputs."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from inspect import isclass
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import orjson
from pydantic import BaseModel, ConfigDict, Field, RootModel, create_model

from reconciler.cli.json.base import FormKey, JsonForm, build_default_form, is_record, list_keys
from reconciler.cli.json.checks_json import (
    CHECK,
    COMMENT,
    DRIFT,
    ERROR,
    VALIDATE,
)
from reconciler.cli.json.clusters_json import (
    GROUP,
    GROUP_DELETION,
    GROUP_RESET,
    GROUPS,
    NAMESPACES,
    STORAGE,
    STORAGES,
    TOPIC,
    TOPIC_PROFILE,
    TOPICS,
)
from reconciler.cli.json.exports_json import EXPORT, IMPORT
from reconciler.cli.json.inventory_json import (
    EXPLAIN,
    GRAPH,
    SHOW,
)
from reconciler.cli.json.mirrors_json import (
    LINK_DESCRIPTION,
    LINKS,
    MIRROR_DESCRIPTION,
    MIRROR_ERRORS,
    MIRRORS,
)
from reconciler.cli.json.mounts_json import (
    MIGRATION,
    MOUNT_RELEASE,
    MOUNT_STATUS,
    MOUNTS,
)
from reconciler.cli.json.runs_json import EVENTS, METRICS, PIPELINE
from reconciler.cli.json.sarif import SarifDocument
from reconciler.cli.json.states_json import (
    STATE_DIFF,
    STATE_HISTORY,
    STATE_LIST,
    STATE_MOVES,
    STATE_REMOVAL,
    STATE_REPAIR,
    STATE_SHOW,
    STATE_UNLOCK,
)
from reconciler.cli.json.verify_json import LINK_VERIFICATION, VERIFICATION
from reconciler.errors import ReconcilerError
from reconciler.manifests.json_schema import build_schema_identity, build_schemas
from reconciler.planning.saved_plan import PLAN_RECORDS, PlanDocument

OUTPUTS: Final[Mapping[str, JsonForm | tuple[JsonForm, ...] | type[BaseModel]]] = {
    "check": CHECK,
    "comment": COMMENT,
    "drift": DRIFT,
    "error": ERROR,
    "event": EVENTS,
    "explain": EXPLAIN,
    "export": EXPORT,
    "graph": GRAPH,
    "group-deletion": GROUP_DELETION,
    "group-description": GROUP,
    "group-reset": GROUP_RESET,
    "groups": GROUPS,
    "import": IMPORT,
    "metrics": METRICS,
    "migration": MIGRATION,
    "link-description": LINK_DESCRIPTION,
    "link-verification": LINK_VERIFICATION,
    "links": LINKS,
    "mirror-description": MIRROR_DESCRIPTION,
    "mirror-errors": MIRROR_ERRORS,
    "mirrors": MIRRORS,
    "mount-release": MOUNT_RELEASE,
    "mount-status": MOUNT_STATUS,
    "mounts": MOUNTS,
    "namespaces": NAMESPACES,
    "pipeline": PIPELINE,
    "plan": PlanDocument,
    "sarif": SarifDocument,
    "show": SHOW,
    "state-diff": STATE_DIFF,
    "state-history": STATE_HISTORY,
    "state-list": STATE_LIST,
    "state-moves": STATE_MOVES,
    "state-removal": STATE_REMOVAL,
    "state-repair": STATE_REPAIR,
    "state-show": STATE_SHOW,
    "state-unlock": STATE_UNLOCK,
    "storage": STORAGE,
    "storages": STORAGES,
    "topic-description": TOPIC,
    "topic-profile": TOPIC_PROFILE,
    "topics": TOPICS,
    "validate": VALIDATE,
    "verify": VERIFICATION,
}


@cache
def build_schema_files() -> Mapping[str, bytes]:
    """Build the files of `schemas/`, by name."""
    outputs = {name: _build_schema(name, model) for name, model in OUTPUTS.items()}
    return {
        name: orjson.dumps(schema, option=orjson.OPT_INDENT_2) + b"\n"
        for name, schema in sorted({**build_schemas(), **outputs}.items())
    }


def _build_schema(name: str, output: JsonForm | tuple[JsonForm, ...] | type[BaseModel]) -> dict[str, Any]:
    """Build a schema; all keys are required, because absent values are null."""
    model = (
        _join_events(output)
        if isinstance(output, tuple)
        else build_model(output)
        if isinstance(output, JsonForm)
        else output
    )
    schema = model.model_json_schema(mode="serialization")
    for record in PLAN_RECORDS if model is PlanDocument else ():
        texts = _read_attribute_texts(record.__module__)
        for key, value in schema["$defs"][record.__name__]["properties"].items():
            if text := texts.get(f"{record.__name__}.{key}"):
                value["description"] = text
    return {**build_schema_identity(name), **schema}


class _PrintedModel(BaseModel):
    model_config = ConfigDict(
        extra="forbid", arbitrary_types_allowed=True, json_schema_serialization_defaults_required=True
    )


class _Attribute(NamedTuple):
    hint: Any
    about: str | None = None
    default: Any = ...


def _join_events(events: tuple[JsonForm, ...]) -> type[BaseModel]:
    event: Any = Annotated[Union[tuple(map(build_model, events))], Field(discriminator="event")]  # noqa: UP007 - the types are known at run time only
    about = "One line of `apply --format json`, or of a command that changes a cluster."
    return create_model("Event", __base__=RootModel[event], __doc__=about)


@cache
def build_model(form: JsonForm) -> type[BaseModel]:
    """Build the pydantic model of a form's schema."""
    keys: dict[str, Any] = {name: (Literal[text], text) for name, text in form.constants.items()}
    for key in list_keys(form):
        hint, about, default = _resolve_attribute(form.record, key)
        keys[key.name] = (_to_printed_type(hint, key.form), Field(default if key.is_late else ..., description=about))
    record = form.record
    return create_model(
        record.__name__,
        __base__=_PrintedModel,
        __module__=record.__module__,
        __doc__=form.about or record.__doc__,
        **keys,
    )


def _resolve_attribute(record: type, key: FormKey) -> _Attribute:
    if key.compute is not None:
        return _read_function_attribute(key.compute)
    is_optional = False
    attribute = _Attribute(record, None, None)
    for name in key.path:
        steps = get_args(record) if get_origin(record) in {Union, UnionType} else (record,)
        is_optional |= NoneType in steps
        (owner,) = (step for step in steps if step is not NoneType)
        attribute = _read_attribute(owner, name)
        record = attribute.hint
    return attribute._replace(hint=attribute.hint | None) if is_optional else attribute


def _read_attribute(owner: type, name: str) -> _Attribute:
    descriptor = inspect.getattr_static(owner, name, None)
    if isinstance(descriptor, property):
        return _read_function_attribute(descriptor.fget)
    if issubclass(owner, BaseModel):
        field = owner.model_fields[name]
        return _Attribute(field.annotation, field.description, None)
    if is_dataclass(owner):
        defaults = {item.name: item.default for item in fields(owner) if item.default is not MISSING}
    else:
        defaults = getattr(owner, "_field_defaults", {})
    texts = (_read_attribute_texts(base.__module__).get(f"{base.__qualname__}.{name}") for base in owner.__mro__)
    hint = _resolve_hints(owner)[name]
    return _Attribute(hint, next(filter(None, texts), None), defaults.get(name, _choose_default(hint)))


def _read_function_attribute(function: Any) -> _Attribute:
    hint = _resolve_hints(function)["return"]
    return _Attribute(hint, _join_lines(function.__doc__), _choose_default(hint))


def _choose_default(hint: Any) -> tuple[()] | None:
    return () if get_origin(hint) is tuple else None


def _to_printed_type(hint: Any, form: JsonForm | None) -> Any:
    if form is not None and hint is form.record:
        return build_model(form)
    if isclass(hint) and get_origin(hint) is None:
        if is_record(hint):
            record: Any = hint
            return build_model(build_default_form(record))
        if issubclass(hint, (ReconcilerError, Path)):
            return str
        return dict[str, Any] if hasattr(hint, "to_json") else hint
    origin, args = get_origin(hint), get_args(hint)
    if origin in {None, Literal}:
        return hint
    inside = tuple(_to_printed_type(arg, form) for arg in args)
    if origin in {Union, UnionType}:
        return Union[inside]  # noqa: UP007 - the types are known at run time only
    return inside[0] if origin is Annotated else origin[inside]


def _resolve_hints(owned: Any) -> dict[str, Any]:
    modules = [owner.__module__ for owner in getattr(owned, "__mro__", (owned,))]
    names = {name: value for module in modules for name, value in _load_type_imports(module).items()}
    return get_type_hints(owned, localns=names, include_extras=True)


@cache
def _parse_source(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(sys.modules[module])) if module != "builtins" else ast.parse("")


@cache
def _load_type_imports(module: str) -> dict[str, Any]:
    blocks = [line.body for line in _parse_source(module).body if isinstance(line, ast.If)]
    names: dict[str, Any] = {}
    for block in blocks:
        for line in block:
            if isinstance(line, (ast.Import, ast.ImportFrom)):
                try:
                    exec(compile(ast.Module([line], []), module, "exec"), names)  # noqa: S102 - our own imports
                except ImportError:  # Documents do not use types of optional libraries such as pyarrow.
                    names |= {alias.asname or alias.name: Any for alias in line.names}
    return names


@cache
def _read_attribute_texts(module: str) -> dict[str, str]:
    return {
        f"{record.name}.{line.target.id}": _join_lines(text.value.value) or ""
        for record in _parse_source(module).body
        if isinstance(record, ast.ClassDef)
        for line, text in pairwise(record.body)
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }


def _join_lines(text: str | None) -> str | None:
    return None if text is None else " ".join(text.split())
