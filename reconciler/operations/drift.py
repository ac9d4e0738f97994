"""`drift`: differences between clusters and files."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, get_args

import orjson

from reconciler.errors import DriftError, NotAuthorizedError, ReconcilerError, RetryableError, UsageError, UserError
from reconciler.manifests.files import WORKSPACE_FILE
from reconciler.objectstore.directory import write_atomically
from reconciler.operations.plan import PlanDecision, PlanResult, build_plan_result, plan_unlocked
from reconciler.operations.steps.invocation import Invocation, Select, combine_errors
from reconciler.operations.steps.observe import unreachable_clusters_error
from reconciler.operations.steps.recorded import RecordedState, describe_unreadable_run
from reconciler.operations.steps.workspace import Work, open_work
from reconciler.planning.actions import Action, Adopt, Create, RunJob, Value
from reconciler.planning.checks.guards import format_takeover_options
from reconciler.planning.checks.mount_checks import find_sealed_topics
from reconciler.planning.plan import DriftFinding, HeldChange, Plan, PlanFinding, PlanOptions, UnfinishedTransition
from reconciler.planning.plan_rows import hash_value, list_platform_changes
from reconciler.planning.resolve.mirror_sources import link_of
from reconciler.planning.situation import find_taken_resources, is_mirroring
from reconciler.providers.protocol import require_links
from reconciler.resources.address import Address, address_of, cluster_address, cluster_of, full_name_of, matches_pattern
from reconciler.resources.mirror_link import MirrorTopic
from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.text import list_first, pluralize, shorten_run_id, to_json_types
from reconciler.state.lockfile import KEY, Lockfile

if TYPE_CHECKING:
    from reconciler.manifests.load import LoadedWorkspace
    from reconciler.objectstore.base import ObjectStore
    from reconciler.resources.mirrors import ForeignRecords
    from reconciler.resources.owners import ResourceOwner


DriftClass: TypeAlias = Literal["drift", "missing", "in doubt", "unmanaged", "pending", "blocked"]
CLASSES: Final[tuple[DriftClass, ...]] = get_args(DriftClass)
ALWAYS: Final[frozenset[DriftClass]] = frozenset({"drift", "missing", "in doubt"})


@dataclass(frozen=True, slots=True)
class DriftItem:
    """A difference between clusters and files."""

    kind: DriftClass
    address: Address
    message: str
    fingerprint: str
    """Stable id: a sha256 of address, path and observed value."""
    path: str = ""
    recorded: Value = None
    observed: Value = None
    ignored: str | None = None
    """Rule that ignores the item: it is listed, but never fails."""
    origin: str | None = None
    """Namespace or cluster that sets the recorded value; `None` if the resource does."""
    owner: ResourceOwner | None = None
    """Workspace that owns an undeclared resource."""


def compute_fingerprint(kind: DriftClass, address: Address, what: object = None, path: str = "") -> str:
    """Return an item's fingerprint without a planner's finding."""
    return hash_value([address, path, {kind: what}])


def parse_failing_classes(names: Iterable[str]) -> frozenset[DriftClass]:
    """Return the default classes and those of `--fail-on`, where `in-doubt` means `in doubt`."""
    by_name = {typed: kind for kind in CLASSES for typed in (kind, kind.replace(" ", "-"))}
    wrong = next((name for name in names if name not in by_name), None)
    if wrong is not None:
        typed = ", ".join(kind.replace(" ", "-") for kind in CLASSES)
        raise UsageError(f"there is no class {wrong!r} of drift", hint=f"Classes: {typed}.")
    return ALWAYS | {by_name[name] for name in names}


def find_doubtful_actions(
    store: ObjectStore, remembered: RecordedState, is_selected: Callable[[Address], bool]
) -> tuple[DriftItem, ...]:
    """Return actions of an interrupted run with unknown outcome; none while its lease is alive."""
    unfinished, snapshot = remembered.unfinished, remembered.snapshot
    lockfile = snapshot.lockfile if snapshot is not None else None
    if unfinished is None or lockfile is None or is_lease_alive(store, lockfile):
        return ()
    file = unfinished.file
    return tuple(
        DriftItem(
            "in doubt",
            action.address,
            f"run {shorten_run_id(file.run)} of {file.who} began to {action.verb} it, "
            "and whether it did is not written",
            compute_fingerprint("in doubt", action.address, [file.run, action.id]),
        )
        for action in remembered.in_doubt
        if is_selected(action.address)
    )


def find_unreadable_error(store: ObjectStore, remembered: RecordedState) -> UserError | None:
    """Return the error of an interrupted run's files; `None` while its lease is alive."""
    lockfile = remembered.snapshot.lockfile if remembered.snapshot is not None else None
    why = remembered.unreadable
    if why is None or lockfile is None or is_lease_alive(store, lockfile):
        return None
    return UserError(describe_unreadable_run(lockfile, why), hint=why.hint)


