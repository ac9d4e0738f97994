"""Saved plans: the JSON document, written and read back."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import BaseModel, ConfigDict, FailFast, Field, TypeAdapter, ValidationError

from reconciler import __version__
from reconciler.errors import UserError
from reconciler.planning.actions import Action, Adopt, Create, Delete, Forget, RunJob, Transition, Update
from reconciler.planning.plan import AppliedCommit, Base, DriftFinding, Finding, Plan, Waiting
from reconciler.planning.plan_rows import (
    action_row,
    after_of,
    canonical,
    denials_in,
    digest_of_rows,
    name_of,
    parameters_of,
    plan_row,
)
from reconciler.resources.address import Address
from reconciler.resources.base import KEPT, Model, NameOnly
from reconciler.resources.tiering_policy import TieringPolicy, TieringPolicySpec
from reconciler.runtime.text import no_json, plain, refusal

FORMAT: Final = "reconciler.plan/1"


class _Part(BaseModel):
    """A piece of the document; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class BaseDocument(_Part):
    """The state a plan was made on."""

    lineage: str
    serial: int
    sha256: str


class AppliedCommitDocument(_Part):
    """The revision of the files that were applied last."""

    commit: str
    is_newer: bool | None = Field(
        description="Whether the files that are planned are of one of its ancestors; null: git cannot compare them."
    )
    allow: str | None = Field(
        description="What `--allow` takes to apply the older files; null: no apply refuses the plan because of them."
    )


class GitDocument(_Part):
    """The revision of the files."""

    commit: str
    applied: AppliedCommitDocument | None = Field(None, description="null: not known, or the plan leads elsewhere.")


class SummaryDocument(_Part):
    """How many of each kind; blocked actions count under their own kind too."""

    create: int
    update: int
    delete: int
    transition: int
    job: int
    adopt: int
    forget: int
    drift: int
    blocked: int


class ChangeDocument(_Part):
    """One field that moves; `origin` is where its new value comes from, if not from the resource itself."""

    path: str
    before: Any
    after: Any
    drift: bool
    origin: str | None = None


class UnreadableDocument(_Part):
    """Offsets of one partition, `start` to before `stop`, that nobody could read any more, and their stored bytes."""

    topic: str
    partition: int
    start: int
    stop: int
    bytes: int


class StretchDocument(_Part):
    """Offsets of one partition, `start` to before `stop`."""

    partition: int
    start: int
    stop: int


class RoleCostDocument(_Part):
    """What another role of a mirror costs, as both of its sides were when they were looked at."""

    lost: tuple[StretchDocument, ...] = Field(
        (), description="What its source alone has, by a failover; what is cut off, by a restore."
    )
    behind: tuple[StretchDocument, ...] = Field((), description="What a promotion or a reversal copies first.")
    lost_ms: int | None = Field(
        None,
        description="By a failover that loses records: how much older its newest record is than that of its source.",
    )
    unknown: str | None = Field(None, description="Why neither can be told.")
    fetched: tuple[tuple[int, int], ...] = Field(
        (), description="Partition and last source fetch offset, where nothing else is known; -1: none ever was."
    )
    groups_set_back: tuple[str, ...] | None = Field(
        (), description="Consumer groups that have read beyond where a restore cuts. Null: we cannot tell."
    )
    timeout_ms: int | None = Field(
        None, description="A promotion is given up where what is behind does not shrink for so long."
    )
    records: int | None = Field(
        None, description="How many records a restore loses or keeps, where they were counted. Null: offsets say it."
    )
    since_ms: int | None = Field(None, description="The earliest time of one of them. Null: we cannot tell.")
    kept: tuple[StretchDocument, ...] = Field((), description="What only this topic has, and a restore keeps.")
    kept_in: str | None = Field(None, description="Full name of the topic that keeps it.")
    copied_afresh: tuple[int, ...] = Field((), description="Partitions that a restore empties and copies anew.")


