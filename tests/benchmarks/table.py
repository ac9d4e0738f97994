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


def markdown(measured: Sequence[Row], machine: str) -> str:
    lines = "\n".join(
        f"| {row.what} | {row.against} | {row.ours} | {row.floor} | {verdict(row)} | ≤ {_number(row.aim, row.unit)} |"
        for row in measured
    )
    return _PAGE.format(machine=machine, rows=lines)


def quoted(readme: str, measured: Sequence[Row]) -> str:
    """Return the README with these rows between its markers."""
    head, begin, rest = readme.partition(BEGIN)
    _, end, tail = rest.partition(END)
    lines = "".join(
        f"| {row.what} | {row.against} | {verdict(row)} | ≤ {_number(row.aim, row.unit)} |\n" for row in measured
    )
    return f"{head}{begin}\n| what | against | measured | aim |\n| --- | --- | ---: | ---: |\n{lines}{end}{tail}"


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
