"""`drift`: where reality has moved away from the files."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, get_args

import orjson

from reconciler.errors import DriftError, NotAuthorizedError, ReconcilerError, RetryableError, UsageError, UserError
from reconciler.manifests.files import WORKSPACE_FILE
from reconciler.objectstore.directory import write_whole
from reconciler.operations.plan import Decided, Planned, decide_unlocked, show_decided
from reconciler.operations.steps.invocation import Invocation, Select, errors_of
from reconciler.operations.steps.observe import unreachable
from reconciler.operations.steps.recorded import Remembered, unreadable_notice
from reconciler.operations.steps.workspace import Work, open_work
from reconciler.planning.actions import Action, Adopt, Create, RunJob, Value
from reconciler.planning.checks.guards import taking
from reconciler.planning.checks.mount_checks import sealed
from reconciler.planning.plan import DriftFinding, Finding, Held, Plan, PlanOptions, Waiting
from reconciler.planning.plan_rows import fingerprint, moves_of
from reconciler.planning.resolve.mirror_sources import link_of
from reconciler.planning.situation import is_live, taken_over
from reconciler.providers.protocol import links_of
from reconciler.resources.address import (
    Address,
    address_of,
    cluster_address,
    cluster_of,
    full_name_of,
    matches,
)
from reconciler.resources.mirror_link import MirrorTopic
from reconciler.runtime.text import counted, first_few, plain
from reconciler.state.lockfile import KEY, Lockfile

if TYPE_CHECKING:
    from reconciler.manifests.load import Loaded
    from reconciler.objectstore.base import ObjectStore
    from reconciler.resources.mirrors import ForeignRecords
    from reconciler.resources.owners import ResourceOwner


# One way in which clusters and files differ, by who has to act; and the mark by which a caller remembers it.


DriftClass: TypeAlias = Literal["drift", "missing", "in doubt", "unmanaged", "pending", "blocked"]
CLASSES: Final[tuple[DriftClass, ...]] = get_args(DriftClass)
ALWAYS: Final[frozenset[DriftClass]] = frozenset({"drift", "missing", "in doubt"})
"""The classes that fail whoever asks."""


@dataclass(frozen=True, slots=True)
class DriftItem:
    """One finding."""

    kind: DriftClass
    address: Address
    message: str
    fingerprint: str
    """The same for the same finding, run after run: sha256 of address, path and what was observed."""
    path: str = ""
    """The field; empty where it is the resource as a whole."""
    recorded: Value = None
    observed: Value = None
    ignored: str | None = None
    """The rule that leaves it as it is; what is ignored is listed and fails nothing."""
    origin: str | None = None
    """The namespace or cluster that says what was recorded, where that is not the topic itself."""
    owner: ResourceOwner | None = None
    """The other workspace that owns what no file declares."""


def fingerprint_of(kind: DriftClass, address: Address, what: object = None, path: str = "") -> str:
    """Return the fingerprint of what the planner has none for; never that of a drift at the same place."""
    return fingerprint([address, path, {kind: what}])


def failing(names: Iterable[str]) -> frozenset[DriftClass]:
    """Return the classes that fail, with those that `--fail-on` adds: `in-doubt` is `in doubt`.

    Raises:
        UsageError: One of them is no class.
    """
    by_name = {typed: kind for kind in CLASSES for typed in (kind, kind.replace(" ", "-"))}
    wrong = next((name for name in names if name not in by_name), None)
    if wrong is not None:
        typed = ", ".join(kind.replace(" ", "-") for kind in CLASSES)
        raise UsageError(f"there is no class {wrong!r} of drift", hint=f"Classes: {typed}.")
    return ALWAYS | {by_name[name] for name in names}


# What an interrupted run had begun and not ended: nobody may call that drift before it is settled.


def doubts(
    store: ObjectStore, remembered: Remembered, is_looked_at: Callable[[Address], bool]
) -> tuple[DriftItem, ...]:
    """Return what is in doubt; nothing while its run goes on, for what it does next cannot be told from outside."""
    unfinished, snapshot = remembered.unfinished, remembered.snapshot
    lockfile = snapshot.lockfile if snapshot is not None else None
    if unfinished is None or lockfile is None or is_renewed(store, lockfile):
        return ()
    file = unfinished.file
    return tuple(
        DriftItem(
            "in doubt",
            action.address,
            f"run {file.run} of {file.who} began to {action.verb} it, and whether it did is not written",
            fingerprint_of("in doubt", action.address, [file.run, action.id]),
        )
        for action in remembered.in_doubt
        if is_looked_at(action.address)
    )


def unreadable(store: ObjectStore, remembered: Remembered) -> UserError | None:
    """Return that nobody can tell what an open run did; nothing while it goes on, for its files are on their way."""
    lockfile = remembered.snapshot.lockfile if remembered.snapshot is not None else None
    why = remembered.unreadable
    if why is None or lockfile is None or is_renewed(store, lockfile):
        return None
    return UserError(unreadable_notice(lockfile, why), hint=why.hint)


def without_doubtful(findings: Sequence[DriftItem], doubtful: Sequence[DriftItem]) -> tuple[DriftItem, ...]:
    """Return all findings, those in doubt first: what differs at their addresses may be what that run did."""
    addresses = {found.address for found in doubtful}
    return (*doubtful, *(found for found in findings if found.address not in addresses))


def is_renewed(store: ObjectStore, lockfile: Lockfile) -> bool:
    """Tell whether a lease is held by somebody who was there within its length, by the store's own clock.

    A guess for people: whoever wants the lease watches it for as long as it lasts.
    """
    lease = lockfile.lease
    if lease.status != "held":
        return False
    row = next((listed for listed in store.list(KEY) if listed.key == KEY), None)
    return row is not None and store.clock_ms() - row.modified_ms <= lease.lease_s * 1000


# What the caller of `drift --known FILE` was told before: a local file of fingerprints, replaced as a whole.
#
# One file may serve many: each workspace, environment and state has marks of its own in it, and hides nothing of
# another.


OWNER: Final = "owner"
"""The path of drift of who owns a resource."""

FORMAT: Final = "reconciler.known-drift/2"
_UNNAMED: Final = "reconciler.known-drift/1"
"""Without a word of whose drift it tells: read as that of a workspace without environments; it would hide others'."""