class EstimateDocument(_Part):
    """What an action is expected to move or remove."""

    bytes: int
    records: int
    seconds: int
    groups: tuple[str, ...] | None = Field((), description="Consumer groups reading it. Null: we cannot tell.")
    uploads: int = Field(0, description="Stored bytes that `run` would copy to object storage.")
    unreadable: tuple[UnreadableDocument, ...] = Field(
        (), description="What lies in object storage alone, and would be deleted there."
    )
    location: str | None = Field(
        None,
        description="Where the remote objects of a topic lie that is deleted, mounted, unmounted or forgotten; "
        "`reasons` say what becomes of them.",
    )
    partitions: int = Field(0, description="Of a topic that is mounted or unmounted, or whose replicas move.")
    no_writes_seconds: int = Field(
        0, description="About how long a topic that is unmounted takes no writes; a rough guess."
    )
    role: RoleCostDocument | None = Field(None, description="Of a mirror that gets another role.")
    replicated: int = Field(
        0, description="Stored bytes that brokers copy to each other for another replication factor."
    )
    engine: str | None = Field(
        None,
        description="Where a job will run by its size: `in process`, or Spark and its master. Null: no job, or its "
        "size is not known.",
    )


class BlockDocument(_Part):
    """Why an action is refused, and the `VERB:ADDR` that allows it."""

    guard: str
    allow: str | None
    message: str
    instead: str | None = Field(
        None, description="The document to declare in place of it, as one line of YAML, where that loses nothing."
    )


class OwnerDocument(_Part):
    """Another workspace that owns a resource."""

    workspace: str
    environment: str | None
    lineage: str = Field(description="The lifelong id of its state.")
    state: str = Field(description="Where its state lies, without credentials.")


class ActionDocument(_Part):
    """One action. The digest covers `id, after, verb, parameters, risk, precondition, grant` and a mirror's denials."""

    id: str
    address: str
    cluster: str | None
    action: Literal["create", "update", "delete", "adopt", "forget", "transition", "job"]
    verb: str
    risk: Literal["none", "disruptive", "irreversible", "data-loss"]
    reasons: tuple[str, ...]
    changes: tuple[ChangeDocument, ...]
    after: dict[str, Any] | None = Field(description="The resource it leads to; null where it leads to none.")
    parameters: dict[str, Any]
    source: str | None = Field(description="Where it is declared, as file:line.")
    depends_on: tuple[str, ...]
    wave: int
    precondition: str
    estimate: EstimateDocument
    blocked: BlockDocument | None
    grant: str | None = Field(description="What lifted a block.")
    owner: OwnerDocument | None = Field(
        None, description="The other workspace that owns the resource; null: it is free, or ours."
    )


class DriftDocument(_Part):
    """A field on which a cluster moved away from what was last applied; `path` is empty where all of it is missing."""

    address: str
    path: str
    recorded: Any
    observed: Any
    fingerprint: str
    ignored: str | None = None
    origin: str | None = Field(
        None, description="The namespace that says what was recorded, where a topic has it written out."
    )


class WaitingDocument(_Part):
    """A resource half-way through a lifecycle."""

    address: str
    state: str
    after: str | None = Field(
        None, description="Of a mount: the mounting of another cluster that is finished first; then plan again."
    )


class FindingDocument(_Part):
    """An error that nothing lifts, or a warning."""

    address: str | None
    source: str | None
    message: str
    hint: str


class PlanDocument(_Part):
    """A whole plan. `options` and `seal` are only in a plan that was saved."""

    format: Literal["reconciler.plan/1"]
    workspace: str
    environment: str | None
    tool: str
    git: GitDocument | None
    base: BaseDocument | None
    back_to: int | None = Field(None, description="Serial of the state it goes back to; null: it leads to the files.")
    digest: str
    summary: SummaryDocument
    actions: Annotated[tuple[ActionDocument, ...], FailFast()]
    drift: tuple[DriftDocument, ...]
    waiting: tuple[WaitingDocument, ...]
    unmanaged: tuple[str, ...]
    errors: tuple[FindingDocument, ...]
    warnings: tuple[FindingDocument, ...]
    options: dict[str, Any] | None = None
    seal: str | None = None


# The plan as JSON: what `--format json` prints and what `--out` saves.
#
# It holds no time, duration or host. A saved plan also holds the options it was made with, and a seal over all of it.


ONLY_WHEN_SAVED: Final = ("options", "seal")


def to_document(plan: Plan, options: Mapping[str, Any] | None = None) -> PlanDocument:
    """Return the plan's document; with `options`, the one that is saved and read back by `apply FILE`."""
    actions = [_row(action) for action in plan.actions]
    row = {"format": FORMAT, **plan_row(plan), "actions": actions}
    if options is not None:
        row["options"] = dict(options)
        row["seal"] = _seal(row)
    return PlanDocument.model_validate(row)


