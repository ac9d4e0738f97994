"""Results of `export` and `import` as text."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from reconciler.cli.text.lines import Line, Span, Tone, make_line
from reconciler.cli.text.topics_text import format_time
from reconciler.operations.export_archives import NEVER_KEPT, describe_next_offsets
from reconciler.resources.address import kind_of
from reconciler.runtime.text import format_bytes, format_elapsed, pluralize

if TYPE_CHECKING:
    from reconciler.importers.base import NotImported
    from reconciler.operations.export import ExportResult
    from reconciler.operations.export_archives import GroupReturn
    from reconciler.operations.imports import ImportResult
    from reconciler.resources.address import Address


_MAX_ROWS: Final = 50
_MAX_FILES: Final = 8
_PLURALS: Final = {"policy": "policies"}
_MANY_NAMESPACES: Final = 10
_FEW_TOPICS: Final = 5
"""Average topics per namespace below which an export has many small files."""
_NOT_KEPT: Final = (
    "Not in object storage: records that were not uploaded, access rules, quotas, encryption and configs of "
    "namespaces (what topics inherited is their own now), links, and the offsets of consumer groups. A cluster stores "
    "them there while `reconciler run` runs."
)


def format_export(exported: ExportResult) -> list[Line]:
    """Format exported resources, sources of recovered topics, and omissions."""
    if exported.is_archived:
        lines = [
            shown
            for address in exported.addresses[:_MAX_ROWS]
            for shown in _format_exported_resource(exported, address)
        ]
        more = len(exported.addresses) - _MAX_ROWS
        if more > 0:
            lines.append(make_line(f"and {more:,} more"))
    else:
        lines = list(_format_addresses(exported.addresses))
    for left in exported.left_out:
        lines.append(
            make_line(Span("! ", Tone.DANGER), Span(left.place, Tone.STRONG), f" left out: {left.error.message}")
        )
        lines.append(make_line(f"    {left.error.hint}"))
    lines += _format_inexpressible(exported)
    if exported.is_archived:
        lines += _format_metadata(exported)
    if exported.files:
        lines.append(_format_written_files(len(exported.addresses), exported.files))
    return lines


def format_workspace_advice(exported: ExportResult, folder: str) -> Iterator[Line]:
    """Format advice after exporting a workspace; `folder` is relative to the working folder."""
    if not exported.files:
        return
    counts = Counter(map(kind_of, exported.addresses))
    if counts["namespace"] > _MANY_NAMESPACES and counts["topic"] < _FEW_TOPICS * counts["namespace"]:
        namespaces, topics = pluralize(counts["namespace"], "namespace"), pluralize(counts["topic"], "topic")
        yield make_line(
            f"{namespaces} for {topics}. For fewer, delete the folder and export again with --min-topics 10;"
        )
        yield make_line("    with --min-topics 0, only prefixes of access rules become namespaces.")
    yield make_line("")
    yield make_line(f"Next:  {'' if folder == '.' else f'cd {shlex.quote(folder)}, then  '}reconciler plan")


def _format_metadata(exported: ExportResult) -> Iterator[Line]:
    archives, metadata = exported.archives, exported.archives.metadata
    if metadata is None:
        if exported.addresses:
            yield make_line("")
            yield make_line(_NOT_KEPT)
        return
    yield make_line("")
    if metadata.parts:
        yield make_line(f"Kept of cluster {metadata.cluster_id} besides segments:")
    for part in metadata.parts:
        named = f"  {part.name:<10}  {pluralize(part.entries, 'entry', 'entries')}, written "
        note = "" if part.error is None else " (unusable: see above)"
        yield make_line(f"{named}{_format_time_and_age(part.written_ms, exported.now_ms)}{note}")
    if archives.groups:
        yield make_line(_count_groups(archives.groups))
    clamped = [(group.group, address, partition) for group in archives.groups for address, partition in group.clamped]
    for group, address, partition in clamped[:_MAX_ROWS]:
        where = f"{address}, partition {partition.partition}"
        yield make_line(
            Span("! ", Tone.CHANGE),
            f"{group}: {where}: {partition.committed} is beyond the end: set to {partition.offset}",
        )
    lost = [(group.group, address) for group in archives.groups for address in group.lost]
    for name, address in lost[:_MAX_ROWS]:
        yield make_line(Span("! ", Tone.CHANGE), f"{name}: its offsets of {address} are lost with the records")
    waiting = [(group.group, address) for group in archives.groups for address in group.waiting]
    for name, address in waiting[:_MAX_ROWS]:
        yield make_line(f"  {name}: its offsets of {address} travel on with the topic, once it is released")
    more = sum(max(0, len(partition) - _MAX_ROWS) for partition in (clamped, lost, waiting))
    if more:
        yield make_line(f"and {more:,} more (--format json has all)")
    yield make_line("Never kept, and lost:")
    yield from (make_line(f"  {note}") for note in NEVER_KEPT)


def _count_groups(groups: Sequence[GroupReturn]) -> str:
    back = sum(bool(group.clamped) for group in groups)
    waiting = sum(not group.offsets and bool(group.waiting) for group in groups)
    empty = sum(not group.offsets for group in groups) - waiting
    going_on = len(groups) - back - waiting - empty
    others = [f"{back:,} {'is' if back == 1 else 'are'} set back"] if back else []
    others += (
        [f"{waiting:,} {'waits' if waiting == 1 else 'wait'} for the release of a mounted topic"] if waiting else []
    )
    others += [f"{empty:,} {'has' if empty == 1 else 'have'} lost all offsets"] if empty else []
    return f"Consumer groups: {', '.join([f'{going_on:,} of {len(groups):,} resume at their offsets', *others])}."


def _format_time_and_age(at_ms: int, now_ms: int) -> str:
    return f"{format_time(at_ms)}, {format_elapsed(max(0, now_ms - at_ms) / 1000)} ago"


def _format_inexpressible(exported: ExportResult) -> Iterator[Line]:
    for left in exported.unsaid[:_MAX_ROWS]:
        place = Span(left.place, Tone.STRONG)
        yield make_line(Span("! ", Tone.CHANGE), place, f" is not exported: {left.error.message}")
    more = len(exported.unsaid) - _MAX_ROWS
    if more > 0:
        yield make_line(f"and {more:,} more (--format json has all)")
    for hint in sorted({left.error.hint for left in exported.unsaid}):
        yield make_line(f"    {hint}")


def _format_written_files(manifests: int, files: Sequence[Path]) -> Line:
    within = f" in {pluralize(len(files), 'file')}" if 1 < len(files) != manifests else ""
    if len(files) > _MAX_FILES:
        return make_line(f"Wrote {pluralize(manifests, 'manifest')}{within} under {os.path.commonpath(files)}")
    return make_line(f"Wrote {pluralize(manifests, 'manifest')}{within}: {', '.join(map(str, files))}")


def _format_exported_resource(exported: ExportResult, address: Address) -> Iterator[Line]:
    yield make_line(Span("+ ", Tone.ADD), address)
    archive = exported.archives.recoveries.get(address)
    if archive is not None:
        counts = f"{pluralize(archive.partitions, 'partition')}, {pluralize(archive.records, 'record')}"
        yield make_line(f"    from {archive.location}: {counts}, {format_bytes(archive.bytes)}")
        yield make_line(f"    next offset: {describe_next_offsets(archive)}; what came from there on is lost")
        if archive.uploaded_ms is not None:
            yield make_line(f"    last upload {_format_time_and_age(archive.uploaded_ms, exported.now_ms)}")
    if address in exported.archives.empty:
        yield make_line("    comes back empty: none of its records were in object storage")
    for location in exported.archives.older.get(address, ()):
        yield make_line(f"    an older topic of this name is left there: {location}")


_INDEX: Final = re.compile(r"\[[0-9]+\]")


def format_import(imported: ImportResult) -> list[Line]:
    """Format imported resources, omissions, fields that manifests lack, and written files."""
    return [
        *_format_addresses(imported.addresses),
        *_format_left_out(imported.left_out),
        *_format_inexpressible_import(imported.unsaid),
        *_format_closing(imported),
    ]


def _format_addresses(addresses: Sequence[Address]) -> Iterator[Line]:
    if len(addresses) <= _MAX_ROWS:
        yield from (make_line(Span("+ ", Tone.ADD), address) for address in addresses)
        return
    counts = Counter(map(kind_of, addresses))
    yield make_line(
        Span("+ ", Tone.ADD), ", ".join(pluralize(number, kind, _PLURALS.get(kind)) for kind, number in counts.items())
    )


def _format_left_out(lost: Sequence[NotImported]) -> Iterator[Line]:
    for item in lost[:_MAX_ROWS]:
        field = f" {item.field}" if item.field else ""
        about = Span(f"{item.subject}{field}", Tone.STRONG)
        yield make_line(Span("! ", Tone.DANGER), f"{item.place}: ", about, f" left out: {item.why}")
    more = len(lost) - _MAX_ROWS
    if more > 0:
        yield make_line(f"and {more:,} more left out (--format json has all)")
    yield from _format_hints(lost)


def _format_inexpressible_import(lost: Sequence[NotImported]) -> Iterator[Line]:
    alike: dict[tuple[str, str], list[NotImported]] = {}
    for item in lost:
        alike.setdefault((_INDEX.sub("", item.field) or item.subject, item.why), []).append(item)
    for (about, why), several in list(alike.items())[:_MAX_ROWS]:
        more = f", and {pluralize(len(several) - 1, 'time')} more" if len(several) > 1 else ""
        where = f"{several[0].place}{more}: "
        yield make_line(Span("! ", Tone.CHANGE), where, Span(about, Tone.STRONG), f" is not set: {why}")
    more_kinds = len(alike) - _MAX_ROWS
    if more_kinds > 0:
        yield make_line(f"and {more_kinds:,} more without words (--format json has all)")
    yield from _format_hints(lost)


def _format_hints(lost: Sequence[NotImported]) -> Iterator[Line]:
    for hint in dict.fromkeys(item.hint for item in lost if item.hint):
        yield make_line(f"    {hint}")


def _format_closing(imported: ImportResult) -> Iterator[Line]:
    if imported.unread:
        named = ", ".join(imported.unread[:_MAX_FILES])
        more = len(imported.unread) - _MAX_FILES
        yield make_line(f"Not read: {named}" + (f" and {more:,} more" if more > 0 else ""))
    if not imported.files:
        return
    for cluster in imported.clusters:
        if not cluster.is_declared:
            yield from _format_undeclared_cluster(cluster.name, cluster.manifest)
    yield _format_written_files(len(imported.addresses), imported.files)


def _format_undeclared_cluster(name: str, manifest: str | None) -> Iterator[Line]:
    if manifest is None:
        yield make_line(f"No Cluster {name} is declared here: declare it, or give --cluster the name of one that is.")
        return
    yield make_line(f"No Cluster {name} is declared here; the files have:")
    yield from (make_line(f"    {text}") for text in manifest.splitlines())
