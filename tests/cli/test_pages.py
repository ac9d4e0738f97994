"""`--format html` and `--format svg` without a browser: what is in the file, and what can never be."""

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
from xml.etree import ElementTree as ET

import pytest

from reconciler.cli.git import Forge, forge_of
from reconciler.cli.html.graph_svg import HEIGHT, layout, svg_text
from reconciler.cli.html.plan_report import plan_report
from reconciler.cli.html.report import page_bytes
from reconciler.lifecycles import LIFECYCLES
from reconciler.operations.show import Arrow, Node, Picture, draw_lifecycle
from reconciler.planning.saved_plan import to_document
from reconciler.runtime.text import visible
from tests.cli import sample_results
from tests.cli.test_foreign_text import HOSTILE, _plan

if TYPE_CHECKING:
    from reconciler.planning.plan import Plan
    from tests.cli.conftest import Call

BREAKERS = (*HOSTILE, "</script><script>alert(1)</script>", "<!--<script>", '" onload="alert(1)', "&lt;b&gt;", "]]>")


def page_of(plan: Plan, forge: Forge | None = None) -> str:
    return page_bytes(plan_report(plan, to_document(plan)), forge).decode()


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
    assert delete["size"] == "41.2 GiB"
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
    assert visible(f"topic/west/{name}") in [row["name"] for row in rows_of(page)]
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
    assert [row["fields"] for row in rows_of(page) if row["verb"] == "update"] == [[["-", "a", visible(evil), None]]]
    assert "</script>\\" not in page


def test_offsets_that_become_unreadable_are_told_with_the_last_of_them() -> None:
    facts = [fact for row in rows_of(page_of(sample_results.switching())) for fact in row.get("facts", ())]
    said = [text for label, text in facts if label == "becomes unreadable"]
    assert said[0] == "topic/west/shop:eu:clicks, partition 0, offsets 0 to 1199999, 7 GiB"


# The commands.


def test_every_command_with_a_page_prints_one(call: Call) -> None:
    assert call("apply", "--yes").code == 0
    for command in (
        ("plan",),
        ("drift",),
        ("show",),
        ("state", "history"),
        ("validate",),
        ("show", "topic/west/shop:orders"),
    ):
        said = call(*command, "--format", "html")
        assert (said.code, said.err) == (0, ""), command
        assert said.out.startswith("<!doctype html>\n"), command
        data_of(said.out)


def test_a_config_that_was_taken_away_on_the_cluster_differs_on_the_page_of_what_is_there(
    call: Call, tmp_path: Path
) -> None:
    with (tmp_path / "manifests/example.yaml").open("a") as file:
        file.write("  configs: {retention.ms: 7d}\n")
    assert call("apply", "--yes").code == 0
    page = call("show", "topic/west/shop:orders", "--format", "html").out
    assert [row["verb"] for row in rows_of(page)] == ["in step"]
    assert call("topic", "alter", "topic/west/shop:orders", "--delete", "retention.ms", "--yes").code == 0
    (row,) = rows_of(call("show", "topic/west/shop:orders", "--format", "html").out)
    assert row["verb"] == "differs"
    assert ["~", "configs.retention.ms", "7d", "7d", None] in row["fields"]


def test_a_config_that_is_unset_as_declared_is_in_step_on_the_page_of_what_is_there(call: Call, tmp_path: Path) -> None:
    with (tmp_path / "manifests/example.yaml").open("a") as file:
        file.write("  configs: {retention.ms: default}\n")
    assert call("apply", "--yes").code == 0
    (row,) = rows_of(call("show", "topic/west/shop:orders", "--format", "html").out)
    assert row["verb"] == "in step"


def test_a_saved_plan_makes_the_page_that_the_plan_made(call: Call) -> None:
    made = call("plan", "--out", "plan.json", "--format", "html")
    assert made.code == 0
    assert rows_of(call("show", "plan.json", "--format", "html").out) == rows_of(made.out)


