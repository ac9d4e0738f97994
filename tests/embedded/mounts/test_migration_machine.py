"""Whatever is done to topics that travel, wherever a process dies: one owner at most, nothing acknowledged lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import pytest

from reconciler.errors import ReconcilerError
from tests.embedded.machine import run_machine
from tests.embedded.mounts import test_migration_clients as clients
from tests.embedded.mounts import test_migration_crashes as crashes
from tests.embedded.mounts import test_migration_crashes as drivers
from tests.embedded.mounts import test_migration_races as races
from tests.embedded.mounts import test_migration_races as releases
from tests.embedded.mounts.migrants import without_threads
from tests.embedded.mounts.migration_machine import VARIANTS, MigrationMachine


@pytest.fixture(autouse=True)
def _one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    without_threads(monkeypatch)


@pytest.mark.thorough
@pytest.mark.fact("F-R-107", "F-R-111", "F-R-112", "F-R-124")
def test_in_memory() -> None:
    run_machine(MigrationMachine, examples=6, steps=20)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(20))
def test_in_memory_for_long(number: int) -> None:
    run_machine(MigrationMachine, examples=100, steps=50, number=number)


# The points of migrations can fail: variants that leave out one rule are noticed; the real thing passes them all.

Play = Callable[..., object]


PLAYS: Final[Mapping[str, Play]] = {
    "race": races.test_of_clusters_that_race_for_a_topic_before_every_write_one_wins,
    "at once": races.test_what_lies_detached_can_be_mounted_at_once,
    "mount cancelled": races.test_a_mount_that_is_cancelled_before_any_write_claims_nothing_any_more,
    "unmount cancelled": races.test_an_unmount_that_is_cancelled_before_any_write_takes_nothing_any_more,
    "unmount died": crashes.test_an_unmount_that_died_at_any_write_is_finished_by_the_next,
    "mount died": crashes.test_a_mount_that_died_at_any_write_is_finished_by_the_next,
    "release": releases.test_a_mount_before_any_write_of_a_release_leaves_one_owner_or_none,
    "reader": clients.test_a_reader_that_is_open_across_the_cut_reads_the_whole_or_is_told,
    "append": partial(
        clients.test_an_append_that_the_whole_cut_overtakes_before_any_of_its_writes_is_there_or_refused,
        partition=0,
        is_used=True,
    ),
    "late driver": drivers.test_a_driver_of_an_unmount_that_wakes_up_late_takes_nothing,
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", VARIANTS)
def test_a_broken_variant_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    play = PLAYS[VARIANTS[name].noticed]
    if VARIANTS[name].noticed == "late driver":
        play = partial(play, "mounted here again", monkeypatch)
    with VARIANTS[name].applied(), pytest.raises((AssertionError, ReconcilerError)):
        play()
