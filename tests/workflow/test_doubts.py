"""What a killed run left in doubt is neither drift nor pending, until the next apply has settled it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from reconciler.cli.json.checks_json import DriftDocument
from reconciler.errors import DriftError, UserError
from reconciler.operations.drift import drift
from reconciler.operations.drift_patch import accept
from reconciler.operations.steps.invocation import Select
from tests.workflow.test_crash import MORE, TOPIC, create_topic, die_at, unlock

if TYPE_CHECKING:
    from conftest import Bench

ADDRESS = TOPIC.removeprefix("create:")
LEASE_S = 90


def kinds(bench: Bench, select: Select | None = None) -> list[tuple[str, str]]:
    return [(found.kind, found.address) for found in drift(bench.invocation, select or Select()).findings]


def let_its_lease_grow_old(bench: Bench) -> None:
    """Let the last beat of the killed run be longer ago than a lease lasts."""
    then = time.time() - LEASE_S - 60
    os.utime(bench.folder / ".reconciler/lockfile.json", (then, then))


def test_while_a_lease_is_young_nobody_can_tell_and_that_is_said(bench: Bench) -> None:
    die_at(bench, "ActionStarted", TOPIC)
    assert kinds(bench) == [("pending", ADDRESS)]
    assert "bob@laptop" in bench.warned[-1]
    assert "the-dead-run" in bench.warned[-1]


def test_what_a_run_that_beats_no_more_had_begun_is_in_doubt(bench: Bench) -> None:
    die_at(bench, "ActionStarted", TOPIC)
    let_its_lease_grow_old(bench)
    found = drift(bench.invocation, Select())
    assert kinds(bench) == [("in doubt", ADDRESS)]
    assert "run the-dead-run of bob@laptop began to create it" in found.findings[0].message
    assert isinstance(found.verdict, DriftError)
    assert "1 in doubt" in found.verdict.message


def test_a_free_lease_and_an_open_run_mean_doubt_whatever_the_cluster_says(bench: Bench) -> None:
    die_at(bench, "ActionStarted", TOPIC)
    unlock(bench)
    create_topic(bench)
    bench.write("manifests/more.yaml", MORE)
    assert kinds(bench) == [("in doubt", ADDRESS), ("pending", "topic/west/shop:more")]
    assert kinds(bench, Select(excludes=("*orders",))) == [("pending", "topic/west/shop:more")]
    assert bench.apply().verdict is None
    assert kinds(bench) == []


def test_doubt_has_a_fingerprint_and_is_told_once(bench: Bench) -> None:
    die_at(bench, "ActionStarted", TOPIC)
    unlock(bench)
    known = bench.folder / "known.json"
    first = drift(bench.invocation, Select(), known=known)
    first.remember()
    again = drift(bench.invocation, Select(), known=known)
    assert (len(first.failing), again.findings, again.verdict) == (1, (), None)


def test_what_is_in_doubt_is_not_accepted(bench: Bench) -> None:
    die_at(bench, "ActionStarted", TOPIC)
    unlock(bench)
    found = accept(bench.invocation, Select(), [ADDRESS])
    assert found.patch == ""
    assert "`reconciler apply` settles it" in found.notes[0]


RUN = ".reconciler/runs/the-dead-run"


def break_its_files(bench: Bench, what: str) -> None:
    """Lose what tells what the killed run did."""
    die_at(bench, "ActionStarted", TOPIC)
    unlock(bench)
    if what == "run.json":
        (bench.folder / RUN / "run.json").unlink()
    else:
        pages = sorted((bench.folder / RUN / "journal").iterdir())
        assert len(pages) > 1
        pages[0].unlink()


@pytest.mark.parametrize("what", ["run.json", "journal"])
def test_what_an_open_run_did_and_nobody_can_tell_is_no_reason_to_be_content(bench: Bench, what: str) -> None:
    break_its_files(bench, what)
    found = drift(bench.invocation, Select())
    assert isinstance(found.verdict, UserError)
    assert "run the-dead-run was left open, and what it did cannot be told" in found.verdict.message
    assert "`reconciler state repair`" in found.verdict.hint
    (said,) = DriftDocument.of(found).errors
    assert "the-dead-run" in said
    assert "`reconciler state repair`" in said
    with pytest.raises(UserError, match="the-dead-run"):
        accept(bench.invocation, Select(), ["*"])


def test_while_it_goes_on_its_files_are_on_their_way(bench: Bench) -> None:
    die_at(bench, "ActionStarted", TOPIC)
    (bench.folder / RUN / "run.json").unlink()
    assert drift(bench.invocation, Select()).unreadable is None
    let_its_lease_grow_old(bench)
    assert drift(bench.invocation, Select()).unreadable is not None


def test_what_is_in_doubt_alone_is_settled_not_set_back(bench: Bench) -> None:
    die_at(bench, "ActionStarted", TOPIC)
    unlock(bench)
    verdict = drift(bench.invocation, Select()).verdict
    assert verdict is not None
    assert verdict.hint.endswith(": reconciler apply")
