"""What mirror, migration and state commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from reconciler.applying.events import ActionFailed, Event
from reconciler.cli import signals
from reconciler.cli.options import Acting, Files, Place, TextOrJson, seconds
from reconciler.cli.present import present, raise_verdict
from reconciler.cli.show import approved

if TYPE_CHECKING:
    from reconciler.operations.clusters.mounts import MigrationVerb, Underway
    from reconciler.operations.mirrors.mirror_commands import Answers
    from reconciler.operations.mirrors.mirror_preview import Verb
    from reconciler.operations.mirrors.mirror_selection import MirrorChoice
    from reconciler.operations.state_edit import Surgery
    from reconciler.operations.steps.runner import SiteOptions


@contextmanager
def surgery(files: Files, place: Place, command: str, lock_timeout: str) -> Iterator[Surgery]:
    """Give the run, which a signal stops before it starts."""
    lock_timeout_s = seconds("--lock-timeout", lock_timeout)
    from reconciler.operations.state_edit import Surgery
    from reconciler.operations.steps.runner import Stop

    stop = Stop()
    with signals.stopping(stop):
        yield Surgery(
            invocation=place.invocation(),
            select=files.select(),
            command=command,
            lock_timeout_s=lock_timeout_s,
            stop=stop,
        )


# What the commands that ask something of mirrors have in common.


Addresses = Annotated[list[str], Argument(metavar="ADDR", help="For example mirror/east/shop:eu:orders.")]
Choice = Annotated[
    list[str] | None,
    Argument(
        metavar="ADDR", help="For example mirror/east/shop:eu:orders, or 'mirror/east/shop:*'.", show_default=False
    ),
]
Links = Annotated[
    list[str] | None,
    Option("--link", metavar="LINK", help="All mirrors of a link, such as link/east/twin.", show_default=False),
]
RestoredFrom = Annotated[
    list[str] | None,
    Option(
        "--link",
        metavar="LINK",
        help="Restore from the stopped mirrors of this link, such as link/east/twin; without ADDR from all of them.",
        show_default=False,
    ),
]
Timeout = Annotated[
    str | None,
    Option("--timeout", metavar="TIME", help="How long to wait for lag 0 at most.", show_default=False),
]


def choice_of(addresses: list[str] | None, links: list[str] | None) -> MirrorChoice:
    """Return what was typed of which mirrors are meant."""
    from reconciler.operations.mirrors.mirror_selection import MirrorChoice

    return MirrorChoice(tuple(addresses or ()), tuple(links or ()))


def asked(
    acting: Acting,
    files: Files,
    place: Place,
    verb: Verb,
    choice: MirrorChoice,
    *,
    form: TextOrJson,
    yes: bool | None = None,
    timeout: str | None = None,
    at: Mapping[str, str] | None = None,
    dry_run: bool = False,
    keeps_diverged: bool = False,
) -> None:
    """Ask a verb of mirrors and show what came of each.

    `yes`: `--yes` was typed; `None`: the verb needs no confirmation.
    """
    from reconciler.cli.text.mirrors_text import asking_text
    from reconciler.operations.mirrors.mirror_commands import ask_mirrors
    from reconciler.runtime.text import count_text

    def confirm(foreseen: Answers) -> bool:
        ready = sum(answer.ready is not None for answer in foreseen.each)
        question = f"{verb} {'it' if ready == 1 else f'these {count_text(ready)} mirrors'}?"
        return approved(asking_text(foreseen), question.capitalize(), yes=bool(yes), form=form)

    wait_ms = None if timeout is None else int(seconds("--timeout", timeout) * 1000)
    with acting.emergency(files, place, f"mirror {verb}", at=at) as emergency:
        acts = replace(emergency, report=without_failures(emergency.report))
        answers = ask_mirrors(
            acts,
            verb,
            choice,
            confirm=None if yes is None else confirm,
            timeout_ms=wait_ms,
            is_rehearsal=dry_run,
            keeps_diverged=keeps_diverged,
        )
    show(answers, form)


def without_failures(report: Callable[[Event], None]) -> Callable[[Event], None]:
    """Return where events go but those of failures: each is told with the mirror it is of."""

    def tell(event: Event) -> None:
        if not isinstance(event, ActionFailed):
            report(event)

    return tell


def show(answers: Answers, form: TextOrJson) -> None:
    """Show what came of each mirror, and leave with the verdict on all."""
    from reconciler.cli.json.mirrors_json import MirrorAnswersDocument
    from reconciler.cli.text.mirrors_text import answers_text

    present(form, lambda: answers_text(answers), lambda: MirrorAnswersDocument.of(answers))
    raise_verdict(answers.verdict)


# What `mount cancel` and `mount delete` have in common: a migration is shown, and what is asked of it confirmed.


@dataclass(frozen=True, slots=True)
class MigrationId:
    """A migration by its id, and the cluster that counts it, where that is said."""

    migration: int
    cluster: str | None


def ask_migration(
    reach: SiteOptions, which: MigrationId, verb: MigrationVerb, *, yes: bool, form: Literal["text", "json"]
) -> Underway:
    """Ask a verb of a migration, once that is confirmed; return the migration as it is then."""
    from reconciler.cli.text.mounts_text import asking_text
    from reconciler.operations.clusters.mounts import ask_migration
    from reconciler.operations.steps.runner import Stop

    def confirm(underway: Underway) -> bool:
        return approved(asking_text(underway, verb), f"{verb.capitalize()} it?", yes=yes, form=form)

    stop = Stop()
    with signals.stopping(stop, patience_s=signals.RUN_S):
        return ask_migration(reach, which.migration, verb, which.cluster, confirm=confirm, stop=stop)