def to_row(action: Action) -> ActionDocument:
    """Return one action as a plan's document has it."""
    return ActionDocument.model_validate(_row(action))


def canonical_bytes(document: PlanDocument) -> bytes:
    """Return the document as bytes: sorted keys; the same plan always gives the same."""
    return canonical(_plain(document))


def digest_of_document(document: PlanDocument) -> str:
    """Return the digest of the actions as they stand in a document."""
    return digest_of_rows(
        [
            action.id,
            action.after,
            action.verb,
            action.parameters,
            action.risk,
            action.precondition,
            action.grant,
            *denials_in(Address(action.address), ((change.path, change.after) for change in action.changes)),
        ]
        for action in document.actions
    )


def _row(action: Action) -> dict[str, Any]:
    return action_row(action, after_of(action), parameters_of(action))


def _plain(document: PlanDocument) -> dict[str, Any]:
    row = document.model_dump(mode="json")
    for key in ONLY_WHEN_SAVED:
        if row[key] is None:
            del row[key]
    return row


def _seal(row: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical({key: value for key, value in row.items() if key != "seal"})).hexdigest()


# A plan's document read back: what is no plan, too new, cut off or edited by hand is refused with a way on.


AGAIN: Final = "Make it again with: reconciler plan --out FILE"
_NAME, _, _VERSION = FORMAT.rpartition("/")


def read_document(body: bytes) -> PlanDocument:
    """Return a plan that was printed or saved.

    Raises:
        UserError: It is no plan, of another version's format, or was changed after it was written.
    """
    row = _parsed(body)
    _check_format(row.get("format") if isinstance(row, dict) else None)
    try:
        document = PlanDocument.model_validate(row)
    except ValidationError as error:
        raise _refused(row, f"cannot be read: {refusal(error)}") from error
    if document.seal is None and document.digest != digest_of_document(document):
        raise _refused(row, "was changed after it was written: its digest does not match")
    if document.seal not in {None, _seal(row)}:  # Over the bytes: another version's fields are not those of this one.
        raise _refused(row, "was changed after it was written: its seal does not match")
    return document


def _refused(row: Mapping[str, Any], why: str) -> UserError:
    tool = row.get("tool")
    if isinstance(tool, str) and tool != __version__:
        return another_version(tool, __version__)
    return UserError(f"the saved plan {why}", hint=AGAIN)


def another_version(theirs: str, ours: str) -> UserError:
    """Return the error for a plan of another version."""
    return UserError(f"the saved plan was written by reconciler {theirs[:40]}, and this is version {ours}", hint=AGAIN)


def read_saved(body: bytes) -> PlanDocument:
    """Return a plan that `--out` saved, for it to be applied: with the options it was made with, and sealed.

    Raises:
        UserError: As `read_document`; or it was printed, not saved, or its seal was taken off.
    """
    document = read_document(body)
    if document.seal is None or document.options is None:
        message = "the plan was printed, not saved: it holds neither the options it was made with nor a seal"
        raise UserError(message, hint="Save one with: reconciler plan --out FILE")
    return document