def put_doubtful_first(findings: Sequence[DriftItem], doubtful: Sequence[DriftItem]) -> tuple[DriftItem, ...]:
    """Return all items, doubtful ones first. A doubtful item replaces other items of its address."""
    addresses = {item.address for item in doubtful}
    return (*doubtful, *(item for item in findings if item.address not in addresses))


def is_lease_alive(store: ObjectStore, lockfile: Lockfile) -> bool:
    """Return whether the lease seems to be renewed. For display only."""
    lease = lockfile.lease
    if lease.status != "held":
        return False
    row = next((listed for listed in store.list(KEY) if listed.key == KEY), None)
    return row is not None and store.read_clock_ms() - row.modified_ms <= lease.lease_s * 1000


# `drift --known FILE` hides items that earlier runs reported.


OWNER: Final = "owner"

FORMAT: Final = "reconciler.known-drift/2"
_OLD_FORMAT: Final = "reconciler.known-drift/1"

_DELETE_HINT: Final = "Delete it; it is written again."

_ReportedItems: TypeAlias = Mapping[str, Address | None]


class DriftScope(NamedTuple):
    """Workspace, environment and state of items."""

    workspace: str
    environment: str | None = None
    lineage: str | None = None


_SHOWN: Final = 3
_NO_SCOPE: Final = DriftScope("")


@dataclass(frozen=True, slots=True)
class KnownDriftFile:
    """File with drift items of earlier runs, and the current items."""

    path: Path
    whose: DriftScope
    reported: _ReportedItems
    findings: tuple[DriftItem, ...]
    was_compared: Callable[[Address], bool]

    @classmethod
    def read(
        cls, path: Path, whose: DriftScope, findings: Sequence[DriftItem], was_compared: Callable[[Address], bool]
    ) -> KnownDriftFile:
        """Read the earlier items of `whose`."""
        _check_folder(path)
        return cls(path, whose, _convert_old_entries(_read_entries(path), whose)[whose], tuple(findings), was_compared)

    @property
    def unknown(self) -> tuple[DriftItem, ...]:
        """Current items that the file lacks."""
        return tuple(item for item in self.findings if format_item_key(item) not in self.reported)

    def store_findings(self) -> None:
        """Store the current items, which the next run hides. Remove resolved ones."""
        now = {format_item_key(item): item.address for item in self.findings}
        with _lock_folder(self.path):
            before = _convert_old_entries(_read_entries(self.path), self.whose)
            retained = {mark: address for mark, address in before[self.whose].items() if self._must_keep(mark, address)}
            _replace_file(self.path, {**before, self.whose: {**retained, **now}})

    def _must_keep(self, mark: str, address: Address | None) -> bool:
        return mark not in self.reported or (address is not None and not self.was_compared(address))


def format_item_key(item: DriftItem) -> str:
    """Return the key in the file, which differs for ignored items."""
    return f"{item.fingerprint} ignored" if item.ignored is not None else item.fingerprint


def _check_folder(path: Path) -> None:
    if not path.parent.is_dir():
        raise UserError(
            f"cannot write {path}: there is no folder {path.parent}", hint="Name a file that can be written."
        )


def _convert_old_entries(
    entries: Mapping[DriftScope, _ReportedItems], whose: DriftScope
) -> dict[DriftScope, _ReportedItems]:
    taken = {whose: {}, **entries}
    if whose.environment is None:
        taken[whose] = {**taken.pop(_NO_SCOPE, {}), **taken[whose]}
    return taken


def _read_entries(path: Path) -> Mapping[DriftScope, _ReportedItems]:
    try:
        content = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}", hint="Name a readable file.") from error
    except orjson.JSONDecodeError as error:
        raise UserError(f"{path} is not JSON: {error}", hint=_DELETE_HINT) from error
    try:
        return dict(_parse_entries(content))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is not a file of {FORMAT}", hint=_DELETE_HINT) from error


