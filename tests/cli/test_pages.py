"""`--format html` without a browser: what is in the file, and what can never be."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html
import json
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.cli.html.plan_report import build_plan_report
from reconciler.cli.html.report import render_page
from reconciler.process import Forge, read_forge
from reconciler.runtime.text import escape_invisible
from tests.cli import sample_results
from tests.cli.test_foreign_text import HOSTILE, _plan

if TYPE_CHECKING:
    from reconciler.planning.plan import Plan
    from tests.cli.conftest import Call

BREAKERS = (*HOSTILE, "</script><script>alert(1)</script>", "<!--<script>", '" onload="alert(1)', "&lt;b&gt;", "]]>")


def page_of(plan: Plan, forge: Forge | None = None) -> str:
    return render_page(build_plan_report(plan), forge).decode()


def data_of(page: str) -> dict[str, Any]:
    found = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert len(found) == 1
    data: dict[str, Any] = json.loads(found[0])
    return data


def rows_of(page: str) -> list[dict[str, Any]]:
    return [row for each in data_of(page)["sections"] for group in each["groups"] for row in group["rows"]]


class Tags(HTMLParser):
    """Every tag with its attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_a_page_says_danger_first_and_every_action_once() -> None:
    plan = sample_results.everything()
    page = page_of(plan)
    titles = [each["title"] for each in data_of(page)["sections"]]
    assert titles[:2] == ["Blocked", "Danger"]
    assert sorted(row["key"] for row in rows_of(page) if "key" in row) == sorted(each.id for each in plan.actions)
    delete = next(row for row in rows_of(page) if row["verb"] == "delete")
    assert delete["copies"] == [["allow once with", "--allow delete:topic/west/shop:eu:orders"]]
    assert "blocked (protected): it is protected" in delete["notes"]
    assert delete["size"] == "41.2 GiB, 4,100,000 records"
    lowered = next(row for row in rows_of(page) if row["name"] == "topic/west/shop:eu:logs")
    assert lowered["fields"] == [["~", "retention.ms", "7d", "3d"]]
    assert page == page_of(plan)


def test_without_a_script_a_reader_sees_the_head_the_counts_and_all_danger() -> None:
    static = page_of(sample_results.everything()).partition('<script type="application/json"')[0]
    for words in ("Plan for", "5 to add", "#412", "topic/west/shop:eu:orders", "data loss: about 18 GiB expire now"):
        assert words in html.unescape(static)
    assert "Changes (9)" in static
    many = page_of(sample_results.mostly_dangerous(2_000)).partition('<script type="application/json"')[0]
    assert len(many) < 200_000
    assert " more.</p>" in many


def test_the_policy_of_a_page_lets_only_its_own_script_and_style_run_and_nothing_load() -> None:
    page = page_of(
        sample_results.everything(), Forge("https://git.example/a/b/blob/c/", "https://git.example/a/b/commit/")
    )
    policy = html.unescape(re.findall(r'Content-Security-Policy" content="([^"]*)"', page)[0])
    hashes = [
        f"'sha256-{base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()}'"
        for body in (
            *re.findall(r"<style>(.*?)</style>", page, re.DOTALL),
            *re.findall(r"<script>(.*?)</script>", page, re.DOTALL),
        )
    ]
    assert policy.split("; ") == [
        "default-src 'none'",
        f"style-src {hashes[0]}",
        f"script-src {hashes[1]}",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    for tag, attributes in Tags(page).found:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base", "form"}
        assert not {"src", "style", "srcset"} & attributes.keys()
        assert not any(name.startswith("on") for name in attributes)


@pytest.mark.parametrize("name", BREAKERS)
def test_a_hostile_name_is_text_in_the_data_in_the_markup_and_in_the_picture(name: str) -> None:
    plain, page = page_of(_plan("plain")), page_of(_plan(name))
    assert [tag for tag, _ in Tags(page).found] == [tag for tag, _ in Tags(plain).found]
    assert escape_invisible(f"topic/west/{name}") in [row["name"] for row in rows_of(page)]
    assert not re.search(
        "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]", page
    )
    assert "##[" not in page


def test_values_of_fields_are_text_too() -> None:
    plan = sample_results.everything()
    evil = "</script>\u202e<b>"
    changed = dataclasses.replace(
        plan, actions=(sample_results.update("shop:eu:x", sample_results.Change("configs.a", evil, None)),)
    )
    page = page_of(changed)
    assert [row["fields"] for row in rows_of(page) if row["verb"] == "update"] == [
        [["-", "a", escape_invisible(evil), None]]
    ]
    assert "</script>\\" not in page


def test_offsets_that_become_unreadable_are_told_with_the_last_of_them() -> None:
    facts = [fact for row in rows_of(page_of(sample_results.switching())) for fact in row.get("facts", ())]
    said = [text for label, text in facts if label == "becomes unreadable"]
    assert said[0] == "topic/west/shop:eu:clicks, partition 0, offsets 0 to 1199999, 7 GiB"


# The commands.


def test_every_command_with_a_page_prints_one(call: Call) -> None:
    assert call("apply", "--yes").code == 0
    for command in ("plan", "drift"):
        said = call(command, "--format", "html")
        assert (said.code, said.err) == (0, ""), command
        assert said.out.startswith("<!doctype html>\n"), command
        data_of(said.out)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("show",), "only a saved plan is shown as a page"),
        (("show", "topic/west/shop:orders"), "only a saved plan is shown as a page"),
        (("validate",), "'html' is not one of 'text', 'json', 'markdown', 'junit', 'sarif'"),
        (("state", "history"), "'html' is not one of 'text', 'json'"),
    ],
)
def test_what_has_no_page_is_refused(call: Call, command: tuple[str, ...], message: str) -> None:
    said = call(*command, "--format", "html")
    assert (said.code, said.out) == (64, "")
    assert message in said.err