def _parsed(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise UserError(f"not a saved plan: {no_json(error, body)}", hint=AGAIN) from error


def _check_format(found: object) -> None:
    if found == FORMAT:
        return
    name, _, version = found.rpartition("/") if isinstance(found, str) else ("", "", "")
    if name == _NAME and version.isdecimal() and int(version) > int(_VERSION):
        message = f"not a saved plan that this version can read: its format is {found!r}, of a newer one"
        raise UserError(message, hint=f"Upgrade this one: pip install --upgrade stream-reconciler. {AGAIN}")
    raise UserError(f"not a saved plan of format {FORMAT}: its format is {repr(found)[:40]}", hint=AGAIN)


# A plan's document as a plan, to be shown.


_UNKNOWN: Final = TieringPolicy(metadata=NameOnly(name="unknown", labels={}), spec=TieringPolicySpec())
"""What a deletion deletes: documents do not hold it."""
_OF_STEPS: Final = ("address", "risk", "reasons", "depends_on", "wave", "precondition", "blocked", "owner")


def plan_of(document: PlanDocument) -> Plan:
    """Return the plan of a document. It can be shown and not applied: resources before a change are not in it."""
    row = document.model_dump()
    git = row["git"] or {"commit": None, "applied": None}
    applied = git["applied"]
    return Plan(
        **{key: row[key] for key in ("workspace", "environment", "tool", "unmanaged", "digest", "back_to")},
        base=row["base"] and Base(**row["base"]),
        git_commit=git["commit"],
        actions=tuple(map(_shown_action, row["actions"])),
        drift=tuple(DriftFinding(**_tuples(finding)) for finding in row["drift"]),
        waiting=tuple(Waiting(**waiting) for waiting in row["waiting"]),
        errors=tuple(Finding(**finding) for finding in row["errors"]),
        warnings=tuple(Finding(**finding) for finding in row["warnings"]),
        applied=applied and AppliedCommit(files=git["commit"], **applied),
    )


def _shown_action(row: Mapping[str, Any]) -> Action:
    parameters, estimate, after = _tuples(row["parameters"]), row["estimate"], row["after"]
    states = {"machine": "machine", "from": "from_state", "to": "to_state"}
    known = {
        **{key: row[key] for key in _OF_STEPS},
        "changes": _tuples(row["changes"]),
        **{field: parameters.pop(key) for key, field in states.items() if row["action"] == "transition"},
        "verb": row["verb"],
        "job": row["verb"],
        "declared_at": row["source"],
        "source": row["source"],
        **{key: parameters.pop(key) for key in ("source", "sink") if row["action"] == "job"},
        "after": after,
        "observed": after,
        "before": _UNKNOWN if after is None else after,
        "granted_by": row["grant"],
        "estimate": {**estimate, "engine": estimate["engine"] or ""},
        "moved_from": parameters.get("moved_from"),
        "parameters": parameters,
    }
    names = {part.name for part in fields(_CLASSES[row["action"]])}
    return _reader(row["action"]).validate_python({key: known[key] for key in names & known.keys()}, context=KEPT)


def _tuples(value: Any) -> Any:
    """Return a value of JSON as plans hold it: tuples for lists."""
    match value:
        case list() | tuple():
            return tuple(map(_tuples, value))
        case dict():
            return {key: _tuples(item) for key, item in value.items()}
        case _:
            return value


# Actions as a run keeps them: whole, so that any machine can finish or settle it without the files it came from.


_CLASSES: Final[dict[str, type[Action]]] = {
    "create": Create,
    "update": Update,
    "delete": Delete,
    "adopt": Adopt,
    "forget": Forget,
    "transition": Transition,
    "job": RunJob,
}


def stored_action(action: Action) -> dict[str, Any]:
    """Return an action as JSON; what is as it always is, is left out."""
    kind = name_of(action)
    kept: dict[str, Any] = {"action": kind, "id": action.id}
    for name, usual in _usual(kind):
        value = getattr(action, name)
        if value is not usual and value != usual:
            kept[name] = _stored(value)
    return kept


def read_action(stored: Mapping[str, Any]) -> Action:
    """Return the action that was stored.

    Raises:
        UserError: It is none, or is not what its id says.
    """
    given = {key: value for key, value in stored.items() if key not in {"action", "id"}}
    try:
        kind = _CLASSES[stored["action"]]
        action = _reader(stored["action"]).validate_python(given, context=KEPT)
    except (KeyError, ValidationError) as error:
        why = str(error).splitlines()[0]
        raise UserError(f"a stored action cannot be read: {why}", hint="Restore the run's files.") from error
    unknown = given.keys() - {part.name for part in fields(kind)}
    if unknown:
        message = f"a stored action cannot be read: {', '.join(sorted(unknown))} means nothing to this version"
        raise UserError(message, hint="A newer version wrote it: pip install --upgrade stream-reconciler.")
    if action.id != stored.get("id"):
        message = f"a stored action is called {stored.get('id')}, but is {action.id}"
        raise UserError(message, hint="Restore the run's files: they were changed by hand.")
    return action


@cache
def _reader(name: str) -> TypeAdapter[Action]:
    return TypeAdapter(_CLASSES[name])


@cache
def _usual(kind: str) -> tuple[tuple[str, object], ...]:
    """Return the fields of a kind of action, each with the value that is left out."""
    return tuple((part.name, _default(part)) for part in fields(_CLASSES[kind]))


def _default(part: dataclasses.Field[Any]) -> object:
    return part.default_factory() if part.default_factory is not MISSING else part.default


def _stored(value: object) -> object:
    match value:
        case str() | int() | None:
            return value
        case Model():
            return value.to_json()
        case tuple():
            return [_stored(item) for item in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {key: plain(item) for key, item in asdict(value).items()}
        case _:
            return plain(value)
