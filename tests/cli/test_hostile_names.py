"""Nothing a user named moves a cursor, changes a colour, becomes a picture or breaks a page."""

from __future__ import annotations

import dataclasses
import re

import pytest

from reconciler.cli.text.lines import Span, aligned, line, text_of
from reconciler.cli.text.markdown import block, cell, code, comment_safe, picture, plan_markdown
from reconciler.cli.text.plan_text import plan_text
from reconciler.planning.actions import Forget
from reconciler.planning.findings import Finding
from reconciler.planning.plan import Plan
from reconciler.resources.address import Address
from reconciler.runtime.text import visible
from tests.cli import sample_plans

HOSTILE = (
    "[red]alarm[/red]",
    ":ledger:",
    "\x1b[2J\x1b[31mgone",
    "one\ntwo\rthree\tfour",
    "right\u202eto\u2066left",
    "\u05e9\u05dc\u05d5\u05dd",
    "zero\u200bwidth\ufeff",
    "half\ud800",
    "\x9b31m",
    "a|b`c``d",
    "<script>alert(1)</script>",
    "-->",
    "@everyone #1 http://example.org",
    "```\n# heading",
    "{{task}} %s {0}",
    "x" * 5000,
)


def _plan(name: str) -> Plan:
    finding = Finding(Address(name), name, name, name)
    return dataclasses.replace(
        sample_plans.empty(),
        workspace=name,
        environment=name,
        actions=(
            Forget(address=Address(f"topic/west/{name}")),
            Forget(address=Address("topic/west/b"), depends_on=(f"forget:topic/west/{name}",)),
        ),
        errors=(finding,),
    )


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_stays_on_its_line_and_is_seen_as_it_is(name: str) -> None:
    text = text_of(plan_text(_plan(name)))
    assert visible(f"topic/west/{name}") in text
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]", text)
    assert len(text.splitlines()) == len(text_of(plan_text(_plan("plain"))).splitlines())
    text.encode()


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_in_a_comment_stands_in_code_and_ends_nothing(name: str) -> None:
    markdown = plan_markdown(_plan(name))
    assert markdown.splitlines()[0].count("-->") == 1
    outside = re.sub(r"^(`{3,}).*?^\1$|(`+)(?!`).*?(?<!`)\2(?!`)", "", markdown, flags=re.DOTALL | re.MULTILINE)
    for sign in ("<script", "@everyone", "[red]", "# heading", ":ledger:"):
        assert sign not in outside
    markdown.encode()


def test_a_row_of_a_table_keeps_its_cells_whatever_is_in_them() -> None:
    for name in HOSTILE:
        assert not re.search(r"(?<!\\)\|", cell(name))
        assert "\n" not in cell(name)


def test_a_code_span_is_fenced_longer_than_anything_in_it() -> None:
    assert code("a`b") == "``a`b``"
    assert code("`") == "`` ` ``"
    assert code("") == "`  `"
    assert block("", ["````"])[0] == "`````"


def test_a_hidden_marker_holds_nothing_that_could_end_it() -> None:
    assert comment_safe("--> <b>") == "-____b_"


def test_a_picture_holds_names_as_entities() -> None:
    lines = picture(_plan('x"] --> evil["y'))
    assert not any("evil[" in line for line in lines)
    assert lines[0] == "```mermaid"


def test_what_cannot_be_seen_is_written_out() -> None:
    assert visible("\x1b[31m") == "\\x1b[31m"
    assert visible("a\u202eb") == "a\\u202eb"
    assert visible("a\nb") == "a\\nb"
    assert visible("ordinary: [red] é 漢") == "ordinary: [red] é 漢"


def test_columns_are_aligned_by_the_cells_a_terminal_uses() -> None:
    rows = [[Span("漢字"), Span("x")], [Span("ab"), Span("y")]]
    assert text_of(aligned(rows)) == "漢字  x\nab    y\n"


def test_one_very_long_cell_does_not_push_the_others_away() -> None:
    rows = [[Span("a" * 50), Span("x")], [Span("b"), Span("y")]]
    assert text_of(aligned(rows, limits=(10,))) == f"{'a' * 50}  x\nb  y\n"


def test_lines_end_without_blanks() -> None:
    assert text_of([line("a", Span("  "))]) == "a\n"
