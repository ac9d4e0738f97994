"""`drift --issue` and `--webhook`: one issue is open as long as something has drifted, and is told once."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.cli.test_drift import ORDERS, grow
from tests.servers.forge import KINDS, STRANGER, TOKEN, Fault, ForgeServer, enter

MARKER = "<!-- reconciler:drift workspace="


@pytest.fixture(params=KINDS)
def forge(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForgeServer]:
    with ForgeServer(request.param).started() as server:
        enter(monkeypatch, server)
        monkeypatch.delenv("CI_MERGE_REQUEST_IID", raising=False)
        monkeypatch.setenv("HOOK", f"{server.url}/hook")
        yield server


@pytest.fixture
def call(typed: Call, forge: ForgeServer) -> Call:
    """Run commands in a workspace that is applied, in a repository with owners."""
    del forge
    assert typed("init").code == 0
    assert typed("apply", "--yes").code == 0
    subprocess.run(["git", "init", "--quiet", "."], check=True)
    Path("CODEOWNERS").write_text("manifests/.* @acme/streams\n/manifests/ @acme/streams someone@example.com\n")
    return typed


def mended(call: Call) -> None:
    """Take what drifted into the files, as the patch in the issue does."""
    patch = call("drift", "--accept", ORDERS).out
    subprocess.run(["git", "apply", "-"], input=patch.encode(), check=True)
    assert call("apply", "--yes").code == 0


def patch_in(body: str) -> str:
    found = re.search(r"```diff\n(.*?)```", body, re.DOTALL)
    assert found is not None
    return found[1]


def test_an_issue_advises_commands_that_fit_how_drift_was_run(forge: ForgeServer, call: Call) -> None:
    path = Path("manifests/example.yaml")
    path.write_text(path.read_text().replace("partitions: 3", "partitions: 4"))
    assert call("drift", "--issue", "--fail-on", "pending", "--target", ORDERS).code == 3
    (issue,) = forge.issues
    assert "--only-drift" not in issue.body
    assert f"Revert to the files: reconciler apply --target {ORDERS}" in issue.body
    grow()
    assert call("drift", "--issue", "--fail-on", "pending").code == 3
    assert "partitions" in issue.body
    assert "reconciler apply --target" not in issue.body


def test_an_issue_names_the_command_for_a_patch_that_no_page_shows_as_it_is(forge: ForgeServer, call: Call) -> None:
    path = Path("manifests/example.yaml")
    path.write_text(path.read_text().replace("partitions: 3", "partitions: 3 #\tby team"))
    grow()
    assert call("drift", "--issue").code == 3
    (issue,) = forge.issues
    assert "```diff" not in issue.body
    said = "The patch that takes it into the files has characters that cannot be shown here: "
    assert f"{said}`reconciler drift --accept '*' > accept.patch`" in issue.body


def test_an_issue_is_opened_updated_and_closed_and_told_once_each_time(forge: ForgeServer, call: Call) -> None:
    report = ("drift", "--issue", "--issue-label", "drift", "--issue-label", "unknown", "--webhook", "HOOK")
    nothing = call(*report)
    assert (nothing.code, forge.issues, forge.messages) == (0, [], [])
    assert "No issue is open" in nothing.err
    grow()
    told = call(*report)
    assert told.code == 3
    (issue,) = forge.issues
    assert (f"/issues/{issue.number}" in told.err, TOKEN in told.err) == (True, False)
    assert issue.title.startswith("Drift of ")
    assert issue.labels == (["drift"] if forge.kind == "gitea" else ["drift", "unknown"])
    assert issue.body.startswith(MARKER)
    assert "partitions" in issue.body
    assert "Owners: @acme/streams\n" in issue.body
    subprocess.run(["git", "apply", "--check", "-"], input=patch_in(issue.body).encode(), check=True)
    (message,) = forge.messages
    assert message["text"].splitlines()[1].startswith(f"• {ORDERS}: ")
    assert message["text"].splitlines()[-1].endswith(f"/issues/{issue.number}")
    before = issue.body
    forge.requests.clear()
    assert "is up to date" in call(*report).err
    assert (issue.body, len(forge.messages)) == (before, 1)
    assert sum(asked.method == "GET" and "/issues?" in asked.path for asked in forge.requests) == 1
    issue.body = f"{before.splitlines()[0]}\nedited by hand"
    assert "Updated" in call(*report).err
    assert (issue.body, len(forge.messages)) == (before, 2)
    mended(call)
    closed = call(*report)
    assert (closed.code, issue.is_open, len(forge.issues), len(forge.messages)) == (0, False, 1, 2)
    assert "nothing found" in issue.body


def test_a_message_that_could_not_be_sent_is_sent_by_the_next_run_once(forge: ForgeServer, call: Call) -> None:
    report = ("drift", "--issue", "--webhook", "HOOK")
    grow()
    forge.faults = [Fault("POST", "hook", 404)]
    assert (call(*report).code, forge.messages) == (1, [])
    assert [call(*report).code for _ in range(2)] == [3, 3]
    assert (len(forge.issues), len(forge.messages)) == (1, 1)
    assert "owed" not in forge.issues[0].body


def test_an_issue_is_found_again_below_what_a_person_wrote(forge: ForgeServer, call: Call) -> None:
    grow()
    assert call("drift", "--issue").code == 3
    issue = forge.issues[0]
    issue.body = f"Anna looks into this.\n{issue.body}"
    assert call("drift", "--issue").code == 3
    mended(call)
    assert call("drift", "--issue").code == 0
    assert [(each.number, each.is_open) for each in forge.issues] == [(issue.number, False)]


@pytest.mark.parametrize("is_done", [True, False])
def test_a_lost_answer_opens_no_second_issue(forge: ForgeServer, call: Call, is_done: bool) -> None:  # noqa: FBT001 - a case
    grow()
    forge.faults = [Fault("POST", "issues$", 502, is_done=is_done)]
    assert call("drift", "--issue").code == 3
    assert len(forge.issues) == 1


def test_an_issue_of_another_user_or_workspace_is_left_alone(forge: ForgeServer, call: Call) -> None:
    grow()
    assert call("drift", "--issue").code == 3
    mine = forge.issues[0]
    others = [
        forge.files("pasted", mine.body, STRANGER),
        forge.files("another", mine.body.replace("workspace=", "workspace=x")),
        forge.files("quoted", f"> {mine.body}"),
    ]
    bodies = [each.body for each in others]
    older = forge.files("older", mine.body)
    mine.number, older.number = older.number, mine.number
    mended(call)
    assert call("drift", "--issue").code == 0
    assert (mine.is_open, older.is_open) == (False, False)
    assert [(each.body, each.is_open) for each in others] == [(body, True) for body in bodies]


def test_an_issue_stays_open_while_a_cluster_cannot_be_read(forge: ForgeServer, call: Call) -> None:
    grow()
    assert call("drift", "--issue").code == 3
    Path(".clusters").rename(".gone")
    assert call("drift", "--issue").code == 1
    assert forge.issues[0].is_open


@pytest.mark.parametrize("forge", ["github"], indirect=True)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--issue", "--known", "known.json"), "--known leaves some of it out"),
        (("--issue", "--accept", ORDERS), "--accept prints a patch and nothing else"),
        (("--issue-label", "drift"), "Add --issue"),
        (("--webhook", "NO_SUCH"), "is not set"),
        (("--webhook", "https://hooks.example.com/T0/s3cret"), "is not set"),
        (("--webhook", "BAD"), "BAD holds no address"),
        (("--webhook", "PLAIN"), "is not encrypted"),
        (("--issue", "--repository", "x"), "is not a repository"),
    ],
)
def test_what_cannot_be_told_is_refused_before_anything_is_read(
    call: Call, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], message: str
) -> None:
    monkeypatch.setenv("BAD", "s3cret")
    monkeypatch.setenv("PLAIN", "http://hooks.example.com/T0/s3cret")
    said = call("drift", *options)
    assert (said.code, said.out) == (64, "")
    assert message in said.err
    assert "s3cret" not in said.err


@pytest.mark.parametrize("forge", ["github"], indirect=True)
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault("POST", "hook", 404, body="no_team at /hook"), "answers 404: no_team"),
        (Fault("POST", "hook", 302, {"Location": "https://elsewhere.example.com"}), "answers 302"),
        (Fault("POST", "hook", None, times=9), "does not answer"),
    ],
)
def test_a_webhook_that_fails_is_said_without_its_address(
    forge: ForgeServer, call: Call, fault: Fault, message: str
) -> None:
    grow()
    forge.faults = [fault]
    said = call("drift", "--webhook", "HOOK")
    assert said.code == 1
    assert message in said.err
    assert forge.url not in said.err
    assert ORDERS in said.out


@pytest.mark.parametrize("forge", ["github"], indirect=True)
def test_a_webhook_is_tried_again(forge: ForgeServer, call: Call) -> None:
    grow()
    forge.faults = [Fault("POST", "hook", 503), Fault("POST", "hook", 429)]
    assert call("drift", "--webhook", "HOOK").code == 3
    assert len(forge.messages) == 1