_ANEW: Final = "Delete it; it is written again."

_Marks: TypeAlias = Mapping[str, Address | None]
"""Fingerprint → where it was found."""


class Whose(NamedTuple):
    """Whose drift was told; the same fingerprint elsewhere is news."""

    workspace: str
    environment: str | None = None
    lineage: str | None = None
    """Of the state; `None` before there is one."""


_NAMED: Final = 3
_NOBODY: Final = Whose("")
"""Under which what an old file says is kept until its owner takes it."""


@dataclass(frozen=True, slots=True)
class Known:
    """A file of what was told, as it was when it was read, and what there is to tell now."""

    path: Path
    whose: Whose
    told: _Marks
    findings: tuple[DriftItem, ...]
    """All that is there now, told before or not."""
    was_looked_at: Callable[[Address], bool]
    """Whether what this run did not find at an address is really gone from there."""

    @classmethod
    def read(
        cls, path: Path, whose: Whose, findings: Sequence[DriftItem], was_looked_at: Callable[[Address], bool]
    ) -> Known:
        """Read what was told of `whose`; a file that is not there says that nothing was.

        Raises:
            UserError: It is no such file, or cannot be read or kept.
        """
        _check_folder(path)
        return cls(path, whose, _taken(_read(path), whose)[whose], tuple(findings), was_looked_at)

    @property
    def unknown(self) -> tuple[DriftItem, ...]:
        """What is to be told now."""
        return tuple(found for found in self.findings if mark_of(found) not in self.told)

    def remember(self) -> None:
        """Keep what was told now; call it when that is done, for what is kept is not told again.

        What is gone from the world leaves the file, so that it is told again when it comes back. What another run has
        added meanwhile stays.

        Raises:
            UserError: The file cannot be written; it is as it was before.
        """
        now = {mark_of(found): found.address for found in self.findings}
        with _only_one(self.path):
            before = _taken(_read(self.path), self.whose)
            kept = {mark: address for mark, address in before[self.whose].items() if self._is_kept(mark, address)}
            _replace(self.path, {**before, self.whose: {**kept, **now}})

    def _is_kept(self, mark: str, address: Address | None) -> bool:
        return mark not in self.told or (address is not None and not self.was_looked_at(address))


def mark_of(found: DriftItem) -> str:
    """Return what is kept of a finding; one that is ignored is told anew when it no longer is."""
    return f"{found.fingerprint} ignored" if found.ignored is not None else found.fingerprint


def _check_folder(path: Path) -> None:
    if not path.parent.is_dir():
        raise UserError(
            f"cannot write {path}: there is no folder {path.parent}", hint="Name a file that can be written."
        )


