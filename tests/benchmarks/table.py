"""What was measured, for a terminal and for the documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from measuring import LeftOut, Row

_SMALL = 0.1
"""A ratio below wants a third digit."""
_PAGE = """\
# Benchmarks

Written by one run of `make bench` with reconciler {version}; do not edit. Each row compares us with a floor: the least
that anybody could do for the same result. Both are measured in the same run, in turns, and their medians are compared.
So the ratios hold on a machine that is slower or busier than ours. This run: {machine}.

{met} of {rows} aims are met. After each table stands which aims are missed, and why.
{areas}
## Left out

{left_out}

Terraform and OpenTofu are measured where `terraform` and `tofu` are on the PATH and their Kafka provider can be had:
`terraform-provider-kafka` of [Mongey/kafka](https://github.com/Mongey/terraform-provider-kafka) on the PATH, else from
their registry. [topicctl](https://github.com/segmentio/topicctl) is measured where it is on the PATH. Both pages say
how to install them; with Go, `go install` builds them from those addresses. `make bench` then measures them too.

The floors are scripts of a few lines in [tests/benchmarks/floors](../tests/benchmarks/floors), so that everyone can see
how little they do.
"""
_AREA = """
## {name}

| what | against | ours | floor | measured | aim |
| --- | --- | ---: | ---: | ---: | ---: |
{rows}
"""


def markdown(areas: Mapping[str, Sequence[Row | LeftOut]], machine: str, version: str) -> str:
    """Return the page: a table for each area, and what was left out."""
    measured = rows_of(areas)
    missing = [each for area in areas.values() for each in area if isinstance(each, LeftOut)]
    left_out = [f"- {each.what}: {each.why}" for each in missing] or ["Nothing."]
    return _PAGE.format(
        version=version,
        machine=machine,
        met=sum(row.is_met for row in measured),
        rows=len(measured),
        areas="".join(_area(name, area) for name, area in areas.items()),
        left_out="\n".join(left_out),
    )


def _area(name: str, found: Sequence[Row | LeftOut]) -> str:
    rows = [row for row in found if isinstance(row, Row)]
    if not rows:
        return ""
    lines = [
        f"| {row.what} | {row.against} | {row.ours} | {row.floor} | {verdict(row)} | ≤ {_number(row.aim, row.unit)} |"
        for row in rows
    ]
    whys = [
        f"- Missed: {row.what}, against {row.against}. {row.why or 'We do not know why yet.'}"
        for row in rows
        if not row.is_met
    ]
    return _AREA.format(name=name, rows="\n".join(lines)) + "".join(f"\n{each}" for each in [*whys, ""] if whys)


def rows_of(areas: Mapping[str, Sequence[Row | LeftOut]]) -> list[Row]:
    return [each for area in areas.values() for each in area if isinstance(each, Row)]


def text(found: Row | LeftOut) -> str:
    if isinstance(found, LeftOut):
        return f"{found.what}: left out, {found.why}"
    return (
        f"{found.what}: {_number(found.measured, found.unit)} (aim ≤ {_number(found.aim, found.unit)}"
        f"{'' if found.is_met else ', MISSED'}) · {found.ours} against {found.floor}: {found.against}"
    )


def verdict(row: Row) -> str:
    number = _number(row.measured, row.unit)
    return number if row.is_met else f"**{number}, missed**"


def _number(value: float, unit: str) -> str:
    if unit != "×":
        return f"{value:.0f}{unit}"
    return f"{value:.2f}{unit}" if value >= _SMALL else f"{value:.3f}{unit}"
