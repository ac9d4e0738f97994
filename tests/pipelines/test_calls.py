"""Our workflows, called as a repository with workspaces calls them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.resources.workspace import Workspace
from tests.docs import markdown
from tests.pipelines.runner import COMMIT, OURS, OURS_TOKEN, Runner, RunOutcome, filled, truth, value_of
from tests.pipelines.test_life import CLUSTER, ORDERS, RECONCILER, WORKSPACE, Repository
from tests.servers.forge import NUMBER, REPOSITORY, TOKEN, ForgeServer, Review
from tests.servers.kafkasecured import USER, secured

pytestmark = pytest.mark.thorough

SOURCE = {"source-token": OURS_TOKEN}


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    """Yield a repository with two workspaces, each for dev and prod, and a change of both."""
    folder = tmp_path / "checkout"
    for name in ("", "teams/billing"):
        place = folder / name
        (place / "manifests").mkdir(parents=True)
        (place / "reconciler.yaml").write_text(WORKSPACE.replace("shop", name.rpartition("/")[2] or "shop"))
        (place / "manifests" / "all.yaml").write_text(f"{CLUSTER}---\n{ORDERS % 3}")
        for environment in ("dev", "prod"):
            (place / "overlays" / environment).mkdir(parents=True)
            (place / "overlays" / environment / "values.yaml").write_text("{}\n")
    with ForgeServer("github").started() as forge:
        made = Repository(folder, tmp_path / "machine", forge)
        made.git("init", "--quiet", "--initial-branch", "main")
        made.write()
        yield made


def called(repository: Repository, workflow: str, *, event: str = "", **options: Any) -> list[RunOutcome]:
    """Call a workflow for the pull request, for a comment in it (`/plan by MEMBER`), or for a push or schedule."""
    base = {"ref": "main", "sha": repository.git("rev-parse", "main")}
    payload: dict[str, Any] = {"pull_request": {"number": NUMBER, "base": base}}
    payload["pull_request"]["head"] = {"repo": {"full_name": REPOSITORY}}
    if event in {"push", "schedule"}:
        payload = {}
    elif event:
        text, _, association = event.partition(" by ")
        comment = {"body": text, "author_association": association}
        payload = {"issue": {"number": NUMBER, "state": "open", "pull_request": {}}, "comment": comment}
    name = event if not payload else "issue_comment" if event else "pull_request"
    environ = {**repository.forge.environ(), "GITHUB_SHA": repository.git("rev-parse", "HEAD")}
    machine = {key: options.pop(key) for key in ("job", "server") if key in options}
    runner = Runner(repository.home, repository.folder, name, payload, environ, TOKEN, **machine)
    return runner.call(workflow, options.pop("secrets", SOURCE), **options)


def artifacts(jobs: list[RunOutcome]) -> list[str]:
    used = (used for job in jobs for used in job.used)
    return [options["name"] for name, options in used if name.startswith("actions/upload-artifact@")]


def test_two_calls_in_one_pull_request_neither_cancel_nor_replace_each_other(repository: Repository) -> None:
    dev = called(repository, "plan", environments='["dev"]')
    prod = called(repository, "plan", environments='["prod"]')
    jobs = [*dev[1:], *prod[1:]]
    assert [job.code for job in jobs] == [0] * 4, [job.log for job in jobs]
    assert len({job.job["group"] for job in jobs}) == 4
    assert sorted(artifacts(jobs)) == [
        "reconciler-plan-.-dev",
        "reconciler-plan-.-prod",
        "reconciler-plan-teams--billing-dev",
        "reconciler-plan-teams--billing-prod",
    ]
    assert len(repository.forge.comments) == 4


def test_a_private_copy_is_read_with_its_own_token_and_an_enterprise_server_is_named_it(repository: Repository) -> None:
    only: dict[str, Any] = {"workspaces": '["."]'}
    _, refused = called(repository, "plan", secrets={}, **only)
    assert (refused.code, f"{OURS}@{COMMIT}: not found" in refused.log) == (1, True)
    assert called(repository, "plan", **only)[1].code == 0
    enterprise: dict[str, Any] = {"job": {}, "server": "https://github.example.com", **only}
    _, unknown = called(repository, "plan", **enterprise)
    assert (unknown.code, "source to OWNER/reconciler" in unknown.log) == (1, True)
    _, planned = called(repository, "plan", **enterprise, source=OURS, **{"source-ref": COMMIT})
    assert (planned.code, artifacts([planned])) == (0, [])


@pytest.mark.parametrize("workflow", ["plan", "apply", "drift"])
def test_inputs_choose_the_runner_the_login_and_the_protection(repository: Repository, workflow: str) -> None:
    runner = {"runs-on": '["self-hosted", "kafka"]', "timeout-minutes": 7, "python-version": ""}
    login = {"aws-role": "arn:aws:iam::1:role/plan", "aws-region": "eu-west-1"}
    # The command is typed wrong on purpose: the steps before it are what counts.
    found, job = called(
        repository,
        workflow,
        workspaces='["."]',
        arguments="--no-such-option",
        **runner,
        **login,
        **{"protected-by": "production"},
    )
    assert found.job["runs-on"] == job.job["runs-on"] == "['self-hosted', 'kafka']"
    assert (job.job["timeout-minutes"], job.job["environment"]) == ("7", "production")
    assert "No such option: --no-such-option" in job.log
    used = {name.partition("@")[0]: options for name, options in job.used}
    expected = {"role-to-assume": login["aws-role"], "aws-region": "eu-west-1"}
    assert used["aws-actions/configure-aws-credentials"] == expected
    assert not used.keys() & {"actions/setup-python", "google-github-actions/auth", "azure/login"}


def test_a_change_goes_through_the_three_workflows(repository: Repository, tmp_path: Path) -> None:
    it, forge = repository, repository.forge
    it.git("switch", "--quiet", "--create", "change", "main")
    settings = WORKSPACE.replace("spec: {", f"spec: {{state: 'file://{tmp_path}/state', ")
    (it.folder / "reconciler.yaml").write_text(settings)
    it.write(all=CLUSTER.replace("file://.clusters", f"file://{tmp_path}/clusters"))
    it.git("branch", "--force", "main", "HEAD")
    forge.head = it.write(orders=ORDERS % 3)
    only: dict[str, Any] = {"workspaces": '["."]'}
    assert called(it, "plan", **only)[1].code == 0
    forge.merged_as, forge.reviews = forge.head, [Review("bob", commit=forge.head)]
    _, applied = called(it, "apply", event="push", **only)
    assert (applied.code, applied.job["group"]) == (0, "reconciler-apply-.-"), applied.log
    _, compared = called(it, "drift", event="schedule", **only)
    assert (compared.code, forge.issues) == (0, []), compared.log
    alter = [RECONCILER, "topic", "alter", "topic/west/orders", "--set", "retention.ms=1d", "--no-state"]
    subprocess.run(alter, cwd=it.folder, check=True, capture_output=True)
    _, drifted = called(it, "drift", event="schedule", fail=True, **only)
    assert (drifted.code, [issue.labels for issue in forge.issues]) == (3, [["drift"]]), drifted.log


def proposed(repository: Repository, text: str) -> None:
    """Open a pull request that changes the first workspace, with the merge commit that GitHub keeps."""
    repository.git("switch", "--quiet", "--create", "change")
    repository.forge.head = repository.write(all=text)
    repository.git("switch", "--quiet", "main")
    repository.git("merge", "--quiet", "--no-ff", "--message", "Merge it", "change")
    repository.git("update-ref", f"refs/pull/{NUMBER}/merge", "HEAD")
    repository.git("reset", "--quiet", "--hard", "HEAD^1")


def test_a_comment_of_a_member_plans_the_pull_request_or_applies_what_is_approved(repository: Repository) -> None:
    proposed(repository, f"{CLUSTER}---\n{ORDERS % 5}")
    assert called(repository, "plan", event="/plan by NONE") == []
    assert called(repository, "plan", event="Nice plan by MEMBER") == []
    found, *jobs = called(repository, "plan", event="/plan by MEMBER", workspaces='["."]')
    assert (found.code, [job.code for job in jobs]) == (0, [0]), jobs[0].log
    assert "Plan for `shop`" in repository.forge.comments[0].body
    _, applied = called(repository, "apply", event="/apply by OWNER", workspaces='["."]')
    assert (applied.code, "is not approved" in applied.log) == (7, True), applied.log


def test_a_plan_by_comment_believes_the_base_of_the_pull_request(repository: Repository) -> None:
    proposed(repository, CLUSTER.replace("file://.clusters/west", "file:///var/elsewhere"))
    _, refused = called(repository, "plan", event="/plan by MEMBER", workspaces='["."]')
    assert (refused.code, "the base branch does not name it" in refused.log) == (1, True), refused.log


CLUSTER_WITH_PASSWORD = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: west}
spec:
  provider: kafka
  kafka:
    bootstrapServers: [%s]
    security: {protocol: SASL_SSL, mechanism: PLAIN, username: %s, password: "${env:KAFKA_PASSWORD}", caFile: ca.pem}
"""  # noqa: S105 - a reference


