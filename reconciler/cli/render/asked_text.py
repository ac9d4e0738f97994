"""What is asked of mirrors, and what came of it, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.cli.render.amounts import counted
from reconciler.cli.render.lines import Line, Span, Tone, line
from reconciler.cli.render.role_costs import role_notes
from reconciler.lifecycles.mirror import MirrorStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from reconciler.workflow.linking.commands.answers import Answer, Answers
    from reconciler.workflow.linking.commands.readying import Ready

_MEANINGS: Final = {
    "pause": "it fetches nothing until it is resumed",
    "resume": "it goes on from where it stopped",
    "promote": "once nothing lags behind it takes records of its own, and follows its source no more",
    "failover": "it takes records of its own at once, and follows its source no more",
    "reverse-and-start": "its source becomes its mirror; until both are equal neither takes records",
    "reverse-and-pause": "its source becomes its mirror, paused; until both are equal neither takes records",
    "truncate-and-restore": "it becomes a mirror, and takes no records of its own any more",
}


def asking_text(ready: Sequence[Ready]) -> list[Line]:
    """Return what is about to happen to mirrors, and what is lost or waited for, by partition."""
    return [each for one in ready for each in _asked(one)]


def _asked(ready: Ready) -> Iterator[Line]:
    mirror = ready.mirror
    yield line(
        Span("» ", Tone.MOVE),
        Span(ready.address, Tone.STRONG),
        f"  {ready.verb}, {ready.status} now, source {mirror.source_cluster}/{mirror.source}",
    )
    yield line("    ", _MEANINGS[ready.verb])
    for said, tone in role_notes(ready.verb, mirror, ready.estimate):
        yield line("    ", Span(said, tone))


def answers_text(answers: Answers) -> list[Line]:
    """Return what came of each mirror."""
    return [each for answer in answers.each for each in _answered(answers, answer, is_one=len(answers.each) == 1)]


def _answered(answers: Answers, answer: Answer, *, is_one: bool) -> Iterable[Line]:
    address = answer.named.address
    if answer.error is not None:
        if is_one:
            return  # It is what the command ends with.
        message = answer.error.message.removeprefix(f"{address}: ")
        yield line(Span("✗ ", Tone.DANGER), Span(address, Tone.STRONG), f"  {answers.verb}: {message}")
        yield line("    ", Span("hint: ", Tone.QUIET), answer.error.hint)
        return
    moved = f"{answer.before} → {answer.after or '?'}" if answer.before else f"{answer.after or '?'}"
    yield line(Span("✓ ", Tone.ADD), Span(address, Tone.STRONG), f"  {answers.verb}: {moved}{_then(answer)}")
    for cut in answer.ready.cuts if answer.ready else ():
        if cut.lost:
            yield line("    ", f"partition {cut.partition} was cut at {cut.offset}: {counted(cut.lost, 'offset')} lost")


def _then(answer: Answer) -> str:
    if answer.ready is None or answer.after is not MirrorStatus.STOPPED:
        return ""
    mirror = answer.ready.mirror
    if mirror.state == "reversed":
        return f"; mirror/{mirror.source_cluster}/{mirror.source} mirrors it now"
    return "; it takes records"
