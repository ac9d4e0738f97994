"""Every command on a small workspace: what it prints, in text and in JSON, and the code it leaves with."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest

from reconciler.cli.json.schemas import build_schema_files
from reconciler.operations.run import CLUSTER_JOBS
from tests.cli.conftest import Call, Said

TOPIC = "topic/west/shop:orders"
SCHEMAS = Path(__file__).resolve().parents[2] / "schemas"


@pytest.fixture
def applied(call: Call) -> Call:
    """The same, with its three resources made."""
    assert call("apply", "--yes").code == 0
    return call


def edit(before: str, after: str) -> None:
    path = Path("manifests/example.yaml")
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def follows(schema: str, said: Said) -> Any:
    """Return the JSON a command printed, after checking it against its schema in `schemas/`."""
    printed = json.loads(said.out)
    jsonschema.validate(printed, json.loads((SCHEMAS / f"{schema}.json").read_bytes()))
    return printed


def test_init_says_what_it_made_and_what_comes_next(call: Call, tmp_path: Path) -> None:
    said = call("init", "second")
    assert said.code == 0
    assert (tmp_path / "second" / "reconciler.yaml").is_file()
    assert said.out.startswith(f"Made a workspace in {tmp_path}/second")
    assert "reconciler plan" in said.out.splitlines()[-1]


@pytest.mark.parametrize(("location", "wrong"), [("s3://bucket/a b", "' '"), ("s3://bucket/a#b", "'#'")])
def test_init_names_the_character_that_the_location_of_a_state_cannot_have(
    call: Call, location: str, wrong: str
) -> None:
    refused = call("init", "--state", location)
    assert refused.code == 1
    assert f"{location!r} is not a place for a state: it has {wrong} in it" in refused.err


def test_validate_counts_what_is_declared(call: Call) -> None:
    said = call("validate")
    assert (said.code, said.out) == (0, said.out)
    assert said.out.endswith("1 cluster, 1 namespace, 1 topic\n")
    printed = follows("validate", call("validate", "--format", "json"))
    assert (printed["valid"], printed["problems"]) == (True, [])


def test_validate_names_file_line_and_field(call: Call) -> None:
    edit("partitions: 3", "partition: 3")
    said = call("validate")
    assert said.code == 1
    assert re.search(r"^manifests/example.yaml:\d+:\d+: spec.partition: .*partitions", said.err, re.MULTILINE)
    printed = follows("validate", call("validate", "--format", "json"))
    assert not printed["valid"]
    assert printed["problems"][0]["field"] == "spec.partition"


# What ends in an error says so in every form, so that no page keeps the result of an earlier run.


def misspelled() -> str:
    edit("partitions: 3", "partition: 3")
    return "is not a field here"


def no_yaml() -> str:
    Path("reconciler.yaml").write_text("kind: [Workspace\nmetadata: {name: shop}\n")
    return "reconciler.yaml"


@pytest.mark.parametrize("command", ["plan", "drift", "validate"])
@pytest.mark.parametrize("breaks", [misspelled, no_yaml])
def test_an_error_is_printed_in_every_form(call: Call, command: str, breaks: Callable[[], str]) -> None:
    said = breaks()
    for form in ("json", "markdown", "junit", "sarif"):
        found = call(command, "--format", form)
        assert found.code == 1
        assert found.err
        assert said in found.out.replace("\\", ""), (form, found.out)
        is_one_error_in(found, command, form)
        if form == "json":
            source = json.loads(found.out)["problems"][0]["source"]
            assert source.startswith(("manifests/example.yaml:", "reconciler.yaml:"))


def is_one_error_in(found: Said, command: str, form: str) -> None:
    """Check that a document is sound, and says that one thing is wrong."""
    match form:
        case "json":
            follows("validate" if command == "validate" else "error", found)
        case "markdown":
            assert found.out.startswith(f"<!-- reconciler:{command} workspace=")
            assert "**1 problem**" in found.out
        case "junit":
            assert ET.fromstring(found.out).get("failures") == "1"  # noqa: S314 - it is our own
        case _:
            (run,) = follows("sarif", found)["runs"]
            assert run["invocations"][0]["executionSuccessful"] is False
            assert [each["level"] for each in run["results"]] == ["error"]


def damaged_state() -> str:
    (file,) = Path(".reconciler").glob("lockfile.json")
    file.write_text("garbage")
    return "lockfile.json cannot be read"


def lost_cluster() -> str:
    Path(".clusters").rename(".gone")
    return "cannot read cluster west"


@pytest.mark.parametrize("command", ["plan", "drift"])
@pytest.mark.parametrize("breaks", [damaged_state, lost_cluster])
def test_an_error_of_the_state_or_of_a_cluster_is_printed_in_every_form(
    applied: Call, command: str, breaks: Callable[[], str]
) -> None:
    said = breaks()
    for form in ("json", "markdown", "junit", "sarif"):
        found = applied(command, "--format", form)
        assert found.code == 1
        assert said in found.out
        is_one_error_in(found, command, form)


def test_the_comment_of_files_that_do_not_read_takes_the_place_of_the_plan(call: Call) -> None:
    marker = re.compile(r"<!-- reconciler:plan (workspace=\S+) ")
    before = marker.match(call("plan", "--format", "markdown").out)
    misspelled()
    after = marker.match(call("plan", "--format", "markdown").out)
    assert before is not None
    assert after is not None
    assert after[1] == before[1]


@pytest.mark.parametrize("form", ["markdown", "junit", "sarif"])
def test_files_that_are_valid_are_said_to_be_in_every_form(call: Call, form: str) -> None:
    found = call("validate", "--format", form)
    assert (found.code, found.err) == (0, "")
    assert {"markdown": "are valid", "junit": 'failures="0"', "sarif": '"executionSuccessful": true'}[form] in found.out


def test_a_report_of_many_problems_fits_into_a_comment(call: Call) -> None:
    topics = "\n".join(f"---\n{BROKEN.format(number)}" for number in range(2_000))
    Path("manifests/many.yaml").write_text(topics)
    said = call("validate", "--format", "markdown").out
    assert len(said.encode()) <= 50_000
    assert re.search(r"And [\d,]+ more problems that this comment has no room for", said)


BROKEN = """\
apiVersion: reconciler/v1
kind: Topic
metadata: {{name: t{}, cluster: west}}
spec: {{partition: 1}}
"""


def test_a_plan_shows_what_would_change_and_its_json_follows_the_schema(call: Call) -> None:
    said = call("plan")
    assert said.code == 0
    assert f"  + {TOPIC}  3 partitions" in said.out
    assert re.search(r"^Plan: 3 to add · digest [0-9a-f]{8}$", said.out, re.MULTILINE)
    printed = follows("plan", call("plan", "--format", "json"))
    assert printed["summary"]["create"] == 3
    assert printed["digest"][:8] in said.out


def test_a_plan_gives_the_same_bytes_twice(call: Call) -> None:
    for form in ("json", "markdown"):
        assert call("plan", "--format", form).out == call("plan", "--format", form).out


@pytest.mark.parametrize("form", ["text", "json", "markdown"])
def test_detailed_exit_codes_tell_pending_from_nothing(call: Call, form: str) -> None:
    said = call("plan", "--detailed-exitcode", "--format", form)
    assert (said.code, said.err) == (2, "")
    assert call("apply", "--yes").code == 0
    assert call("plan", "--detailed-exitcode", "--format", form).code == 0


@pytest.mark.parametrize(
    ("fail_on", "code"),
    [
        ((), 7),
        (("--fail-on", "blocked"), 7),
        (("--fail-on", "errors"), 0),
        (("--fail-on", "danger"), 2),
        (("--fail-on", "errors,changes"), 2),
        (("--fail-on", "changes", "--fail-on", "blocked"), 7),
        (("--detailed-exitcode",), 7),
        (("--fail-on", "blocks"), 64),
    ],
)
def test_a_plan_fails_on_what_was_asked_for(applied: Call, fail_on: tuple[str, ...], code: int) -> None:
    text = Path("manifests/example.yaml").read_text()
    Path("manifests/example.yaml").write_text(text[: text.rindex("---")])
    assert applied("plan", *fail_on).code == code


@pytest.mark.parametrize(("fail_on", "code"), [((), 0), (("--fail-on", "danger"), 0), (("--fail-on", "changes"), 2)])
def test_a_plan_without_danger_fails_on_changes_alone(call: Call, fail_on: tuple[str, ...], code: int) -> None:
    assert call("plan", *fail_on).code == code


def test_what_is_blocked_exits_7_and_apply_does_nothing_of_it(applied: Call) -> None:
    text = Path("manifests/example.yaml").read_text()
    Path("manifests/example.yaml").write_text(text[: text.rindex("---")])
    assert applied("plan").code == 7
    said = applied("apply", "--yes")
    assert said.code == 7
    assert f"--allow delete:{TOPIC}" in said.out.splitlines()[-1]
    assert said.err.startswith("Error: nothing was done: 1 action is blocked\n")
    assert applied("topic", "describe", TOPIC).code == 0
    assert applied("apply", "--yes", "--allow", f"delete:{TOPIC}").code == 0
    assert applied("topic", "describe", TOPIC).code == 1


def test_apply_shows_the_plan_then_what_it_did(call: Call) -> None:
    said = call("apply", "--yes")
    assert said.code == 0
    assert said.out.index("Plan: 3 to add") < said.out.index("Done: 3 added · state #1 · in ")
    again = call("apply", "--yes")
    assert again.code == 0
    assert "Plan: nothing to do" in again.out
    assert again.out.endswith("Nothing to do.\n")


def test_a_saved_plan_reads_the_same_without_its_files_and_is_applied_as_it_is(call: Call) -> None:
    said = call("plan", "--out", "saved.json")
    assert "reconciler apply saved.json" in said.err
    plan = said.out.split("\n", 1)[1]
    kept = Path("manifests/example.yaml").read_text()
    Path("manifests/example.yaml").unlink()
    assert call("show", "saved.json").out.split("\n", 1)[1] == plan
    assert follows("plan", call("show", "./saved.json", "--format", "json"))["summary"]["create"] == 3
    Path("manifests/example.yaml").write_text(kept)
    assert call("apply", "saved.json").code == 0


def test_a_saved_plan_that_was_edited_is_refused(call: Call) -> None:
    call("plan", "--out", "saved.json")
    path = Path("saved.json")
    path.write_text(path.read_text().replace('"partitions":3', '"partitions":4'))
    assert call("show", "saved.json").code == 1
    assert call("apply", "saved.json").code == 1


@pytest.mark.parametrize("command", ["plan", "drift"])
def test_pages_that_collect_results_get_what_they_read(applied: Call, command: str) -> None:
    edit("partitions: 3", "partitions: 4")
    said = applied(command, "--format", "sarif")
    (run,) = follows("sarif", said)["runs"]
    places = [each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for each in run["results"]]
    assert places == ["manifests/example.yaml"] * (command == "plan")  # what only waits for its apply asks for no look
    assert said.code == 0
    (suite,) = ET.fromstring(applied(command, "--format", "junit").out.encode())  # noqa: S314 - our own output
    assert (suite.get("tests"), suite.get("failures")) == ("1", "0")
    assert f"reconciler:{command} workspace=" in applied(command, "--format", "markdown").out.splitlines()[0]


def test_drift_is_found_shown_and_exits_3(applied: Call) -> None:
    assert applied("drift").code == 0
    edit("partitions: 3", "partitions: 3\n  configs: {retention.ms: 7d}")
    applied("apply", "--yes")
    altered = applied("topic", "alter", TOPIC, "--set", "retention.ms=3d", "--no-state")
    assert (altered.code, altered.out) == (0, f"✓ {TOPIC}  retention.ms 7d → 3d\n")
    said = applied("drift")
    assert said.code == 3
    assert f"! {TOPIC}  retention.ms 7d → 3d on the cluster" in said.out
    assert said.err.startswith("Drift: ")
    printed = follows("drift", applied("drift", "--format", "json"))
    assert printed["summary"]["drift"] == 1
    assert printed["findings"][0]["observed"] == "259200000"
    assert "retention.ms 3d → 7d  set back; changed on the cluster" in applied("plan").out
    assert applied("apply", "--yes").code == 0
    assert applied("drift").code == 0


def test_show_compares_files_state_and_cluster_field_by_field(applied: Call) -> None:
    edit("partitions: 3", "partitions: 6")
    said = applied("show", TOPIC)
    assert re.search(r"^partitions +6 +3 +3$", said.out, re.MULTILINE)
    assert follows("show", applied("show", TOPIC, "--format", "json"))["resources"][0]["address"] == TOPIC
    everything = applied("show")
    assert re.search(rf"^{TOPIC} +✓ +✓ +✓ +manifests/example.yaml:\d+$", everything.out, re.MULTILINE)
    assert len(follows("show", applied("show", "--format", "json"))["resources"]) == 3


def test_explain_says_where_a_value_comes_from_and_why_something_is_planned(applied: Call) -> None:
    edit("partitions: 3", "partitions: 6")
    said = applied("explain", TOPIC)
    assert re.search(r"^partitions +6 +3 +3 +manifests/example.yaml:\d+$", said.out, re.MULTILINE)
    assert "Planned  ± " in said.out
    assert "keys change partitions" in said.out
    printed = follows("explain", applied("explain", TOPIC, "--format", "json"))
    assert printed["effective"]["retention.ms"] == "2592000000"
    assert printed["actions"][0]["reasons"] == ["changed", "partitions_increase"]


@pytest.mark.parametrize("value", ["7d", "default"])
def test_a_config_differs_where_only_the_cluster_lacks_it(
    call: Call, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    with Path("manifests/example.yaml").open("a") as file:
        file.write(f"  configs: {{retention.ms: {value}}}\n")
    assert call("apply", "--yes").code == 0
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[33m" not in call("show", TOPIC).out
    if value != "default":
        assert call("topic", "alter", TOPIC, "--delete", "retention.ms", "--yes").code == 0
        (row,) = [row for row in call("show", TOPIC).out.splitlines() if "retention.ms" in row]
        assert row.count("7d") == 2
        assert "\x1b[33m·" in row


@pytest.mark.parametrize("command", [("show",), ("explain",), ("state", "show"), ("topic", "describe")])
def test_an_address_nobody_knows_exits_1_with_a_hint(applied: Call, command: tuple[str, ...]) -> None:
    said = applied(*command, "topic/west/shop:nope")
    assert (said.code, said.out) == (1, "")
    assert "hint: " in said.err


def test_records_go_in_and_come_out(applied: Call) -> None:
    rows = b'{"id": "a", "n": 1}\n{"id": "b", "n": 2}\n'
    said = applied(
        "topic", "produce", TOPIC, "--input", "-", "--input-format", "jsonl", "--key-field", "id", stdin=rows
    )
    assert said.code == 0
    assert said.out.startswith("Produced 2 records, ")
    consumed = applied("topic", "consume", TOPIC)
    assert sorted(json.loads(line)["key"] for line in consumed.out.splitlines()) == ["a", "b"]
    assert len(applied("topic", "consume", TOPIC, "--max", "1").out.splitlines()) == 1
    into = applied("topic", "consume", TOPIC, "--output", "out.jsonl")
    assert (into.code, into.out) == (0, "")
    assert len(Path("out.jsonl").read_text().splitlines()) == 2
    assert re.search(rf"^{TOPIC} +3 +1$", applied("topic", "list").out, re.MULTILINE)
    listed = applied("topic", "list", "--sizes")
    assert re.search(rf"^{TOPIC} +3 +1 +2 ", listed.out, re.MULTILINE)


def test_topics_and_namespaces_are_listed_and_described(applied: Call) -> None:
    topics = follows("topics", applied("topic", "list", "--format", "json"))["topics"]
    assert [topic["address"] for topic in topics] == [TOPIC]
    for pattern, said in {
        "topic/west/other*": "No topic matches 'topic/west/other*'.",
        "west": "No topic matches 'west'; did you mean 'topic/west/*'?",
        "cluster/west": "No topic matches 'cluster/west'; did you mean 'topic/west/*'?",
        "west/shop:*": "No topic matches 'west/shop:*'; did you mean 'topic/west/shop:*'?",
    }.items():
        assert applied("topic", "list", pattern).out == f"{said}\n"
    namespaces = follows("namespaces", applied("namespace", "list", "--format", "json"))["namespaces"]
    assert namespaces == [
        {"address": "namespace/west/shop", "topics": 1, "configs": {"retention.ms": "2592000000"}, "quotas": []}
    ]
    assert "retention.ms 30d" in applied("namespace", "list").out
    described = applied("topic", "describe", TOPIC)
    assert re.search(r"^retention.ms +30d +namespace/west/shop$", described.out, re.MULTILINE)
    assert len(follows("topic-description", applied("topic", "describe", TOPIC, "--format", "json"))["partitions"]) == 3


@pytest.mark.parametrize("command", [("topic", "describe"), ("explain",)])
def test_defaults_are_counted_and_shown_by_all(applied: Call, command: tuple[str, ...]) -> None:
    brief, whole = applied(*command, TOPIC).out, applied(*command, TOPIC, "--all").out
    hidden = re.search(r"^(\d+) defaults not shown: see them with --all$", brief, re.MULTILINE)
    assert hidden is not None
    assert "retention.ms " in brief
    assert "segment.bytes " not in brief
    assert len(re.findall(r" default$", whole, re.MULTILINE)) == int(hidden[1]) > 5


def test_the_state_is_listed_shown_and_has_a_history(applied: Call) -> None:
    assert TOPIC in follows("state-list", applied("state", "list", "--format", "json"))["resources"]
    assert re.search(rf"^{TOPIC} +created ", applied("state", "list").out, re.MULTILINE)
    shown = follows("state-show", applied("state", "show", TOPIC, "--format", "json"))
    assert shown["recorded"]["ownership"] == "created"
    assert re.search(r"^partitions +3", applied("state", "show", TOPIC).out, re.MULTILINE)
    edit("partitions: 3", "partitions: 6")
    applied("apply", "--yes")
    serials = [
        row["serial"] for row in follows("state-history", applied("state", "history", "--format", "json"))["snapshots"]
    ]
    assert serials == sorted(serials, reverse=True)
    assert re.search(r"^ *#2 +now +\S+Z +apply ", applied("state", "history").out, re.MULTILINE)


def test_a_free_lease_needs_no_unlocking(applied: Call) -> None:
    said = applied("state", "unlock", "--yes")
    assert (said.code, said.out) == (0, "The lease is free: there is nothing to unlock\n")


def test_a_topic_equals_itself(applied: Call) -> None:
    said = applied("verify", TOPIC, TOPIC)
    assert said.code == 0
    assert said.out.endswith("Equal: 3 partitions, 0 records, by kept digests\n")
    assert follows("verify", applied("verify", TOPIC, TOPIC, "--format", "json"))["equal"]


def test_topics_that_differ_exit_1(applied: Call) -> None:
    with Path("manifests/example.yaml").open("a") as manifest:
        manifest.write(
            "---\napiVersion: reconciler/v1\nkind: Topic\n"
            "metadata: {name: other, namespace: shop, cluster: west}\nspec: {partitions: 3}\n"
        )
    applied("apply", "--yes")
    applied("topic", "produce", TOPIC, "--input", "-", "--input-format", "jsonl", stdin=b'{"a": 1}\n')
    said = applied("verify", TOPIC, "topic/west/shop:other")
    assert said.code == 1
    assert "differs in end" in said.out
    assert not follows("verify", applied("verify", TOPIC, "topic/west/shop:other", "--format", "json"))["equal"]


def test_run_once_with_no_mirrors_has_nothing_to_do(applied: Call) -> None:
    said = applied("run", "--once")
    assert (said.code, said.out) == (0, f"Nothing to do: {len(CLUSTER_JOBS)} jobs, 0 mirrors.\n")
    assert follows("pipeline", applied("run", "--once", "--format", "json"))["mirrors"] == []


def test_destroy_removes_what_was_created(applied: Call) -> None:
    blocked = applied("destroy", "--yes")
    assert blocked.code == 7
    said = applied("destroy", "--yes", "--allow", f"delete:{TOPIC}")
    assert said.code == 0, said.err
    assert "Done: 2 deleted, 1 forgotten" in said.out
    assert applied("state", "list").out.rstrip().endswith("0 resources")


def test_a_workspace_is_found_upwards_or_named(applied: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    below = tmp_path / "manifests" / "deep"
    below.mkdir()
    monkeypatch.chdir(below)
    assert applied("validate").code == 0
    monkeypatch.chdir("/")
    assert applied("validate").code == 1
    assert applied("validate", "--workspace", str(tmp_path)).code == 0


def test_verbose_speaks_in_json_lines_on_standard_error_only(applied: Call) -> None:
    edit("partitions: 3", "partitions: 6")
    said = applied("apply", "--yes", "--verbose", "--format", "json")
    assert json.loads(said.out.splitlines()[0])["event"] == "plan"
    lines = [json.loads(line) for line in said.err.splitlines()]
    assert all(set(line) >= {"at", "level", "logger", "message"} for line in lines)
    own = [line["message"] for line in lines if line["logger"] == "reconciler.cli"]
    assert own == ["began", "ActionStarted", "ActionDone", "Summary", "ended"]
    assert lines[-1]["facts"]["exit_code"] == 0


def test_without_verbose_nothing_is_logged(applied: Call) -> None:
    assert applied("plan", "--verbose").err
    edit("partitions: 3", "partitions: 6")
    assert applied("apply", "--yes").err == ""


def test_the_schemas_that_are_kept_are_the_ones_the_models_say() -> None:
    kept = {path.stem: path.read_bytes() for path in SCHEMAS.glob("*.json")}
    wrong = {name for name, _ in kept.items() ^ build_schema_files().items()}
    assert not wrong, "make schemas writes them anew"


def test_schemas_are_listed_printed_and_written(call: Call, tmp_path: Path) -> None:
    names = call("schema").out.split()
    assert {"manifest", "topic", "plan", "event", "drift"} <= set(names)
    assert json.loads(call("schema", "Topic").out)["title"] == "Topic"
    assert call("schema", "nope").code == 64
    said = call("schema", "--out", "made")
    assert said.out == f"Wrote {len(names)} schemas into made\n"
    assert sorted(path.stem for path in (tmp_path / "made").iterdir()) == sorted(names)


def test_fmt_lays_out_what_is_not_canonical_and_check_only_tells(call: Call) -> None:
    edit("partitions: 3", "partitions:   3")
    said = call("fmt", "--check")
    assert said.code == 1
    assert said.out.splitlines()[0] == "would change  manifests/example.yaml"
    assert "partitions:   3" in Path("manifests/example.yaml").read_text()
    assert call("fmt").out.splitlines()[0] == "changed  manifests/example.yaml"
    assert "partitions: 3" in Path("manifests/example.yaml").read_text()
    assert call("fmt", "--check").code == 0


@pytest.mark.parametrize("text", ["0s", "0", "999ms"])
def test_an_interval_that_would_keep_a_core_busy_is_refused(applied: Call, text: str) -> None:
    said = applied("run", "--interval", text)
    assert said.code == 64
    assert f"--interval {text} is too short" in said.err


def test_what_fails_in_a_run_is_told_once_on_each_stream(applied: Call, tmp_path: Path) -> None:
    (tmp_path / ".clusters").rename(tmp_path / "away")
    said = applied("run", "--once")
    assert said.code == 8
    reason = "it is recorded in the state, but its location is empty"
    assert (said.out.count(reason), said.err.count(reason)) == (1, 1)
    assert "1 of 1 failed: observe:west" in said.err


def test_partitions_never_written_to_are_measured_however_many(applied: Call) -> None:
    edit("partitions: 3", "partitions: 1001")
    assert applied("apply", "--yes").code == 0
    said = applied("topic", "list", "--sizes")
    assert said.code == 0
    assert said.err == ""
    assert applied("topic", "list").err == ""
