"""A topic leaves a real broker while producers of every kind write to it: nothing that was acknowledged is lost.

What is written with acks=0 is acknowledged to nobody, so nothing is asked of it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

import pytest

from tests.operations.kafka.deaths import die_after
from tests.operations.kafka.hibernated import Site, read_all
from tests.operations.kafka.test_hibernation import UNMOUNTING
from tests.operations.kafka.test_topic_moves import apply as apply_move
from tests.operations.kafka.test_topic_moves import log_of, moves
from tests.operations.kafka.writers import LARGE, Writer, writers, writing

if TYPE_CHECKING:
    from reconciler.records.log import TopicLog

pytestmark = pytest.mark.thorough

UNHEARD = "unheard"


def values_of(log: TopicLog) -> set[bytes]:
    return {row["value"] for rows in read_all(log).values() for row in rows}


def lost(found: Iterable[Writer], there: set[bytes]) -> dict[str, int]:
    """Return of how many acknowledged records each producer finds nothing."""
    missing = {writer.kind: len(writer.acknowledged - there) for writer in found if writer.kind != UNHEARD}
    return {kind: count for kind, count in missing.items() if count}


def wrote(found: list[Writer], least: int) -> None:
    """Return once each producer was told that so many records are written."""
    bell = threading.Event()
    while any(len(writer.acknowledged) < least and writer.failure is None for writer in found):
        bell.wait(0.01)


def unmounted_while_written(site: Site, found: list[Writer]) -> list[Writer]:
    """Unmount the topic while producers write to it, and return them."""
    site.declare("live", "unmounted")
    with writing(found):
        wrote(found, 3)
        applied = site.bench.apply()
    assert applied.verdict is None, applied.verdict
    assert site.physical not in site.kafka.names()
    return found


@pytest.mark.fact("F-R-107")
def test_every_record_that_was_acknowledged_before_an_unmount_is_archived(site: Site) -> None:
    found = unmounted_while_written(site, writers(site.kafka.bootstrap(), site.physical))
    site.declare("cold", "mounted")
    site.apply()
    assert lost(found, values_of(site.cold.log(site.topic))) == {}
    assert any(len(value) == LARGE for value in values_of(site.cold.log(site.topic)))


@pytest.mark.soak
def test_every_record_that_was_acknowledged_before_a_move_is_under_the_new_name(site: Site) -> None:
    found = writers(site.kafka.bootstrap(), site.physical)
    new = moves(site)
    with writing(found):
        wrote(found, 3)
        apply_move(site)
    assert lost(found, values_of(log_of(site, new))) == {}


@pytest.mark.soak
@pytest.mark.parametrize(("module", "name", "nth"), UNMOUNTING)
def test_an_unmount_that_is_killed_while_everybody_writes_loses_nothing(
    site: Site, module: str, name: str, nth: int
) -> None:
    found = writers(site.kafka.bootstrap(), site.physical)
    site.declare("live", "unmounted")
    with writing(found):
        wrote(found, 3)
        die_after(site, module, name, nth)
        applied = site.bench.apply()
    assert applied.verdict is None, applied.verdict
    site.declare("live", "mounted")
    site.apply()
    assert lost(found, values_of(site.log)) == {}


@pytest.mark.soak
@pytest.mark.parametrize("turn", range(10))
def test_nothing_is_lost_on_the_oldest_version_either(site_39: Site, turn: int) -> None:
    every = writers(site_39.kafka.bootstrap(), site_39.physical)
    found = unmounted_while_written(site_39, every[turn % len(every) :])
    site_39.declare("live", "mounted")
    site_39.apply()
    assert lost(found, values_of(site_39.log)) == {}


@pytest.mark.soak
@pytest.mark.parametrize("turn", range(100))
def test_a_hundred_unmounts_lose_nothing_that_was_acknowledged(site: Site, turn: int) -> None:
    every = writers(site.kafka.bootstrap(), site.physical)
    found = unmounted_while_written(site, every[:1] if turn % 2 else every)
    site.declare("live", "mounted")
    site.apply()
    assert lost(found, values_of(site.log)) == {}
