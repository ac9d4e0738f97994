"""What a killed run left in doubt is neither drift nor pending, until the next apply has settled it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from reconciler.errors import DriftError
from reconciler.workflow.accepting.accept import accept
from reconciler.workflow.beginning.invocation import Select
from reconciler.workflow.drift import drift
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
