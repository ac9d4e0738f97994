"""Killed between any two steps of a mount or unmount by jobs: the next apply goes on; nothing is lost or doubled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.workflow.kafka.dying import die_after
from tests.workflow.kafka.hibernated import read_all, unnumbered

if TYPE_CHECKING:
    from tests.workflow.kafka.hibernated import Site

pytestmark = pytest.mark.soak  # minutes: brokers are started, killed and asked by whole commands


CLUSTER = "reconciler.providers.kafka.mounts.mounts"
WRITING = "reconciler.embedded.mounts.archive"
TAKING = "reconciler.embedded.mounts.archive"


def rarely(*step: object) -> object:
    """Be killed after a step that lies between others that are tried always."""
    return pytest.param(*step, marks=pytest.mark.soak)


UNMOUNTING = [
    rarely(CLUSTER, "KafkaHibernation.keep", 1),
    rarely(WRITING, "begin", 1),
    (CLUSTER, "KafkaHibernation.keep", 2),
    rarely("reconciler.embedded.mounts.archive_log", "ArchiveSink.publish", 1),
    ("reconciler.providers.kafka.ledger", "Ledger.change", 4),
    ("reconciler.providers.kafka.admin", "configure", 1),
    rarely("reconciler.providers.kafka.seal", "Seals.put", 1),
    rarely("reconciler.jobs.archive", "archive", 1),
    rarely(WRITING, "describe", 1),
    rarely(CLUSTER, "KafkaHibernation.keep", 3),
    (CLUSTER, "KafkaHibernation.remove", 1),
    (WRITING, "detach", 1),
    rarely(WRITING, "tidy", 1),
    rarely(CLUSTER, "KafkaHibernation.end", 1),
]
MOUNTING = [
    rarely(CLUSTER, "KafkaHibernation.keep", 1),
    rarely(TAKING, "claim", 1),
    (CLUSTER, "KafkaHibernation.make", 1),
    rarely(CLUSTER, "KafkaHibernation.keep", 2),
    ("reconciler.jobs.archive", "restore", 1),
    rarely(CLUSTER, "KafkaHibernation.keep", 3),
    rarely(CLUSTER, "KafkaHibernation.keep", 4),
    rarely(CLUSTER, "KafkaHibernation.finish", 1),
    (TAKING, "settle", 1),
    rarely(CLUSTER, "KafkaHibernation.end", 1),
]


@pytest.mark.parametrize(("module", "name", "nth"), UNMOUNTING)
def test_an_unmount_that_is_killed_is_completed_by_the_next_apply(site: Site, module: str, name: str, nth: int) -> None:
    before = read_all(site.log)
    site.declare("live", "unmounted")
    die_after(site, module, name, nth)
    site.apply()
    assert site.physical not in site.kafka.names()
    assert site.live.migrations.under_way() == []
    site.declare("cold", "mounted")
    site.apply()
    assert read_all(site.cold.log(site.topic)) == before


@pytest.mark.parametrize(("module", "name", "nth"), MOUNTING)
def test_a_mount_that_is_killed_is_completed_by_the_next_apply(site: Site, module: str, name: str, nth: int) -> None:
    before = read_all(site.log)
    site.declare("live", "unmounted")
    site.apply()
    site.declare("live", "mounted")
    die_after(site, module, name, nth)
    site.apply()
    assert unnumbered(read_all(site.log)) == unnumbered(before)
    assert site.live.migrations.under_way() == []
    (mountable,) = site.cold.mounts.mountable()
    assert mountable.state == "mounted"
