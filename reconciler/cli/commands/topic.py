"""Commands of `topic`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from reconciler.cli import signals
from reconciler.cli.console import open_binary_stdin, open_binary_stdout, open_stderr, open_stdout
from reconciler.cli.options import (
    DryRun,
    FileOptions,
    LeaseOptions,
    StateOptions,
    TextOrJson,
    WorkspaceOptions,
    Yes,
    expand_bundles,
    parse_config_changes,
    parse_pairs,
    parse_seconds,
)
from reconciler.cli.present import print_result, raise_verdict
from reconciler.cli.text.lines import Line, make_line
from reconciler.errors import InterruptedRunError, UsageError
from reconciler.runtime.text import format_bytes, format_count, pluralize

if TYPE_CHECKING:
    from reconciler.cli.json.base import JsonObject


@expand_bundles
def alter_command(
    files: FileOptions,
    acting: LeaseOptions,
    place: WorkspaceOptions,
    address: Annotated[str, Argument(metavar="ADDR", help="For example topic/west/shop:eu:orders.")],
    set_: Annotated[
        list[str] | None, Option("--set", metavar="KEY=VALUE", help="Set a config.", show_default=False)
    ] = None,
    delete: Annotated[
        list[str] | None, Option("--delete", metavar="KEY", help="Reset a config.", show_default=False)
    ] = None,
    partitions: Annotated[
        int | None,
        Option(metavar="N", min=1, help="Add partitions up to this number. None is removed.", show_default=False),
    ] = None,
    dry_run: DryRun = False,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask about a loss or an irreversible change.")] = False,
    form: TextOrJson = "text",
) -> None:
    """Change configs of a topic or add partitions now. For emergencies: `drift` shows what differs from files."""
    configs = parse_config_changes(set_, delete)
    if not configs and partitions is None:
        raise UsageError("there is nothing to alter", hint="Give --set KEY=VALUE, --delete KEY or --partitions N")
    from reconciler.cli.orders import build_loss_confirmation, open_emergency, show_order_result
    from reconciler.operations.clusters.topic_orders import change_topic
    from reconciler.planning.orders import AlterTopicOrder
    from reconciler.resources.address import Address

    with open_emergency(acting, files, place, "topic alter", form, is_dry_run=dry_run) as emergency:
        order = AlterTopicOrder(Address(address), configs, partitions)
        result = change_topic(
            emergency, order, confirm=build_loss_confirmation("change", yes=yes, form=form), is_dry_run=dry_run
        )
        show_order_result(result, "altered", form)


@expand_bundles
def create_command(
    files: FileOptions,
    acting: LeaseOptions,
    place: WorkspaceOptions,
    address: Annotated[str, Argument(metavar="ADDR", help="For example topic/west/shop:eu:orders.")],
    partitions: Annotated[int, Option(metavar="N", min=1, help="Number of partitions.")] = 1,
    replication_factor: Annotated[
        int | None,
        Option("--replication-factor", metavar="N", min=1, help="Replicas per partition.", show_default=False),
    ] = None,
    set_: Annotated[
        list[str] | None, Option("--set", metavar="KEY=VALUE", help="Set a config.", show_default=False)
    ] = None,
    dry_run: DryRun = False,
    form: TextOrJson = "text",
) -> None:
    """Create a topic now. For emergencies: the next plan lists it as unmanaged until a file declares it."""
    from reconciler.cli.orders import open_emergency, show_order_result
    from reconciler.operations.clusters.topic_orders import change_topic
    from reconciler.planning.orders import CreateTopicOrder
    from reconciler.resources.address import Address

    order = CreateTopicOrder(
        topic=Address(address),
        partitions=partitions,
        replication_factor=replication_factor,
        configs=parse_pairs("--set", set_),
    )
    with open_emergency(acting, files, place, "topic create", form, is_dry_run=dry_run) as emergency:
        show_order_result(change_topic(emergency, order, is_dry_run=dry_run), "created", form)


@expand_bundles
def delete_command(
    files: FileOptions,
    acting: LeaseOptions,
    place: WorkspaceOptions,
    addresses: Annotated[list[str], Argument(metavar="ADDR", help="For example topic/west/shop:eu:orders.")],
    allow: Annotated[
        list[str] | None,
        Option("--allow", metavar="delete:ADDR", help="Delete it despite deletionProtection.", show_default=False),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    form: TextOrJson = "text",
) -> None:
    """Delete topics now, with their records. For emergencies: the next plan creates those that a file declares."""
    from reconciler.cli.orders import build_change_confirmation, open_emergency, show_order_result
    from reconciler.operations.clusters.topic_orders import delete_topics

    with open_emergency(acting, files, place, "topic delete", form, is_dry_run=dry_run) as emergency:
        result = delete_topics(
            emergency,
            addresses,
            confirm=build_change_confirmation("delete", "topics", yes=yes, form=form),
            allow=tuple(allow or ()),
            is_dry_run=dry_run,
        )
        show_order_result(result, "deleted", form)


@expand_bundles
def trim_command(
    files: FileOptions,
    acting: LeaseOptions,
    place: WorkspaceOptions,
    address: Annotated[str, Argument(metavar="ADDR", help="For example topic/west/shop:eu:orders.")],
    before: Annotated[
        str,
        Option(
            "--before", metavar="OFFSET|TIME", help="Delete records before this offset or time.", show_default=False
        ),
    ],
    partition: Annotated[
        int | None, Option(metavar="N", min=0, help="Use only this partition.", show_default=False)
    ] = None,
    allow: Annotated[
        list[str] | None,
        Option("--allow", metavar="trim:ADDR", help="Delete the records that the plan shows.", show_default=False),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    form: TextOrJson = "text",
) -> None:
    """Delete the first records of a topic now. For emergencies: nothing brings the records back."""
    from reconciler.cli.orders import build_change_confirmation, open_emergency, show_order_result
    from reconciler.operations.clusters.topic_orders import TrimOptions, parse_limit, trim_topic

    parse_limit(before)
    with open_emergency(acting, files, place, "topic trim", form, is_dry_run=dry_run) as emergency:
        result = trim_topic(
            emergency,
            TrimOptions(address, before, partition),
            confirm=build_change_confirmation("trim", "topics", yes=yes, form=form),
            allow=tuple(allow or ()),
            is_dry_run=dry_run,
        )
        show_order_result(result, "trimmed", form)


@expand_bundles
def consume_command(
    files: FileOptions,
    by_state: StateOptions,
    place: WorkspaceOptions,
    address: Annotated[
        str, Argument(metavar="ADDRESS|CLUSTER", help="For example topic/west/shop:eu:orders; with --regex a cluster.")
    ],
    output: Annotated[Path, Option("--output", "--out", "-o", metavar="FILE|-", help="Output file.")] = Path("-"),
    output_format: Annotated[
        Literal["records", "values", "parquet"], Option("--output-format", help="Format of the output.")
    ] = "records",
    partition: Annotated[
        int | None, Option(metavar="N", min=0, help="Use only this partition.", show_default=False)
    ] = None,
    start: Annotated[
        str,
        Option(
            "--from",
            metavar="earliest|latest|OFFSET|TIME",
            help="Where to begin; with --group, only partitions without a committed offset.",
        ),
    ] = "earliest",
    most: Annotated[
        int | None, Option("--max", metavar="N", min=1, help="Maximum number of records.", show_default=False)
    ] = None,
    isolation: Annotated[
        Literal["read_committed", "read_uncommitted"], Option(help="Whether to wait for open transactions.")
    ] = "read_committed",
    follow: Annotated[bool, Option("--follow", "-f", help="Continue with new records until interrupted.")] = False,
    group: Annotated[
        str | None,
        Option(metavar="NAME", help="Begin at this group's offsets, and commit what was written.", show_default=False),
    ] = None,
    regex: Annotated[
        str | None,
        Option(
            metavar="REGEX",
            help="Read all topics of CLUSTER whose full name matches as a whole, such as 'shop:.*'.",
            show_default=False,
        ),
    ] = None,
    skip_missing: Annotated[
        bool, Option("--skip-missing", help="Skip offsets whose object is missing or damaged, and list them.")
    ] = False,
) -> None:
    """Read the records of one topic, or of all that match, up to their ends at the command's start."""
    from reconciler.cli.output_files import KINDS, check_output
    from reconciler.operations.clusters.consume import ConsumeOptions, consume
    from reconciler.operations.steps.runner import Stop

    file = None if str(output) == "-" else output
    if file is None and output_format == "parquet" and open_stdout().is_terminal:
        raise UsageError("Parquet cannot be written to a terminal", hint="Name a file with --output")
    if file is not None:
        is_added_to = group is not None and output_format == "values"
        check_output("--output", file, KINDS[output_format], is_added_to=is_added_to)
    options = ConsumeOptions(
        output=file,
        output_format=output_format,
        partition=partition,
        start=start,
        max_records=most,
        isolation=isolation,
        follow=follow,
        group=group,
        regex=regex,
        skip_missing=skip_missing,
    )
    stop = Stop()
    with signals.forward_signals(stop):
        read = consume(
            by_state.build_site_options(files, place), address, options, stdout=open_binary_stdout(), stop=stop
        )
    if file is not None:
        open_stderr().show([make_line(f"Consumed {pluralize(read.records, 'record')} of {read.where} into {file}")])


