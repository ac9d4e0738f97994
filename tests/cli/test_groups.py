"""The group commands: what they print, and what they ask."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from reconciler.cli.text.topics_text import format_reset
from reconciler.operations.clusters.groups import GroupReset
from tests.cli.conftest import Call, Said

TOPIC = "topic/west/shop:orders"
GROUP = "shop:checkout"
SCHEMAS = Path(__file__).resolve().parents[2] / "schemas"

OnTerminal = Callable[..., tuple[int, str]]


@pytest.fixture
def call(typed: Call) -> Call:
    """Run commands in a workspace with three records in a topic, of which a group has read two."""
    fed = ("topic", "produce", TOPIC, "--input", "-", "--input-format", "jsonl", "--partition", "0")
    for arguments in (("init",), ("apply", "--yes"), fed, ("topic", "consume", TOPIC, "--group", GROUP, "--max", "2")):
        said = typed(*arguments, stdin=b"1\n2\n3\n")
        assert said.code == 0, said.err
    return typed


def follows(schema: str, said: Said) -> Any:
    printed = json.loads(said.out)
    jsonschema.validate(printed, json.loads((SCHEMAS / f"{schema}.json").read_bytes()))
    return printed


@pytest.mark.parametrize(("shift", "border"), [(-100, "first offset"), (5, "end")])
def test_a_shift_that_goes_no_further_says_so(shift: int, border: str) -> None:
    (said,) = format_reset(GroupReset("west", "g", (), shift))
    told = "".join(span.text for span in said)
    where = f"is at the {border} of its log already, or it has committed nothing there"
    assert told == f"Nothing moves: a shift moves what was committed; what group g committed {where}"


def test_groups_are_listed_described_reset_and_deleted(call: Call) -> None:
    assert call("group", "list", "west").out == f"{GROUP}\n"
    assert follows("groups", call("group", "list", "west", "--format", "json"))["groups"] == [GROUP]
    described = call("group", "describe", "west", GROUP)
    assert described.out.startswith(f"{GROUP} on west\n  reading, lag 1\n")
    printed = follows("group-description", call("group", "describe", "west", GROUP, "--format", "json"))
    row = printed["offsets"][0]
    assert (row["partition"], row["committed"], row["lag"]) == (0, 2, 1)
    topic = follows("topic-description", call("topic", "describe", TOPIC, "--format", "json"))
    assert [(each["group"], each["reading"], each["lag"]) for each in topic["groups"]] == [(GROUP, True, 1)]
    assert f"{GROUP}  reading" in call("topic", "describe", TOPIC).out

    blocked = call("group", "reset", "west", GROUP, "--to", "earliest", "--yes")
    assert (blocked.code, blocked.out) == (7, "")
    assert "--force" in blocked.err
    unasked = call("group", "reset", "west", GROUP, "--to", "earliest", "--force")
    assert unasked.code == 64
    assert "2 offsets again" in unasked.out
    done = call("group", "reset", "west", GROUP, "--to", "-1", "--force", "--yes", "--format", "json")
    moves = follows("group-reset", done)["moves"]
    assert moves == [{"topic": "shop:orders", "partition": 0, "before": 2, "after": 1}]
    assert "1 offset again" in done.err

    assert call("group", "delete", "west", GROUP, "--force").code == 64
    gone = call("group", "delete", "west", GROUP, "--force", "--yes", "--format", "json")
    assert [row["committed"] for row in follows("group-deletion", gone)["forgotten"]] == [1]
    assert call("group", "describe", "west", GROUP).code == 1
    assert "No group has committed" in call("group", "list", "west").out


@pytest.mark.thorough
def test_a_terminal_is_shown_what_moves_and_asked_once(call: Call, on_terminal: OnTerminal) -> None:
    assert call("group", "list", "west").code == 0
    for answer, code in ((b"no\n", 1), (b"yes\n", 0)):
        left, shown = on_terminal(
            "group", "reset", "west", GROUP, "--to", "earliest", "--force", types=[("Reset the offsets?", answer)]
        )
        assert left == code, shown
        assert shown.index("2 offsets again") < shown.index("Reset the offsets?")
    left, shown = on_terminal("group", "delete", "west", GROUP, "--force", types=[("Delete the group?", b"yes\n")])
    assert left == 0, shown
    assert f"Deleted group {GROUP}" in shown


@pytest.mark.parametrize("name", ["[red]x[/red]", "\x1b[2Jgone", "one\ntwo", "<script>", "a/../b", "*"])
def test_a_hostile_name_stays_on_its_line(call: Call, name: str) -> None:
    read = call("topic", "consume", TOPIC, "--group", name)
    assert read.code == 0, read.err
    listed = call("group", "list", "west").out
    assert "\x1b" not in listed
    assert len(listed.splitlines()) == 2
    printed = json.loads(call("group", "list", "west", "--format", "json").out)
    assert sorted(printed["groups"]) == sorted([GROUP, name])
    assert call("group", "describe", "west", name).out.splitlines()[1] == "  reading, lag 0"


def test_many_topics_are_read_by_a_pattern(call: Call) -> None:
    read = call("topic", "consume", "west", "--regex", "shop:.*")
    assert [json.loads(line)["topic"] for line in read.out.splitlines()] == ["shop:orders"] * 3
    wrong = call("topic", "consume", "west", "--regex", "(")
    assert (wrong.code, wrong.out) == (1, "")
    assert "is not a regular expression" in wrong.err


def test_offsets_that_a_topic_no_longer_has_or_does_not_have_yet_are_named(call: Call) -> None:
    for arguments in (
        ("topic", "alter", TOPIC, "--set", "retention.ms=1", "--set", "segment.ms=1", "--yes"),
        ("topic", "produce", TOPIC, "--input", "-", "--input-format", "jsonl", "--partition", "0"),
        ("run", "--once", "--only", "roll,retention"),
    ):
        assert call(*arguments, stdin=b"4\n").code == 0
    read = call("topic", "consume", TOPIC, "--from", "0")
    assert (read.code, [json.loads(line)["offset"] for line in read.out.splitlines()]) == (0, [3])
    assert "Warning: partition 0 of shop:orders begins at offset 3: offsets 0 to 2 were deleted" in read.err
    for options in ((), ("--from", "3", "--partition", "0"), ("--from", "latest"), ("--group", GROUP)):
        assert "Warning" not in call("topic", "consume", TOPIC, *options).err
    early = call("topic", "consume", TOPIC, "--from", "9", "--partition", "0")
    assert (early.code, early.out) == (0, "")
    assert "Warning: partition 0 of shop:orders ends at offset 4: there is no offset 9 yet" in early.err
