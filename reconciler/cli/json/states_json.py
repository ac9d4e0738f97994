"""JSON of the state commands."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from reconciler.cli.json.base import Document, MovedPart, Part
from reconciler.cli.json.inventory_json import RecordedPart

if TYPE_CHECKING:
    from reconciler.operations.state_edit import Repaired
    from reconciler.operations.state_views import History, StateDiff, StateDifference, StateListing
    from reconciler.resources.inventory import Recorded
    from reconciler.state.repair import Unlocked


class StateListDocument(Document):
    """What a workspace owns."""

    format: Literal["reconciler.state-list/1"] = "reconciler.state-list/1"
    url: str
    lineage: str | None
    serial: int
    resources: dict[str, RecordedPart]

    @classmethod
    def of(cls, listing: StateListing) -> StateListDocument:
        """Say the whole record."""
        return cls.from_record(
            listing,
            resources={address: RecordedPart.of(recorded) for address, recorded in listing.rows},
        )


class StateShowDocument(Document):
    """One resource as it was last applied."""

    format: Literal["reconciler.state-show/1"] = "reconciler.state-show/1"
    address: str
    recorded: RecordedPart

    @classmethod
    def of(cls, address: str, recorded: Recorded) -> StateShowDocument:
        """Say what is remembered of it."""
        return cls(address=address, recorded=RecordedPart.of(recorded))


class SnapshotPart(Part):
    """One snapshot of the state, and what the run whose work it records says of itself."""

    serial: int
    key: str
    bytes: int
    is_current: bool
    run: str | None
    command: str | None
    who: str | None
    started: str | None = Field(description="When the run began.")
    git_commit: str | None
    approved_by: tuple[str, ...] = Field((), description="Who is said to have approved it.")
    pull_request: str | None = Field(None, description="Address of the pull request in which they approved.")
    settled_by: str | None = Field(
        None, description="The later run that recorded what `run`, which was cut off, had done."
    )


class StateHistoryDocument(Document):
    """The newest snapshots of the state, newest first."""

    format: Literal["reconciler.state-history/1"] = "reconciler.state-history/1"
    snapshots: tuple[SnapshotPart, ...]
    older: int = Field(description="How many older ones are kept and not shown: `--limit`.")

    @classmethod
    def of(cls, history: History) -> StateHistoryDocument:
        """Say what was asked for."""
        return cls(snapshots=tuple(map(SnapshotPart.from_record, history.rows)), older=history.older)


class DifferencePart(Part):
    """One address on which two states differ."""

    address: str
    change: Literal["created", "deleted", "changed"]
    fields: tuple[MovedPart, ...] = Field(description="What was applied, by field.")
    facts: tuple[MovedPart, ...] = Field(description="`ownership`, `protect`, `incarnation`, `physicalName`.")
    origins: tuple[MovedPart, ...] = Field(description="Where values come from, by field; null: the resource itself.")

    @classmethod
    def of(cls, difference: StateDifference) -> DifferencePart:
        """Say one address."""
        return cls.from_record(
            difference,
            fields=MovedPart.of(difference.fields),
            facts=MovedPart.of(difference.facts),
            origins=MovedPart.of(difference.origins),
        )


class StateDiffDocument(Document):
    """What two states say differently."""

    format: Literal["reconciler.state-diff/1"] = "reconciler.state-diff/1"
    before: int = Field(description="The serial of the first.")
    after: int = Field(description="The serial of the second.")
    differences: tuple[DifferencePart, ...]

    @classmethod
    def of(cls, diff: StateDiff) -> StateDiffDocument:
        """Say every difference, in the order of plans."""
        return cls(
            before=diff.before.serial,
            after=diff.after.serial,
            differences=tuple(DifferencePart.of(each) for each in diff.differences),
        )


class StateMovePart(Part):
    """One address that was replaced."""

    before: str
    after: str


class StateMovesDocument(Document):
    """What is recorded under another address from now on."""

    format: Literal["reconciler.state-moves/1"] = "reconciler.state-moves/1"
    moves: tuple[StateMovePart, ...]

    @classmethod
    def of(cls, moves: Iterable[tuple[str, str]]) -> StateMovesDocument:
        """Say every move."""
        return cls(moves=tuple(StateMovePart(before=before, after=after) for before, after in moves))


class StateRemovalDocument(Document):
    """What is not owned any more; it stays on its clusters as it is."""

    format: Literal["reconciler.state-removal/1"] = "reconciler.state-removal/1"
    forgotten: tuple[str, ...]

    @classmethod
    def of(cls, forgotten: Iterable[str]) -> StateRemovalDocument:
        """Say what was forgotten."""
        return cls(forgotten=tuple(forgotten))


class StateUnlockDocument(Document):
    """A lease that was taken from a run, and what that run left in doubt."""

    format: Literal["reconciler.state-unlock/1"] = "reconciler.state-unlock/1"
    was_free: bool
    run: str | None = Field(description="The run that held the lease.")
    who: str | None
    epoch: int
    open_run: str | None = Field(description="The run that had begun and not closed; the next apply settles it.")
    in_doubt: tuple[str, ...] | None = Field(description="Ids of its actions. Null: its files cannot be read.")
    left: tuple[str, ...] | None = Field(description="Ids of its actions that were not begun.")

    @classmethod
    def of(cls, unlocked: Unlocked) -> StateUnlockDocument:
        """Say what was found and done."""
        doubt = unlocked.doubt
        is_told = doubt is None or doubt.unreadable is None
        return cls.from_record(
            unlocked,
            open_run=unlocked.open_run.run if unlocked.open_run else None,
            in_doubt=(doubt.in_doubt if doubt else ()) if is_told else None,
            left=(doubt.left if doubt else ()) if is_told else None,
        )


class ForgottenRunPart(Part):
    """A run whose work stays on the clusters, and in no record."""

    run: str
    command: str = Field(description="Empty where only its result is left.")
    who: str | None
    started: str | None
    actions: tuple[str, ...] = Field(description="What it set out to do, by id; what it did, where only that is left.")


class StateRepairDocument(Document):
    """What was wrong with a state, and how it was mended."""

    format: Literal["reconciler.state-repair/1"] = "reconciler.state-repair/1"
    problems: tuple[str, ...] = Field(description="Empty: there was nothing to repair; the rest is null then.")
    base: int | None = Field(description="Serial of the state it went on from.")
    serial: int | None = Field(description="Serial of the state from now on.")
    epoch: int | None
    open_run: str | None = Field(description="The run that the next apply settles.")
    rebuilt_from: str | None = Field(description="The run whose journal stood in for a lost snapshot.")
    given_up: str | None = Field(description="The run that is not gone on with.")
    forgotten: tuple[ForgottenRunPart, ...]
    kept: str | None = Field(description="Where the lockfile that was there is kept.")

    @classmethod
    def of(cls, repaired: Repaired) -> StateRepairDocument:
        """Say what was done."""
        repair = repaired.repair
        lockfile = repair.lockfile if repair else None
        return cls(
            problems=repair.problems if repair else (),
            base=repair.base.serial if repair else None,
            serial=lockfile.serial if lockfile else None,
            epoch=lockfile.lease.epoch if lockfile else None,
            open_run=lockfile.open_run.run if lockfile and lockfile.open_run else None,
            rebuilt_from=repair.rebuilt_from if repair else None,
            given_up=repair.given_up if repair else None,
            forgotten=tuple(map(ForgottenRunPart.from_record, repair.forgotten if repair else ())),
            kept=repaired.kept,
        )