def _taken(told: Mapping[Whose, _Marks], whose: Whose) -> dict[Whose, _Marks]:
    """Return everything with an entry for `whose`, who takes what an old file says where that can be theirs."""
    found = {whose: {}, **told}
    if whose.environment is None:
        found[whose] = {**found.pop(_NOBODY, {}), **found[whose]}
    return found


def _read(path: Path) -> Mapping[Whose, _Marks]:
    try:
        held = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}", hint="Name a readable file.") from error
    except orjson.JSONDecodeError as error:
        raise UserError(f"{path} is not JSON: {error}", hint=_ANEW) from error
    try:
        return dict(_parsed(held))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is not a file of {FORMAT}", hint=_ANEW) from error


def _parsed(held: Any) -> Iterator[tuple[Whose, _Marks]]:
    if held["format"] == _UNNAMED:
        yield _NOBODY, _marks(held)
        return
    if held["format"] != FORMAT:
        raise ValueError(held["format"])
    for each in held["told"]:
        yield Whose(str(each["workspace"]), each.get("environment"), each.get("lineage")), _marks(each)


def _marks(held: Mapping[str, Any]) -> _Marks:
    places = held.get("addresses") or {}
    return {str(mark): Address(place) if (place := places.get(mark)) else None for mark in [*held["fingerprints"]]}


def _replace(path: Path, told: Mapping[Whose, _Marks]) -> None:
    """Write a new file beside the old one and put it in its place: at every moment one of the two is there, whole."""
    ordered = sorted(told, key=lambda whose: [part or "" for part in whose])
    body = orjson.dumps(
        {"format": FORMAT, "told": [_written(whose, told[whose]) for whose in ordered]},
        option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS,
    )
    try:
        write_whole(path, body + b"\n")
    except OSError as error:
        raise _cannot_write(path, error) from error


def _written(whose: Whose, marks: _Marks) -> dict[str, Any]:
    places = {mark: place for mark in sorted(marks) if (place := marks[mark]) is not None}
    return {**whose._asdict(), "fingerprints": sorted(marks), "addresses": places}


