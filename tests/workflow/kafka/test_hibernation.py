"""A topic of a real broker put to sleep in object storage, and woken: on an embedded cluster, and on Kafka again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.workflow.kafka.hibernated import Site

READABLE = 58
"""Of 60 records, two were written in transactions that were aborted."""


@pytest.mark.fact("F-K-090")
def test_what_was_hibernated_from_kafka_is_mounted_on_an_embedded_cluster(site: Site) -> None:
    before = site.seen(READABLE)
    site.declare("live", "unmounted")
    site.apply()
    assert site.physical not in site.kafka.topics("--list").split()
    site.declare("cold", "mounted")
    site.apply()
    assert len(before) == READABLE
    assert len(list(site.cold.consume(site.topic))) == READABLE
