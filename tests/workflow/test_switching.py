"""Tiering switched off and on again by files alone: what the plan says first, and what is there afterwards."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from reconciler.cli.text.lines import text_of
from reconciler.cli.text.plan_text import plan_text
from reconciler.embedded.segments.head import Partition, swap_head
from reconciler.errors import BlockedError, UserError
from reconciler.lifecycles.tiered import TieringState
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.apply import ApplyOptions
from reconciler.operations.clusters.topics import alter_topic
from reconciler.operations.steps.invocation import Select
from reconciler.planning.saved_plan import canonical_bytes, to_document
from tests.embedded.evicted import upload_by_hand
from tests.embedded.tiered import Tiered
from tests.embedded.upkeeping import TOPIC, TWO_PARTS, head_of

if TYPE_CHECKING:
    from conftest import Bench

    from reconciler.applying.engine import RunResult

WEST = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: west}
spec:
  embedded: {root: "file://.clusters/west"}
  objectStorage: "file://.storage"
  properties: {cloud_storage_enabled: true}
"""

ORDERS = f"""\
apiVersion: reconciler/v1
kind: Topic
metadata: {{name: {TOPIC}, cluster: west}}
spec: {{partitions: 2, tieringPolicy: standard, configs: {{segment.bytes: {TWO_PARTS}}}}}
"""

POLICY = """\
apiVersion: reconciler/v1
kind: TieringPolicy
metadata: {{name: standard}}
spec: {{remoteWrite: {on}, remoteRead: {on}, onDisable: {policy}}}
"""

ALLOWED = Select(allow=(f"disable-tiering:topic/west/{TOPIC}",))


def switch(bench: Bench, *, on: bool, policy: str = "retain") -> None:
    bench.write("manifests/policy.yaml", POLICY.format(on=str(on).lower(), policy=policy))


def done(result: RunResult | None) -> list[str]:
    return [] if result is None else list(result.done)


@pytest.fixture
def it(bench: Bench) -> Tiered:
    """A tiered topic of twelve records a partition: eight uploaded, of which four lie in object storage alone."""
    bench.write("manifests/west.yaml", WEST)
    bench.write("manifests/orders.yaml", ORDERS)
    switch(bench, on=True)
    bench.apply()
    found = Tiered(DirectoryStore(bench.folder / ".clusters/west"), DirectoryStore(bench.folder / ".storage"))
    for partition in range(2):
        found.fill(6, partition=partition)
        upload_by_hand(found, 8, evicts=4, partition=partition)
    return found


@pytest.mark.fact("F-K-057")
def test_retained_data_costs_nothing_and_the_next_plan_is_empty(bench: Bench, it: Tiered) -> None:
    switch(bench, on=False)
    applied = bench.apply()
    assert done(applied.result) == [f"disable-tiering:topic/west/{TOPIC}"]
    assert it.tiering().state is TieringState.DISABLED
    assert head_of(it.cluster).start == 0
    assert bench.plan().plan.is_empty
    assert bench.plan().plan.waiting == ()


@pytest.mark.fact("F-K-065")
def test_deleting_it_is_shown_in_offsets_and_bytes_and_blocked_until_it_is_allowed(bench: Bench, it: Tiered) -> None:
    switch(bench, on=False, policy="delete")
    plan = bench.plan().plan
    lost = sum(entry.bytes for entry in it.segments()[:2])
    row = json.loads(canonical_bytes(to_document(plan)))["actions"][0]
    assert [each | {"bytes": None} for each in row["estimate"]["unreadable"]] == [
        {"topic": f"topic/west/{TOPIC}", "partition": partition, "start": 0, "stop": 4, "bytes": None}
        for partition in range(2)
    ]
    assert row["estimate"]["unreadable"][0]["bytes"] == lost
    text = text_of(plan_text(plan))
    assert "tiering off, remote data deleted: remote.log.disable.policy retain → delete" in text
    assert "data loss: 8 offsets of 2 partitions become unreadable, about " in text
    assert f"--allow disable-tiering:topic/west/{TOPIC}" in text
    with pytest.raises(BlockedError):
        bench.apply()
    assert it.tiering().state is TieringState.ENABLED
    assert done(bench.apply(ALLOWED).result) == [f"disable-tiering:topic/west/{TOPIC}"]
    assert it.tiering().state is TieringState.DISABLED
    assert (head_of(it.cluster).start, it.manifest().entries) == (4, ())
    assert bench.plan().plan.is_empty


