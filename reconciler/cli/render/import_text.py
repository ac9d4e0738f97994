"""What `import` wrote, as text: what is missing first told one by one, what repeats itself once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from reconciler.cli.render.amounts import counted
from reconciler.cli.render.lines import Line, Span, Tone, line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reconciler.manifests.importing.found import Lost
    from reconciler.workflow.importing.run import Imported

_SHOWN: Final = 50
_FILES_SHOWN: Final = 8
_INDEX: Final = re.compile(r"\[[0-9]+\]")


def import_text(imported: Imported) -> list[Line]:
    """Return what was written, what was left out, what has no words here, and what is to be done next."""
    return [*_written(imported), *_left_out(imported.left_out), *_unsaid(imported.unsaid), *_ending(imported)]


def _written(imported: Imported) -> Iterator[Line]:
    for address in imported.addresses[:_SHOWN]:
        yield line(Span("+ ", Tone.ADD), address)
    more = len(imported.addresses) - _SHOWN
    if more > 0:
        yield line(f"and {more:,} more")


def _left_out(lost: Sequence[Lost]) -> Iterator[Line]:
    for each in lost[:_SHOWN]:
        field = f" {each.field}" if each.field else ""
        about = Span(f"{each.subject}{field}", Tone.STRONG)
        yield line(Span("! ", Tone.DANGER), f"{each.place}: ", about, f" left out: {each.why}")
    more = len(lost) - _SHOWN
    if more > 0:
        yield line(f"and {more:,} more left out (--format json has all)")
    yield from _hints(lost)


def _unsaid(lost: Sequence[Lost]) -> Iterator[Line]:
    """Say each reason once, with the first place it holds for: a thousand topics have a description each."""
    alike: dict[tuple[str, str], list[Lost]] = {}
    for each in lost:
        alike.setdefault((_INDEX.sub("", each.field) or each.subject, each.why), []).append(each)
    for (about, why), several in list(alike.items())[:_SHOWN]:
        more = f", and {len(several) - 1:,} times more" if len(several) > 1 else ""
        where = f"{several[0].place}{more}: "
        yield line(Span("! ", Tone.CHANGE), where, Span(about, Tone.STRONG), f" is not said: {why}")
    more_kinds = len(alike) - _SHOWN
    if more_kinds > 0:
        yield line(f"and {more_kinds:,} more without words (--format json has all)")
    yield from _hints(lost)


def _hints(lost: Sequence[Lost]) -> Iterator[Line]:
    """Say each piece of advice once, after all that it is for."""
    for hint in dict.fromkeys(each.hint for each in lost if each.hint):
        yield line(f"    {hint}")


def _ending(imported: Imported) -> Iterator[Line]:
    if imported.unread:
        named = ", ".join(imported.unread[:_FILES_SHOWN])
        more = len(imported.unread) - _FILES_SHOWN
        yield line(f"Not {imported.tool}'s, not read: {named}" + (f" and {more:,} more" if more > 0 else ""))
    if not imported.files:
        return
    for cluster in imported.clusters:
        if not cluster.is_declared:
            yield from _undeclared(cluster.name, cluster.manifest)
    named = ", ".join(str(path) for path in imported.files[:_FILES_SHOWN])
    more = len(imported.files) - _FILES_SHOWN
    yield line(
        f"Wrote {counted(len(imported.addresses), 'manifest')}: {named}"
        + (f" and {counted(more, 'file')} more" if more > 0 else "")
    )


def _undeclared(name: str, manifest: str | None) -> Iterator[Line]:
    if manifest is None:
        yield line(f"No Cluster {name} is declared here: declare it, or give --cluster the name of one that is.")
        return
    yield line(f"No Cluster {name} is declared here; the files say of it:")
    yield from (line(f"    {each}") for each in manifest.splitlines())
