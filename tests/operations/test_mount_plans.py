"""Mountings by plan and apply: what they take from object storage, what is refused, what the next plan says."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from reconciler.applying.events import ActionDone, Event
from reconciler.archives.archive import release_archive
from reconciler.archives.location import TopicLocation
from reconciler.cli.text.inventory_text import format_explanation, format_resources
from reconciler.cli.text.lines import to_plain_text
from reconciler.cli.text.markdown import format_plan_comment
from reconciler.embedded.mounts.mounts import Mount
from reconciler.errors import UserError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.apply import ApplyOptions
from reconciler.operations.clusters.consume import ConsumeOptions, ProduceOptions, consume, produce
from reconciler.operations.clusters.topics import describe_topic
from reconciler.operations.show import explain, show
from reconciler.operations.state_edit import RecordEdit, state_mv
from reconciler.operations.state_views import plan_rollback
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import SiteOptions, Stop
from reconciler.planning.actions import Reason
from reconciler.planning.plan_rows import list_platform_changes
from reconciler.providers.embedded.recovery import EmbeddedArchives
from tests.embedded.samples import NOW
from tests.embedded.tiered.tiered_cluster import BOTH
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
        monkeypatch.setattr(EmbeddedArchives, "list_mountable_topics", lambda _self: asked.append("mountable") or ())
        monkeypatch.setattr(
            EmbeddedArchives,
            "find_recovery_sources",
            lambda _self, _topics, _replicas=None: asked.append("recoverable") or {},
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
        planned = plan_rollback(shop.bench.invocation, Select(), serial)
        assert ids_of(planned) == ["mount:mounting/west/shop:orders"]
        assert location_of(planned, "mount:mounting/west/shop:orders") == location

    def test_back_to_a_state_without_the_mounting_says_where_the_topic_lies(self, shop: MountShop) -> None:
        location, serial = shop.location(), shop.serial()
        shop.apply(sleep=mounting("orders", "west", "unmounted"))
        planned = plan_rollback(shop.bench.invocation, Select(), serial)
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
        assert held.current == f"detached at {location}"
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
        changes = {each.path: each.before for action in planned.plan.actions for each in list_platform_changes(action)}
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
        assert not any(each.drift for action in planned.plan.actions for each in list_platform_changes(action))
        shop.apply()


class TestRefused:
    def test_what_this_plan_detaches_in_another_bucket_is_said_to_lie_there(self, shop: MountShop) -> None:
        shop.apply(clusters=cluster("west") + "---\n" + cluster("east") + "---\n" + cluster("north", "other"))
        shop.say(sleep=mounting("orders", "west", "unmounted"), wake=mounting("orders", "north", "mounted"))
        (said,) = errors_of(shop.bench.plan())
        assert "is in file://bucket, the objectStorage of cluster" in said

    @pytest.mark.parametrize(
        ("gone", "why"),
        [
            ("topic.json", "there is no topic at"),
            ("manifest.json", "without it reconciler cannot tell which of them are valid"),
            ("*.parquet", "objects that it needs are lost"),
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
        assert "mounted again, or deleted and created again outside" in format_plan_comment(planned.plan)

    def test_nor_of_one_mounted_under_another_name_by_hand(self, shop: MountShop) -> None:
        location, mounts = shop.location(), shop.opened("west").mounts
        assert mounts.drive(mounts.unmount("shop:orders")) is None
        mounts = shop.opened("west").mounts
        assert mounts.drive(mounts.mount(Mount(location, "shop:later"))) is None
        planned = shop.bench.plan()
        assert ids_of(planned) == []
        (held,) = planned.plan.held
        assert held.current == "mounted as topic/west/shop:later"
        assert held.message == "it is mounted with its records as topic/west/shop:later, and no Mounting declares it"
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
        assert [held.current for held in shop.bench.plan().plan.held] == [f"detached at {location}"]
        assert "shop:orders" not in shop.opened("west").topics()

    def test_nor_of_one_that_another_cluster_has_begun_to_mount_and_did_not_get(self, shop: MountShop) -> None:
        location, mounts = shop.location(), shop.opened("west").mounts
        assert mounts.drive(mounts.unmount("shop:orders")) is None
        late = shop.opened("east").mounts
        late.prepare(late.mount(Mount(location, "shop:orders"), is_automatic=False))
        mounts = shop.opened("west").mounts
        assert mounts.drive(mounts.mount(Mount(location, "shop:later"))) is None
        assert [held.current for held in shop.bench.plan().plan.held] == ["mounted as topic/west/shop:later"]

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
        assert [held.current for held in shop.bench.plan().plan.held] == [f"detached at {location}"]


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
    surgery = RecordEdit(
        invocation=bench.invocation, select=Select(), command="state mv", lock_timeout_s=5, stop=bench.stop
    )
    list(state_mv(surgery, "mounting/west/shop:orders", "mounting/west/shop:asleep", confirm=lambda _moves: True))
    shop.say(sleep=mounting("asleep", "west", "mounted", more=", as: orders"))
    planned = bench.plan()
    assert location_of(planned, "mount:mounting/west/shop:asleep") == location


# Topics that were released while their cluster lived: what a plan says where they are still, and elsewhere.


@pytest.fixture
def released(bench: Bench) -> MountShop:
    """Return two clusters, and a topic of west that was released and that west has still."""
    released = MountShop(bench)
    released.apply(west=cluster("west"), east=cluster("east"), orders=topic("orders", "west"))
    with released.opened("west").producer() as producer:
        producer.send("shop:orders", b"v", key=b"k")
    released.opened("west").upkeep().upload()
    location, owner = TopicLocation.parse(released.location()), released.opened("west").cluster_id
    release_archive(DirectoryStore(bench.folder / "bucket"), location, owner, now_ms=NOW)
    return released


def test_it_is_not_unmounted_where_it_is_still(released: MountShop) -> None:
    released.say(sleep=mounting("orders", "west", "unmounted"))
    (said,) = errors_of(released.bench.plan())
    assert f"it is not cluster west's any more: {released.location()} was released" in said
    assert "Delete it here; what is in object storage stays" in said


def test_it_is_mounted_elsewhere(released: MountShop) -> None:
    location = released.location()
    released.apply(wake=mounting("orders", "east", "mounted"))
    assert released.location("shop:orders", "east") == location


def test_deleting_it_keeps_what_lies_in_object_storage_and_advises_no_unmount(released: MountShop) -> None:
    released.say(orders=None)
    planned = released.bench.plan()
    assert ids_of(planned) == ["delete:topic/west/shop:orders"]
    (action,) = planned.plan.actions
    assert Reason.REMOTE_KEPT in action.reasons
    assert Reason.REMOTE_DELETED not in action.reasons
    assert action.blocked is not None
    assert action.blocked.instead is None


# Mountings that were carried out long ago: a plan of a thousand of them asks their object storage nothing.


MANY = 1000


@pytest.fixture
def asked(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what is asked of the directory that is the object storage, from here on."""
    bucket, found = (bench.folder / "bucket").as_uri(), list[str]()
    get, listed = DirectoryStore.get, DirectoryStore.list

    def got(store: DirectoryStore, key: str) -> object:
        if store.url == bucket:
            found.append(key)
        return get(store, key)

    def seen(store: DirectoryStore, prefix: str) -> object:
        if store.url == bucket:
            found.append(f"{prefix}*")
        return listed(store, prefix)

    monkeypatch.setattr(DirectoryStore, "get", got)
    monkeypatch.setattr(DirectoryStore, "list", seen)
    return found


