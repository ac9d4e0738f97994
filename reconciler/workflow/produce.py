"""`topic produce`: a file or standard input, streamed into a topic."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from reconciler.errors import UsageError, UserError
from reconciler.records.fields import Fields
from reconciler.records.inputs import INPUT_FORMATS, Input, InputFormat, format_of, read_input
from reconciler.resources.address import cluster_of
from reconciler.workflow.beginning.identity import refuse_another_cluster
from reconciler.workflow.beginning.opening import open_work
from reconciler.workflow.beginning.topicaddress import provider_of, topic_address
from reconciler.workflow.looking.asleep import told_asleep
from reconciler.workflow.looking.reading import read_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from reconciler.records.log import OffsetRange
    from reconciler.resources.address import Address
    from reconciler.workflow.beginning.invocation import Invocation, Select


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceOptions:
    """What is produced; `None` as `input` is standard input, as `input_format` whatever the name says."""

    input: Path | None = None
    input_format: str | None = None
    key_field: str | None = None
    timestamp_field: str | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Produced:
    """What a topic gained."""

    address: Address
    records: int
    bytes: int
    ranges: Mapping[int, OffsetRange]


def produce(
    invocation: Invocation,
    select: Select,
    address: str,
    options: ProduceOptions,
    *,
    stdin: BinaryIO,
    report: Callable[[int, int], None],
) -> Produced:
    """Write every record of the input; `report` gets records and bytes so far.

    Raises:
        UserError: The topic is not there or is a mirror, or something in the input cannot be a record.
    """
    work = open_work(invocation, select)
    topic = topic_address(address)
    refuse_another_cluster(work, cluster_of(topic) or "", read_state(work))
    records = size = 0
    with told_asleep(work, topic):
        producer = provider_of(work, topic).producer(topic)
    with _opened(invocation, options, stdin) as given:
        for batch in read_input(given):
            producer.append(batch)
            records, size = records + batch.num_rows, size + batch.nbytes
            report(records, size)
        ranges = producer.flush()
    return Produced(topic, records, size, ranges)


@contextmanager
def _opened(invocation: Invocation, options: ProduceOptions, stdin: BinaryIO) -> Iterator[Input]:
    fields = Fields(options.key_field, options.timestamp_field)
    if options.input is None:
        yield Input(stdin, "-", _form(options.input_format, "-"), fields, options.partition)
        return
    name = str(options.input)
    form = _form(options.input_format, name)
    path = invocation.cwd / options.input
    try:
        stream = path.open("rb")
    except OSError as error:
        raise UserError(f"cannot read {name}: {error.strerror or error}", hint="Name a readable file.") from error
    with stream:
        yield Input(stream, name, form, fields, options.partition)


def _form(wanted: str | None, name: str) -> InputFormat:
    if wanted is None:
        return format_of(name)
    for form in INPUT_FORMATS:
        if form == wanted.lower():
            return form  # type: ignore[return-value]  # the formats are exactly its literals
    raise UsageError(f"there is no input format {wanted!r}", hint=f"Formats: {', '.join(INPUT_FORMATS)}.")
