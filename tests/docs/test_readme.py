"""The first page: the plan that it shows is the one its readers would get."""

from __future__ import annotations

import re
import tomllib

from rich.text import Text

from reconciler import __home__
from tests.docs import markdown, plan_picture

README = markdown.ROOT / "README.md"


def test_the_pictures_show_the_plan_and_the_comment_that_the_tool_prints() -> None:
    with plan_picture.workspace() as folder:
        printed, comment = plan_picture.printed(folder), plan_picture.comment(folder)
    words = Text.from_ansi(printed).plain.split()
    shown = plan_picture.shown(plan_picture.FILE.read_text(encoding="utf-8"))
    assert {"DANGER", "DRIFT", "blocked:"} <= {*words}
    assert shown == plan_picture.repeatable([*plan_picture.COMMAND.split(), *words])
    assert plan_picture.words_of(plan_picture.COMMENT.read_bytes()) == plan_picture.comment_words(comment)


def test_the_picture_needs_no_network() -> None:
    assert re.findall(r"(?:href|url|src)\W+https?:", plan_picture.FILE.read_text(encoding="utf-8")) == []


def test_the_first_screen_says_what_this_is_shows_a_plan_and_the_two_commands() -> None:
    lines = README.read_text(encoding="utf-8").splitlines()
    assert "Apache Kafka" in lines[2]
    assert len(plan_picture.readme_yaml().splitlines()) == 12
    screen = " ".join(lines[:32])
    assert "docs/plan.svg" in screen
    assert "docs/comment.png" in screen
    assert screen.index("`reconciler plan`") < screen.index("`reconciler apply`")
    assert len(lines) <= 120


def test_what_is_said_of_speed_is_what_was_measured() -> None:
    rows = {
        (cells[1], cells[2]): cells[3:]
        for line in (markdown.ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8").splitlines()
        if len(cells := [cell.strip() for cell in line.split("|")]) == len(("", *range(6), ""))
    }
    plan = "a plan with nothing to do, 1,000 topics on a Kafka broker, start to exit"
    ours, _, ratio, *_ = next(row for (what, _), row in rows.items() if what == plan)
    assert float(ours.removesuffix(" s")) < 3
    assert 1.5 <= float(ratio.removesuffix("×")) <= 2.5
    mirror = next(row for (_, against), row in rows.items() if against == "MirrorMaker 2, exactly once")
    assert round(float(mirror[2].removesuffix("×")), 1) == 0.1
    text = " ".join(README.read_text(encoding="utf-8").split())
    assert "1,000 topics on a broker takes less than three seconds from start to exit, twice the time" in text
    assert "takes a tenth of the time of MirrorMaker 2 with the same guarantee" in text


def test_the_future_address_is_the_same_where_it_is_named() -> None:
    project = tomllib.loads((markdown.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["urls"]["Source"] == __home__
    claims = [page for page in markdown.files() if "stream-reconciler/reconciler" in page.read_text(encoding="utf-8")]
    assert claims == []