@pytest.mark.thorough
def test_a_plan_of_a_thousand_topics_that_are_mounted_asks_object_storage_nothing_about_them(
    bench: Bench, asked: list[str]
) -> None:
    shop = MountShop(bench)
    (bench.folder / "manifests" / "west.yaml").unlink()
    names = [f"t{number:04}" for number in range(MANY)]
    shop.apply(clusters=cluster("west"), topics="---\n".join(topic(name, "west", partitions=1) for name in names))
    shop.apply(mountings="---\n".join(mounting(name, "west", "mounted") for name in names))
    asked.clear()
    assert ids_of(shop.bench.plan()) == []
    assert [key for key in asked if key != "storage.json"] == []
    assert len(asked) <= 1


# A topic that is unmounted: what is said of it where somebody looks for it, and how to have it back.


ORDERS = "topic/west/shop:orders"


@pytest.fixture
def alone(bench: Bench) -> MountShop:
    alone = MountShop(bench)
    (bench.folder / "manifests" / "west.yaml").unlink()
    alone.apply(clusters=cluster("west"), orders=topic("orders", "west"))
    return alone


def _consume(bench: Bench, address: str) -> None:
    consume(
        SiteOptions(invocation=bench.invocation, select=Select()),
        address,
        ConsumeOptions(),
        stdout=io.BytesIO(),
        stop=bench.stop,
    )


