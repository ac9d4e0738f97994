"""Write and read saved plans as JSON."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from functools import cache
from typing import Any, Final, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from reconciler.errors import UserError
from reconciler.planning.actions import ACTIONS, Action, Block, Change, Estimate, RoleCost
from reconciler.planning.plan import (
    AppliedCommit,
    Base,
    DriftFinding,
    Plan,
    PlanFinding,
    SavedPlan,
    UnfinishedTransition,
)
from reconciler.planning.plan_rows import (
    FORMAT,
    PRINTED_FIELDS,
    build_plan_document,
    compute_digest,
    encode_canonical,
    find_kind_name,
)
from reconciler.resources.address import Address
from reconciler.resources.base import KEPT, Model
from reconciler.resources.owners import ResourceOwner
from reconciler.runtime.text import explain_invalid, explain_invalid_json, to_json_types
from reconciler.version import __version__

_CONFIG: Final = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class GitDocument(BaseModel):
    """The git revision of the files."""

    model_config = _CONFIG

    commit: str
    applied: AppliedCommit | None = Field(None, description="null: not known, or the plan leads elsewhere.")


class SummaryDocument(BaseModel):
    """Number of actions by kind, including blocked actions."""

    model_config = _CONFIG

    create: int
    update: int
    delete: int
    transition: int
    job: int
    adopt: int
    forget: int
    drift: int
    blocked: int


class ActionDocument(BaseModel):
    """An action. The digest covers `id, after, verb, parameters, risk, precondition, grant` and a mirror's denials."""

    model_config = _CONFIG

    id: str
    address: str
    cluster: str | None
    action: Literal["create", "update", "delete", "adopt", "forget", "transition", "job"]
    verb: str
    risk: Literal["none", "disruptive", "irreversible", "data-loss"]
    reasons: tuple[str, ...]
    changes: tuple[Change, ...]
    after: dict[str, Any] | None = Field(description="The resource it leads to; null where it leads to none.")
    parameters: dict[str, Any]
    source: str | None = Field(description="Where it is declared, as file:line.")
    depends_on: tuple[str, ...]
    wave: int
    precondition: str
    estimate: Estimate
    blocked: Block | None
    grant: str | None = Field(description="What lifted a block.")
    owner: ResourceOwner | None = Field(
        None, description="The other workspace that owns the resource; null: it is free, or ours."
    )


