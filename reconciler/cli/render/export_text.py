"""What `export` wrote, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.cli.render.amounts import bytes_text, counted
from reconciler.cli.render.lines import Line, Span, Tone, line
from reconciler.workflow.exporting.archives import ends_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from reconciler.resources.address import Address
    from reconciler.workflow.export import Exported

_SHOWN: Final = 50
_FILES_SHOWN: Final = 8
_NOT_THERE: Final = (
    "Not in object storage: records that were not uploaded, access rules, quotas, encryption and configs of "
    "namespaces (what topics inherited is their own now), links, and the offsets of consumer groups."
)


def export_text(exported: Exported) -> list[Line]:
    """Return what was written, what each topic is recovered from, what was left out."""
    lines = [shown for address in exported.addresses[:_SHOWN] for shown in _one(exported, address)]
    more = len(exported.addresses) - _SHOWN
    if more > 0:
        lines.append(line(f"and {more:,} more"))
    for left in exported.left_out:
        lines.append(line(Span("! ", Tone.DANGER), Span(left.place, Tone.STRONG), f" left out: {left.error.message}"))
        lines.append(line(f"    {left.error.hint}"))
    lines += _unsaid(exported)
    if exported.is_archived and exported.addresses:
        lines += [line(""), line(_NOT_THERE)]
    if exported.files:
        lines.append(line(f"Wrote {counted(len(exported.addresses), 'manifest')}: {_named(exported.files)}"))
    return lines


def _unsaid(exported: Exported) -> Iterator[Line]:
    """Say what manifests have no words for, each reason with what it is about."""
    for left in exported.unsaid[:_SHOWN]:
        yield line(Span("! ", Tone.CHANGE), Span(left.place, Tone.STRONG), f" is not said: {left.error.message}")
    more = len(exported.unsaid) - _SHOWN
    if more > 0:
        yield line(f"and {more:,} more (--format json has all)")
    for hint in sorted({left.error.hint for left in exported.unsaid}):
        yield line(f"    {hint}")


def _named(files: Sequence[Path]) -> str:
    named = ", ".join(map(str, files[:_FILES_SHOWN]))
    more = len(files) - _FILES_SHOWN
    return named if more <= 0 else f"{named} and {counted(more, 'file')} more"


def _one(exported: Exported, address: Address) -> Iterator[Line]:
    yield line(Span("+ ", Tone.ADD), address)
    found = exported.archives.found.get(address)
    if found is not None:
        size = (
            f"{counted(found.partitions, 'partition')}, {counted(found.records, 'record')}, {bytes_text(found.bytes)}"
        )
        yield line(f"    from {found.location}: {size}")
        yield line(f"    next offset: {ends_text(found)}; what came from there on is lost")
    for location in exported.archives.older.get(address, ()):
        yield line(f"    an older topic of this name is left there: {location}")
