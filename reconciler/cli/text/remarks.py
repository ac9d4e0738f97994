"""Findings as remarks (rule, level, message, place), and as JUnit XML."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from reconciler.cli.text.action_words import format_headline, format_note, list_headlines, name_action
from reconciler.cli.text.sections import format_drift_change, format_waiting
from reconciler.planning.actions import Action, Create, Reason, RunJob, is_dangerous
from reconciler.planning.plan_rows import find_kind_name
from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.text import escape_commands, escape_invisible

if TYPE_CHECKING:
    from reconciler.manifests.positions import Problem
    from reconciler.planning.plan import DriftFinding, Plan, PlanFinding, UnfinishedTransition


Level: TypeAlias = Literal["error", "warning", "note"]
LEVELS: Final[tuple[Level, ...]] = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class Remark:
    """A finding with rule and level; `name` is stable across runs."""

    rule: str
    level: Level
    name: str
    about: str
    message: str
    hint: str = ""
    source: str | None = None
    """`manifests/topics.yaml:88`."""
    fingerprint: str = ""
    is_skipped: bool = False


@dataclass(frozen=True, slots=True)
class Remarks:
    """All remarks of a command, worst first."""

    command: Literal["plan", "drift", "validate"]
    workspace: str
    environment: str | None
    tool: str
    rows: tuple[Remark, ...]
    is_whole: bool = True


def list_plan_remarks(plan: Plan) -> Remarks:
    """Return a plan's errors and blocked actions as errors, its dangers and drift as warnings."""
    rows = [
        *map(build_error_remark, plan.errors),
        *map(_build_action_remark, plan.actions),
        *map(_build_plan_warning_remark, plan.warnings),
    ]
    rows += [*map(_build_drift_remark, plan.drift), *map(_build_waiting_remark, plan.waiting)]
    return Remarks("plan", plan.workspace, plan.environment, plan.tool, sort_remarks(rows))


def sort_remarks(rows: Sequence[Remark]) -> tuple[Remark, ...]:
    """Sort remarks by level, errors first."""
    return tuple(sorted(rows, key=lambda row: LEVELS.index(row.level)))


def build_error_remark(finding: PlanFinding, command: str = "plan") -> Remark:
    """Build the remark for a plan's error."""
    return _build_finding_remark(finding, f"{command}-error", "error")


def build_problem_remark(problem: Problem) -> Remark:
    """Build the remark for a file problem."""
    about = problem.field or problem.file
    message = f"{problem.field}: {problem.message}" if problem.field else problem.message
    return Remark(
        "manifest-error",
        "error",
        f"manifest-error:{problem.file}: {message}",
        about,
        message,
        hint=problem.hint,
        # A problem without a line is shown at line 1.
        source=f"{problem.file}:{problem.line or 1}",
        fingerprint=hash_parts("manifest-error", problem.file, problem.field, problem.message),
    )


def build_warning_remark(warning: str) -> Remark:
    """Build the remark for a warning about files."""
    name = f"manifest-warning:{warning}"
    return Remark("manifest-warning", "warning", name, "workspace", warning, fingerprint=hash_parts(name))


