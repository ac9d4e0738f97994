"""What was measured, for a terminal and for the documentation."""

from __future__ import annotations

from collections.abc import Sequence

from measuring import Row

BEGIN, END = "<!-- benchmarks: written by `make bench` -->", "<!-- end -->"

_SMALL = 0.1
"""A ratio below wants a third digit."""
_PAGE = """\
# Benchmarks

Written by `make bench`; do not edit. Each row compares us with a floor: the least anybody could do for the same result.
Both are measured in the same run, in turns, and their medians are compared, so the numbers hold on a machine that is
slower or busier than ours. This table: {machine}.

| what | against | ours | floor | measured | aim |
| --- | --- | ---: | ---: | ---: | ---: |
{rows}

The floors are scripts of a few lines in [tests/benchmarks/floors](../tests/benchmarks/floors), so that everyone can see
how little they do.
"""


def markdown(measured: Sequence[Row], machine: str, kept: str = "") -> str:
    """Return the page; rows of the page `kept` that were not measured now stay as they are."""
    lines = [
        f"| {row.what} | {row.against} | {row.ours} | {row.floor} | {verdict(row)} | ≤ {_number(row.aim, row.unit)} |"
        for row in measured
    ]
    return _PAGE.format(machine=machine, rows="\n".join(_laid_over(kept, lines)))


def quoted(readme: str, measured: Sequence[Row], *, is_whole: bool) -> str:
    """Return the README with these rows between its markers; others there stay where this is not a whole run."""
    head, begin, rest = readme.partition(BEGIN)
    old, end, tail = rest.partition(END)
    lines = [f"| {row.what} | {row.against} | {verdict(row)} | ≤ {_number(row.aim, row.unit)} |" for row in measured]
    rows = "".join(f"{line}\n" for line in _laid_over("" if is_whole else old, lines))
    return f"{head}{begin}\n| what | against | measured | aim |\n| --- | --- | ---: | ---: |\n{rows}{end}{tail}"


def _laid_over(kept: str, lines: Sequence[str]) -> list[str]:
    """Return the rows of a table with new ones in place of those that say the same, and others after them."""
    rows = [line for line in kept.splitlines() if line.startswith("| ")][2:]
    found = {_subject(line): line for line in rows}
    found |= {_subject(line): line for line in lines}
    return list(found.values())


def _subject(line: str) -> tuple[str, ...]:
    return tuple(line.split(" | ")[:2])


def text(row: Row) -> str:
    return (
        f"{row.what}: {_number(row.measured, row.unit)} (aim ≤ {_number(row.aim, row.unit)}"
        f"{'' if row.is_met else ', MISSED'}) · {row.ours} against {row.floor}: {row.against}"
    )


def verdict(row: Row) -> str:
    number = _number(row.measured, row.unit)
    return number if row.is_met else f"**{number}, missed**"


def _number(value: float, unit: str) -> str:
    if unit != "×":
        return f"{value:.0f}{unit}"
    return f"{value:.2f}{unit}" if value >= _SMALL else f"{value:.3f}{unit}"