@expand_bundles
def describe_command(
    files: FileOptions,
    by_state: StateOptions,
    place: WorkspaceOptions,
    address: Annotated[str, Argument(metavar="ADDRESS", help="For example topic/west/shop:eu:orders.")],
    is_whole: Annotated[bool, Option("--all", help="Also configs at their defaults.")] = False,
    form: TextOrJson = "text",
) -> None:
    """Describe one topic: partitions with offsets and brokers, and configs with origins."""
    from reconciler.cli.json.clusters_json import TOPIC
    from reconciler.cli.text.topics_text import format_topic
    from reconciler.operations.clusters.topics import describe_topic

    topic = describe_topic(by_state.build_site_options(files, place), address)
    print_result(form, lambda: format_topic(topic, is_whole=is_whole), lambda: TOPIC.build_row(topic))


@expand_bundles
def list_command(
    files: FileOptions,
    by_state: StateOptions,
    place: WorkspaceOptions,
    pattern: Annotated[
        str | None, Argument(metavar="PATTERN", help="For example 'topic/west/shop:*'.", show_default=False)
    ] = None,
    sizes: Annotated[
        bool, Option("--sizes", help="Also measure records and bytes of at most 1,000 partitions of a cluster.")
    ] = False,
    form: TextOrJson = "text",
) -> None:
    """List the topics on the clusters."""
    from reconciler.operations.clusters.topics import list_topics
    from reconciler.operations.steps.observe import pause_garbage_collection

    def lines() -> list[Line]:
        from reconciler.cli.text.topics_text import format_topics

        return format_topics(rows, pattern, sizes=sizes)

    def document() -> JsonObject:
        from reconciler.cli.json.clusters_json import TOPICS

        return TOPICS.build_row(rows)

    with pause_garbage_collection():
        rows = list_topics(by_state.build_site_options(files, place), pattern, sizes=sizes)
        print_result(form, lines, document)
    left_out = sum(row.bytes is None for row in rows) if sizes else 0
    if left_out:
        open_stderr().show(
            [make_line(f"Not measured: {left_out:,} of {pluralize(len(rows), 'topic')}. Name fewer by a pattern")]
        )


