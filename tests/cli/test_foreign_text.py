"""Whatever others say or name, in every output: no control, no other direction, no line and no command of its own."""

from __future__ import annotations

import base64
import dataclasses
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from reconciler.cli.errors import report_error
from reconciler.cli.text.lines import Span, align_rows, make_line, to_plain_text
from reconciler.cli.text.markdown import (
    draw_dependencies,
    fence_block,
    format_code_cell,
    format_code_span,
    format_plan_comment,
    format_sentence,
)
from reconciler.cli.text.plan_text import format_plan
from reconciler.forges.protocol import escape_for_comment
from reconciler.planning.actions import Forget
from reconciler.planning.plan import Plan, PlanFinding
from reconciler.providers.brokers.faults import translate_code
from reconciler.resources.address import Address
from reconciler.runtime.text import escape_commands, escape_invisible, escape_json, to_one_line
from tests.cli import sample_results as sample_plans

if TYPE_CHECKING:
    from tests.cli.conftest import Call, Said

pytestmark = pytest.mark.thorough


NASTY: Final = {
    "another direction": "evil\u202egnp.exe \u2066x\u2069 \u061c",
    "controls": "\x1b[2J\x1b]0;title\x07 \x7f \x08",
    "C1": "\x9b31m \x85next",
    "a line of its own": "one\r\n::error::pwned\r\n  ::set-output name=x::y",
    "other separators": "a\u2028::warning::b\u2029c",
    "commands anywhere": "##[error]x ##vso[task.complete]y",
    "hidden": "zero\u200bwidth\ufeff",
    "long": "x" * 100_000,
}
_BAD: Final = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
_COMMAND: Final = re.compile(r"^\s*::|##\[|##vso\[", re.MULTILINE)
FORMS: Final = {
    "text": ("plan",),
    "json": ("plan", "--format", "json"),
    "markdown": ("plan", "--format", "markdown"),
    "junit": ("plan", "--format", "junit"),
    "html": ("plan", "--format", "html"),
    "sarif": ("plan", "--format", "sarif"),
    "events": ("apply", "--yes", "--format", "json"),
    "drift": ("drift", "--format", "json"),
    "the log": ("plan", "--verbose"),
    "a list": ("state", "list"),
}


def check(said: Said) -> None:
    for text in (said.out, said.err):
        assert not _BAD.search(text), ascii(text[:2000])
        assert not _COMMAND.search(text), ascii(text[:2000])


class Store:
    """An object store that answers every request with an error of these words."""

    def __init__(self) -> None:
        self.words = ""
        store = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                words = "".join(each if each.isalnum() or each in " .,:[]#=" else _entity(each) for each in store.words)
                body = f"<Error><Code>Odd{words[:300]}</Code><Message>{words}</Message></Error>".encode()
                self.send_response(400)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def __getattr__(self, name: str) -> object:
                if name.startswith("do_"):
                    return self.answer
                raise AttributeError(name)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
                del format, args

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})


def _entity(sign: str) -> str:
    """Return a sign as XML has it; most controls have no way into it, and come as they are."""
    return f"&#{ord(sign)};" if ord(sign) > 0x7F or sign in "\r\n\t" else "" if ord(sign) < 0x20 else f"&#{ord(sign)};"


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    found = Store()
    found.thread.start()
    yield found
    found.server.shutdown()
    found.server.server_close()
    found.thread.join()