def _parse_entries(held: Any) -> Iterator[tuple[DriftScope, _ReportedItems]]:
    if held["format"] == _OLD_FORMAT:
        yield _NO_SCOPE, _parse_marks(held)
        return
    if held["format"] != FORMAT:
        raise ValueError(held["format"])
    for entry in held["told"]:
        yield DriftScope(str(entry["workspace"]), entry.get("environment"), entry.get("lineage")), _parse_marks(entry)


def _parse_marks(held: Mapping[str, Any]) -> _ReportedItems:
    places = held.get("addresses") or {}
    return {str(mark): Address(place) if (place := places.get(mark)) else None for mark in [*held["fingerprints"]]}


def _replace_file(path: Path, entries: Mapping[DriftScope, _ReportedItems]) -> None:
    ordered = sorted(entries, key=lambda whose: [part or "" for part in whose])
    body = orjson.dumps(
        {"format": FORMAT, "told": [_format_entry(whose, entries[whose]) for whose in ordered]},
        option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS,
    )
    try:
        write_atomically(path, body + b"\n")
    except OSError as error:
        raise _unwritable_error(path, error) from error


def _format_entry(whose: DriftScope, marks: _ReportedItems) -> dict[str, Any]:
    places = {mark: place for mark in sorted(marks) if (place := marks[mark]) is not None}
    return {**whose._asdict(), "fingerprints": sorted(marks), "addresses": places}


