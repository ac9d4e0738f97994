"""`topic consume`: the records of a topic, or of all that match, streamed to a file or standard output."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, BinaryIO

from reconciler.errors import UserError
from reconciler.records.log import isolation_of
from reconciler.records.outputs import OUTPUT_FORMATS, OutputFormat, write_output
from reconciler.resources.address import cluster_of
from reconciler.workflow.beginning.identity import refuse_another_cluster
from reconciler.workflow.beginning.opening import open_work
from reconciler.workflow.beginning.topicaddress import provider_of, topic_address
from reconciler.workflow.consuming.outputfiles import opened
from reconciler.workflow.consuming.sources import How, Matching, OneTopic, Progress, Reading, check_start
from reconciler.workflow.groups import cluster_named
from reconciler.workflow.looking.asleep import told_asleep
from reconciler.workflow.looking.overviews import check_answers
from reconciler.workflow.looking.reading import read_state

if TYPE_CHECKING:
    from reconciler.workflow.beginning.invocation import Invocation, Select
    from reconciler.workflow.beginning.opening import Work
    from reconciler.workflow.consuming.options import ConsumeOptions
    from reconciler.workflow.consuming.sources import Source
    from reconciler.workflow.running.stopping import Stop


@dataclass(frozen=True, slots=True)
class Consumed:
    """What was read, and from where."""

    where: str
    records: int


def consume(
    invocation: Invocation, select: Select, address: str, options: ConsumeOptions, *, stdout: BinaryIO, stop: Stop
) -> Consumed:
    """Write records up to the end as it is now; with `follow` until somebody stops it.

    With a group, offsets are committed after what lies before them is written and flushed: a crash repeats records
    rather than lose them.

    Raises:
        UserError: The topic or partition is not there, another reader writes the file, or an option makes no sense.
    """
    check_start(options.start)
    form, options = _form(options), replace(options, isolation=isolation_of(options.isolation))
    work = open_work(invocation, select)
    source, where = _source(work, address, options)
    named = nullcontext() if options.regex is not None else told_asleep(work, source.address)
    with named, opened(invocation.cwd, options, stdout) as stream, stop.ends(lambda: None):
        progress = _progress(work, source, options, stream)
        reading = Reading(source, options, progress, stop)
        records = write_output(reading.batches(), stream, form=form)
        progress.finish()
    return Consumed(where, records)


def _source(work: Work, address: str, options: ConsumeOptions) -> tuple[Source, str]:
    if options.regex is None:
        topic = topic_address(address)
        check_answers(work, cluster_of(topic) or "")
        return OneTopic(provider_of(work, topic), topic, _how(work, options)), topic
    name = cluster_named(address)
    if "/" in name:
        raise UserError(f"{address!r} is not the name of a cluster", hint="Write: topic consume west --regex 'shop:.*'")
    check_answers(work, name)
    source = Matching(work.providers[name], name, options.regex, _how(work, options))
    return source, f"{options.regex} on cluster {name}"


def _how(work: Work, options: ConsumeOptions) -> How:
    if not options.skip_missing:
        return How(options.isolation)
    return How(options.isolation, lambda lost: work.invocation.warn(str(lost)))


def _progress(work: Work, source: Source, options: ConsumeOptions, stream: BinaryIO) -> Progress:
    if options.group is None:
        return Progress(None, "", stream, work.invocation.now_ms, is_whole=False)
    refuse_another_cluster(work, cluster_of(source.address) or "", read_state(work))
    groups = source.provider.groups
    groups.commit(options.group, {})  # a group that cannot be is told before anything is written
    is_whole = options.output_format == "parquet"
    return Progress(groups, options.group, stream, work.invocation.now_ms, is_whole=is_whole)


def _form(options: ConsumeOptions) -> OutputFormat:
    for form in OUTPUT_FORMATS:
        if form == options.output_format:
            if form == "parquet" and options.follow:
                raise UserError("a Parquet file has an end, --follow has none", hint="Follow with records or values.")
            if form == "parquet" and options.regex is not None:
                raise UserError("a Parquet file is of one topic, --regex of many", hint="Write records or values.")
            return form  # type: ignore[return-value]  # the formats are exactly its literals
    raise UserError(
        f"there is no output format {options.output_format!r}", hint=f"Formats: {', '.join(OUTPUT_FORMATS)}."
    )
