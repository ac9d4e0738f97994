"""A saved plan, read back as far as rendering needs it: the same text as when it was made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, assert_never

from reconciler.planning.actions import (
    Action,
    Adopt,
    Change,
    Create,
    Delete,
    Forget,
    Reason,
    Risk,
    RunJob,
    Transition,
    Update,
    Value,
)
from reconciler.planning.estimates import Block, Estimate, RoleCost, Unreadable
from reconciler.planning.finding import Finding
from reconciler.planning.plan import Base, DriftFinding, Plan, Waiting
from reconciler.resources.address import Address
from reconciler.resources.kinds import RESOURCE, Resource
from reconciler.resources.metadata import NameOnly
from reconciler.resources.standing import Stretch
from reconciler.resources.tieringpolicy import TieringPolicy, TieringPolicySpec

_NOT_THERE: Final = TieringPolicy(metadata=NameOnly(name="unknown", labels={}), spec=TieringPolicySpec())

if TYPE_CHECKING:
    from reconciler.planning.document.documents import (
        ActionDocument,
        ChangeDocument,
        FindingDocument,
        PlanDocument,
        RoleCostDocument,
        StretchDocument,
    )


def plan_of(document: PlanDocument) -> Plan:
    """Return the plan a document shows. It is for reading only: what was there before is not in a document."""
    base = document.base
    return Plan(
        workspace=document.workspace,
        environment=document.environment,
        base=Base(base.lineage, base.serial, base.sha256) if base else None,
        tool=document.tool,
        git_commit=document.git.commit if document.git else None,
        actions=tuple(_action(each) for each in document.actions),
        drift=tuple(
            DriftFinding(
                Address(found.address),
                found.path,
                _value(found.recorded),
                _value(found.observed),
                found.fingerprint,
                found.ignored,
                found.origin,
            )
            for found in document.drift
        ),
        waiting=tuple(
            Waiting(Address(each.address), each.state, Address(each.after) if each.after else None)
            for each in document.waiting
        ),
        unmanaged=tuple(Address(each) for each in document.unmanaged),
        errors=tuple(_finding(each) for each in document.errors),
        warnings=tuple(_finding(each) for each in document.warnings),
        digest=document.digest,
        back_to=document.back_to,
    )


def _action(document: ActionDocument) -> Action:
    carried = _carried(document)
    parameters = document.parameters
    match document.action:
        case "create":
            given = {key: _value(value) for key, value in parameters.items()}
            return Create(after=_resource(document), parameters=given, **carried)
        case "update":
            after = _resource(document)
            return Update(before=after, after=after, changes=tuple(map(_change, document.changes)), **carried)
        case "delete":
            # What was there is not in the document, and no reader looks at it.
            return Delete(before=_NOT_THERE, **carried)
        case "adopt":
            after, moved = _resource(document), parameters.get("moved_from")
            changes = tuple(map(_change, document.changes))
            moved_from = Address(str(moved)) if moved else None
            return Adopt(observed=after, after=after, changes=changes, moved_from=moved_from, **carried)
        case "forget":
            return Forget(**carried)
        case "transition":
            return _transition(document, carried)
        case "job":
            carried["source"] = Address(str(parameters["source"]))
            sink = Address(str(parameters["sink"]))
            return RunJob(job=document.verb, sink=sink, declared_at=document.source, **carried)
        case _:
            assert_never(document.action)


def _transition(document: ActionDocument, carried: dict[str, Any]) -> Transition:
    given = {key: _value(value) for key, value in document.parameters.items()}
    machine, before, after = (str(given.pop(key)) for key in ("machine", "from", "to"))
    return Transition(
        machine=machine,
        verb=document.verb,
        from_state=before,
        to_state=after,
        after=_resource(document),
        parameters=given,
        changes=tuple(map(_change, document.changes)),
        **carried,
    )


def _carried(document: ActionDocument) -> dict[str, Any]:
    estimate, blocked = document.estimate, document.blocked
    return {
        "address": Address(document.address),
        "risk": Risk(document.risk),
        "reasons": tuple(Reason(reason) for reason in document.reasons),
        "depends_on": document.depends_on,
        "wave": document.wave,
        "estimate": Estimate(
            estimate.bytes,
            estimate.records,
            estimate.seconds,
            estimate.groups,
            estimate.uploads,
            tuple(
                Unreadable(Address(lost.topic), lost.partition, lost.start, lost.stop, lost.bytes)
                for lost in estimate.unreadable
            ),
            estimate.location,
            estimate.partitions,
            estimate.no_writes_seconds,
            _role(estimate.role),
            estimate.replicated,
        ),
        "source": document.source,
        "precondition": document.precondition,
        "blocked": Block(blocked.guard, blocked.message, blocked.allow, blocked.instead) if blocked else None,
        "granted_by": document.grant,
    }


def _role(cost: RoleCostDocument | None) -> RoleCost | None:
    if cost is None:
        return None
    return RoleCost(
        _stretches(cost.lost),
        _stretches(cost.behind),
        cost.unknown,
        cost.fetched,
        cost.groups_set_back,
        cost.timeout_ms,
    )


def _stretches(found: tuple[StretchDocument, ...]) -> tuple[Stretch, ...]:
    return tuple(Stretch(each.partition, each.start, each.stop) for each in found)


def _resource(document: ActionDocument) -> Resource:
    return RESOURCE.validate_python(document.after)


def _change(document: ChangeDocument) -> Change:
    return Change(document.path, _value(document.before), _value(document.after), document.drift, document.origin)


def _finding(document: FindingDocument) -> Finding:
    address = Address(document.address) if document.address else None
    return Finding(address, document.source, document.message, document.hint)


def _value(value: object) -> Value:
    """Return a value as actions hold it: tuples for lists."""
    if isinstance(value, list):
        return tuple(_value(item) for item in value)
    if isinstance(value, Mapping):
        return {str(key): _value(item) for key, item in value.items()}
    if value is None or isinstance(value, str | int | bool):
        return value
    return str(value)