def hash_parts(*parts: str) -> str:
    """Return the SHA-256 of the parts."""
    return hashlib.sha256(json.dumps(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _build_plan_warning_remark(finding: PlanFinding) -> Remark:
    return _build_finding_remark(finding, "plan-warning", "warning")


def _build_finding_remark(finding: PlanFinding, rule: str, level: Level) -> Remark:
    about = finding.address or "workspace"
    return Remark(
        rule,
        level,
        f"{rule}:{about}: {finding.message}",
        about,
        finding.message,
        hint=finding.hint,
        source=finding.source,
        fingerprint=hash_parts(rule, about, finding.message),
    )


def _build_action_remark(action: Action) -> Remark:
    rule, level = _choose_rule(action)
    does = list_headlines(action) if isinstance(action, Create) else [format_headline(action)]
    says = [part for part in (*does, format_note(action)) if part]
    hint = ""
    if action.blocked is not None:
        says.append(f"blocked: {action.blocked.message}")
        hint = f"Allow once with --allow {action.blocked.allow}" if action.blocked.allow else "No --allow lifts this"
        if action.blocked.instead:
            hint += f". To keep its records in object storage declare in place of the delete: {action.blocked.instead}"
    return Remark(
        rule,
        level,
        action.id,
        action.address,
        f"{name_action(action)}: {', '.join(says)}",
        hint=hint,
        source=action.declared_at if isinstance(action, RunJob) else action.source,
        fingerprint=hash_parts(rule, action.id),
    )


def _choose_rule(action: Action) -> tuple[str, Level]:
    if action.blocked is not None:
        return f"blocked-{_to_rule_word(action.blocked.guard)}", "error"
    if is_dangerous(action):
        return f"danger-{_to_rule_word(_find_gravest_reason(action))}", "warning"
    return f"change-{_to_rule_word(action.reasons[0].value if action.reasons else find_kind_name(action))}", "note"


_ORDINARY: Final = frozenset({Reason.DECLARED, Reason.CHANGED, Reason.DRIFTED, Reason.RECORD_ONLY, Reason.UNMEASURED})


def _find_gravest_reason(action: Action) -> str:
    named = [reason.value for reason in action.reasons if reason not in _ORDINARY]
    return named[0] if named else action.risk.value


def _build_drift_remark(finding: DriftFinding) -> Remark:
    ignored = f"; left as it is: {finding.ignored}" if finding.ignored else ""
    return Remark(
        "drift" if finding.path else "drift-missing",
        "note" if finding.ignored else "warning",
        f"drift:{finding.address} {finding.path}".rstrip(),
        finding.address,
        f"{finding.address}: {format_drift_change(finding)}{ignored}",
        fingerprint=finding.fingerprint,
        is_skipped=finding.ignored is not None,
    )


def _build_waiting_remark(wait: UnfinishedTransition) -> Remark:
    name = f"waiting:{wait.address}"
    message = f"{wait.address}: {format_waiting(wait)}"
    return Remark("waiting", "note", name, wait.address, message, fingerprint=hash_parts(name))


def _to_rule_word(name: str) -> str:
    return name.replace("_", "-")


def format_junit(remarks: Remarks) -> bytes:
    """Format a test case per remark; errors that are not ignored are failures.

    Equal remarks give equal bytes.
    """
    name = f"reconciler {remarks.command}"
    suite_name = f"{remarks.workspace} ({remarks.environment})" if remarks.environment else remarks.workspace
    cases = remarks.rows
    counts = {
        "tests": str(max(1, len(cases))),
        "failures": str(sum(map(_is_failure, cases))),
        "errors": "0",
        "skipped": str(sum(remark.is_skipped for remark in cases)),
    }
    root = Element("testsuites", {"name": name, **counts})
    suite = SubElement(root, "testsuite", {"name": escape_invisible(f"{name}: {suite_name}"), **counts})
    for remark in cases:
        _add_case(suite, remark)
    if not cases:
        # Many tools reject a report without test cases.
        SubElement(suite, "testcase", {"classname": remarks.command, "name": "nothing to tell"})
    indent(root)
    text: str = tostring(root, encoding="utf-8", xml_declaration=True).decode()
    return escape_commands(text).encode() + b"\n"


def _add_case(suite: Element, remark: Remark) -> None:
    file, _, line = (remark.source or "").rpartition(":")
    place = {"file": escape_invisible(file), "line": escape_invisible(line)} if file else {}
    case = SubElement(
        suite, "testcase", {"classname": escape_invisible(remark.rule), "name": escape_invisible(remark.name), **place}
    )
    text = "\n".join(_format_case(remark))
    if remark.is_skipped:
        SubElement(case, "skipped", {"message": escape_invisible(remark.message)})
    elif _is_failure(remark):
        failure = SubElement(
            case, "failure", {"message": escape_invisible(remark.message), "type": escape_invisible(remark.rule)}
        )
        failure.text = text
    else:
        SubElement(case, "system-out").text = text


def _is_failure(remark: Remark) -> bool:
    return remark.level == "error" and not remark.is_skipped


def _format_case(remark: Remark) -> Sequence[str]:
    parts = (remark.message, f"hint: {remark.hint}" if remark.hint else "", remark.source or "")
    return [escape_invisible(part) for part in parts if part]