@expand_bundles
def produce_command(
    files: FileOptions,
    by_state: StateOptions,
    place: WorkspaceOptions,
    address: Annotated[str, Argument(metavar="ADDRESS", help="For example topic/west/shop:eu:orders.")],
    source: Annotated[
        Path, Option("--input", "-i", metavar="FILE|-", help="File with the records.", show_default=False)
    ],
    input_format: Annotated[
        Literal["jsonl", "csv", "parquet", "records"] | None,
        Option("--input-format", help="By default from the file's extension.", show_default=False),
    ] = None,
    key_field: Annotated[
        str | None, Option("--key-field", metavar="FIELD", help="Field with the key.", show_default=False)
    ] = None,
    timestamp_field: Annotated[
        str | None, Option("--timestamp-field", metavar="FIELD", help="Field with the timestamp.", show_default=False)
    ] = None,
    partition: Annotated[
        int | None, Option(metavar="N", min=0, help="Write only to this partition.", show_default=False)
    ] = None,
) -> None:
    """Write records from a file or standard input into a topic."""
    from reconciler.cli.progress import open_count_reporter
    from reconciler.operations.clusters.consume import ProduceOptions, produce

    options = ProduceOptions(
        input=None if str(source) == "-" else source,
        input_format=input_format,
        key_field=key_field,
        timestamp_field=timestamp_field,
        partition=partition,
    )
    try:
        with open_count_reporter("producing") as report:
            made = produce(
                by_state.build_site_options(files, place), address, options, stdin=open_binary_stdin(), report=report
            )
    except KeyboardInterrupt as error:
        message = f"Interrupted: some of the records may be in {address}"
        raise InterruptedRunError(message, hint=f"Check with: reconciler topic describe {address}") from error
    where = f"{pluralize(len(made.ranges), 'partition')} of {made.address}"
    open_stdout().show(
        [make_line(f"Produced {pluralize(made.records, 'record')}, {format_bytes(made.bytes)}, into {where}")]
    )