@contextmanager
def _lock_folder(path: Path) -> Iterator[None]:
    try:
        folder = os.open(path.resolve().parent, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise _unwritable_error(path, error) from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _unwritable_error(path: Path, error: OSError) -> UserError:
    why = error.strerror or error
    return UserError(f"cannot write {path}: {why}; it is as it was", hint="Name a file that can be written.")


_Field = tuple["Address", str]


def list_drift_items(plan: Plan) -> tuple[DriftItem, ...]:
    """Return a plan's findings as drift items, in plan order."""
    agreed = _find_agreed_fields(plan)
    moved = tuple(_build_drift_item(finding) for finding in plan.drift if (finding.address, finding.path) not in agreed)
    waiting = tuple(_build_agreed_item(finding) for finding in plan.drift if (finding.address, finding.path) in agreed)
    fields = frozenset((finding.address, finding.path) for finding in plan.drift)
    unmanaged = tuple(_build_unmanaged_item(address, plan.owners.get(address)) for address in plan.unmanaged)
    return (
        *moved,
        *waiting,
        *_list_pending_items(plan, fields),
        *map(_build_held_item, plan.held),
        *(
            _build_blocked_item(action)
            for action in plan.blocked
            if action.owner is None or not _is_drift_reset(action, fields)
        ),
        *unmanaged,
    )


def _find_agreed_fields(plan: Plan) -> frozenset[_Field]:
    refused = {finding.address for finding in plan.errors}
    changing = {(action.address, change.path) for action in plan.actions for change in list_platform_changes(action)}
    return frozenset(
        (finding.address, finding.path)
        for finding in plan.drift
        if finding.path not in {"", "incarnation"}
        and finding.ignored is None
        and not finding.stays
        and finding.address not in refused
        and (finding.address, finding.path) not in changing
    )


def _build_drift_item(finding: DriftFinding) -> DriftItem:
    return DriftItem(
        "drift" if finding.path else "missing",
        finding.address,
        f"{_format_path(finding)} was changed on the cluster" if finding.path else "is deleted from the cluster",
        finding.fingerprint,
        path=finding.path,
        recorded=finding.recorded,
        observed=finding.observed,
        ignored=finding.ignored,
        origin=finding.origin,
    )


def _format_path(finding: DriftFinding) -> str:
    return finding.path if finding.origin is None else f"{finding.path} (from {finding.origin})"


def _build_agreed_item(finding: DriftFinding) -> DriftItem:
    message = f"{finding.path} was changed on the cluster, and the files have the same value: apply records it"
    mark = compute_fingerprint("pending", finding.address, to_json_types(finding.observed), finding.path)
    return DriftItem("pending", finding.address, message, mark, finding.path, finding.recorded, finding.observed)


def _list_pending_items(plan: Plan, fields: AbstractSet[_Field]) -> Iterator[DriftItem]:
    for action in plan.actions:
        if not action.blocked and not _is_drift_reset(action, fields):
            mark = compute_fingerprint("pending", action.address, _identify_action(action))
            yield DriftItem("pending", action.address, f"{action.verb} is planned", mark)


def _build_held_item(held: HeldChange) -> DriftItem:
    mark = compute_fingerprint("pending", held.address, held.current, "state")
    return DriftItem("pending", held.address, held.message, mark)


def _is_drift_reset(action: Action, fields: AbstractSet[_Field]) -> bool:
    if moves := list_platform_changes(action):
        return all((action.address, change.path) in fields for change in moves)
    is_gone = (action.address, "") in fields
    if isinstance(action, Create | RunJob):
        return is_gone
    is_of_record = isinstance(action, Adopt) and not action.changes
    return is_of_record and any(address == action.address for address, _ in fields)


def _identify_action(action: Action) -> object:
    if moves := list_platform_changes(action):
        return [action.id, [[change.path, to_json_types(change.after)] for change in moves]]
    return action.id


def _build_blocked_item(action: Action) -> DriftItem:
    guard, why = (action.blocked.guard, action.blocked.message) if action.blocked else ("", "")
    mark = compute_fingerprint("blocked", action.address, [guard, _identify_action(action)])
    return DriftItem("blocked", action.address, f"{action.verb} is blocked: {why}", mark)


def _build_unmanaged_item(address: Address, owner: ResourceOwner | None) -> DriftItem:
    message = "exists, but no file declares it" if owner is None else f"is owned by {owner}, and no file declares it"
    return DriftItem("unmanaged", address, message, compute_fingerprint("unmanaged", address), owner=owner)


class ComparisonInput(NamedTuple):
    """Inputs to build a patch from this comparison."""

    loaded: LoadedWorkspace
    decided: PlanDecision
    doubtful: tuple[DriftItem, ...]


@dataclass(frozen=True, slots=True)
class DriftResult:
    """Result of `drift`, in plan order."""

    planned: PlanResult
    findings: tuple[DriftItem, ...]
    """Items to show, without those in the `--known` file."""
    failing: tuple[DriftItem, ...]
    verdict: ReconcilerError | None
    known: KnownDriftFile | None = None
    unreadable: PlanFinding | None = None
    """Error of an interrupted run's files."""
    sealed: tuple[PlanFinding, ...] = ()
    """Topics closed to producers by an interrupted move or unmount."""
    lost: tuple[PlanFinding, ...] = ()
    compared: ComparisonInput | None = None
    untold: tuple[PlanFinding, ...] = ()

    @property
    def warnings(self) -> tuple[PlanFinding, ...]:
        """Warnings about drift rules, closed topics, and changes that cannot be reset."""
        plan = self.planned.plan
        rules = (finding for finding in plan.warnings if finding.source == WORKSPACE_FILE or finding.concerns_drift)
        return (
            *rules,
            *(_build_sealed_finding(waiting) for waiting in plan.waiting if waiting.rejects_writes),
            *self.sealed,
            *self.untold,
        )

    @property
    def obstacles(self) -> tuple[PlanFinding, ...]:
        """Errors that prevented a comparison."""
        return (*self._unknown_findings, *_find_obstacles(self.planned.plan))

    @property
    def errors(self) -> tuple[PlanFinding, ...]:
        """Errors that prevented a comparison or prevent a reset."""
        return (*self._unknown_findings, *self.planned.plan.errors)

    @property
    def failing_marks(self) -> frozenset[str]:
        """Fingerprints of failing items."""
        return frozenset(item.fingerprint for item in self.failing)

    @property
    def next_steps(self) -> tuple[str, ...]:
        """Commands for failing items, as sentences, gravest first."""
        return _describe_next_steps(self.planned.plan, self.failing)

    @property
    def _unknown_findings(self) -> tuple[PlanFinding, ...]:
        return self.lost if self.unreadable is None else (self.unreadable, *self.lost)

    def record_shown(self) -> None:
        """Store the items in the `--known` file, if any."""
        if self.known is not None:
            self.known.store_findings()


def _build_sealed_finding(waiting: UnfinishedTransition) -> PlanFinding:
    message = f"it is unfinished ({waiting.state}): it accepts no records until that is finished"
    hint = "Finish it with: reconciler run --once --only mirror"
    if waiting.is_by_cluster:
        hint = f"Its cluster finishes it. How far it is: reconciler mirror describe {waiting.address}"
    return PlanFinding(waiting.address, None, message, hint)


def drift(
    invocation: Invocation, select: Select, *, fail_on: Sequence[str] = (), known: Path | None = None
) -> DriftResult:
    """Compare files, state and clusters. `fail_on` adds failing classes. `known` hides reported items.

    Call `record_shown` of the result once it is shown.
    """
    kinds = parse_failing_classes(fail_on)
    started_ms = invocation.now_ms()
    work = open_work(invocation, select, is_reader=True)
    decided = plan_unlocked(work, PlanOptions(is_comparison=True))
    planned = build_plan_result(work, decided, started_ms)
    doubtful = find_doubtful_actions(work.state, decided.remembered, _build_selector(select))
    foreign, untold = _find_foreign_records(work, decided, select)
    items = (*_find_takeovers(work, decided, _build_selector(select)), *foreign, *list_drift_items(planned.plan))
    findings = put_doubtful_first(items, doubtful)
    unknown, lost = _find_unreadable_run(work, decided), _find_unread_clusters(decided)
    known_file = None
    if known is not None:
        known_file = KnownDriftFile.read(
            invocation.cwd / known,
            _build_scope(planned.plan),
            findings,
            (lambda _address: False) if unknown is not None or lost else _build_compared_check(planned.plan, select),
        )
        findings = known_file.unknown
    fails = tuple(item for item in findings if item.kind in kinds and item.ignored is None)
    if unknown is not None:
        verdict: ReconcilerError | None = UserError(unknown.message, hint=unknown.hint)
    elif lost and not _find_obstacles(planned.plan):
        verdict = unreachable_clusters_error(decided.seen.lost)
    else:
        verdict = _choose_verdict(planned.plan, fails, lost)
    is_chosen = _build_selector(select)
    shut = tuple(find_sealed_topics({a: o for a, o in decided.seen.inventory.items() if is_chosen(a)}))
    compared = ComparisonInput(work.loaded, decided, doubtful)
    return DriftResult(planned, findings, fails, verdict, known_file, unknown, shut, lost, compared, untold)


def _find_takeovers(work: Work, decided: PlanDecision, is_selected: Callable[[Address], bool]) -> tuple[DriftItem, ...]:
    me = work.make_owner(decided.snapshot.lineage if decided.snapshot else "")
    takeovers = find_taken_resources(decided.recorded, decided.seen.inventory, me)
    return tuple(
        DriftItem(
            "drift",
            address,
            f"it is owned by {other} now",
            hash_value([address, OWNER, other.to_json()]),
            path=OWNER,
            recorded=str(me),
            observed=str(other),
        )
        for address, other in takeovers
        if is_selected(address)
    )


FOREIGN: Final = "records"


def _find_foreign_records(
    work: Work, decided: PlanDecision, select: Select
) -> tuple[list[DriftItem], tuple[PlanFinding, ...]]:
    items: list[DriftItem] = []
    untold: list[PlanFinding] = []
    is_chosen = _build_selector(select)
    ours = {*work.desired, *decided.recorded}
    clusters: dict[str, list[str]] = {}
    for address, seen in decided.seen.inventory.items():
        if not isinstance(seen.resource, MirrorTopic) or not is_mirroring(seen) or not is_chosen(address):
            continue
        if address in ours or link_of(seen.resource) in ours:
            clusters.setdefault(cluster_of(address) or "", []).append(full_name_of(address))
    for cluster, names in sorted(clusters.items()):
        provider = work.providers[cluster]
        links = require_links(provider).job_steps
        if provider.capabilities.mirrors.read_only or links is None:
            continue
        unknown: dict[str, ReconcilerError] = {}
        foreign_by_name: Mapping[str, Sequence[ForeignRecords]] = {}
        try:
            foreign_by_name = links.find_foreign_records(names, on_unknown=unknown.__setitem__)
        except (NotAuthorizedError, RetryableError) as error:
            unknown = {names[0]: error}
        if unknown:
            why = next(iter(unknown.values()))
            others = f"; nor is it of {list_first([*unknown][1:])}" if len(unknown) > 1 else ""
            message = f"it cannot be checked whether others wrote to its mirrors: {why.message}{others}"
            hint = "Allow READ on its mirrors." if isinstance(why, NotAuthorizedError) else why.hint
            untold.append(PlanFinding(cluster_address(cluster), None, message, hint))
        for name, foreign in sorted(foreign_by_name.items()):
            address, where = address_of("mirror", cluster, name), [str(foreign_range) for foreign_range in foreign]
            count = pluralize(sum(foreign_range.records for foreign_range in foreign), "record")
            message = f"another producer wrote {count}: {list_first(where, _SHOWN, grouping='')}"
            mark = compute_fingerprint("drift", address, where, FOREIGN)
            items.append(DriftItem("drift", address, message, mark, FOREIGN))
    return items, tuple(untold)


def _find_unreadable_run(work: Work, decided: PlanDecision) -> PlanFinding | None:
    why = find_unreadable_error(work.state, decided.remembered)
    return None if why is None else PlanFinding(None, None, why.message, why.hint)


def _find_unread_clusters(decided: PlanDecision) -> tuple[PlanFinding, ...]:
    declared = {finding.address: finding.source for finding in decided.plan.warnings}
    errors = {name: unreachable_clusters_error({name: why}) for name, why in sorted(decided.seen.lost.items())}
    return tuple(
        PlanFinding(cluster_address(name), declared.get(cluster_address(name)), error.message, error.hint)
        for name, error in errors.items()
    )


def _build_scope(plan: Plan) -> DriftScope:
    return DriftScope(plan.workspace, plan.environment, plan.base.lineage if plan.base else None)


def _build_compared_check(plan: Plan, select: Select) -> Callable[[Address], bool]:
    if _find_obstacles(plan) or select.labels or select.changed_since is not None:
        return lambda _address: False
    return _build_selector(select)


def _build_selector(select: Select) -> Callable[[Address], bool]:
    def is_selected(address: Address) -> bool:
        is_target = not select.targets or any(matches_pattern(pattern, address) for pattern in select.targets)
        return is_target and not any(matches_pattern(pattern, address) for pattern in select.excludes)

    return is_selected


def _find_obstacles(plan: Plan) -> tuple[PlanFinding, ...]:
    moved = {finding.address for finding in plan.drift}
    return tuple(error for error in plan.errors if error.address not in moved)


_ACCEPTING: Final = "take it into the files: reconciler drift --accept ADDR"


def _choose_verdict(plan: Plan, fails: Sequence[DriftItem], lost: Sequence[PlanFinding]) -> ReconcilerError | None:
    obstacles = (*lost, *_find_obstacles(plan))
    if obstacles:
        return combine_errors(obstacles)
    counts = {kind: sum(item.kind == kind for item in fails) for kind in CLASSES}
    counted_kinds = [f"{count} {kind}" for kind, count in counts.items() if count]
    if not counted_kinds:
        return None
    return DriftError(
        f"reality differs from the files: {', '.join(counted_kinds)}", hint=_describe_next_steps(plan, fails)[0]
    )


def _describe_next_steps(plan: Plan, fails: Sequence[DriftItem]) -> tuple[str, ...]:
    moved = [item for item in fails if item.kind in {"drift", "missing"}]
    return (*([_describe_reset(plan, moved)] if moved else []), *_describe_other_steps(fails))


def _describe_reset(plan: Plan, moved: Sequence[DriftItem]) -> str:
    refused = {*(error.address for error in plan.errors), *(finding.address for finding in plan.drift if finding.stays)}
    back = [item for item in moved if item.path not in {"incarnation", OWNER, FOREIGN}]
    if any(item.address in refused for item in moved):
        return f"Not all of it can be reverted: `reconciler plan` has the reasons. Or {_ACCEPTING}"
    if back:
        return f"Set it back: reconciler apply --only-drift. Or {_ACCEPTING}"
    if lost := [item.address for item in moved if item.path == OWNER]:
        return (
            f"Take ownership back with: reconciler apply {format_takeover_options(lost)}. Or take it out of the files"
        )
    if any(item.path == FOREIGN for item in moved):
        return "Keep others out (`protect: acl` in the link). To remove the records, delete the mirror, and apply."
    return "What was deleted and created again cannot be set back. Adopt it with: reconciler apply"


def _describe_other_steps(fails: Sequence[DriftItem]) -> Iterator[str]:
    ways: dict[DriftClass, str] = {
        "in doubt": "Find out what happened, and continue: reconciler apply",
        "pending": "Revert to the files: reconciler apply",
        "blocked": "See what would allow it: reconciler plan",
        "unmanaged": f"Leave it as it is, or {_ACCEPTING}",
    }
    yield from (ways[kind] for kind in ways if any(item.kind == kind for item in fails))
