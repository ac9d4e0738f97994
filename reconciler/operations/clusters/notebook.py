"""Topics of a workspace as DataFrames in your own Spark session."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.errors import BrokenInvariantError, UserError
from reconciler.jobs.source import OPTIONS, register
from reconciler.operations.steps.invocation import Invocation, Select
from reconciler.operations.steps.workspace import open_work, provider_of
from reconciler.resources.address import address_of
from reconciler.runtime.text import did_you_mean, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NoReturn

    from reconciler.jobs.source import Session
    from reconciler.records.log import TopicLog


def register_topics(
    session: Session, workspace: Path, *, environ: Mapping[str, str], environment: str | None = None
) -> None:
    """Make `spark.read.format("topic-log")` read the topics of a workspace's clusters.

    `environ` resolves secret references; it travels inside the pickled source and shows in no plan, option or log.
    """
    register(session, _Opener(workspace.resolve(), environment, dict(environ)))


@dataclass(frozen=True)
class _Opener:
    """Opens the log that options name."""

    workspace: Path
    environment: str | None
    environ: Mapping[str, str] = field(repr=False)

    def __call__(self, options: Mapping[str, str]) -> TopicLog:
        known = {name.lower() for name in OPTIONS}  # as Spark hands them on
        for name in options:
            if name not in known:
                hint = did_you_mean(nearest(name, OPTIONS), otherwise=f"Options: {', '.join(OPTIONS)}.")
                raise UserError(f"topic-log has no option {name}", hint=hint)
        for name in ("cluster", "topic"):
            if not options.get(name):
                raise UserError(f"topic-log needs the option {name}", hint='.options(cluster="west", topic="orders")')
        address = address_of("topic", options["cluster"], options["topic"])
        invocation = Invocation(
            cwd=self.workspace,
            environ=self.environ,
            now_ms=_now_ms,
            new_id=_not_for_reading,
            new_run=_not_for_reading,
            tool="",
            who="",
            workspace=self.workspace,
        )
        work = open_work(invocation, Select(environment=self.environment))
        return provider_of(work, address).log(address)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _not_for_reading() -> NoReturn:
    raise BrokenInvariantError("reading a topic asked for an id", hint="Please report this.")