def _produce(bench: Bench, address: str) -> None:
    options = ProduceOptions(input_format="values")
    produce(
        SiteOptions(invocation=bench.invocation, select=Select()),
        address,
        options,
        stdin=io.BytesIO(b"v\n"),
        report=lambda *_: None,
    )


def _describe(bench: Bench, address: str) -> None:
    describe_topic(SiteOptions(invocation=bench.invocation, select=Select()), address)


LOOKING = pytest.mark.parametrize("look", [_consume, _produce, _describe])


@LOOKING
def test_who_looks_for_a_topic_that_sleeps_is_told_where_and_what_wakes_it(
    alone: MountShop, look: Callable[[Bench, str], None]
) -> None:
    location = alone.location()
    alone.apply(sleep=mounting("orders", "west", "unmounted"))
    with pytest.raises(UserError) as raised:
        look(alone.bench, ORDERS)
    assert raised.value.message == f"{ORDERS} is unmounted at {location} by mounting/west/shop:orders"
    assert raised.value.hint == "To have it back: state: mounted in mounting/west/shop:orders, and reconciler apply"


def test_who_looks_for_a_topic_that_somebody_unmounted_by_hand_is_told_the_same(alone: MountShop) -> None:
    location, mounts = alone.location(), alone.opened("west").mounts
    mounts.drive(mounts.unmount("shop:orders"))
    with pytest.raises(UserError) as raised:
        _consume(alone.bench, ORDERS)
    assert raised.value.message == f"{ORDERS} is unmounted at {location}"
    assert raised.value.hint == (
        f"To have it back: declare a Mounting of shop:orders on west with state: mounted and source: {location}, "
        "and reconciler apply"
    )


def test_who_looks_for_a_topic_that_went_to_another_cluster_is_told_which_and_as_what(alone: MountShop) -> None:
    location = alone.location()
    alone.apply(
        east=cluster("east"),
        sleep=mounting("orders", "west", "unmounted"),
        wake=mounting("orders", "east", "mounted", more=", as: bought"),
    )
    with pytest.raises(UserError) as raised:
        _consume(alone.bench, ORDERS)
    assert raised.value.message == (
        f"{ORDERS} was unmounted to {location} by mounting/west/shop:orders, "
        "and is mounted on cluster east as shop:bought"
    )
    assert raised.value.hint == "Look for it there: topic/east/shop:bought"


def test_a_topic_that_sleeps_is_shown_as_lying_where_it_does_and_agrees_with_nothing(alone: MountShop) -> None:
    location = alone.location()
    alone.apply(sleep=mounting("orders", "west", "unmounted"))
    alone.say(orders=topic("orders", "west", partitions=5))
    there = f"unmounted to {location} by mounting/west/shop:orders; compared once it is mounted"
    assert there in to_plain_text(format_resources(show(alone.bench.invocation, Select(), ORDERS), one=True))
    text = to_plain_text(format_explanation(explain(alone.bench.invocation, Select(), ORDERS)))
    assert there in text
    assert "agree" not in text
    assert text.splitlines()[-1] == "Nothing is planned: it is unmounted, and compared once it is mounted."


def test_a_topic_that_is_there_is_shown_as_before(alone: MountShop) -> None:
    alone.apply(sleep=mounting("orders", "west", "mounted"))
    text = to_plain_text(format_explanation(explain(alone.bench.invocation, Select(), ORDERS)))
    assert "unmounted" not in text
    assert text.splitlines()[-1] == "Nothing is planned: files, state and cluster agree."


