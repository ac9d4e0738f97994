"""A command that is hinted at acts, typed as it is shown, on what the one before it acted on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reconciler.cli.hint_rewrite import add_typed_options, forget_typed_options, remember_typed_options
from reconciler.cli.json.runs_json import FailedCommand, format_event
from reconciler.cli.options import LeaseOptions, SelectOptions, StateUrlOptions, WorkspaceOptions
from tests.cli.conftest import Call
from tests.cli.test_drift import grow


@pytest.fixture
def call(typed: Call) -> Call:
    """Run commands in a workspace with an environment that has a state of its own, applied."""
    assert typed("init").code == 0
    Path("overlays/prod").mkdir(parents=True)
    Path("overlays/prod/values.yaml").write_text("{}\n")
    assert typed("apply", "--yes", "-e", "prod").code == 0
    return typed


def hint_of(said: str) -> str:
    return next(line for line in said.splitlines() if line.startswith("  hint:"))


def test_drift_of_an_environment_is_set_back_there(call: Call) -> None:
    grow()
    said = call("drift", "-e", "prod", "--target", "topic/west/*")
    assert said.code == 3
    assert "reconciler plan -e prod --target 'topic/west/*'" in hint_of(said.err)
    assert "reconciler drift -e prod --target 'topic/west/*' --accept ADDR" in hint_of(said.err)


def test_what_a_command_without_an_environment_hints_at_has_none(call: Call) -> None:
    assert call("drift", "-e", "prod").code == 0
    said = call("apply", "--resume", "--yes")
    assert hint_of(said.err).endswith(": reconciler apply")


def test_the_last_line_of_a_run_as_json_says_it_too(call: Call) -> None:
    said = call("apply", "--resume", "-e", "prod", "--yes", "--format", "json")
    assert json.loads(said.out.splitlines()[-1])["hint"].endswith("reconciler apply -e prod")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("then: reconciler apply", "then: reconciler apply PLACE -e prod --var a=b --target 'topic/*'"),
        ("`reconciler apply` settles", "`reconciler apply PLACE -e prod --var a=b --target 'topic/*'` settles"),
        ("reconciler apply --only-drift.", "reconciler apply PLACE -e prod --var a=b --target 'topic/*' --only-drift."),
        ("reconciler apply --resume", "reconciler apply PLACE -e prod --resume"),
        ("reconciler apply out/p.json", "reconciler apply PLACE out/p.json"),
        ("reconciler apply 'my plan.json'", "reconciler apply PLACE 'my plan.json'"),
        ("reconciler state unlock 019a", "reconciler state unlock PLACE -e prod --var a=b 019a"),
        ("reconciler state repair", "reconciler state repair PLACE -e prod --var a=b"),
        (
            "reconciler mount cancel 7 --cluster west",
            "reconciler mount cancel PLACE -e prod --var a=b 7 --cluster west",
        ),
        ("reconciler mount list", "reconciler mount list PLACE -e prod --var a=b"),
        ("reconciler topic list", "reconciler topic list PLACE -e prod --var a=b"),
        ("reconciler cluster check west --repair", "reconciler cluster check PLACE -e prod --var a=b west --repair"),
        ("with: reconciler show", "with: reconciler show PLACE -e prod --var a=b"),
        ("reconciler export CLUSTER --out FOLDER", "reconciler export PLACE -e prod --var a=b CLUSTER --out FOLDER"),
        ("reconciler run --once", "reconciler run PLACE -e prod --var a=b --once"),
        ("See `reconciler plan --help`", "See `reconciler plan --help`"),
        ("reconciler init", "reconciler init"),
    ],
)
def test_each_command_gets_what_it_takes(text: str, expected: str) -> None:
    remember_typed_options(
        [
            SelectOptions(environment="prod", var=["a=b"], target=["topic/*"]),
            WorkspaceOptions(workspace=Path("my shop")),
        ]
    )
    assert add_typed_options(text) == expected.replace("PLACE", "--workspace 'my shop'")
    forget_typed_options()
    assert add_typed_options(text) == text


def test_hints_in_json_say_it_too() -> None:
    remember_typed_options([SelectOptions(environment="prod")])
    event = json.loads(format_event(FailedCommand(1, "It is gone", "Then: reconciler plan")))
    assert event["hint"] == "Then: reconciler plan -e prod"
    forget_typed_options()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("reconciler topic list", "reconciler topic list --state s3://ops/shop"),
        ("reconciler state repair", "reconciler state repair"),
        ("reconciler cluster check west", "reconciler cluster check --state s3://ops/shop west"),
        ("reconciler show", "reconciler show"),
    ],
)
def test_a_state_is_named_to_commands_that_take_one(text: str, expected: str) -> None:
    remember_typed_options([StateUrlOptions(state="s3://ops/shop")])
    assert add_typed_options(text) == expected
    forget_typed_options()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "reconciler link resume link/east/l",
            "reconciler link resume --no-state --cluster east=s3://east link/east/l",
        ),
        ("reconciler link list", "reconciler link list"),
        ("reconciler mount status", "reconciler mount status"),
    ],
)
def test_clusters_are_named_to_orders(text: str, expected: str) -> None:
    remember_typed_options([LeaseOptions(no_state=True, at=["east=s3://east"])])
    assert add_typed_options(text) == expected
    forget_typed_options()