@pytest.mark.fact("F-K-064")
@pytest.mark.fact("F-R-012")
def test_switched_on_again_it_says_what_will_be_missing_and_how_much_it_uploads(bench: Bench, it: Tiered) -> None:
    switch(bench, on=False, policy="delete")
    bench.apply(ALLOWED)
    expire(it, 6)
    switch(bench, on=True, policy="delete")
    planned = bench.plan().plan
    assert [action.id for action in planned.actions] == [f"enable-tiering:topic/west/{TOPIC}"]
    estimate = planned.actions[0].estimate
    assert estimate.uploads == sum(head_of(it.cluster, partition).stored_bytes for partition in range(2))
    assert [warning.message for warning in planned.warnings] == [
        "nothing was uploaded for a while: object storage will never have 2 offsets (partition 0: 4 to 5)"
    ]
    bench.apply()
    assert it.tiering().state is TieringState.ENABLED
    assert it.tiering().uploads
    assert bench.plan().plan.is_empty


def expire(it: Tiered, start: int) -> None:
    """Let retention take what lies below an offset of partition 0."""
    topic_id = it.cluster.catalog.read().topics[TOPIC].id
    swap_head(
        it.store,
        Partition(TOPIC, topic_id, 0),
        lambda head: replace(
            head,
            start=start,
            local_start=start,
            entries=tuple(entry for entry in head.entries if entry.base >= start),
        ),
    )


@pytest.mark.fact("F-K-063")
def test_what_apply_could_not_finish_is_waited_for_and_finished_without_being_asked(bench: Bench, it: Tiered) -> None:
    whole = it.storage.get(it.remote(1).key)
    assert whole is not None
    it.storage.put(it.remote(1).key, b"{}")
    switch(bench, on=False)
    result = bench.apply().result
    assert result is not None
    assert [item.id for item in result.failed] == [f"disable-tiering:topic/west/{TOPIC}"]
    assert it.tiering().state is TieringState.DISABLING
    waiting = bench.plan().plan
    assert [(each.address, each.state) for each in waiting.waiting] == [(f"topic/west/{TOPIC}", "DISABLING")]
    assert not waiting.errors
    it.storage.put(it.remote(1).key, whole.body)
    assert it.cluster.finish_disablings() == 1
    bench.apply()
    assert bench.plan().plan.is_empty


def test_a_saved_plan_is_applied_as_it_was_approved(bench: Bench, it: Tiered) -> None:
    switch(bench, on=False, policy="delete")
    file = bench.folder / "plan.json"
    bench.plan(ALLOWED, out=file)
    bench.apply(options=ApplyOptions(yes=True, file=file))
    assert it.tiering().state is TieringState.DISABLED


def test_altering_a_topic_by_hand_never_deletes_what_lies_in_object_storage(bench: Bench, it: Tiered) -> None:
    off = {"remote.write": "false", "remote.read": "false"}
    with pytest.raises(UserError, match="deletes what lies in object storage") as refused:
        alter_topic(bench.acting(), f"topic/west/{TOPIC}", {**off, "remote.log.disable.policy": "delete"}, ())
    assert "plan" in refused.value.hint
    assert it.tiering().state is TieringState.ENABLED
    alter_topic(bench.acting(), f"topic/west/{TOPIC}", off, ())
    assert (it.tiering().state, it.tiering().policy) == (TieringState.DISABLED, "retain")