def _taken(alone: MountShop, configs: dict[str, str]) -> None:
    """Create another topic under the name of the unmounted one, with one record."""
    west = alone.opened("west")
    west.create_topic("shop:orders", partitions=1, configs=configs)
    with west.producer() as producer:
        producer.send("shop:orders", b"stray")


@pytest.mark.parametrize("configs", [{}, BOTH], ids=["never tiered", "tiered"])
def test_another_topic_under_an_unmounted_name_is_neither_archived_nor_mounted_over(
    alone: MountShop, configs: dict[str, str]
) -> None:
    location, before = alone.location(), alone.values()
    alone.apply(sleep=mounting("orders", "west", "unmounted"))
    _taken(alone, configs)
    (warning,) = alone.bench.plan().plan.warnings
    assert warning.message.startswith("another topic has its name on cluster west: 1 record, the newest of 20")
    assert warning.hint.startswith(f"Its own topic is at {location}. The other one is neither archived nor deleted.")
    alone.apply()  # Nothing is planned, and the state keeps the location.
    text = to_plain_text(format_explanation(explain(alone.bench.invocation, Select(), ORDERS)))
    assert f"unmounted to {location} by mounting/west/shop:orders; another topic has its name" in text
    assert "agree" not in text
    alone.say(sleep=mounting("orders", "west", "mounted"))
    assert "the name is taken" in alone.bench.plan().plan.errors[0].message
    assert alone.values() == [b"stray"]
    alone.apply(orders=None, sleep=mounting("orders", "west", "mounted", more=", as: bought"))
    assert alone.values("shop:bought") == before
    assert alone.values() == [b"stray"]


def test_another_topic_under_a_name_that_a_command_unmounted_is_not_adopted(alone: MountShop) -> None:
    location, mounts = alone.location(), alone.opened("west").mounts
    mounts.drive(mounts.unmount("shop:orders"))
    _taken(alone, {})
    (held,) = alone.bench.plan().plan.held
    why = f"another topic has its name: it was unmounted, and no Mounting declares it: it is detached at {location}"
    assert held.message == why
    alone.say(sleep=mounting("orders", "west", "unmounted"))
    planned = alone.bench.plan().plan
    assert planned.errors == ()
    assert [action.id for action in planned.actions] == ["adopt:mounting/west/shop:orders"]
    alone.apply()
    alone.opened("west").delete_topic("shop:orders")
    alone.apply(sleep=mounting("orders", "west", "mounted"))
    assert alone.location() == location


@pytest.mark.parametrize(
    ("as_", "moved"),
    [(", as: bought", ""), (", movedFrom: 'shop:orders'", "bought")],
    ids=["its topic moves", "its mounting moves"],
)
def test_an_unmounted_topic_is_mounted_under_a_new_name_whatever_has_the_old_one(
    alone: MountShop, as_: str, moved: str
) -> None:
    before = alone.values()
    alone.apply(sleep=mounting("orders", "west", "unmounted"))
    _taken(alone, {})
    alone.apply(
        orders=topic("bought", "west", more=', movedFrom: "shop:orders"'),
        sleep=mounting(moved or "orders", "west", "mounted", more=as_),
    )
    assert alone.values("shop:bought") == before
    assert alone.values() == [b"stray"]


def test_an_unmounted_topic_moves_with_its_namespace_whatever_has_its_old_name(alone: MountShop) -> None:
    alone.apply(sleep=mounting("orders", "west", "unmounted"))
    _taken(alone, {})
    alone.say(
        clusters=cluster("west").replace("{name: shop, cluster: west}", "{name: store, cluster: west}")
        + "spec: {movedFrom: shop}\n",
        orders=topic("orders", "west").replace("namespace: shop", "namespace: store"),
        sleep=mounting("orders", "west", "mounted", namespace="store"),
    )
    planned = alone.bench.plan()
    assert "mount:mounting/west/store:orders" in ids_of(planned)
    (stays,) = planned.plan.blocked
    assert (stays.id, stays.blocked and stays.blocked.guard) == ("delete:namespace/west/shop", "not_empty")