@expand_bundles
def profile_command(
    files: FileOptions,
    by_state: StateOptions,
    place: WorkspaceOptions,
    address: Annotated[str, Argument(metavar="ADDRESS", help="For example topic/west/shop:eu:orders.")],
    retention: Annotated[
        str | None, Option(metavar="DURATION", help="Show what a retention such as 7d would free.", show_default=False)
    ] = None,
    form: TextOrJson = "text",
) -> None:
    """Profile a topic's records in Spark: skew, sizes, keys, gaps, and what compaction or retention would free."""
    from reconciler.operations.clusters.topics import profile_topic
    from reconciler.operations.steps.runner import Stop

    retention_ms = None if retention is None else round(parse_seconds("--retention", retention) * 1000)
    stop = Stop()
    with signals.forward_signals(stop, patience_s=signals.RUN_PATIENCE_S):
        profiled = profile_topic(by_state.build_site_options(files, place), address, retention_ms, stop=stop)

    def lines() -> list[Line]:
        from reconciler.cli.text.topics_text import format_profile

        return format_profile(profiled)

    def document() -> JsonObject:
        from reconciler.cli.json.clusters_json import TOPIC_PROFILE

        return TOPIC_PROFILE.build_row(profiled)

    print_result(form, lines, document)


@expand_bundles
def storage_command(
    files: FileOptions,
    by_state: StateOptions,
    place: WorkspaceOptions,
    addresses: Annotated[
        list[str] | None,
        Argument(
            metavar="ADDRESS", help="For example topic/west/shop:eu:orders, or 'topic/west/*'.", show_default=False
        ),
    ] = None,
    form: TextOrJson = "text",
) -> None:
    """Show topics' sizes on local disk and in object storage; for one topic by partition."""
    patterns = addresses or []
    if len(patterns) == 1 and "*" not in patterns[0]:
        from reconciler.cli.json.clusters_json import STORAGE
        from reconciler.cli.text.topics_text import format_storage
        from reconciler.operations.clusters.topics import read_topic_storage

        topic = read_topic_storage(by_state.build_site_options(files, place), patterns[0])
        print_result(form, lambda: format_storage(topic), lambda: STORAGE.build_row(topic))
        raise_verdict(topic.problem)
        return
    from reconciler.cli.json.clusters_json import STORAGES
    from reconciler.cli.text.topics_text import format_storages
    from reconciler.operations.clusters.topics import read_topic_storages

    storages = read_topic_storages(by_state.build_site_options(files, place), patterns)
    print_result(form, lambda: format_storages(storages), lambda: STORAGES.build_row(storages))
    if storages.unmeasured:
        topics = (
            f"{format_count(storages.unmeasured)} of {format_count(storages.unmeasured + len(storages.topics))} topics"
        )
        open_stderr().show(
            [make_line(f"Not measured: {topics}, beyond 10,000 partitions a cluster. Name fewer by a pattern")]
        )
    raise_verdict(next((topic.problem for topic in storages.topics if topic.problem is not None), None))
