"""Topics of a workspace as Spark DataFrames."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from reconciler.errors import BrokenInvariantError, UserError
from reconciler.jobs.source import OPTIONS, OPTIONS_TEXT, WRITE_OPTIONS, Session, register
from reconciler.operations.steps.invocation import Invocation, Select
from reconciler.operations.steps.workspace import get_address_provider, open_work
from reconciler.resources.address import address_of, cluster_address, full_name_of
from reconciler.runtime.dataclass import dataclass, field
from reconciler.runtime.text import find_similar, format_suggestion

if TYPE_CHECKING:
    from reconciler.providers.protocol import Provider, TopicAddress
    from reconciler.records.log import AppendSink, TopicLog


_OPTIONS_HINT: Final = (
    'Give .options(cluster="west", topic="orders"). In SQL use CREATE TEMPORARY VIEW orders USING `topic-log` '
    "OPTIONS (cluster 'west', topic 'orders'): of a table that CREATE TABLE made, Spark does not hand on the options."
)


def register_topic_opener(session: Session, folder: Path, *, environ: Mapping[str, str], select: Select) -> None:
    """Let the format `topic-log` of a Spark session open topics of this workspace.

    `environ` resolves secrets. Spark pickles it, but query plans, options and logs never show it.
    """
    opener = _Opener(folder, select, dict(environ))
    register(session, opener.log, opener.appends, opener.topics)


@dataclass(frozen=True)
class _Opener:
    workspace: Path
    select: Select
    environ: Mapping[str, str] = field(repr=False)

    def log(self, options: Mapping[str, str]) -> TopicLog:
        provider, address = self._resolve_topic(options, OPTIONS)
        return provider.open_log(address)

    def topics(self, options: Mapping[str, str]) -> Iterable[str]:
        provider = self._open_provider(options, OPTIONS, ("cluster",))
        return [full_name_of(topic.address) for topic in provider.read_overview().topics]

    def appends(self, options: Mapping[str, str]) -> AppendSink:
        provider, address = self._resolve_topic(options, WRITE_OPTIONS)
        sink = provider.open_append_sink(address)
        if sink is None:
            message = f"{address}: topic-log does not write to topics of a {provider.capabilities.platform} cluster"
            hint = "Write with Spark's own format kafka; or into an embedded cluster, and mirror the topic from there."
            raise UserError(message, hint=hint)
        return sink

    def _resolve_topic(self, options: Mapping[str, str], names: Sequence[str]) -> tuple[Provider, TopicAddress]:
        provider = self._open_provider(options, names, ("cluster", "topic"))
        return provider, address_of("topic", options["cluster"], options["topic"])

    def _open_provider(self, options: Mapping[str, str], names: Sequence[str], required: Sequence[str]) -> Provider:
        known = {name.lower() for name in names}
        for name in options:
            if name not in known:
                known_text = OPTIONS_TEXT if names is OPTIONS else ", ".join(names)
                hint = format_suggestion(find_similar(name, names), otherwise=f"Options: {known_text}.")
                raise UserError(f"topic-log has no option {name}", hint=hint)
        for name in required:
            if not options.get(name):
                raise UserError(f"topic-log needs the option {name}", hint=_OPTIONS_HINT)
        invocation = Invocation(
            cwd=self.workspace,
            environ=self.environ,
            now_ms=_now_ms,
            new_id=_refuse_id,
            new_run=_refuse_id,
            tool="",
            who="",
            workspace=self.workspace,
        )
        return get_address_provider(open_work(invocation, self.select), cluster_address(options["cluster"]))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _refuse_id() -> NoReturn:
    raise BrokenInvariantError("reading or writing a topic asked for an id", hint="Please report this.")