@pytest.mark.parametrize("form", FORMS)
def test_what_an_object_store_says(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: Store, form: str
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    path = tmp_path / "reconciler.yaml"
    place = f'{{url: "s3://bucket/x", region: us-east-1, endpoint: "http://127.0.0.1:{store.server.server_port}"}}'
    path.write_text(re.sub(r"state: \S+", f"state: {place}", path.read_text()))
    for words in NASTY.values():
        store.words = words
        said = call(*FORMS[form])
        assert said.code == 1
        assert "cannot read s3://bucket/x/" in said.err
        check(said)
        assert len(said.err) < 20_000


@pytest.mark.parametrize("words", NASTY.values(), ids=NASTY)
def test_what_brokers_and_libraries_say(capsys: pytest.CaptureFixture[str], words: str) -> None:
    for error in (
        translate_code(44, words, what="topic a"),
        OSError(5, words, f"file{words[:200]}"),
        ValueError(words),
    ):
        report_error(error, is_verbose=True)
        said = capsys.readouterr()
        check(type("Said", (), {"out": said.out, "err": said.err})())  # type: ignore[arg-type]


@pytest.mark.parametrize("form", FORMS)
def test_what_files_hold_and_are_called(call: Call, tmp_path: Path, form: str) -> None:
    for number, words in enumerate(NASTY.values()):
        path = tmp_path / f"manifests/{number}{words[:60].replace('/', '')}.yaml"
        topic, quoted = "apiVersion: reconciler/v1\nkind: Topic\n", json.dumps(words)
        for text in (
            f"kind: {quoted}\n",
            f"{topic}metadata: {{name: {quoted}, cluster: west}}\n",
            f"{topic}metadata: {{name: x, cluster: west, labels: {{a: {quoted}}}}}\n",
            f"{words}: [",
        ):
            path.write_text(text, encoding="utf-8")
            check(call(*FORMS[form]))
        path.unlink()


def test_what_records_hold(call: Call) -> None:
    assert call("apply", "--yes").code == 0
    rows = [{"key": words[:50], "value": words, "headers": [["h", words]]} for words in NASTY.values()]
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    produced = call(
        "topic", "produce", "topic/west/shop:orders", "-i", "-", "--input-format", "records", stdin=lines.encode()
    )
    assert produced.code == 0, produced.err
    said = call("topic", "consume", "topic/west/shop:orders")
    check(said)
    found = [json.loads(line) for line in said.out.splitlines()]
    assert sorted(each["value"] for each in found) == sorted(NASTY.values())


@pytest.mark.parametrize("words", NASTY.values(), ids=NASTY)
def test_json_that_may_be_shown_says_the_same(words: str) -> None:
    body = json.dumps({"a": words, "b": base64.b64encode(words.encode()).decode()}, ensure_ascii=False).encode()
    assert json.loads(escape_json(body)) == json.loads(body)


def test_text_of_others_is_a_part_of_a_line() -> None:
    assert to_one_line("one\r\n  two\u2028three\x85") == "one two three"
    assert len(to_one_line("x" * 100_000)) < 3_000
    assert escape_invisible("\x9b") == "\\x9b"
    assert escape_commands("a\n  ::error::b\n\x1b[31m::c\nd::e") == "a\n  \\x3a:error::b\n\x1b[31m\\x3a:c\nd::e"
    assert escape_commands("x ##[y] ##vso[z] ## z") == "x #\\x23[y] #\\x23vso[z] ## z"


# Nothing a user named moves a cursor, changes a colour, becomes a picture or breaks a page.


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
    finding = PlanFinding(Address(name), name, name, name)
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
    text = to_plain_text(format_plan(_plan(name)))
    assert escape_invisible(f"topic/west/{name}") in text
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]", text)
    assert len(text.splitlines()) == len(to_plain_text(format_plan(_plan("plain"))).splitlines())
    text.encode()


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_in_a_comment_stands_in_code_and_ends_nothing(name: str) -> None:
    markdown = format_plan_comment(_plan(name))
    assert markdown.splitlines()[0].count("-->") == 1
    outside = re.sub(r"^(`{3,}).*?^\1$|(`+)(?!`).*?(?<!`)\2(?!`)", "", markdown, flags=re.DOTALL | re.MULTILINE)
    for sign in ("<script", "@everyone", "[red]", "# heading", ":ledger:"):
        assert sign not in outside
    markdown.encode()


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_word_in_a_sentence_stands_in_code(name: str) -> None:
    outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", format_sentence(f"kept until {name} (about 3 GiB) is read."))
    assert re.fullmatch(r"[\w ().]*:?[\w ().]*", outside), outside
    assert outside.startswith("kept until ")


def test_a_row_of_a_table_keeps_its_cells_whatever_is_in_them() -> None:
    for name in HOSTILE:
        assert not re.search(r"(?<!\\)\|", format_code_cell(name))
        assert "\n" not in format_code_cell(name)


def test_a_code_span_is_fenced_longer_than_anything_in_it() -> None:
    assert format_code_span("a`b") == "``a`b``"
    assert format_code_span("`") == "`` ` ``"
    assert format_code_span("") == "`  `"
    assert fence_block("", ["````"])[0] == "`````"


def test_a_hidden_marker_holds_nothing_that_could_end_it() -> None:
    assert escape_for_comment("--> <b>") == "-____b_"


def test_a_picture_holds_names_as_entities() -> None:
    lines = draw_dependencies(_plan('x"] --> evil["y'))
    assert not any("evil[" in line for line in lines)
    assert lines[0] == "```mermaid"


def test_what_cannot_be_seen_is_written_out() -> None:
    assert escape_invisible("\x1b[31m") == "\\x1b[31m"
    assert escape_invisible("a\u202eb") == "a\\u202eb"
    assert escape_invisible("a\nb") == "a\\nb"
    assert escape_invisible("ordinary: [red] é 漢") == "ordinary: [red] é 漢"


def test_columns_are_aligned_by_the_cells_a_terminal_uses() -> None:
    rows = [[Span("漢字"), Span("x")], [Span("ab"), Span("y")]]
    assert to_plain_text(align_rows(rows)) == "漢字  x\nab    y\n"


def test_one_very_long_cell_does_not_push_the_others_away() -> None:
    rows = [[Span("a" * 50), Span("x")], [Span("b"), Span("y")]]
    assert to_plain_text(align_rows(rows, limits=(10,))) == f"{'a' * 50}  x\nb  y\n"


def test_lines_end_without_blanks() -> None:
    assert to_plain_text([make_line("a", Span("  "))]) == "a\n"