def test_a_saved_plan_makes_the_page_that_the_plan_made(call: Call) -> None:
    made = call("plan", "--out", "plan.json", "--format", "html")
    assert made.code == 0
    assert rows_of(call("show", "plan.json", "--format", "html").out) == rows_of(made.out)


@pytest.mark.parametrize("command", ["plan", "drift"])
def test_what_is_wrong_with_the_files_is_on_the_page_with_file_and_line(
    call: Call, tmp_path: Path, command: str
) -> None:
    (tmp_path / "manifests/broken.yaml").write_text("kind: [\n")
    said = call(command, "--format", "html")
    assert said.code == 1
    (row,) = rows_of(said.out)
    assert row["source"] == "manifests/broken.yaml:2"
    assert row["verb"] == "error"


def test_a_cluster_that_cannot_be_read_is_on_the_page(call: Call, tmp_path: Path) -> None:
    cluster = next(path for path in (tmp_path / "manifests").glob("*.yaml") if "kind: Cluster" in path.read_text())
    cluster.write_text(re.sub(r"root: \S+", 'root: "file:///dev/null/nowhere"}}', cluster.read_text()))
    for command in ("plan", "drift"):
        said = call(command, "--format", "html")
        assert said.code == 1
        assert any(row["verb"] == "error" for row in rows_of(said.out)), said.err


# Links to the forge.


FORGES = {
    "GitHub": (
        {
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_REPOSITORY": "acme/streams",
            "GITHUB_SHA": "abcdef12",
            "GITHUB_RUN_ID": "77",
        },
        Forge(
            "https://github.com/acme/streams/blob/abcdef12/",
            "https://github.com/acme/streams/commit/",
            "abcdef12",
            "https://github.com/acme/streams/actions/runs/77",
        ),
    ),
    "Gitea": (
        {
            "GITEA_ACTIONS": "true",
            "GITHUB_SERVER_URL": "http://git.local:3000/",
            "GITHUB_REPOSITORY": "a/b",
            "GITHUB_SHA": "abcdef12",
        },
        Forge("http://git.local:3000/a/b/src/commit/abcdef12/", "http://git.local:3000/a/b/commit/", "abcdef12"),
    ),
    "GitLab": (
        {
            "CI_PROJECT_URL": "https://gitlab.com/group/sub/it",
            "CI_COMMIT_SHA": "abcdef12",
            "CI_JOB_URL": "https://gitlab.com/group/sub/it/-/jobs/9",
        },
        Forge(
            "https://gitlab.com/group/sub/it/-/blob/abcdef12/",
            "https://gitlab.com/group/sub/it/-/commit/",
            "abcdef12",
            "https://gitlab.com/group/sub/it/-/jobs/9",
        ),
    ),
    "a script as its run": (
        {"CI_PROJECT_URL": "https://gitlab.com/a", "CI_COMMIT_SHA": "abcdef12", "CI_JOB_URL": "javascript:alert(1)"},
        Forge("https://gitlab.com/a/-/blob/abcdef12/", "https://gitlab.com/a/-/commit/", "abcdef12"),
    ),
    "none": ({}, None),
    "a script as its address": (
        {"GITHUB_SERVER_URL": "javascript:alert(1)//", "GITHUB_REPOSITORY": "a/b", "GITHUB_SHA": "abcdef12"},
        None,
    ),
    "no commit": ({"CI_PROJECT_URL": "https://gitlab.com/a", "CI_COMMIT_SHA": "x"}, None),
}


@pytest.mark.parametrize(("environ", "forge"), FORGES.values(), ids=FORGES)
def test_the_pipeline_says_where_files_and_commits_are_shown(
    tmp_path: Path, environ: dict[str, str], forge: Forge | None
) -> None:
    assert read_forge(tmp_path, environ) == forge


def test_the_links_of_a_workspace_below_its_repository_lead_into_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "stream files" / "topics"
    folder.mkdir(parents=True)
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    found = read_forge(folder, FORGES["GitHub"][0])
    assert found is not None
    assert found.files == "https://github.com/acme/streams/blob/abcdef12/stream%20files/topics/"
