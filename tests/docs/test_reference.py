"""The reference says what the code does."""

from __future__ import annotations

import re

from tests.docs import markdown, programs, reference

_OF_SHELLS = {"HOME", "PATH", "TERM", "COMP_WORDS", "COMP_CWORD"}
_VARIABLE = re.compile(r"""environ(?:\.get\(|\[)f?"([A-Z_]+)(?:\{\w+\})?\"""")
"""A name that the code asks the environment for; of one that is put together, its beginning."""


def test_each_page_of_the_reference_is_what_the_code_says() -> None:
    wanted = reference.pages()
    written = {path: path.read_text(encoding="utf-8") for path in reference.FOLDER.rglob("*.md")}
    by_hand = {reference.FOLDER / "findings.md"}
    assert {path: written[path] for path in written.keys() - by_hand} == wanted, "write it anew: make schemas"


def test_every_metric_of_the_reference_has_a_number_in_the_sample() -> None:
    page = dict(programs.pages())["metrics.md"]
    bare = [line for line in page.splitlines() if "| none |" in line and "_run_last_" not in line]
    assert bare == []


def test_every_variable_that_the_code_reads_is_on_the_page() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in (markdown.ROOT / "reconciler").rglob("*.py"))
    read = {name for name in _VARIABLE.findall(code) if name not in _OF_SHELLS}
    told = [name for rows in programs.ENVIRONMENT.values() for name, _ in rows]
    assert [name for name in sorted(read) if not any(each.startswith(name) for each in told)] == []
    written = [f'"{name}"' for name in (*told, "RECONCILER_VAR_", "SERVER_URL")]
    assert [name for name in written if name not in code] == ['"RECONCILER_VAR_NAME"']
