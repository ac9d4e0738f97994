"""What another role of a mirror costs, in words: the same in a plan and where a command asks before it acts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.cli.render.amounts import about, bytes_text, count_text, counted
from reconciler.cli.render.lines import Tone
from reconciler.resources.quantities import format_duration
from reconciler.resources.standing import length_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from reconciler.planning.estimates import Estimate, RoleCost
    from reconciler.resources.mirrortopic import MirrorTopic
    from reconciler.resources.standing import Stretch

_FEW: Final = 8


def role_notes(verb: str, mirror: MirrorTopic, estimate: Estimate) -> Iterator[tuple[str, Tone]]:
    """Yield what a verb asked of a mirror costs, worst first; nothing for a verb that loses and copies nothing."""
    cost = estimate.role
    if cost is None:
        return
    match verb:
        case "failover":
            yield from _failover(cost)
        case "truncate-and-restore":
            yield from _restore(cost)
        case "reverse-and-start" | "reverse-and-pause":
            name = f"{mirror.source} on {mirror.source_cluster}"
            yield f"producers of {name} are refused from its beginning on", Tone.CHANGE
            yield _first(estimate), Tone.QUIET
        case _:
            yield ", ".join(filter(None, (_first(estimate), patience_text(cost)))), Tone.QUIET


def lag_text(estimate: Estimate) -> str:
    """Return what a mirror is behind, and about how long it takes to copy that."""
    cost = estimate.role
    if cost is None or cost.unknown is not None:
        return "cannot tell what lags behind" + (f": {cost.unknown}" if cost is not None else "")
    if not cost.behind:
        return "nothing lags behind as of now"
    size = [bytes_text(estimate.bytes)] if estimate.bytes else []
    return ", ".join([_listed(cost.behind), *size, about(estimate.seconds)])


def _first(estimate: Estimate) -> str:
    is_behind = estimate.role is not None and bool(estimate.role.behind)
    return f"to be copied first: {lag_text(estimate)}" if is_behind else lag_text(estimate)


def patience_text(cost: RoleCost | None) -> str:
    """Return for how long a promotion waits."""
    if cost is None or cost.timeout_ms is None:
        return ""
    return f"given up where it does not shrink for {format_duration(cost.timeout_ms)}"


def _failover(cost: RoleCost) -> Iterator[tuple[str, Tone]]:
    if cost.unknown is not None:
        yield f"cannot tell how much is lost: {cost.unknown}", Tone.DANGER
        if cost.fetched:
            last = [
                f"{offset} of partition {part}" if offset >= 0 else f"nothing of partition {part}"
                for part, offset in cost.fetched
            ]
            yield f"last source fetch offset: {_few(last)}", Tone.QUIET
    elif cost.lost:
        yield f"{_listed(cost.lost)} lost as of now, which only its source has", Tone.DANGER
    else:
        yield (
            "0 offsets lost as of now: it has all that its source has, but not what is written there until then",
            Tone.QUIET,
        )


def _restore(cost: RoleCost) -> Iterator[tuple[str, Tone]]:
    if cost.unknown is not None:
        yield f"cannot tell what is cut off: {cost.unknown}", Tone.DANGER
        return
    if not cost.lost:
        yield "0 offsets cut off as of now: it has nothing that its mirror has not", Tone.QUIET
        return
    yield f"{_listed(cost.lost, has_starts=True)} cut off for good, which only it has", Tone.DANGER
    if cost.groups_set_back is None:
        yield "cannot tell which groups are set back", Tone.CHANGE
    elif cost.groups_set_back:
        groups = cost.groups_set_back
        verb = "is" if len(groups) == 1 else "are"
        yield f"{counted(len(groups), 'group')} {verb} set back to there ({_few(groups)})", Tone.CHANGE


def _listed(stretches: Sequence[Stretch], *, has_starts: bool = False) -> str:
    """Return a sum of offsets, and what it is made of."""
    said = [
        f"{count_text(each.length)} of partition {each.partition}{f' from {each.start} on' if has_starts else ''}"
        for each in stretches
    ]
    return f"{counted(length_of(stretches), 'offset')} ({_few(said)})"


def _few(said: Iterable[str]) -> str:
    all_of_it = list(said)
    more = f", and {counted(len(all_of_it) - _FEW, 'more', 'more')}" if len(all_of_it) > _FEW else ""
    return ", ".join(all_of_it[:_FEW]) + more
