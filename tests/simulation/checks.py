"""What must always hold, each in a function of its own; a check returns what is wrong, as sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias

from reconciler.state.journal import ActionEnded, ActionRefused, Intent
from tests.simulation.manifests import ADOPTED
from tests.simulation.works import RECORDS, ranges_of
from tests.simulation.world import LEASE_S

if TYPE_CHECKING:
    from tests.simulation.world import World

Check: TypeAlias = Callable[["World"], Iterator[str]]


def every_act_has_an_intent(world: World) -> Iterator[str]:
    """No action acts without a durable intent of its own epoch."""
    for act in world.history.acts:
        if not act.has_intent:
            yield f"{act.when.machine} does {act.id} under epoch {act.epoch} without an intent"


def dependents_wait(world: World) -> Iterator[str]:
    """No action acts before what it leans on is durably done."""
    for act in world.history.acts:
        if act.waits_for:
            yield f"{act.when.machine} does {act.id} before {', '.join(act.waits_for)} is written down as done"


def one_holder_acts(world: World) -> Iterator[str]:
    """Only who holds the lease begins anything; what was begun before a takeover may end after it."""
    for act in world.history.acts:
        if not act.is_held or act.epoch != act.holder_epoch:
            yield f"{act.when.machine} does {act.id} under epoch {act.epoch}, but epoch {act.holder_epoch} holds"


def epochs_grow(world: World) -> Iterator[str]:
    """Epochs only grow, one at a time, and the lockfile is never removed."""
    for written in world.history.lockfiles:
        before, after = written.before, written.after
        if after is None:
            yield f"{written.when.machine} removes the lockfile"
        elif before is not None and after.lease.epoch - before.lease.epoch not in {0, 1}:
            yield f"{written.when.machine} writes epoch {after.lease.epoch} over {before.lease.epoch}"


def serials_grow(world: World) -> Iterator[str]:
    for written in world.history.lockfiles:
        if written.before is not None and written.after is not None:
            step = written.after.serial - written.before.serial
            if step not in {0, 1}:
                yield f"{written.when.machine} writes serial {written.after.serial} over {written.before.serial}"


def only_the_holder_writes(world: World) -> Iterator[str]:
    """Within an epoch one machine writes the lockfile, and a held lease is taken only after a whole lease unchanged."""
    last_s: dict[str, float] = {}
    for written in world.history.lockfiles:
        before, after, now = written.before, written.after, written.when.at
        if before is not None and after is not None:
            is_taken = before.lease.status == "held" and after.lease.epoch != before.lease.epoch
            idle = now - last_s.get(before.nonce, -before.lease.lease_s)
            if is_taken and idle < before.lease.lease_s:
                yield f"{written.when.machine} takes a lease that was renewed {idle:.1f} s ago"
        if after is not None:
            last_s[after.nonce] = now


def journals_are_fenced(world: World) -> Iterator[str]:
    """Once a run was settled by who took it over, nobody writes into its journal under an earlier epoch."""
    for settled in world.history.settled:
        epoch = max(
            (
                each.after.lease.epoch
                for each in world.history.lockfiles
                if each.after and each.when.at <= settled.when.at
            ),
            default=0,
        )
        for written in world.history.pages:
            is_later = written.when.at > settled.when.at and written.page.run == settled.run
            if is_later and written.page.epoch < epoch:
                yield f"{written.when.machine} writes page {written.page.seq} of {settled.run}, which was settled"


def journals_are_in_order(world: World) -> Iterator[str]:
    """Pages of a journal are contiguous, and their epochs only grow."""
    by_run: dict[str, list[tuple[int, int]]] = {}
    for written in world.history.pages:
        by_run.setdefault(written.page.run, []).append((written.page.seq, written.page.epoch))
    for run, pages in by_run.items():
        seqs = sorted(seq for seq, _ in pages)
        if seqs != list(range(seqs[0], seqs[0] + len(seqs))):
            yield f"the journal of {run} has a hole or a page twice: {sorted(pages)}"
        if any(after[1] < before[1] for before, after in pairwise(sorted(pages))):
            yield f"an earlier epoch writes into the journal of {run} after a later one: {sorted(pages)}"


def actions_end_once(world: World) -> Iterator[str]:
    """An action of a run is done once: nobody writes down a second end of it."""
    for run in world.history.runs:
        ends = Counter(entry.id for entry in world.history.entries_of(run) if isinstance(entry, ActionEnded))
        for name, times in ends.items():
            if times > 1:
                yield f"{name} of {run} ended {times} times"


def ranges_are_published_once(world: World) -> Iterator[str]:
    """Each range of a job is published once, right after the one before it."""
    before = dict(world.history.published_before)
    for sink, ranges in world.history.ledger:
        if ranges[:-1] != before.get(sink, []) or ranges[-1][0] != ([[0, 0], *ranges])[-2][1]:
            yield f"{sink}: {ranges} was published over {before.get(sink, [])}"
        before[sink] = ranges


def nobody_sees_a_bug(world: World) -> Iterator[str]:
    """A run ends with one of our own errors, or well."""
    yield from world.history.crashes


ALWAYS: Final[tuple[Check, ...]] = (
    nobody_sees_a_bug,
    every_act_has_an_intent,
    dependents_wait,
    one_holder_acts,
    epochs_grow,
    serials_grow,
    only_the_holder_writes,
    journals_are_fenced,
    journals_are_in_order,
    actions_end_once,
    ranges_are_published_once,
)
"""What holds at every moment of every history."""


def nothing_is_left_to_do(world: World) -> Iterator[str]:
    """The last run converges: a plan made after it is empty."""
    planned = world.plan().plan
    if not planned.is_empty or planned.drift:
        yield f"left to do: {', '.join(action.id for action in planned.actions)}; drift {planned.drift}"


def the_run_is_closed(world: World) -> Iterator[str]:
    """Once all has ended well, no run is open and the lease is free."""
    lockfile = world.history.lockfile
    if lockfile is None or lockfile.open_run is not None or lockfile.lease.status != "free":
        yield f"left behind: {lockfile}"


def nothing_is_forgotten(world: World) -> Iterator[str]:
    """What is on the clusters because of us is recorded as created by us; what is recorded is there."""
    record, observed, late = world.snapshot().record, world.plan().observed, _made_late(world)
    for address in sorted(observed.keys() - record.keys()):
        yield f"{address} is there because of us, and not recorded"
    for address in sorted(record.keys() - observed.keys()):
        yield f"{address} is recorded, and not there"
    for address in sorted(record.keys() & observed.keys()):
        last, seen = record[address], observed[address]
        if last.incarnation != seen.incarnation:
            yield f"{address} is recorded as {last.incarnation}, and is {seen.incarnation}"
        if address not in late and (last.ownership == "adopted") != (address in ADOPTED):
            yield f"{address} is recorded as {last.ownership}"


def _made_late(world: World) -> set[str]:
    """Return what a runner may have made that froze past its lease, after another had written down that it failed.

    It looks like what others made: the next plan adopts it, and `destroy` leaves it.
    """
    acts = [
        act
        for act in world.history.acts
        for fault in world.ended[act.when.machine].visit.faults
        if fault.harm == "freeze" and fault.seconds > LEASE_S
    ]
    return {
        entry.id.removeprefix("create:")
        for written in world.history.pages
        for entry in written.page.entries
        if isinstance(entry, ActionRefused)
        and any(act.id == entry.id and act.epoch < written.page.epoch for act in acts)
    }


def all_was_copied(world: World) -> Iterator[str]:
    """At the end every job has published everything."""
    ends = {listed.key: ranges_of(world.ledger.get(listed.key))[-1][1] for listed in world.ledger.list("")}
    if set(ends.values()) != {RECORDS}:
        yield f"copied up to {ends}"


def closed_runs_leave_nothing_in_doubt(world: World) -> Iterator[str]:
    """The journal of a closed run says of everything it began what became of it."""
    for run in world.history.runs:
        entries = world.history.entries_of(run)
        begun = {entry.id for entry in entries if isinstance(entry, Intent)}
        ended = {entry.id for entry in entries if isinstance(entry, ActionEnded | ActionRefused)}
        if world.history.is_closed(run):
            for name in sorted(begun - ended):
                yield f"{name} of {run} is in doubt for ever"


AT_THE_END: Final[tuple[Check, ...]] = (
    nothing_is_left_to_do,
    the_run_is_closed,
    nothing_is_forgotten,
    all_was_copied,
    closed_runs_leave_nothing_in_doubt,
)
"""What holds once a run that nothing happened to has ended last."""


def wrong(world: World, checks: tuple[Check, ...]) -> list[str]:
    """Return all that is wrong, each line beginning with the name of what does not hold."""
    return [f"{check.__name__}: {line}" for check in checks for line in check(world)]