def test_the_workflow_of_the_guide_plans_a_pull_request_with_the_secret_of_its_base(repository: Repository) -> None:
    """The guide's workflow and its `reconciler.yaml`, with a broker that wants the password."""
    blocks = [block.text for block in markdown.blocks("yaml") if block.file.name == "pull-requests.md"]
    workflow = next(
        yaml.safe_load(text) for text in blocks if "uses: OWNER/reconciler/.github/workflows/plan.yml" in text
    )
    settings = next(text for text in blocks if "references:" in text)
    Workspace.model_validate(yaml.safe_load(settings))
    job = workflow["jobs"]["plan"]
    assert truth(value_of(job["if"], {"github": {"event_name": "pull_request"}}))
    lines = filled(job["secrets"]["env"], {"secrets": {"KAFKA_PASSWORD_READING": "right-one"}})
    assert re.search(r"/plan\.yml@v\S+$", job["uses"])
    with secured() as broker:
        (repository.folder / "reconciler.yaml").write_text(settings)
        (repository.folder / "ca.pem").write_bytes(broker.authority.ca.read_bytes())
        repository.write(all=CLUSTER_WITH_PASSWORD % (broker.kafka.bootstrap("BOTH"), USER))
        repository.git("switch", "--quiet", "--create", "change")
        repository.write(orders=ORDERS % 3)
        secrets = {**SOURCE, "env": lines}
        _, planned = called(repository, "plan", secrets=secrets, workspaces='["."]', **job.get("with", {}))
        assert planned.code == 0, planned.log
        assert "orders" in repository.forge.comments[0].body
        assert "right-one" not in planned.summary + repository.forge.comments[0].body
        # What the base does not allow is refused, and the line to add is named.
        repository.write(all=CLUSTER_WITH_PASSWORD.replace("KAFKA_", "OTHER_") % (broker.kafka.bootstrap("BOTH"), USER))
        _, refused = called(repository, "plan", secrets=secrets, workspaces='["."]')
        assert (refused.code, '"env:OTHER_PASSWORD"]' in repository.forge.comments[-1].body) == (1, True)
