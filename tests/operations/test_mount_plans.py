"""Mountings by plan and apply: what they take from object storage, what is refused, what the next plan says."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from reconciler.applying.events import ActionDone, Event
from reconciler.cli.text.markdown import plan_markdown
from reconciler.embedded.mounts.mounts import Mount
from reconciler.operations.apply import ApplyOptions
from reconciler.operations.state_edit import Surgery, state_mv
from reconciler.operations.state_views import rollback_plan
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import Stop
from reconciler.planning.plan_rows import moves_of
from reconciler.providers.embedded.recovery import EmbeddedArchives
from tests.operations.stage import MountShop, cluster, errors_of, ids_of, location_of, mounting, topic

if TYPE_CHECKING:
    from conftest import Bench


@pytest.fixture
def shop(bench: Bench) -> MountShop:
    shop = MountShop(bench)
    (bench.folder / "manifests" / "west.yaml").unlink()
    shop.apply(clusters=cluster("west") + "---\n" + cluster("east"), orders=topic("orders", "west"))
    with shop.opened("west").producer() as producer:
        for number in range(3):
            producer.send("shop:orders", f"v{number}".encode(), key=f"k{number}".encode())
    return shop


class TestThereAndBack:
    def test_what_was_unmounted_is_mounted_again_by_one_word_with_what_its_manifest_says_by_then(
        self, shop: MountShop
    ) -> None:
        shop.apply(sleep=mounting("orders", "west", "unmounted"))
        changed = topic(
            "orders", "west", partitions=3, configs="{remote.write: true, remote.read: true, segment.ms: 1d}"
        )
        shop.say(sleep=mounting("orders", "west", "mounted"), orders=changed)
        planned = shop.bench.plan()
        assert ids_of(planned) == ["mount:mounting/west/shop:orders", "update:topic/west/shop:orders"]
        assert planned.plan.drift == ()
        shop.apply()
        assert shop.values() == [b"v0", b"v1", b"v2"]
        assert shop.opened("west").topics()["shop:orders"].partitions == 3

    def test_what_was_mounted_again_as_it_was_is_known_again(self, shop: MountShop) -> None:
        shop.apply(sleep=mounting("orders", "west", "unmounted"))
        shop.apply(sleep=mounting("orders", "west", "mounted"))
        planned = shop.bench.plan()
        assert planned.plan.drift == ()
        shop.apply(sleep=None)
        assert shop.values() == [b"v0", b"v1", b"v2"]

    def test_a_topic_goes_to_another_cluster_under_an_alias_in_one_plan(self, shop: MountShop) -> None:
        shop.say(
            sleep=mounting("orders", "west", "unmounted"),
            wake=mounting("orders", "east", "mounted", more=", as: orders-2025, timeout: 10m"),
            east=topic("orders-2025", "east", configs="{segment.ms: 1d}"),
        )
        assert ids_of(shop.bench.plan()) == [
            "unmount:mounting/west/shop:orders",
            "mount:mounting/east/shop:orders",
            "adopt:topic/east/shop:orders-2025",
            "update:topic/east/shop:orders-2025",
        ]
        shop.apply()
        assert shop.values("shop:orders-2025", "east") == [b"v0", b"v1", b"v2"]
        shop.apply(
            sleep=mounting("orders", "west", "mounted"),
            wake=mounting("orders", "east", "unmounted", more=", as: orders-2025"),
        )
        assert shop.values() == [b"v0", b"v1", b"v2"]

    def test_what_was_mounted_long_ago_needs_no_look_at_object_storage(
        self, shop: MountShop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shop.apply(sleep=mounting("orders", "west", "unmounted"))
        shop.apply(sleep=mounting("orders", "west", "mounted"))
        asked: list[str] = []
        monkeypatch.setattr(EmbeddedArchives, "mountable", lambda _self: asked.append("mountable") or ())
        monkeypatch.setattr(
            EmbeddedArchives, "recoverable", lambda _self, _topics, _replicas=None: asked.append("recoverable") or {}
        )
        assert ids_of(shop.bench.plan()) == []
        assert asked == []
        shop.say(sleep=mounting("orders", "west", "unmounted"))
        assert ids_of(shop.bench.plan()) == ["unmount:mounting/west/shop:orders"]
        assert asked == ["mountable"]  # whose it is, once

    def test_back_to_the_state_before_an_unmount_is_a_mount_of_what_was_unmounted(self, shop: MountShop) -> None:
        shop.apply(sleep=mounting("orders", "west", "mounted"))
        location, serial = shop.location(), shop.serial()
        shop.apply(sleep=mounting("orders", "west", "unmounted"))
        planned = rollback_plan(shop.bench.invocation, Select(), serial)
        assert ids_of(planned) == ["mount:mounting/west/shop:orders"]
        assert location_of(planned, "mount:mounting/west/shop:orders") == location

    def test_back_to_a_state_without_the_mounting_says_where_the_topic_lies(self, shop: MountShop) -> None:
        location, serial = shop.location(), shop.serial()
        shop.apply(sleep=mounting("orders", "west", "unmounted"))
        planned = rollback_plan(shop.bench.invocation, Select(), serial)
        assert [each.message for each in planned.plan.errors] == [
            f"it is detached at {location}, and its Mounting is no longer declared"
        ]

    def test_a_mounting_that_is_removed_leaves_the_topic_detached_and_its_manifest_is_refused(
        self, shop: MountShop
    ) -> None:
        location = shop.location()
        shop.apply(sleep=mounting("orders", "west", "unmounted"))
        shop.say(sleep=None)
        (said,) = errors_of(shop.bench.plan())
        assert said.startswith("manifests/orders.yaml:")
        assert f"it is detached at {location}" in said
        assert "reconciler state rm mounting/west/shop:orders topic/west/shop:orders" in said
        shop.forget("mounting/west/shop:orders")
        planned = shop.bench.plan()
        assert ids_of(planned) == []
        (held,) = planned.plan.held
        assert held.now == f"detached at {location}"
        assert "reconciler state rm topic/west/shop:orders" in held.hint
        shop.forget("topic/west/shop:orders")
        assert ids_of(shop.bench.plan()) == ["create:topic/west/shop:orders"]

    def test_the_whole_workspace_can_be_destroyed_while_a_topic_sleeps(self, shop: MountShop) -> None:
        shop.apply(sleep=mounting("orders", "west", "unmounted"))
        assert shop.bench.destroy().verdict is None
        assert "shop:orders" not in shop.opened("west").topics()

    def test_forgetting_a_topic_that_sleeps_says_where_its_records_stay(self, shop: MountShop) -> None:
        where = shop.location()
        shop.apply(sleep=mounting("orders", "west", "unmounted"))
        shop.say(sleep=None, orders=None)
        gone = {action.id: action.estimate.location for action in shop.bench.plan().plan.actions}
        assert gone == {"forget:mounting/west/shop:orders": where, "forget:topic/west/shop:orders": where}

    def test_what_other_surroundings_say_becomes_its_own_and_nothing_is_left_to_change(self, shop: MountShop) -> None:
        east = cluster("east") + "spec: {configs: {retention.ms: 60d, segment.ms: 2d}}\n"
        west = cluster("west") + "spec: {configs: {retention.ms: 30d, segment.ms: 2d}}\n"
        shop.apply(clusters=west + "---\n" + east)
        shop.say(
            sleep=mounting("orders", "west", "unmounted"),
            wake=mounting("orders", "east", "mounted"),
            east=topic("orders", "east", configs="{retention.ms: 30d, segment.ms: 2d, segment.bytes: 1MiB}"),
        )
        planned = shop.bench.plan()
        changes = {each.path: each.before for action in planned.plan.actions for each in moves_of(action)}
        # What east says too is inherited there as before; what it says otherwise is pinned by the mount.
        assert changes == {"configs.segment.ms": None, "configs.segment.bytes": None}
        shop.apply()
        shop.apply(sleep=mounting("orders", "west", "mounted"), wake=mounting("orders", "east", "unmounted"))
        assert shop.values() == [b"v0", b"v1", b"v2"]

    def test_a_topic_that_slept_elsewhere_keeps_its_manifest_and_rules(self, shop: MountShop) -> None:
        rule = "{principal: 'User:a', permission: allow, operations: [read], host: '*'}"
        shop.apply(orders=topic("orders", "west", more=f", acls: [{rule}]"))
        shop.apply(sleep=mounting("orders", "west", "unmounted"))
        shop.say(sleep=mounting("orders", "west", "mounted"))
        planned = shop.bench.plan()
        assert ids_of(planned) == ["mount:mounting/west/shop:orders", "update:topic/west/shop:orders"]
        assert not any(each.drift for action in planned.plan.actions for each in moves_of(action))
        shop.apply()


class TestRefused:
    def test_what_this_plan_detaches_in_another_bucket_is_said_to_lie_there(self, shop: MountShop) -> None:
        shop.apply(clusters=cluster("west") + "---\n" + cluster("east") + "---\n" + cluster("north", "other"))
        shop.say(sleep=mounting("orders", "west", "unmounted"), wake=mounting("orders", "north", "mounted"))
        (said,) = errors_of(shop.bench.plan())
        assert "lies in file://bucket, the objectStorage of cluster" in said

    @pytest.mark.parametrize(
        ("gone", "why"),
        [
            ("topic.json", "there is no topic at"),
            ("manifest.json", "without it reconciler cannot tell which of them are valid"),
            ("*.parquet", "what it names is lost"),
        ],
    )
    def test_what_is_half_deleted_is_said_at_plan(self, shop: MountShop, gone: str, why: str) -> None:
        shop.apply(sleep=mounting("orders", "west", "unmounted"))
        lost = list((shop.bench.folder / "bucket" / "topics").rglob(gone))
        assert lost
        for path in lost:
            path.unlink()
        shop.say(wake=mounting("orders", "east", "mounted"))
        (said,) = errors_of(shop.bench.plan())
        assert said.startswith("manifests/wake.yaml:")
        assert why in said

    def test_what_a_newer_version_wrote_is_said_at_plan(self, shop: MountShop) -> None:
        shop.apply(sleep=mounting("orders", "west", "unmounted"))
        (path,) = (shop.bench.folder / "bucket" / "topics").rglob("topic.json")
        found = json.loads(path.read_bytes())
        found["format"] = found["format"].rpartition("/")[0] + "/99"
        path.write_text(json.dumps(found))
        shop.say(wake=mounting("orders", "east", "mounted"))
        (said,) = errors_of(shop.bench.plan())
        assert "newer" in said

    def test_a_register_that_is_damaged_is_said_of_what_would_be_mounted(self, shop: MountShop) -> None:
        shop.apply(sleep=mounting("orders", "west", "unmounted"))
        for path in (shop.bench.folder / "bucket" / "mountable").rglob("*.json"):
            path.write_text("{}")
        assert ids_of(shop.bench.plan()) == []
        shop.say(wake=mounting("orders", "east", "mounted"))
        (said,) = errors_of(shop.bench.plan())
        assert said.startswith("manifests/wake.yaml:")


class TestUnderWay:
    def test_one_unmounted_and_mounted_again_by_hand_is_adopted_as_that(self, shop: MountShop) -> None:
        location, mounts = shop.location(), shop.opened("west").mounts
        assert mounts.drive(mounts.unmount("shop:orders")) is None
        mounts = shop.opened("west").mounts
        assert mounts.drive(mounts.mount(Mount(location, "shop:orders"))) is None
        planned = shop.bench.plan()
        assert ids_of(planned) == ["adopt:topic/west/shop:orders"]
        assert "mounted again, or deleted and created again outside" in plan_markdown(planned.plan)

    def test_nor_of_one_mounted_under_another_name_by_hand(self, shop: MountShop) -> None:
        location, mounts = shop.location(), shop.opened("west").mounts
        assert mounts.drive(mounts.unmount("shop:orders")) is None
        mounts = shop.opened("west").mounts
        assert mounts.drive(mounts.mount(Mount(location, "shop:later"))) is None
        planned = shop.bench.plan()
        assert ids_of(planned) == []
        (held,) = planned.plan.held
        assert held.now == "mounted as topic/west/shop:later"
        assert held.message == "it is mounted with its records as topic/west/shop:later, and no Mounting says so"
        back = f"reconciler topic unmount topic/west/shop:later, then reconciler topic mount topic/west/{location}"
        assert back in held.hint

        shop.say(orders=topic("newest", "west", more=', movedFrom: "shop:orders"'))
        (said,) = errors_of(shop.bench.plan())
        assert (
            "topic/west/shop:orders, which it is moved from, is mounted with its records as topic/west/shop:later"
            in said
        )
        shop.say(orders=topic("orders", "west"))
        mounts = shop.opened("west").mounts
        assert mounts.drive(mounts.unmount("shop:later")) is None
        assert [held.now for held in shop.bench.plan().plan.held] == [f"detached at {location}"]
        assert "shop:orders" not in shop.opened("west").topics()

    def test_nor_of_one_that_another_cluster_has_begun_to_mount_and_did_not_get(self, shop: MountShop) -> None:
        location, mounts = shop.location(), shop.opened("west").mounts
        assert mounts.drive(mounts.unmount("shop:orders")) is None
        late = shop.opened("east").mounts
        late.prepare(late.mount(Mount(location, "shop:orders"), is_automatic=False))
        mounts = shop.opened("west").mounts
        assert mounts.drive(mounts.mount(Mount(location, "shop:later"))) is None
        assert [held.now for held in shop.bench.plan().plan.held] == ["mounted as topic/west/shop:later"]

    def test_a_new_one_is_made_where_what_was_mounted_under_another_name_is_gone(self, shop: MountShop) -> None:
        location, mounts = shop.location(), shop.opened("west").mounts
        assert mounts.drive(mounts.unmount("shop:orders")) is None
        mounts = shop.opened("west").mounts
        assert mounts.drive(mounts.mount(Mount(location, "shop:later"))) is None
        shop.opened("west").delete_topic("shop:later")
        assert ids_of(shop.bench.plan()) == ["create:topic/west/shop:orders"]

    def test_nor_where_its_mounting_left_the_files_meanwhile(self, shop: MountShop) -> None:
        shop.apply(wake=mounting("orders", "west", "mounted"))
        location, mounts = shop.location(), shop.opened("west").mounts
        assert mounts.drive(mounts.unmount("shop:orders")) is None
        shop.say(wake=None)
        assert [held.now for held in shop.bench.plan().plan.held] == [f"detached at {location}"]


def test_a_run_that_died_after_its_mount_is_resumed_to_the_end_of_its_plan(shop: MountShop) -> None:
    shop.apply(sleep=mounting("orders", "west", "unmounted"))
    changed = topic("orders", "west", configs="{remote.write: true, remote.read: true, segment.ms: 1d}")
    shop.say(sleep=mounting("orders", "west", "mounted"), orders=changed)

    def stop(event: Event) -> None:
        if isinstance(event, ActionDone) and event.id.startswith("mount:"):
            shop.bench.stop.request()

    stopped = shop.bench.apply(report=stop)
    assert "shop:orders" in shop.opened("west").topics()
    assert stopped.verdict is not None
    again = replace(shop.bench, stop=Stop())
    assert again.apply(options=ApplyOptions(yes=True, resumes=True)).verdict is None
    assert ids_of(again.plan()) == []
    assert shop.opened("west").topics()["shop:orders"].configs["segment.ms"] == "86400000"


def test_a_record_moves_by_hand_with_where_its_topic_lies(shop: MountShop) -> None:
    location = shop.location()
    shop.apply(sleep=mounting("orders", "west", "unmounted"))
    bench = shop.bench
    surgery = Surgery(
        invocation=bench.invocation, select=Select(), command="state mv", lock_timeout_s=5, stop=bench.stop
    )
    list(state_mv(surgery, "mounting/west/shop:orders", "mounting/west/shop:asleep", confirm=lambda _moves: True))
    shop.say(sleep=mounting("asleep", "west", "mounted", more=", as: orders"))
    planned = bench.plan()
    assert location_of(planned, "mount:mounting/west/shop:asleep") == location