@contextmanager
def _only_one(path: Path) -> Iterator[None]:
    """Keep other runs out while the file is read and replaced; the folder is what is locked, for the file changes."""
    try:
        folder = os.open(path.resolve().parent, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise _cannot_write(path, error) from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _cannot_write(path: Path, error: OSError) -> UserError:
    why = error.strerror or error
    return UserError(f"cannot write {path}: {why}; it is as it was", hint="Name a file that can be written.")


# A plan sorted into classes of drift: what the cluster did, what the files did, what nobody declared.


_Field = tuple["Address", str]


def sort_out(plan: Plan) -> tuple[DriftItem, ...]:
    """Return everything a plan found, by class, in the plan's order."""
    agreed = _agreed(plan)
    moved = tuple(_moved(finding) for finding in plan.drift if (finding.address, finding.path) not in agreed)
    waiting = tuple(_agreeing(finding) for finding in plan.drift if (finding.address, finding.path) in agreed)
    told = frozenset((finding.address, finding.path) for finding in plan.drift)
    unmanaged = tuple(_unmanaged(address, plan.owners.get(address)) for address in plan.unmanaged)
    return (
        *moved,
        *waiting,
        *_pending(plan, told),
        *map(_held, plan.held),
        *(_blocked(action) for action in plan.blocked if action.owner is None or not _is_told(action, told)),
        *unmanaged,
    )


def _agreed(plan: Plan) -> frozenset[_Field]:
    """Return the fields that moved to what the files say by now: only the record has to learn it."""
    refused = {finding.address for finding in plan.errors}
    changing = {(action.address, change.path) for action in plan.actions for change in moves_of(action)}
    return frozenset(
        (finding.address, finding.path)
        for finding in plan.drift
        if finding.path not in {"", "incarnation"}
        and finding.ignored is None
        and not finding.stays
        and finding.address not in refused
        and (finding.address, finding.path) not in changing
    )


def _moved(finding: DriftFinding) -> DriftItem:
    return DriftItem(
        "drift" if finding.path else "missing",
        finding.address,
        f"{_field(finding)} was changed on the cluster" if finding.path else "is gone from the cluster",
        finding.fingerprint,
        path=finding.path,
        recorded=finding.recorded,
        observed=finding.observed,
        ignored=finding.ignored,
        origin=finding.origin,
    )


def _field(finding: DriftFinding) -> str:
    return finding.path if finding.origin is None else f"{finding.path} (from {finding.origin})"


def _agreeing(finding: DriftFinding) -> DriftItem:
    message = f"{finding.path} was changed on the cluster, and the files say the same: apply remembers it"
    mark = fingerprint_of("pending", finding.address, plain(finding.observed), finding.path)
    return DriftItem("pending", finding.address, message, mark, finding.path, finding.recorded, finding.observed)


def _pending(plan: Plan, told: AbstractSet[_Field]) -> Iterator[DriftItem]:
    for action in plan.actions:
        if not action.blocked and not _is_told(action, told):
            mark = fingerprint_of("pending", action.address, _aim(action))
            yield DriftItem("pending", action.address, f"{action.verb} is planned", mark)


def _held(held: Held) -> DriftItem:
    mark = fingerprint_of("pending", held.address, held.now, "state")
    return DriftItem("pending", held.address, held.message, mark)


def _is_told(action: Action, told: AbstractSet[_Field]) -> bool:
    """Tell whether all that an action is for was found to have drifted already."""
    if moves := moves_of(action):
        return all((action.address, change.path) in told for change in moves)
    is_gone = (action.address, "") in told
    if isinstance(action, Create | RunJob):
        return is_gone
    is_of_record = isinstance(action, Adopt) and not action.changes
    return is_of_record and any(address == action.address for address, _ in told)


def _aim(action: Action) -> object:
    """Return what makes a planned action another one: what is asked for is told anew when it changes."""
    if moves := moves_of(action):
        return [action.id, [[change.path, plain(change.after)] for change in moves]]
    return action.id


def _blocked(action: Action) -> DriftItem:
    guard, why = (action.blocked.guard, action.blocked.message) if action.blocked else ("", "")
    mark = fingerprint_of("blocked", action.address, [guard, _aim(action)])
    return DriftItem("blocked", action.address, f"{action.verb} is blocked: {why}", mark)


def _unmanaged(address: Address, owner: ResourceOwner | None) -> DriftItem:
    message = "exists, but no file declares it" if owner is None else f"is owned by {owner}, and no file declares it"
    return DriftItem("unmanaged", address, message, fingerprint_of("unmanaged", address), owner=owner)


class Compared(NamedTuple):
    """What was compared: from it a patch is made without looking again."""

    loaded: Loaded
    decided: Decided
    doubtful: tuple[DriftItem, ...]


@dataclass(frozen=True, slots=True)
class Drifted:
    """Everything found, in the plan's order."""

    planned: Planned
    findings: tuple[DriftItem, ...]
    """What is to be told: without what the caller knows."""
    failing: tuple[DriftItem, ...]
    """Those of them that make the exit code 3."""
    verdict: ReconcilerError | None
    known: Known | None = None
    unreadable: Finding | None = None
    """An open run of which nobody can tell what it did: what is in doubt is not known."""
    sealed: tuple[Finding, ...] = ()
    """The topics that take no records, since a move or unmount was broken off."""
    lost: tuple[Finding, ...] = ()
    """The clusters that could not be read. A plan may do without them; what changed there is not known."""
    compared: Compared | None = None
    untold: tuple[Finding, ...] = ()
    """Of mirrors to which others may have written: that this is not known."""

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """Odd rules, changes that no apply sets back, who is shut out; what is odd about a plan, `plan` says."""
        plan = self.planned.plan
        rules = (each for each in plan.warnings if each.source == WORKSPACE_FILE or each.is_of_drift)
        return (*rules, *(_half_way(each) for each in plan.waiting if each.is_shut), *self.sealed, *self.untold)

    @property
    def obstacles(self) -> tuple[Finding, ...]:
        """What kept something from being compared."""
        return (*self._unknown, *_obstacles(self.planned.plan))

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The obstacles, and why something that drifted cannot be set back."""
        return (*self._unknown, *self.planned.plan.errors)

    @property
    def ways_on(self) -> tuple[str, ...]:
        """What to do about what fails: sentences with commands, the gravest first."""
        return _ways_on(self.planned.plan, self.failing)

    @property
    def _unknown(self) -> tuple[Finding, ...]:
        return self.lost if self.unreadable is None else (self.unreadable, *self.lost)

    def remember(self) -> None:
        """Keep in the file of `known` that all this was told."""
        if self.known is not None:
            self.known.remember()


def _half_way(each: Waiting) -> Finding:
    message = f"it is half-way ({each.state}): it takes no records until that is finished"
    return Finding(each.address, None, message, "Finish it with: reconciler run --once --only mirror")


def drift(invocation: Invocation, select: Select, *, fail_on: Sequence[str] = (), known: Path | None = None) -> Drifted:
    """Compare files, state and clusters; `fail_on` adds classes to those that fail, `known` leaves out what was told.

    Whoever shows what is returned calls its `remember` afterwards: what could not be shown is told the next time.

    Raises:
        UsageError: `fail_on` names no class.
    """
    kinds = failing(fail_on)
    started_ms = invocation.now_ms()
    work = open_work(invocation, select, is_reader=True)
    decided = decide_unlocked(work, PlanOptions(is_comparison=True))
    planned = show_decided(work, decided, started_ms)
    doubtful = doubts(work.state, decided.remembered, _chosen(select))
    foreign, untold = _foreign(work, decided, select)
    found = (
        *_taken_over(work, decided, _chosen(select)),
        *foreign,
        *sort_out(planned.plan),
    )
    findings = without_doubtful(found, doubtful)
    unknown, lost = _unknown_run(work, decided), _lost(decided)
    told = None
    if known is not None:
        told = Known.read(
            invocation.cwd / known,
            _whose(planned.plan),
            findings,
            (lambda _address: False) if unknown is not None or lost else _was_looked_at(planned.plan, select),
        )
        findings = told.unknown
    fails = tuple(found for found in findings if found.kind in kinds and found.ignored is None)
    if unknown is not None:
        verdict: ReconcilerError | None = UserError(unknown.message, hint=unknown.hint)
    elif lost and not _obstacles(planned.plan):
        verdict = unreachable(decided.seen.lost)
    else:
        verdict = _verdict(planned.plan, fails, lost)
    is_chosen = _chosen(select)
    shut = tuple(sealed({a: o for a, o in decided.seen.inventory.items() if is_chosen(a)}))
    compared = Compared(work.loaded, decided, doubtful)
    return Drifted(planned, findings, fails, verdict, told, unknown, shut, lost, compared, untold)


def _taken_over(work: Work, decided: Decided, is_looked_at: Callable[[Address], bool]) -> tuple[DriftItem, ...]:
    """Return what is recorded here and another workspace owns by now."""
    me = work.me(decided.snapshot.lineage if decided.snapshot else "")
    found = taken_over(decided.recorded, decided.seen.inventory, me)
    return tuple(
        DriftItem(
            "drift",
            address,
            f"it is owned by {other} now",
            fingerprint([address, OWNER, other.to_json()]),
            path=OWNER,
            recorded=str(me),
            observed=str(other),
        )
        for address, other in found
        if is_looked_at(address)
    )


FOREIGN: Final = "records"
"""The path of records in a mirror that its link did not copy."""


def _foreign(work: Work, decided: Decided, select: Select) -> tuple[list[DriftItem], tuple[Finding, ...]]:
    """Return mirrors of ours to which other producers wrote, on platforms that let them, and where it is not known."""
    items: list[DriftItem] = []
    untold: list[Finding] = []
    is_chosen = _chosen(select)
    ours = {*work.desired, *decided.recorded}
    clusters: dict[str, list[str]] = {}
    for address, seen in decided.seen.inventory.items():
        if not isinstance(seen.resource, MirrorTopic) or not is_live(seen) or not is_chosen(address):
            continue
        if address in ours or link_of(seen.resource) in ours:
            clusters.setdefault(cluster_of(address) or "", []).append(full_name_of(address))
    for cluster, names in sorted(clusters.items()):
        provider = work.providers[cluster]
        links = links_of(provider).by_jobs
        if provider.capabilities.mirrors.read_only or links is None:
            continue
        unknown: dict[str, ReconcilerError] = {}
        found: Mapping[str, Sequence[ForeignRecords]] = {}
        try:
            found = links.foreign(names, on_unknown=unknown.__setitem__)
        except (NotAuthorizedError, RetryableError) as error:  # Of its topics all else was seen.
            unknown = {names[0]: error}
        if unknown:
            why = next(iter(unknown.values()))
            others = f"; nor is it of {first_few([*unknown][1:])}" if len(unknown) > 1 else ""
            message = f"whether others wrote to its mirrors is not known: {why.message}{others}"
            hint = "Allow READ on its mirrors." if isinstance(why, NotAuthorizedError) else why.hint
            untold.append(Finding(cluster_address(cluster), None, message, hint))
        for name, foreign in sorted(found.items()):
            address, where = address_of("mirror", cluster, name), [str(each) for each in foreign]
            count = counted(sum(each.records for each in foreign), "record")
            message = f"another producer wrote {count}: {first_few(where, _NAMED, grouping='')}"
            mark = fingerprint_of("drift", address, where, FOREIGN)
            items.append(DriftItem("drift", address, message, mark, FOREIGN))
    return items, tuple(untold)


def _unknown_run(work: Work, decided: Decided) -> Finding | None:
    """Return that a part of what is in doubt cannot be known. Knowing less is never better than knowing of doubt."""
    why = unreadable(work.state, decided.remembered)
    return None if why is None else Finding(None, None, why.message, why.hint)


def _lost(decided: Decided) -> tuple[Finding, ...]:
    """Return, for each cluster that the plan does without, that it could not be read, and how to leave it out."""
    declared = {finding.address: finding.source for finding in decided.plan.warnings}
    errors = {name: unreachable({name: why}) for name, why in sorted(decided.seen.lost.items())}
    return tuple(
        Finding(cluster_address(name), declared.get(cluster_address(name)), error.message, error.hint)
        for name, error in errors.items()
    )


def _whose(plan: Plan) -> Whose:
    return Whose(plan.workspace, plan.environment, plan.base.lineage if plan.base else None)


def _was_looked_at(plan: Plan, select: Select) -> Callable[[Address], bool]:
    """Return the test of an address: whether drift that was not found there is gone."""
    if _obstacles(plan) or select.labels or select.changed_since is not None:
        return lambda _address: False
    return _chosen(select)


def _chosen(select: Select) -> Callable[[Address], bool]:
    """Return the test of an address by its name alone."""

    def test(address: Address) -> bool:
        is_target = not select.targets or any(matches(pattern, address) for pattern in select.targets)
        return is_target and not any(matches(pattern, address) for pattern in select.excludes)

    return test


def _obstacles(plan: Plan) -> tuple[Finding, ...]:
    """Return what kept something from being compared: that drift cannot be set back is no error of looking for it."""
    moved = {finding.address for finding in plan.drift}
    return tuple(error for error in plan.errors if error.address not in moved)


_ACCEPTING: Final = "take it into the files: reconciler drift --accept ADDR"


def _verdict(plan: Plan, fails: Sequence[DriftItem], lost: Sequence[Finding]) -> ReconcilerError | None:
    obstacles = (*lost, *_obstacles(plan))
    if obstacles:
        return errors_of(obstacles)
    counts = {kind: sum(found.kind == kind for found in fails) for kind in CLASSES}
    told = [f"{count} {kind}" for kind, count in counts.items() if count]
    if not told:
        return None
    return DriftError(f"reality differs from the files: {', '.join(told)}", hint=_ways_on(plan, fails)[0])


def _ways_on(plan: Plan, fails: Sequence[DriftItem]) -> tuple[str, ...]:
    """Return what to type, the gravest first: never what would leave all of it as it is."""
    moved = [found for found in fails if found.kind in {"drift", "missing"}]
    return (*([_way_back(plan, moved)] if moved else []), *_other_ways(fails))


def _way_back(plan: Plan, moved: Sequence[DriftItem]) -> str:
    refused = {*(error.address for error in plan.errors), *(each.address for each in plan.drift if each.stays)}
    back = [found for found in moved if found.path not in {"incarnation", OWNER, FOREIGN}]
    if any(found.address in refused for found in moved):
        return f"Not all of it can be set back: `reconciler plan` says why. Or {_ACCEPTING}"
    if back:
        return f"Set it back: reconciler apply --only-drift. Or {_ACCEPTING}"
    if lost := [found.address for found in moved if found.path == OWNER]:
        return f"Take it back with: reconciler apply {taking(lost)}. Or take it out of the files"
    if any(found.path == FOREIGN for found in moved):
        return "Keep others out (`protect: acl` in the link). To be rid of the records, delete the mirror, and apply."
    return "What was deleted and created again cannot be set back. Adopt it with: reconciler apply"


def _other_ways(fails: Sequence[DriftItem]) -> Iterator[str]:
    ways: dict[DriftClass, str] = {
        "in doubt": "Find out what happened, and go on from there: reconciler apply",
        "pending": "Do what the files say: reconciler apply",
        "blocked": "See what would allow it: reconciler plan",
        "unmanaged": f"Leave it as it is, or {_ACCEPTING}",
    }
    yield from (ways[kind] for kind in ways if any(found.kind == kind for found in fails))