@pytest.mark.parametrize("command", [("plan",), ("drift",), ("validate",), ("show",), ("state", "history")])
def test_what_is_wrong_with_the_files_is_on_the_page_with_file_and_line(
    call: Call, tmp_path: Path, command: tuple[str, ...]
) -> None:
    broken = "reconciler.yaml" if command[0] == "state" else "manifests/broken.yaml"
    (tmp_path / broken).write_text("kind: [\n")
    said = call(*command, "--format", "html")
    assert said.code == 1
    (row,) = rows_of(said.out)
    assert row["source"] == f"{broken}:2"
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
        {"GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "acme/streams", "GITHUB_SHA": "abcdef12"},
        Forge("https://github.com/acme/streams/blob/abcdef12/", "https://github.com/acme/streams/commit/"),
    ),
    "Gitea": (
        {
            "GITEA_ACTIONS": "true",
            "GITHUB_SERVER_URL": "http://git.local:3000/",
            "GITHUB_REPOSITORY": "a/b",
            "GITHUB_SHA": "abcdef12",
        },
        Forge("http://git.local:3000/a/b/src/commit/abcdef12/", "http://git.local:3000/a/b/commit/"),
    ),
    "GitLab": (
        {"CI_PROJECT_URL": "https://gitlab.com/group/sub/it", "CI_COMMIT_SHA": "abcdef12"},
        Forge("https://gitlab.com/group/sub/it/-/blob/abcdef12/", "https://gitlab.com/group/sub/it/-/commit/"),
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
    assert forge_of(tmp_path, environ) == forge


def test_the_links_of_a_workspace_below_its_repository_lead_into_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "stream files" / "topics"
    folder.mkdir(parents=True)
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    found = forge_of(folder, FORGES["GitHub"][0])
    assert found is not None
    assert found.files == "https://github.com/acme/streams/blob/abcdef12/stream%20files/topics/"


# Pictures.


def picture_of(*arrows: str, words: str = "") -> Picture:
    pairs = [(each[0], each[1]) for each in arrows]
    names = dict.fromkeys(name for pair in pairs for name in pair)
    return Picture(
        "plan", "shop", tuple(Node(name, "action") for name in names), tuple(Arrow(a, b, words) for a, b in pairs)
    )


def overlaps(picture: Picture) -> list[tuple[str, str]]:
    boxes = layout(picture).boxes
    return [
        (one.name, other.name)
        for index, one in enumerate(boxes)
        for other in boxes[index + 1 :]
        if one.x < other.x + other.width
        and other.x < one.x + one.width
        and one.y < other.y + HEIGHT
        and other.y < one.y + HEIGHT
    ]


PICTURES = {
    **{name: draw_lifecycle(name) for name in LIFECYCLES},
    "a diamond with words": picture_of("ab", "ac", "bd", "cd", "ad", words="says something"),
    "a circle": picture_of("ab", "bc", "ca"),
    "to itself": picture_of("aa", "ab", words="again"),
    "nothing": Picture("plan", "shop", (), ()),
    "alone": Picture("plan", "shop", tuple(Node(f"n{n}", "action") for n in range(50)), ()),
    "a tree": picture_of(*(f"{chr(97 + n // 3)}{chr(98 + n)}" for n in range(24))),
}


@pytest.mark.parametrize("picture", PICTURES.values(), ids=PICTURES)
def test_a_picture_has_every_node_and_arrow_and_no_node_covers_another(picture: Picture) -> None:
    drawing = layout(picture)
    assert [box.name for box in drawing.boxes] == [node.name for node in picture.nodes]
    assert {(line.start, line.end) for line in drawing.lines} == {(each.start, each.end) for each in picture.arrows}
    assert overlaps(picture) == []
    for box in drawing.boxes:
        assert 0 <= box.x <= box.x + box.width <= drawing.width
        assert 0 <= box.y <= box.y + HEIGHT <= drawing.height
    root = ET.fromstring(svg_text(picture))  # noqa: S314 - our own
    assert root.attrib["role"] == "img"
    assert svg_text(picture) == svg_text(picture)


def test_arrows_lead_to_the_right_unless_they_close_a_circle() -> None:
    places = {box.name: box.x for box in layout(picture_of("ab", "bc", "ac", "cd", "ae", "ed")).boxes}
    assert places["a"] < places["b"] < places["c"] < places["d"]
    circle = layout(picture_of("ab", "bc", "ca"))
    back = [line for line in circle.lines if line.points[0][0] > line.points[-1][0]]
    assert [(line.start, line.end) for line in back] == [("c", "a")]


@pytest.mark.parametrize("name", BREAKERS)
def test_a_hostile_name_is_text_in_a_picture(name: str) -> None:
    svg = svg_text(Picture("workspace", name, (Node(name, "cluster"), Node("b", "storage")), (Arrow(name, "b", name),)))
    root = ET.fromstring(svg)  # noqa: S314 - our own
    kinds = {each.tag.rpartition("}")[2] for each in root.iter()}
    assert kinds <= {"svg", "title", "desc", "style", "defs", "marker", "path", "rect", "g", "text"}
    assert visible(name) in [each.text for each in root.iter("{http://www.w3.org/2000/svg}title")]


@pytest.mark.thorough
def test_a_picture_of_ten_thousand_actions_is_drawn_at_once() -> None:
    names = [f"create topic/west/n{number}" for number in range(10_000)]
    tree = [Arrow(names[number // 10], names[number]) for number in range(1, 10_000)]
    far = [Arrow(names[0], name) for name in names[5000:]]
    picture = Picture("plan", "shop", tuple(Node(name, "action") for name in names), (*tree, *far))
    assert len(layout(picture).lines) == len({(each.start, each.end) for each in picture.arrows})


def test_the_command_draws_without_graphviz(typed: Call) -> None:
    said = typed("graph", "--lifecycle", "mirror", "--format", "svg")
    assert (said.code, said.err) == (0, "")
    root = ET.fromstring(said.out)  # noqa: S314 - our own
    words = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"ACTIVE", "PAUSED", "promote"} <= set(words)
