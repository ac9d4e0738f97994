"""What is there, what was, and what went wrong: `show`, `state history` and errors as pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from reconciler.cli.html.report import NEUTRAL, Cells, Entry, Fact, Report, cells, named, owner_of, section
from reconciler.cli.text.amounts import value_text
from reconciler.cli.text.inventory_text import MIRRORS, differs_there, facts_of, fields_of
from reconciler.cli.text.lines import Tone
from reconciler.resources.address import Address, cluster_of, kind_of
from reconciler.runtime.text import bytes_text, counted

if TYPE_CHECKING:
    from reconciler.cli.json.inventory_json import ShowDocument, ShownPart
    from reconciler.cli.json.states_json import SnapshotPart, StateHistoryDocument
    from reconciler.cli.text.remarks import Level, Remark, Remarks
    from reconciler.operations.show import Shown

_HIDDEN: Final = "there, but hidden"
_STANDINGS: Final = {
    "missing": ("✗", Tone.REMOVE, "Missing on the cluster"),
    "differs": ("~", Tone.CHANGE, "Differs"),
    "not applied": ("+", Tone.ADD, "Not applied yet"),
    "not declared": ("-", Tone.REMOVE, "No longer in the files"),
    "hidden": ("?", Tone.QUIET, "There, but hidden"),
    "unmanaged": ("?", Tone.QUIET, "Not in the files, left alone"),
    "in step": ("=", Tone.STRONG, "In step"),
}
"""How a resource stands → its sign, its tone, and the heading it is listed under, the gravest first."""


def show_report(
    rows: Sequence[Shown], document: ShowDocument, workspace: str, environment: str | None, tool: str
) -> Report:
    """Return what is desired, recorded and observed, field beside field."""
    entries = [_of_shown(shown, part) for shown, part in zip(rows, document.resources, strict=True)]
    counts = {standing: sum(each.verb == standing for each in entries) for standing in _STANDINGS}
    return Report(
        title="Resources of {}",
        subject=named(workspace, environment),
        lead=", ".join(_counted(count, standing) for standing, count in counts.items() if count) or "nothing",
        facts=(*_whose(workspace, environment), Fact("resources", f"{len(entries):,}")),
        sections=tuple(
            found
            for standing, (_, tone, title) in _STANDINGS.items()
            for found in section(
                title,
                tone,
                (each for each in entries if each.verb == standing),
                grouped=True,
                is_open=len(entries) == 1,
            )
        ),
        columns=("files", "state", "cluster"),
        nothing="Nothing is declared, recorded or observed.",
        tool=tool,
    )


def _counted(count: int, standing: str) -> str:
    return counted(count, standing, "differ" if standing == "differs" else standing)


def _of_shown(shown: Shown, part: ShownPart) -> Entry:
    sides = [part.desired, part.recorded.resource if part.recorded else None]
    sides.append(part.observed.resource if part.observed else None)
    fields = tuple(_sides(shown))
    standing = _standing(part, fields, is_unmounted=shown.unmounted is not None)
    sign, tone, _ = _STANDINGS[standing]
    named = next((side for side in sides if side is not None), {})
    differing = [path for mark, path, *_ in fields if mark == "~" and path]
    return Entry(
        sign,
        tone,
        standing,
        part.address,
        (", ".join(differing[:3]) + (" …" if len(differing) > 3 else ""),) if differing else (),  # noqa: PLR2004 - a few
        key=part.address,
        kind=kind_of(Address(part.address)),
        cluster=cluster_of(Address(part.address)) or "",
        owner=owner_of(named.get("metadata", {}).get("labels")),
        notes=(f"{_HIDDEN}: {part.hidden}",) if part.hidden else (),
        fields=fields,
        facts=tuple((label, said) for label, said in facts_of(shown).items() if said and label != "declared in"),
        source=part.source,
    )


def _sides(shown: Shown) -> Iterator[Cells]:
    """Yield each field that a side has, as it is on every side."""
    sides = [
        fields_of(shown.desired),
        fields_of(shown.recorded.resource if shown.recorded else None),
        fields_of(shown.observed.resource if shown.observed else None),
    ]
    for path in sorted({path for side in sides for path in side if side[path] not in ([], None)}):
        sign, *rest = cells(path, [value_text(path, side[path]) if path in side else None for side in sides])
        if differs_there(path, shown, sides):
            sign = "~"
        yield (NEUTRAL if path == MIRRORS else sign, *rest)


def _standing(part: ShownPart, fields: Sequence[Cells], *, is_unmounted: bool) -> str:
    if part.hidden:
        return "hidden"
    if part.desired is None:
        return "unmanaged" if part.recorded is None else "not declared"
    if part.recorded is None:
        return "not applied"
    if part.observed is None:
        return "in step" if is_unmounted or part.address.startswith(("cluster/", "policy/")) else "missing"
    return "differs" if any(mark == "~" for mark, *_ in fields) else "in step"


# `state history`.


def history_report(document: StateHistoryDocument, workspace: str, environment: str | None, tool: str) -> Report:
    """Return the snapshots, newest first."""
    more = f" and {counted(document.older, 'older one')}: --limit 0 shows all" if document.older else ""
    rows = [_of_snapshot(each) for each in document.snapshots]
    current = next((each for each in document.snapshots if each.is_current), None)
    return Report(
        title="States of {}",
        subject=named(workspace, environment),
        lead=f"{counted(len(rows), 'state')}{more}",
        facts=(*_whose(workspace, environment), *((Fact("now", f"#{current.serial}"),) if current else ())),
        sections=tuple(section("States, newest first", Tone.STRONG, rows)),
        nothing="There is no state yet.",
        tool=tool,
    )


def _of_snapshot(row: SnapshotPart) -> Entry:
    facts: Mapping[str, str | None] = {
        "began": row.started,
        "by": row.who,
        "approved by": ", ".join(row.approved_by),
        "approved in": row.pull_request,
        "run": row.run,
        "settled by run": row.settled_by,
        "object": row.key,
    }
    return Entry(
        "●" if row.is_current else "○",
        Tone.ADD if row.is_current else Tone.QUIET,
        row.command or "unknown",
        f"#{row.serial}",
        (" · ".join(filter(None, (row.started, row.who))),),
        owner=row.who or "",
        flags=("now",) if row.is_current else (),
        size=bytes_text(row.bytes),
        facts=tuple((label, value) for label, value in facts.items() if value),
        commit=row.git_commit or "",
    )


# What went wrong.


_LEVELS: Final[Mapping[Level, tuple[str, Tone]]] = {
    "error": ("✗", Tone.DANGER),
    "warning": ("!", Tone.CHANGE),
    "note": (" ", Tone.QUIET),
}


def remarks_report(found: Remarks, title: str) -> Report:
    """Return problems of files, or the error that a command ended with."""
    errors = sum(each.level == "error" for each in found.rows)
    return Report(
        title=title,
        subject=named(found.workspace, found.environment),
        lead=counted(len(found.rows), "problem"),
        facts=_whose(found.workspace, found.environment),
        sections=tuple(
            section("Problems", Tone.DANGER if errors else Tone.CHANGE, map(_of_remark, found.rows), is_open=True)
        ),
        nothing="The files are valid.",
        tool=found.tool,
    )


def _of_remark(remark: Remark) -> Entry:
    sign, tone = _LEVELS[remark.level]
    about = Address(remark.about)
    has_address = "/" in about and not remark.source
    return Entry(
        sign,
        tone,
        remark.level,
        remark.source or remark.about,
        (remark.message,),
        kind=kind_of(about) if has_address else "",
        cluster=(cluster_of(about) or "") if has_address else "",
        notes=(remark.hint,) if remark.hint else (),
        facts=(("rule", remark.rule),),
        source=remark.source,
    )


def _whose(workspace: str, environment: str | None) -> tuple[Fact, ...]:
    return (Fact("workspace", workspace), *((Fact("environment", environment),) if environment else ()))
