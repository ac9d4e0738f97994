"""What the commands that ask something of mirrors have in common."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from reconciler.applying.events import ActionFailed
from reconciler.cli.asking import approved
from reconciler.cli.options import TextOrJson, seconds
from reconciler.cli.presenting import present, raise_verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from reconciler.applying.events import Event
    from reconciler.cli.emergency import Acting
    from reconciler.cli.options import Files, Place
    from reconciler.workflow.linking.commands.answers import Answers
    from reconciler.workflow.linking.commands.readying import Ready, Verb

Addresses = Annotated[list[str], Argument(metavar="ADDR", help="For example mirror/east/shop:eu:orders.")]
Yes = Annotated[bool, Option("--yes", "-y", help="Do not ask.")]
Timeout = Annotated[
    str | None,
    Option("--timeout", metavar="TIME", help="How long to wait for lag 0 at most.", show_default=False),
]


def asked(
    acting: Acting,
    files: Files,
    place: Place,
    verb: Verb,
    addresses: Sequence[str],
    *,
    form: TextOrJson,
    yes: bool | None = None,
    timeout: str | None = None,
    at: Mapping[str, str] | None = None,
) -> None:
    """Ask a verb of mirrors and show what came of each; `yes`: whether that was confirmed, `None`: nobody has to."""
    from reconciler.cli.render.asked_text import asking_text
    from reconciler.workflow.linking.commands.asking import ask_mirrors

    def confirm(ready: Sequence[Ready]) -> bool:
        question = f"{verb} {'it' if len(ready) == 1 else f'these {len(ready)} mirrors'}?"
        return approved(asking_text(ready), question.capitalize(), yes=bool(yes), form=form)

    wait_ms = None if timeout is None else int(seconds("--timeout", timeout) * 1000)
    with acting.emergency(files, place, f"mirror {verb}", at=at) as emergency:
        acts = replace(emergency, report=_without_failures(emergency.report))
        answers = ask_mirrors(acts, verb, addresses, confirm=None if yes is None else confirm, timeout_ms=wait_ms)
    show(answers, form)


def _without_failures(report: Callable[[Event], None]) -> Callable[[Event], None]:
    """Return where events go but those of failures: each is told with the mirror it is of."""

    def tell(event: Event) -> None:
        if not isinstance(event, ActionFailed):
            report(event)

    return tell


def show(answers: Answers, form: TextOrJson) -> None:
    """Show what came of each mirror, and leave with the verdict on all."""
    from reconciler.cli.documents.asked import MirrorAnswersDocument
    from reconciler.cli.render.asked_text import answers_text

    present(form, lambda: answers_text(answers), lambda: MirrorAnswersDocument.of(answers))
    raise_verdict(answers.verdict)
