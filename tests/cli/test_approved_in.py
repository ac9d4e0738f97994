"""`apply --approved-in`: the plan that was approved in a pull request is done, and no other, on every forge."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.objectstore.directory import DirectoryStore
from tests.cli.conftest import Call
from tests.cli.test_git import ENVIRON
from tests.embedded.deaths import opened
from tests.servers.forge import KINDS, NUMBER, STRANGER, TOKEN, Fault, ForgeServer, Kind, Review, Said, enter

TOPICS = """\
apiVersion: reconciler/v1
kind: Topic
metadata: {name: refunds, cluster: west}
spec: {partitions: 1}
"""
MERGE = "5eed"


@pytest.fixture(params=KINDS)
def forge(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForgeServer]:
    """A forge of each kind, and the environment of a run after the merge."""
    kind: Kind = request.param
    with ForgeServer(kind).started() as server:
        enter(monkeypatch, server)
        monkeypatch.delenv("CI_MERGE_REQUEST_IID", raising=False)
        monkeypatch.setenv("CI_COMMIT_SHA" if kind == "gitlab" else "GITHUB_SHA", MERGE)
        yield server


@pytest.fixture
def planned(forge: ForgeServer, call: Call, tmp_path: Path) -> Said:
    """A plan, written into the pull request."""
    (tmp_path / "manifests").mkdir(exist_ok=True)
    (tmp_path / "manifests" / "refunds.yaml").write_text(TOPICS)
    text = call("plan", "--format", "markdown").out
    return forge.says(text)


def test_the_last_lines_name_who_approved_it_and_where(forge: ForgeServer, planned: Said, call: Call) -> None:
    del planned
    forge.merged_as = MERGE
    forge.reviews = [Review("anna"), Review("carla")]
    first = call("apply", "--approved-in", "auto")
    said = first.out.splitlines()[-1]
    assert said.startswith("Approved: by anna, carla in http")
    assert str(NUMBER) in said
    again = call("apply", "--approved-in", "auto", "--format", "json")
    summary = json.loads(again.out.splitlines()[-1])
    assert (summary["event"], summary["done"]) == ("summary", 0)
    assert (summary["approved_by"], str(NUMBER) in summary["pull_request"]) == (["anna", "carla"], True)


def apply(call: Call, *options: str) -> tuple[int, str]:
    done = call("apply", "--approved-in", "auto", *options)
    assert TOKEN not in done.out + done.err
    return done.code, done.err


def is_done(call: Call) -> bool:
    return "nothing to do" in call("plan").out


def test_after_the_merge_the_approved_plan_is_done_and_who_approved_it_is_kept(
    forge: ForgeServer, planned: Said, call: Call
) -> None:
    del planned
    forge.merged_as = MERGE
    forge.reviews = [Review("anna"), Review("bob", "COMMENTED"), Review("carla")]
    assert apply(call)[0] == 0
    assert is_done(call)
    (newest, *_) = json.loads(call("state", "history", "--format", "json").out)["snapshots"]
    assert newest["approved_by"] == ["anna", "carla"]
    assert str(NUMBER) in newest["pull_request"]


def test_before_the_merge_the_pull_request_is_named(forge: ForgeServer, planned: Said, call: Call) -> None:
    del planned
    forge.reviews = [Review("anna")]
    assert call("apply", "--approved-in", str(NUMBER)).code == 0
    assert is_done(call)


def test_a_pull_request_that_was_closed_without_a_merge_is_not_applied(
    forge: ForgeServer, planned: Said, call: Call
) -> None:
    del planned
    forge.reviews, forge.is_closed = [Review("anna")], True
    done = call("apply", "--approved-in", str(NUMBER))
    assert (done.code, is_done(call)) == (7, False)
    assert f"pull request {NUMBER} was closed without a merge" in done.err


@pytest.mark.parametrize(
    ("reviews", "said"),
    [
        ([], "there is no approval by a user who may write"),
        ([Review("anna", may_write=False)], "there is no approval by a user who may write"),
        ([Review("anna", is_dismissed=True)], "there is no approval by a user who may write"),
        ([Review("anna"), Review("anna", "CHANGES_REQUESTED")], "there is no approval by a user who may write"),
        ([Review("author")], "author approved what is their own"),
        ([Review("anna", commit="01d", at="2026-05-01T08:00:00Z")], "anna approved another commit than its last one"),
        ([Review("anna", at="2026-05-01T09:30:00Z")], "anna approved no later than the plan was written"),
        ([Review("anna", at="2026-05-01T10:00:00Z")], "anna approved no later than the plan was written"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_does_not_count_as_an_approval_is_told_and_nothing_is_done(
    forge: ForgeServer, planned: Said, call: Call, reviews: list[Review], said: str
) -> None:
    del planned
    forge.merged_as, forge.reviews = MERGE, reviews
    code, err = apply(call)
    assert (code, is_done(call)) == (7, False)
    assert f"pull request {NUMBER} is not approved as it is now: {said}" in err


def test_an_approval_of_the_second_of_the_last_push_is_of_the_commit_before(
    forge: ForgeServer, planned: Said, call: Call
) -> None:
    planned.changed, forge.merged_as = "2026-05-01T08:00:00Z", MERGE
    forge.reviews = [Review("anna", commit="01d", at=forge.pushed)]
    code, err = apply(call)
    assert (code, is_done(call)) == (7, False)
    assert "anna approved another commit than its last one" in err


def test_a_comment_that_was_edited_by_hand_needs_a_new_approval_and_its_digest_is_held_to(
    forge: ForgeServer, planned: Said, call: Call
) -> None:
    forge.merged_as, forge.reviews = MERGE, [Review("anna")]
    digest = planned.body.split("digest=")[1][:64]
    planned.body, planned.changed = planned.body.replace(digest, "0" * 64), "2026-05-01T13:00:00Z"
    assert apply(call)[0] == 7
    forge.reviews = [Review("anna", at="2026-05-01T14:00:00Z")]
    assert apply(call)[0] == 6
    assert not is_done(call)


@pytest.mark.parametrize("changed", ["files", "cluster"])
def test_a_plan_that_is_another_one_now_is_refused(
    forge: ForgeServer, planned: Said, call: Call, changed: str, tmp_path: Path
) -> None:
    del planned
    forge.merged_as, forge.reviews = MERGE, [Review("anna")]
    if changed == "files":
        (tmp_path / "manifests" / "refunds.yaml").write_text(TOPICS.replace("1}", "2}"))
    else:
        assert call("apply", "--yes", "--target", "cluster/west").code == 0
    assert apply(call)[0] == 6
    assert not is_done(call)


def test_a_plan_that_somebody_else_wrote_is_no_plan(forge: ForgeServer, planned: Said, call: Call) -> None:
    forge.merged_as, forge.reviews, planned.author = MERGE, [Review("anna")], STRANGER
    code, err = apply(call)
    assert (code, is_done(call)) == (7, False)
    assert f"pull request {NUMBER} has no plan of workspace" in err
    assert "; the one that is there was written by another account, or is hidden\n" in err


def test_only_plans_of_our_own_are_named_where_there_is_none_of_the_workspace(
    forge: ForgeServer, planned: Said, call: Call
) -> None:
    forge.merged_as, forge.reviews, planned.author = MERGE, [Review("anna")], STRANGER
    ours = planned.body.split(" ", 3)[2]
    planned.body = planned.body.replace(ours, "workspace=stranger", 1)
    forge.says(planned.body.replace("workspace=stranger", "workspace=other", 1))
    code, err = apply(call)
    assert (code, is_done(call)) == (7, False)
    assert f"has no plan of {ours.replace('=', ' ')}; it has plans of other\n" in err


def test_a_plan_of_another_environment_is_named_and_not_taken(forge: ForgeServer, planned: Said, call: Call) -> None:
    forge.merged_as, forge.reviews = MERGE, [Review("anna")]
    planned.body = planned.body.replace(" digest=", " environment=prod digest=", 1)
    code, err = apply(call)
    assert (code, is_done(call)) == (7, False)
    assert "it has plans of" in err
    assert "in prod" in err


def test_a_last_plan_that_failed_has_nothing_to_approve(
    forge: ForgeServer, planned: Said, call: Call, tmp_path: Path
) -> None:
    forge.merged_as, forge.reviews = MERGE, [Review("anna")]
    good = (tmp_path / "manifests" / "refunds.yaml").read_text()
    (tmp_path / "manifests" / "refunds.yaml").write_text("kind: [")
    planned.body = call("plan", "--format", "markdown").out
    (tmp_path / "manifests" / "refunds.yaml").write_text(good)
    code, err = apply(call)
    assert (code, is_done(call)) == (7, False)
    assert f"the last plan in pull request {NUMBER} failed, so nothing was approved" in err


def test_a_commit_that_came_with_no_pull_request_has_no_approval(forge: ForgeServer, planned: Said, call: Call) -> None:
    del planned
    forge.reviews = [Review("anna")]
    code, err = apply(call)
    assert code == 64
    assert f"commit {MERGE} came with no merged pull request" in err
    assert "--approved-in N" in err


def test_the_number_of_approvers_that_a_workspace_asks_for_is_counted_from_the_reviews(
    forge: ForgeServer, planned: Said, call: Call, tmp_path: Path
) -> None:
    (tmp_path / "reconciler.yaml").write_text(
        "apiVersion: reconciler/v1\nkind: Workspace\nmetadata: {name: shop}\n"
        "spec: {guards: {approvals: {data-loss: 2}, allow: "
        '[{action: "delete:topic/west/refunds", until: 2999-12-31, reason: moved}]}}\n'
    )
    assert call("apply", "--yes").code == 0
    with opened(DirectoryStore(tmp_path / ".clusters/west")).producer() as producer:
        producer.send("refunds", "a refund")
    (tmp_path / "manifests" / "refunds.yaml").unlink()
    planned.body = call("plan", "--format", "markdown").out
    assert "apply asks for 2 approvers" in planned.body
    forge.merged_as, forge.reviews = MERGE, [Review("anna")]
    code, err = apply(call)
    assert code == 7
    assert "2 people must have approved delete:topic/west/refunds, and anna did" in err
    assert f"Have more people approve {forge.url}" in err
    assert "--approved-by" not in err
    forge.reviews.append(Review("bob"))
    assert apply(call)[0] == 0
    assert is_done(call)


@pytest.mark.parametrize("by", ["option", "environment"])
def test_a_name_that_was_typed_does_not_count_beside_those_of_the_forge(
    forge: ForgeServer, planned: Said, call: Call, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    del planned
    forge.merged_as, forge.reviews = MERGE, [Review("anna")]
    if by == "environment":
        monkeypatch.setenv("RECONCILER_APPROVED_BY", "bob")
    code, err = apply(call, *(("--approved-by", "bob") if by == "option" else ()))
    assert (code, is_done(call)) == (64, False)
    assert "only who approved the pull request counts" in err
    assert "RECONCILER_APPROVED_BY" in err


def test_a_job_that_is_run_again_does_not_bring_back_what_was_undone_since_unless_it_is_approved_once_more(
    forge: ForgeServer, planned: Said, call: Call, tmp_path: Path
) -> None:
    del planned
    forge.merged_as, forge.reviews = MERGE, [Review("anna")]
    assert apply(call)[0] == 0
    (tmp_path / "manifests" / "refunds.yaml").unlink()
    assert call("apply", "--yes", "--allow", "delete:topic/west/refunds").code == 0
    (tmp_path / "manifests" / "refunds.yaml").write_text(TOPICS)
    code, err = apply(call)
    assert (code, is_done(call)) == (6, False)
    assert "already applied this plan" in err
    assert "topic/west/refunds is recorded no more" in err
    assert "have it approved again" in err
    forge.reviews.append(Review("bob", at="2999-01-01T00:00:00Z"))
    assert apply(call)[0] == 0
    assert is_done(call)


def commit(folder: Path) -> None:
    (folder / ".gitignore").write_text(".clusters\n.reconciler\n")
    for arguments in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "x")):
        subprocess.run(["git", "-C", str(folder), *arguments], env=ENVIRON, check=True)


def test_a_change_that_asks_for_fewer_approvers_is_held_to_what_its_base_asks_for_also_after_the_merge(
    forge: ForgeServer, planned: Said, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = "apiVersion: reconciler/v1\nkind: Workspace\nmetadata: {name: shop}\n"
    (tmp_path / "reconciler.yaml").write_text(workspace + "spec: {guards: {approvals: {data-loss: 2}}}\n")
    assert call("apply", "--yes").code == 0
    with opened(DirectoryStore(tmp_path / ".clusters/west")).producer() as producer:
        producer.send("refunds", "a refund")
    commit(tmp_path)
    allow = '[{action: "delete:topic/west/refunds", until: 2999-12-31, reason: moved}]'
    (tmp_path / "reconciler.yaml").write_text(f"{workspace}spec: {{guards: {{allow: {allow}}}}}\n")
    (tmp_path / "manifests" / "refunds.yaml").unlink()
    with monkeypatch.context() as before_the_merge:
        before_the_merge.setenv("RECONCILER_BASE", "HEAD")
        planned.body = call("plan", "--format", "markdown").out
    assert "this change lowers guards.approvals of data-loss from 2 to none" in planned.body
    assert "this change adds guards.allow: delete:topic/west/refunds until 2999-12-31" in planned.body
    assert "apply asks for 2 approvers" in planned.body
    forge.merged_as, forge.reviews = MERGE, [Review("anna")]
    code, err = apply(call)
    assert (code, is_done(call)) == (7, False)
    assert "2 people must have approved this plan, from its comment, and anna did" in err
    forge.reviews.append(Review("bob"))
    assert apply(call)[0] == 0


@pytest.mark.parametrize("forge", ["github"], indirect=True)
def test_a_workspace_file_of_the_base_that_cannot_be_read_is_told_in_the_plan(
    forge: ForgeServer, planned: Said, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del forge, planned
    good = (tmp_path / "reconciler.yaml").read_text()
    (tmp_path / "reconciler.yaml").write_text("kind: [")
    commit(tmp_path)
    (tmp_path / "reconciler.yaml").write_text(good)
    monkeypatch.setenv("RECONCILER_BASE", "HEAD")
    said = call("plan", "--format", "markdown")
    assert said.code == 0
    assert "whether this change lowers guards.approvals is not known" in said.out


def test_a_forge_that_does_not_let_us_look_is_named_and_nothing_is_done(
    forge: ForgeServer, planned: Said, call: Call
) -> None:
    del planned
    forge.merged_as = MERGE
    forge.faults.append(
        Fault("GET", r"/(reviews|approvals)", 403, body='{"message": "Resource not accessible"}', times=9)
    )
    code, err = apply(call)
    assert code == 1
    assert "Resource not accessible" in err
    assert not is_done(call)


def test_where_gitlab_does_not_say_when_it_was_approved_its_own_note_does(
    forge: ForgeServer, planned: Said, call: Call
) -> None:
    del planned
    if forge.kind != "gitlab":
        return
    forge.merged_as, forge.reviews, forge.has_times = MERGE, [Review("anna")], False
    assert apply(call)[0] == 0


@pytest.mark.parametrize("number", ["", "0", "-1", "seven", "7;rm"])
def test_what_is_no_number_of_a_pull_request_is_refused(call: Call, number: str) -> None:
    done = call("apply", "--approved-in", number)
    assert done.code == 64
    assert "--approved-in takes the number of a pull request, or auto" in done.err


@pytest.mark.parametrize(
    "options", [("--approved-by", "a,b"), ("--approved-by", "a\x1bb"), ("--pull-request", "javascript:alert(1)")]
)
def test_what_is_no_name_and_no_address_is_not_kept(call: Call, options: tuple[str, str]) -> None:
    done = call("apply", "--yes", *options)
    assert (done.code, options[0] in done.err) == (64, True)
