"""The options of commands that act at once, and the run they make."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from typer import Option

from reconciler.cli import signals
from reconciler.cli.again import TypedOptions
from reconciler.cli.console import err
from reconciler.cli.options import seconds
from reconciler.cli.render.lines import line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from reconciler.cli.options import Files, Place
    from reconciler.workflow.running.emergencies import Emergency


@dataclass(frozen=True, slots=True)
class Acting:
    """How to act: under the lease of a state, or without any."""

    state: Annotated[
        str | None,
        Option(metavar="URL", help="Where the state is, in place of a workspace.", show_default=False),
    ] = None
    no_state: Annotated[bool, Option("--no-state", help="Act without the state; the next plan finds it.")] = False
    lock_timeout: Annotated[str, Option(metavar="TIME", help="How long to wait for the lease.")] = "10s"

    def typed(self) -> TypedOptions:
        """Return what a hint has to name of it."""
        return TypedOptions(state=() if self.state is None else ("--state", self.state))

    @contextmanager
    def emergency(
        self, files: Files, place: Place, command: str, *, at: Mapping[str, str] | None = None
    ) -> Iterator[Emergency]:
        """Give the run, which a signal stops before it starts; afterwards say where the state does not know of it."""
        from reconciler.cli.reporting import reporter
        from reconciler.workflow.running.emergencies import Emergency
        from reconciler.workflow.running.stopping import Stop

        stop = Stop()
        with signals.stopping(stop, patience_s=signals.RUN_S), reporter("text") as report:
            yield Emergency(
                invocation=place.invocation(),
                select=files.select(),
                command=command,
                no_state=self.no_state,
                state_url=self.state,
                lock_timeout_s=seconds("--lock-timeout", self.lock_timeout),
                report=report,
                stop=stop,
                at=at or {},
            )
        if self.no_state:
            err().show(
                [line("The state does not know of this. What becomes of it where the files differ: reconciler plan")]
            )
