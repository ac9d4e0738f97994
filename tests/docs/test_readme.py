"""The first page: the plan that it shows is the one its readers would get."""

from __future__ import annotations

import re
import tomllib

from rich.text import Text

from reconciler import __home__
from tests.docs import markdown, plan_picture

README = markdown.ROOT / "README.md"


def test_the_picture_shows_the_plan_that_the_tool_prints() -> None:
    printed = Text.from_ansi(plan_picture.printed()).plain.split()
    shown = plan_picture.shown(plan_picture.FILE.read_text(encoding="utf-8"))
    assert "DANGER" in printed
    assert shown == plan_picture.repeatable([*plan_picture.COMMAND.split(), *printed])


def test_the_picture_needs_no_network() -> None:
    assert re.findall(r"(?:href|url|src)\W+https?:", plan_picture.FILE.read_text(encoding="utf-8")) == []


def test_the_first_screen_says_what_this_is_shows_a_plan_and_the_two_commands() -> None:
    lines = README.read_text(encoding="utf-8").splitlines()
    screen = lines[:14]
    assert any("Plan and apply" in line for line in screen)
    assert any("docs/plan.svg" in line for line in screen)
    assert "$ reconciler plan" in screen
    assert "$ reconciler apply" in screen
    assert len(lines) <= 120


def test_the_future_address_is_the_same_where_it_is_named() -> None:
    project = tomllib.loads((markdown.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["urls"]["Source"] == __home__
    claims = [page for page in markdown.files() if "stream-reconciler/reconciler" in page.read_text(encoding="utf-8")]
    assert claims == []
