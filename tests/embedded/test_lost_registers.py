"""Topics in object storage of which a register is lost: what the others tell of them still."""

from __future__ import annotations

import pytest

from reconciler.embedded.catalog.tiering_state import TopicLocation
from reconciler.embedded.keys import mountable_key, topic_manifest_key
from reconciler.embedded.mounts.mounts import release
from reconciler.embedded.tiered.ownership import Owning
from reconciler.embedded.tiered.recoverable import located
from reconciler.errors import UserError
from tests.embedded.mounting.bucket import Bucket


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


def test_without_its_register_a_mounted_topic_is_its_that_topic_json_says(bucket: Bucket) -> None:
    bucket.filled()
    location = bucket.unmounted()
    bucket.mounted(location)
    place = TopicLocation.parse(location)
    bucket.storage.delete([mountable_key(place.topic, place.cluster_id, place.revision)])
    west, east = bucket.west.cluster_id, bucket.east.cluster_id
    with pytest.raises(UserError, match=f"is owned by cluster {east}, not by {west}"):
        release(bucket.storage, place, west, now_ms=bucket.clock())
    assert release(bucket.storage, place, east, now_ms=bucket.clock()).state is Owning.DETACHED
    bucket.mounted(location, cluster="west")


def test_a_detached_topic_without_topic_json_says_which_object_is_missing(bucket: Bucket) -> None:
    bucket.filled()
    place = TopicLocation.parse(bucket.unmounted())
    lost = topic_manifest_key(place.cluster_id, place.revision)
    bucket.storage.delete([lost])
    with pytest.raises(UserError, match="there is no topic at") as refused:
        located(bucket.storage, place)
    assert refused.value.message.endswith(f": {lost} is not there")
    assert "restore that object" in refused.value.hint