class PlanDocument(BaseModel):
    """A plan. Only saved plans have `options`, `stored_actions` and `seal`."""

    model_config = _CONFIG

    format: Literal["reconciler.plan/1"]
    workspace: str
    environment: str | None
    tool: str
    git: GitDocument | None
    base: Base | None
    back_to: int | None = Field(None, description="Serial of the state it goes back to; null: it leads to the files.")
    digest: str
    summary: SummaryDocument
    actions: tuple[ActionDocument, ...]
    drift: tuple[DriftFinding, ...]
    waiting: tuple[UnfinishedTransition, ...]
    unmanaged: tuple[Address, ...]
    errors: tuple[PlanFinding, ...]
    warnings: tuple[PlanFinding, ...]
    options: dict[str, Any] | None = None
    stored_actions: tuple[dict[str, Any], ...] | None = Field(
        None, description="The actions whole, as `reconciler apply` carries them out."
    )
    seal: str | None = None

    @classmethod
    def model_json_schema(cls, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the JSON schema without fields that are not printed."""
        schema = super().model_json_schema(*args, **kwargs)
        parts = {record: schema["$defs"][record.__name__] for record in PLAN_RECORDS}
        for record, names in PRINTED_FIELDS.items():
            parts[record]["properties"] = {name: parts[record]["properties"][name] for name in names}
        for record, names in _ALWAYS_PRINTED.items():
            parts[record]["required"] = [*parts[record].get("required", ()), *names]
        for part in schema["$defs"].values():
            part["additionalProperties"] = False
            required = set(part.get("required", ())) & part["properties"].keys()
            for field in required:
                part["properties"][field].pop("default", None)
            if required:
                part["required"] = [field for field in part["properties"] if field in required]
        for name, values in {"Change": ("before", "after"), "DriftFinding": ("recorded", "observed")}.items():
            schema["$defs"][name]["properties"].update({field: {"title": field.title()} for field in values})
        engine = schema["$defs"]["Estimate"]["properties"]["engine"]
        engine.pop("type")
        engine.update(anyOf=[{"type": "string"}, {"type": "null"}], default=None)
        return schema


PLAN_RECORDS: Final = (*PRINTED_FIELDS, Estimate, ResourceOwner, RoleCost)
_ALWAYS_PRINTED: Final = {AppliedCommit: ("allow",), Change: ("drift",), Estimate: ("bytes", "records", "seconds")}
_ONLY_WHEN_SAVED: Final = ("options", "stored_actions", "seal")


def encode_saved_plan(plan: Plan, options: Mapping[str, Any]) -> bytes:
    """Return the file content of `plan --out`."""
    row = {
        **build_plan_document(plan),
        "options": dict(options),
        "stored_actions": list(map(encode_action, plan.actions)),
    }
    return encode_canonical({**row, "seal": _compute_seal(row)})


def _compute_seal(row: Mapping[str, Any]) -> str:
    return hashlib.sha256(encode_canonical({key: value for key, value in row.items() if key != "seal"})).hexdigest()


PLAN_AGAIN_HINT: Final = "Make it again with: reconciler plan --out FILE"
_NAME, _, _VERSION = FORMAT.rpartition("/")


def read_plan_to_show(body: bytes) -> SavedPlan:
    """Read a saved plan, sealed or not.

    Raises:
        UserError: The file is no unchanged saved plan of this format.
    """
    row = _parse_json(body)
    _check_format(row.get("format") if isinstance(row, dict) else None)
    if row.get("stored_actions") is None:
        if row.get("seal") is None:
            raise _build_printed_error("it does not hold its actions whole")
        raise _build_read_error(row, "was written by an earlier version: it does not hold its actions whole")
    try:
        if row.get("seal") not in {None, _compute_seal(row)}:
            raise _build_read_error(row, "was changed after it was written: its seal does not match")
        plan = _build_plan(row)
        printed = {key: value for key, value in row.items() if key not in _ONLY_WHEN_SAVED}
        if encode_canonical(build_plan_document(plan)) != encode_canonical(printed):
            raise _build_read_error(
                row, "was changed after it was written: the shown plan differs from the actions to apply"
            )
    except ValidationError as error:
        raise _build_read_error(row, f"cannot be read: {explain_invalid(error)}") from error
    except TypeError as error:  # Too deep, or a number exceeds 64 bits.
        raise _build_read_error(row, f"cannot be read: {error}") from error
    return SavedPlan(plan, body, None if row.get("seal") is None else row.get("options"))


def read_plan_to_apply(body: bytes) -> SavedPlan:
    """Read a saved plan that can be applied.

    Raises:
        UserError: The file is no unchanged saved plan of this format, or has no seal or options.
    """
    saved = read_plan_to_show(body)
    if saved.options is None:
        raise _build_printed_error("it holds neither the options it was made with nor a seal")
    return saved


def _build_printed_error(why: str) -> UserError:
    message = f"the plan was printed, not saved: {why}"
    return UserError(message, hint="Save one with: reconciler plan --out FILE")


def _build_plan(row: Mapping[str, Any]) -> Plan:
    stored, files = row["stored_actions"], row.get("git")
    if not (isinstance(stored, list) and all(isinstance(action, dict) for action in stored)):
        raise _build_read_error(row, "cannot be read: stored_actions is not a list of objects")
    if isinstance(files, dict) and isinstance(files.get("applied"), dict):
        files = {**files, "applied": {**files["applied"], "files": files.get("commit")}}
    values = {**row, "git": files, "actions": (), "stored_actions": None, "drift": _to_tuples(row.get("drift"))}
    document = PlanDocument.model_validate(values, context=KEPT)
    try:
        actions = tuple(map(read_action, stored))
    except UserError as error:
        raise _build_read_error(row, f"cannot be read: {error.message}") from error
    git = document.git
    return Plan(
        **{name: getattr(document, name) for name in _SHARED_FIELDS},
        actions=actions,
        digest=compute_digest(actions),
        git_commit=git.commit if git else None,
        applied=git.applied if git else None,
    )


_SHARED_FIELDS: Final = (
    *("workspace", "environment", "tool", "base", "back_to"),
    *("drift", "waiting", "unmanaged", "errors", "warnings"),
)


def _build_read_error(row: Mapping[str, Any], why: str) -> UserError:
    tool = row.get("tool")
    if isinstance(tool, str) and tool != __version__:
        return build_version_error(tool, __version__)
    return UserError(f"the saved plan {why}", hint=PLAN_AGAIN_HINT)


def build_version_error(theirs: str, ours: str) -> UserError:
    """Build the error for a plan of another version of reconciler."""
    return UserError(
        f"the saved plan was written by reconciler {theirs[:40]}, and this is version {ours}", hint=PLAN_AGAIN_HINT
    )


def _parse_json(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise UserError(f"not a saved plan: {explain_invalid_json(error, body)}", hint=PLAN_AGAIN_HINT) from error


def _check_format(format_name: object) -> None:
    if format_name == FORMAT:
        return
    name, _, version = format_name.rpartition("/") if isinstance(format_name, str) else ("", "", "")
    if name == _NAME and version.isdecimal() and int(version) > int(_VERSION):
        message = f"not a saved plan that this version can read: its format is {format_name!r}, of a newer one"
        raise UserError(message, hint=f"Upgrade this one: pip install --upgrade stream-reconciler. {PLAN_AGAIN_HINT}")
    raise UserError(
        f"not a saved plan of format {FORMAT}: its format is {repr(format_name)[:40]}", hint=PLAN_AGAIN_HINT
    )


def _to_tuples(value: Any) -> Any:
    match value:
        case list() | tuple():
            return tuple(map(_to_tuples, value))
        case dict():
            return {key: _to_tuples(item) for key, item in value.items()}
        case _:
            return value


def encode_action(action: Action) -> dict[str, Any]:
    """Return an action as JSON, without default values."""
    kind = find_kind_name(action)
    row: dict[str, Any] = {"action": kind, "id": action.id}
    for name, usual in _list_defaults(kind).items():
        value = getattr(action, name)
        if value is not usual and value != usual:
            row[name] = _to_stored(value)
    return row


def read_action(stored: Mapping[str, Any]) -> Action:
    """Read an action written by `encode_action`.

    Raises:
        UserError: The action cannot be read or does not match its id.
    """
    values = {key: value for key, value in stored.items() if key not in {"action", "id"}}
    try:
        action = _build_reader(stored["action"]).validate_python(values, context=KEPT)
    except (KeyError, TypeError, ValidationError) as error:
        why = str(error).splitlines()[0]
        raise UserError(f"a stored action cannot be read: {why}", hint="Restore the run's files.") from error
    unknown = values.keys() - _list_defaults(stored["action"]).keys()
    if unknown:
        message = f"a stored action cannot be read: {', '.join(sorted(unknown))} means nothing to this version"
        raise UserError(message, hint="A newer version wrote it: pip install --upgrade stream-reconciler.")
    if action.id != stored.get("id"):
        message = f"a stored action is called {stored.get('id')}, but is {action.id}"
        raise UserError(message, hint="Restore the run's files: they were changed by hand.")
    return action


@cache
def _build_reader(name: str) -> TypeAdapter[Action]:
    return TypeAdapter(ACTIONS[name])


@cache
def _list_defaults(kind: str) -> Mapping[str, object]:
    return {part.name: _find_default(part) for part in fields(ACTIONS[kind])}


def _find_default(part: dataclasses.Field[Any]) -> object:
    return part.default_factory() if part.default_factory is not MISSING else part.default


def _to_stored(value: object) -> object:
    match value:
        case str() | int() | None:
            return value
        case Model():
            return value.to_json()
        case tuple():
            return [_to_stored(item) for item in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {key: to_json_types(item) for key, item in asdict(value).items()}
        case _:
            return to_json_types(value)
