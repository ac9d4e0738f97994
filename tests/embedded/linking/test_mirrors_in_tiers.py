"""Mirrors on a cluster with object storage: tiered where their own cluster says so, whatever their source is."""

from __future__ import annotations

from reconciler.embedded.catalog.mirror_tables import MirrorShape
from reconciler.resources.mirrors import LinkEntry
from tests.embedded.mounting.bucket import Bucket
from tests.embedded.tiered import BOTH


def test_a_mirror_in_a_tiered_namespace_is_tiered_like_any_topic_there() -> None:
    bucket = Bucket()
    bucket.west.create_topic("shop:eu:clicks")
    east = bucket.east
    east.alter_namespace("shop:eu", BOTH)
    east.create_link("from-west", LinkEntry("link-1", "west"))
    of = bucket.west.source_topic("shop:eu:clicks")
    east.create_mirror("shop:eu:clicks", MirrorShape(link="from-west", source="shop:eu:clicks"), of)
    tiering = east.topic("shop:eu:clicks").tiering
    assert tiering is not None
    assert tiering.state == "ENABLED"
