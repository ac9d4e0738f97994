"""`mount list|status|cancel|delete|release` as people call them: what they print, ask, refuse and do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.cli.text.lines import to_plain_text
from reconciler.cli.text.mounts_text import format_mountable_topics
from reconciler.embedded.catalog.model import AclEntry
from reconciler.embedded.mounts.mounts import Mount
from reconciler.errors import IncompleteError, InterruptedRunError, StalePlanError
from reconciler.operations.clusters.mounts import MountList, MountRow, change_migration
from reconciler.operations.steps.invocation import Select, print_nothing
from reconciler.operations.steps.runner import SiteOptions, Stop
from reconciler.process import build_invocation
from reconciler.resources.mount import HandMigration
from tests.cli.sample_workspaces import CLUSTER, Shop, follows
from tests.cli.sample_workspaces import MOUNTED_ORDERS as ORDERS


@pytest.mark.fact("F-R-114")
def test_name_namespace_and_location_are_listed_of_what_can_be_mounted_and_of_what_is_on_its_way(shop: Shop) -> None:
    number = shop.unmounting("prepare")
    (migration,) = follows("mount-status", shop.typed("mount", "status", "--format", "json"))["migrations"]
    (topic,) = migration["topics"]
    assert (topic["name"], topic["namespace"], topic["location"]) == (ORDERS, "shop", shop.location)
    assert ["shop:orders", shop.location] == shop.said("mount", "status").splitlines()[2].split()[:2]
    shop.cluster("west").mounts.cancel(number)
    location = shop.unmounted()
    (row,) = follows("mounts", shop.typed("mount", "list", "--format", "json"))["topics"]
    assert (row["name"], row["namespace"], row["location"]) == (ORDERS, "shop", location)
    assert location == f"{ORDERS}/{shop.cluster('west').cluster_id}/{location.rpartition('/')[2]}"
    shop.mounting(location, "prepare", name="bought")
    (row,) = follows("mounts", shop.typed("mount", "list", "--format", "json"))["topics"]
    assert (row["name"], row["namespace"], row["location"]) == ("bought", "", location)
    told = follows("mount-status", shop.typed("mount", "status", "--format", "json"))["migrations"]
    assert [each["namespace"] for one in told if one["direction"] == "inbound" for each in one["topics"]] == [""]


@pytest.mark.fact("F-R-116")
def test_a_topic_is_listed_once_wherever_it_is_between_two_clusters(shop: Shop) -> None:
    assert "No unmounted topic is in file://" in shop.said("mount", "list")
    location = shop.unmounted()
    listed = shop.said("mount", "list")
    assert listed.splitlines()[-1] == "1 topic: 1 mountable"
    assert listed.splitlines()[1].split()[:7] == [location, ORDERS, "shop", "mountable", "-", "2", "2"]
    shop.mounted(location, "shop:bought")
    (row,) = follows("mounts", shop.typed("mount", "list", "--format", "json"))["topics"]
    assert (row["location"], row["name"], row["state"], row["owner_cluster"]) == (
        location,
        "shop:bought",
        "mounted",
        "east",
    )
    assert (row["owner"], row["clusters"]) == (shop.cluster("east").cluster_id, ["east", "west"])
    assert (row["partitions"], row["records"], row["migrations"]) == (2, 2, [])
    assert row["since_ms"] > 0
    assert row["bytes"] > 0


def test_an_object_storage_that_is_not_there_is_not_called_one_that_holds_nothing(shop: Shop) -> None:
    shop.unmounted()
    (shop.folder / ".bucket").rename(shop.folder / "elsewhere")
    said = shop.typed("mount", "list")
    assert (said.code, "No unmounted topic is" in said.out) == (1, False)
    assert "this cluster's topics are stored in object storage" in said.err


def test_an_owner_that_is_not_of_the_workspace_goes_by_its_id(shop: Shop) -> None:
    shop.mounted(shop.unmounted())
    assert shop.said("mount", "list", "west").splitlines()[1].split()[4] == "east"
    manifests = shop.folder / "manifests" / "all.yaml"
    manifests.write_text(CLUSTER.format(name="west"))
    assert shop.said("mount", "list").splitlines()[1].split()[4] == shop.cluster("east").cluster_id


def test_what_is_on_its_way_is_listed_with_its_migration(shop: Shop) -> None:
    location = shop.location
    number = shop.unmounting("prepare")
    (row,) = follows("mounts", shop.typed("mount", "list", "--format", "json"))["topics"]
    assert (row["location"], row["state"], row["owner_cluster"]) == (location, "unmounting", "west")
    assert row["migrations"] == [{"cluster": "west", "id": number, "state": "preparing"}]
    assert (row["partitions"], row["records"], row["bytes"]) == (2, None, None)
    mounts = shop.cluster("west").mounts
    mounts.cancel(number)
    assert "No unmounted topic is" in shop.said("mount", "list")
    mounts.drive(mounts.unmount(ORDERS))
    number = shop.mounting(location, "prepare", name="shop:bought")
    text = shop.said("mount", "list").splitlines()
    assert text[1].split()[1:7] == ["shop:bought", "shop", "mounting", "(east", f"{number}:", "preparing)"]
    assert text[-1] == "1 topic: 1 mounting", text


def test_what_another_cluster_was_faster_to_mount_is_listed_as_mounted_there_by_its_name(shop: Shop) -> None:
    location = shop.unmounted()
    number = shop.mounting(location, "prepare", name="shop:late")
    west = shop.cluster("west").mounts
    west.drive(west.mount(Mount(location, "shop:bought")))
    (row,) = follows("mounts", shop.typed("mount", "list", "--format", "json"))["topics"]
    assert (row["name"], row["state"], row["owner_cluster"]) == ("shop:bought", "mounted", "west")
    assert row["migrations"] == [{"cluster": "east", "id": number, "state": "preparing"}]


def test_a_damaged_register_is_told_and_the_others_are_listed(shop: Shop) -> None:
    location = shop.unmounted()
    key = f"mountable/shop/orders/{location.split('/')[1]}/999.json"
    shop.bucket.build_path(key).write_text("{")
    said = shop.typed("mount", "list")
    assert (said.code, location in said.out, key in said.out) == (1, True, True)
    assert "1 register of ownership cannot be read" in said.err
    printed = follows("mounts", shop.typed("mount", "list", "--format", "json"), code=1)
    assert ([row["location"] for row in printed["topics"]], len(printed["damaged"])) == ([location], 1)


def test_a_terminal_that_is_too_narrow_gets_three_lines_a_topic() -> None:
    location = f"{ORDERS}/67f5505a-32f3-4677-bcad-3c75a1a702a6/10"
    row = MountRow(
        location=location,
        name=ORDERS,
        state="mounted",
        storage="file://bucket",
        clusters=("east", "west"),
        owner="cec5983a-a05f-4e6d-8f18-59216968c848",
        partitions=2,
        records=2,
        bytes=1843,
        since_ms=1_700_000_000_000,
    )
    found = MountList((row,), (), {}, ("file://bucket",))
    assert to_plain_text(format_mountable_topics(found)).splitlines()[2:] == [
        "",
        "1 topic: 1 mounted",
        "What is mounted is shown as large as it was when it was detached last.",
    ]
    assert to_plain_text(format_mountable_topics(found, width=80)).splitlines()[:3] == [
        f"{ORDERS}  mounted · cec5983a-a05f-4e6d-8f18-59216968c848",
        f"  {location}",
        "  2 partitions · 2 records · 1.8 KiB · since 2023-11-14T22:13:20Z",
    ]


def test_a_name_of_two_hundred_characters_makes_its_own_row_long_and_no_other() -> None:
    rows = tuple(
        MountRow(
            location=f"{name}/67f5505a-32f3-4677-bcad-3c75a1a702a6/10",
            name=name,
            state="mounted",
            storage="file://b",
            clusters=("east",),
        )
        for name in ("n" * 200, ORDERS, "shop:eu:clicks")
    )
    told = to_plain_text(format_mountable_topics(MountList(rows, (), {}, ("file://b",)))).splitlines()
    assert [len(each) > 200 for each in told[:4]] == [False, True, False, False]
    assert told[2].index("mounted") == told[3].index("mounted") == told[0].index("state")


def test_a_status_says_how_far_what_is_left_and_what_may_be_asked(shop: Shop) -> None:
    assert shop.said("mount", "status") == "No migration is in progress.\n"
    number = shop.unmounting("prepare")
    text = shop.said("mount", "status", str(number))
    assert text.splitlines()[0].startswith(f"migration {number} of west: unmount, preparing, begun 20")
    assert text.splitlines()[0].endswith("B left to upload")
    assert shop.location in text
    assert f"`reconciler mount cancel {number} --cluster west`" in text
    assert "`reconciler run --once --only migrations` continues it" in text
    (printed,) = follows("mount-status", shop.typed("mount", "status", "--format", "json"))["migrations"]
    assert (printed["id"], printed["direction"], printed["state"]) == (number, "outbound", "preparing")
    assert (printed["legal"], printed["waits"], printed["bytes_left"] > 0) == (["cancel"], [], True)
    shop.cluster("west").mounts.drive(number)
    (printed,) = follows("mount-status", shop.typed("mount", "status", "--format", "json"))["migrations"]
    assert (printed["state"], printed["bytes_left"]) == ("prepared", 0)
    asked = f"continue it with: reconciler topic unmount --finish topic/west/{ORDERS}"
    assert printed["waits"] == [asked]


def test_a_mount_that_cannot_go_on_says_what_keeps_it(shop: Shop) -> None:
    location = shop.unmounted()
    number = shop.mounting(location, "prepare")
    shutil.rmtree(shop.folder / ".bucket" / "topics")
    (printed,) = follows("mount-status", shop.typed("mount", "status", str(number), "--format", "json"))["migrations"]
    assert printed["bytes_left"] is None
    assert "there is no topic at" in printed["waits"][0]


def test_an_id_of_several_clusters_asks_whose_and_one_of_none_is_not_there(shop: Shop) -> None:
    location, west, east = shop.unmounted(), shop.cluster("west"), shop.cluster("east").mounts
    west.create_topic("shop:next", configs={"remote.write": "true", "remote.read": "true"})
    number = west.mounts.unmount("shop:next", is_automatic=False)
    while (begun := east.mount(Mount(location, ORDERS), is_automatic=False)) != number:
        east.ask(begun, "delete")
    for verb in ("status", "cancel", "delete"):
        said = shop.typed("mount", verb, str(number))
        assert (said.code, said.out) == (1, "")
        assert f"migration {number} exists on several clusters (east, west)" in said.err
        assert "--cluster east" in said.err
    assert f"migration {number} of west" in shop.said("mount", "status", str(number), "--cluster", "west")
    for verb in ("status", "cancel", "delete"):
        said = shop.typed("mount", verb, "999")
        assert said.code == 1
        assert "migration 999 has no record on any of east, west: it is finished, its record was deleted" in said.err
        assert "See where its topics are now: reconciler mount list" in said.err
    assert shop.typed("mount", "status", "none").code == 64


PATHS = {
    "planned": (),
    "preparing": ("prepare",),
    "prepared": ("prepare", ""),
    "executing": ("prepare", "execute"),
    "executed": ("prepare", "execute", ""),
    "cut_over": ("prepare", "execute", "finish"),
}
"""How a migration that is asked by hand gets there; at the end nobody asks, and what it does by itself is done."""


@pytest.mark.fact("F-R-120", "F-R-123")
@pytest.mark.parametrize("kind", ["unmount", "mount"])
@pytest.mark.parametrize("state", ["preparing", "prepared", "executing", "executed"])
def test_what_has_begun_can_be_cancelled_and_is_as_before(shop: Shop, state: str, kind: str) -> None:
    number = shop.begun(kind, *PATHS[state])
    cluster = "east" if kind == "mount" else "west"
    unasked = shop.typed("mount", "cancel", str(number))
    assert unasked.code == 64
    assert f"migration {number} of {cluster}: {kind}, {state}" in unasked.out
    assert "Once cancelled: " in unasked.out
    assert "no terminal to confirm on; nothing was done" in unasked.err
    printed = follows("migration", shop.typed("mount", "cancel", str(number), "--yes", "--format", "json"))
    assert (printed["migration"]["state"], printed["migration"]["legal"]) == ("cancelled", ["delete"])
    if kind == "mount":
        assert ORDERS not in shop.cluster("east").topics()
        assert shop.said("mount", "list").splitlines()[-1] == "1 topic: 1 mountable"
    else:
        assert shop.said("topic", "consume", f"topic/west/{ORDERS}", "--output-format", "values").split() == ["1", "2"]
        shop.said("topic", "produce", f"topic/west/{ORDERS}", "--input", "records.jsonl")
    refused = shop.typed("mount", "cancel", str(number), "--yes")
    assert (refused.code, refused.out) == (1, "")
    assert "is cancelled: it is cancelled already" in refused.err
    assert "Possible in this state: delete" in refused.err
    assert (
        shop.said("mount", "delete", str(number), "--yes").splitlines()[-1]
        == f"Deleted migration {number} of {cluster}"
    )
    assert shop.said("mount", "status") == "No migration is in progress.\n"


@pytest.mark.fact("F-R-121")
@pytest.mark.parametrize("kind", ["unmount", "mount"])
@pytest.mark.parametrize(
    ("state", "verb", "said", "legal"),
    [
        ("planned", "cancel", "cannot cancel what has not begun: it is only planned; delete it", "prepare, delete"),
        ("cut_over", "cancel", "cannot cancel in cut_over: ownership has moved already", "becomes finished by itself"),
        ("preparing", "delete", "cannot delete while preparing", "Possible in this state: cancel"),
        ("executed", "delete", "cannot delete while executed", "Possible in this state: finish, cancel"),
        ("cut_over", "delete", "cannot delete while cut_over", "Nothing can be asked for there"),
    ],
)
def test_elsewhere_a_verb_is_refused_with_what_is_legal(
    shop: Shop, state: str, verb: str, said: str, legal: str, kind: str
) -> None:
    number = shop.begun(kind, *PATHS[state])
    refused = shop.typed("mount", verb, str(number), "--yes")
    assert (refused.code, refused.out) == (1, "")
    assert f"is {state}: " in refused.err
    assert said in refused.err
    assert legal in refused.err
    (printed,) = follows("mount-status", shop.typed("mount", "status", "--format", "json"))["migrations"]
    assert printed["state"] == state


def test_offsets_of_what_a_lost_cluster_had_mounted_wait_for_its_release_and_are_not_lost(shop: Shop) -> None:
    location = shop.unmounted()
    shop.mounted(location)
    east = shop.cluster("east")
    consumer = east.consumer("audit", topics=[ORDERS])
    assert [record for fetched in consumer.poll() for record in fetched]
    consumer.commit()
    shop.said("run", "--once", "--only", "metadata")
    shutil.rmtree(shop.folder / ".clusters" / "east")
    export = ("export", "east", "--from-object-storage", "--cluster-id", east.cluster_id, "-o")
    printed = follows("export", shop.typed(*export, "a", "--format", "json"), code=8)
    (group,) = printed["metadata"]["groups"]
    assert (group["lost"], group["waiting"]) == ([], [f"topic/east/{ORDERS}"])
    text = shop.typed(*export, "b").out
    assert "Consumer groups: 0 of 1 resume at their offsets, 1 waits for the release of a mounted topic." in text
    assert f"audit: its offsets of topic/east/{ORDERS} travel on with the topic, once it is released" in text


@pytest.mark.fact("F-R-122")
def test_what_is_only_planned_is_deleted_and_its_topic_is_free(shop: Shop) -> None:
    number = shop.unmounting()
    asked = shop.said("mount", "delete", str(number), "--yes")
    assert "Once deleted: nothing was done yet; the topic as now" in asked
    shop.said("topic", "alter", f"topic/west/{ORDERS}", "--set", "retention.ms=9d")
    number = shop.mounting(shop.unmounted())
    shop.said("mount", "delete", str(number), "--yes")
    assert shop.said("mount", "list").splitlines()[-1] == "1 topic: 1 mountable"


@pytest.mark.parametrize("kind", ["unmount", "mount"])
def test_what_came_to_its_end_by_hand_keeps_its_record_until_it_is_deleted(shop: Shop, kind: str) -> None:
    number = shop.begun(kind, "prepare", "execute", "finish", "")
    refused = shop.typed("mount", "cancel", str(number), "--yes")
    assert "cannot cancel what is finished; mount or unmount again" in refused.err
    shop.said("mount", "delete", str(number), "--yes")
    assert shop.said("mount", "status") == "No migration is in progress.\n"
    assert (ORDERS in shop.cluster("east").topics()) == (kind == "mount")


@pytest.mark.thorough
def test_a_terminal_is_asked_and_only_yes_cancels(shop: Shop, on_terminal: Callable[..., tuple[int, str]]) -> None:
    number = shop.unmounting("prepare")
    for answer, code, state in ((b"no\n", 1, "preparing"), (b"yes\n", 0, "cancelled")):
        left, shown = on_terminal("mount", "cancel", str(number), types=[("Cancel the migration?", answer)])
        assert left == code, shown
        (printed,) = follows("mount-status", shop.typed("mount", "status", "--format", "json"))["migrations"]
        assert printed["state"] == state


def test_without_files_the_state_says_where_the_clusters_are(shop: Shop, tmp_path: Path) -> None:
    number = shop.unmounting("prepare")
    (shop.folder / "reconciler.yaml").unlink()
    shutil.rmtree(shop.folder / "manifests")
    assert shop.typed("mount", "status").code == 1
    by_state = ("--state", f"file://{tmp_path / '.state'}")
    assert f"migration {number} of west" in shop.said("mount", "status", *by_state)
    assert "1 unmounting" in shop.said("mount", "list", *by_state)
    shop.said("mount", "cancel", str(number), "--yes", *by_state)
    shop.said("mount", "delete", str(number), "--yes", *by_state)


def test_one_bucket_written_in_two_ways_is_one(shop: Shop) -> None:
    location = shop.unmounted()
    (shop.folder / "link").symlink_to(shop.folder / ".bucket")
    manifests = shop.folder / "manifests" / "all.yaml"
    west, east, *rest = manifests.read_text().split("kind: Cluster")[1:]
    assert rest == []
    start = manifests.read_text().partition("kind: Cluster")[0]
    manifests.write_text("kind: Cluster".join([start, west, east.replace("file://.bucket", "file://link")]))
    (row,) = follows("mounts", shop.typed("mount", "list", "--format", "json"))["topics"]
    assert (row["location"], row["clusters"]) == (location, ["east", "west"])


# The mount commands where something is in the way: a state, a cluster or a bucket that does not answer, a signal.


def test_what_is_cancelled_without_an_answer_of_the_bucket_goes_on_in_a_run(shop: Shop) -> None:
    number = shop.mounting(shop.unmounted(), "prepare", "execute")
    register = next((shop.folder / ".bucket" / "mountable").rglob("*.json"))
    kept = register.read_text()
    register.write_text("{")
    said = shop.typed("mount", "cancel", str(number), "--yes")
    assert said.code == 4
    assert f"migration {number} is canceling, and not cancelled yet: " in said.err
    assert "reconciler run --once --only migrations" in said.err
    register.write_text(kept)
    assert "`reconciler run --once --only migrations` continues it" in shop.said("mount", "status", str(number))
    shop.said("run", "--once", "--only", "migrations")
    (printed,) = follows("mount-status", shop.typed("mount", "status", "--format", "json"))["migrations"]
    assert (printed["state"], printed["legal"]) == ("cancelled", ["delete"])


def test_a_state_that_cannot_be_read_is_gone_on_without_where_that_is_asked(shop: Shop) -> None:
    number = shop.unmounting("prepare")
    lockfile = next(path for path in (shop.folder / ".state").iterdir() if path.suffix == ".json" or path.is_file())
    lockfile.write_text("{")
    looked = shop.typed("mount", "status")
    assert (looked.code, f"migration {number} of west" in looked.out) == (0, True)
    assert "Warning: the state cannot be read, so which clusters are expected is not known" in looked.err
    refused = shop.typed("mount", "cancel", str(number), "--yes")
    assert (refused.code, refused.out) == (1, "")
    assert "To continue without the state: --no-state" in refused.err
    shop.said("mount", "cancel", str(number), "--yes", "--no-state")


def test_a_cluster_that_is_gone_is_named_and_the_others_are_shown(shop: Shop) -> None:
    number = shop.unmounting("prepare")
    shutil.rmtree(shop.folder / ".clusters" / "east")
    for command in ("list", "status"):
        said = shop.typed("mount", command)
        assert (said.code, shop.location in said.out) == (1, True)
        assert "cannot read cluster east: it is recorded in the state, but its location is empty" in said.err
    refused = shop.typed("mount", "cancel", str(number), "--yes")
    assert (refused.code, refused.out) == (1, "")
    assert "name it: --cluster NAME" in refused.err
    shop.said("mount", "cancel", str(number), "--yes", "--cluster", "west")


@pytest.mark.thorough
def test_a_bucket_that_does_not_answer_hides_no_migration(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    number = shop.unmounting("prepare")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "any")
    manifests = shop.folder / "manifests" / "all.yaml"
    nowhere = 's3://shop/bucket", region: eu, endpoint: "http://127.0.0.1:9'
    manifests.write_text(manifests.read_text().replace("file://.bucket", nowhere))
    said = shop.typed("mount", "list")
    assert (said.code, f"unmounting (west {number}: preparing)" in said.out) == (1, True)
    assert "cannot list s3://shop/bucket/mountable/: connection refused" in said.err
    assert f"migration {number} of west" in shop.said("mount", "status")
    shop.said("mount", "cancel", str(number), "--yes")  # the catalog alone says so


def test_what_is_finished_by_hand_is_deleted_by_hand_and_no_run_goes_on_with_it(shop: Shop) -> None:
    number = shop.begun("unmount", "prepare", "execute", "finish", "")
    told = shop.said("mount", "status", str(number))
    assert told.splitlines()[-1] == f"  next: `reconciler mount delete {number} --cluster west`"
    shop.said("run", "--once", "--only", "migrations")
    assert shop.said("mount", "status", str(number)) == told


def test_a_topic_on_its_way_is_described_as_that_and_how_to_stop_it_is_asked_of_its_status(shop: Shop) -> None:
    describe = ("topic", "describe", f"topic/west/{ORDERS}")
    assert "being unmounted" not in shop.said(*describe)
    number = shop.unmounting()
    refused = shop.typed("topic", "alter", f"topic/west/{ORDERS}", "--set", "retention.ms=9d").err
    assert "(POLICY_VIOLATION)" in refused
    assert refused.rstrip().endswith("reconciler mount status")
    assert "being unmounted: planned, cannot be changed" in shop.said(*describe)
    shop.said("mount", "delete", str(number), "--yes")
    number = shop.unmounting("prepare", "execute")
    see = f"see: reconciler mount status {number} --cluster west"
    assert f"being unmounted: executing, cannot be written or read until then; {see}" in shop.said(*describe)
    printed = follows("topic-description", shop.typed(*describe, "--format", "json"))
    assert printed["migration"] == {"id": number, "direction": "outbound", "state": "executing", "closed": True}


def test_broken_files_keep_nobody_from_a_migration_and_the_way_around_them_is_told(shop: Shop) -> None:
    shop.unmounting("prepare")
    (shop.folder / "manifests" / "broken.yaml").write_text("kind: [")
    for command in ("list", "status"):
        said = shop.typed("mount", command)
        assert (said.code, "--state URL" in said.err) == (1, True)


class StopAfter(Stop):
    """A request to stop that comes when it was looked for so many times."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self._looks = looks

    @property
    def is_requested(self) -> bool:
        self._looks -= 1
        return self._looks < 0


def test_a_cancel_that_is_stopped_did_nothing_or_goes_on_in_a_run(shop: Shop) -> None:
    number = shop.unmounting("prepare", "execute")
    reach = SiteOptions(invocation=build_invocation(shop.folder, warn=print_nothing), select=Select())

    def cancel(looks: int) -> None:
        change_migration(reach, number, "cancel", None, confirm=lambda _one: True, stop=StopAfter(looks))

    with pytest.raises(InterruptedRunError):
        cancel(1)
    assert shop.cluster("west").mounts.list_unfinished()[number].state == "executing"
    with pytest.raises(IncompleteError, match="is canceling, and not cancelled yet: Interrupted"):
        cancel(2)
    assert shop.cluster("west").mounts.list_unfinished()[number].state == "canceling"
    assert "is canceling: it is being cancelled already" in shop.typed("mount", "cancel", str(number), "--yes").err


def test_who_may_not_delete_a_topic_may_not_stop_its_unmount_and_who_may_not_see_it_sees_none(shop: Shop) -> None:
    number = shop.unmounting("prepare")
    west = shop.cluster("west")
    rule = AclEntry("User:anna", "allow", ("describe",))
    west.set_topic_acls(ORDERS, [rule])
    anna = ("--principal", "User:anna")
    assert f"migration {number} of west" in shop.said("mount", "status", *anna)
    refused = shop.typed("mount", "cancel", str(number), "--yes", *anna)
    assert (refused.code, "User:anna" in refused.err) == (1, True)
    assert west.mounts.list_unfinished()[number].state == "preparing"
    unseen = shop.typed("mount", "status", str(number), "--principal", "User:ben")
    assert (unseen.code, "has no record" in unseen.err) == (1, True)


# `mount release`: a topic is taken from an owner that will not come back, by who says so, and loses what it says.


STRANGER = "67f5505a-32f3-4677-bcad-3c75a1a702a6"


@pytest.fixture
def lost(shop: Shop) -> tuple[Shop, str, str]:
    """A topic that is mounted on `east`, which is gone, and the files know nothing of it."""
    location = shop.unmounted()
    shop.mounted(location, "shop:bought")
    owner = shop.cluster("east").cluster_id
    shutil.move(shop.folder / ".clusters" / "east", shop.folder / "gone")
    (shop.folder / "manifests" / "all.yaml").write_text(CLUSTER.format(name="west"))
    return shop, location, owner


def test_a_release_is_blocked_until_it_is_allowed_by_name(lost: tuple[Shop, str, str]) -> None:
    shop, location, owner = lost
    command = ("mount", "release", location, "--owner", owner)
    for allow in ((), ("--allow", "release:shop:other/*"), ("--allow", f"delete:{location}")):
        said = shop.typed(*command, *allow, "--yes")
        assert (said.code, said.out) == (7, "")
        assert f"{location} is mounted on cluster {owner} as shop:bought: to release it is data-loss" in said.err
        assert "What that cluster has not uploaded is lost; 2 records, " in said.err
        assert f"reconciler mount release {location} --owner {owner} --allow release:{location}\n" in said.err
    assert "1 topic: 1 mounted\n" in shop.said("mount", "list")


@pytest.mark.fact("F-R-111")
def test_what_was_released_is_mounted_elsewhere_with_all_that_was_uploaded(lost: tuple[Shop, str, str]) -> None:
    shop, location, owner = lost
    command = ("mount", "release", location, "--owner", owner, "--allow", f"release:{location}")
    unasked = shop.typed(*command)
    assert unasked.code == 64
    assert "data-loss: what that cluster has not uploaded is lost" in unasked.out
    done = shop.said(*command, "--yes")
    assert f"Released {location} from cluster {owner}" in done
    assert "mountable now: 2 partitions, 2 records, " in done
    assert shop.said("mount", "list").splitlines()[-1] == "1 topic: 1 mountable"
    again = shop.typed(*command, "--yes")
    assert (again.code, f"{location} is detached: no cluster owns it" in again.err) == (1, True)
    west = shop.cluster("west")
    assert west.mounts.drive(west.mounts.mount(Mount(location, "shop:back"))) is None
    assert sorted(record.value for record in west.consume("shop:back")) == [b"1", b"2"]


def test_the_result_as_json(lost: tuple[Shop, str, str]) -> None:
    shop, location, owner = lost
    short = location.removeprefix("shop:")
    command = ("mount", "release", short, "--owner", owner, "--allow", "release:*", "--yes", "--format", "json")
    printed = follows("mount-release", shop.typed(*command))
    assert (printed["location"], printed["owner"], printed["clusters"]) == (location, owner, ["west"])
    assert (printed["partitions"], printed["records"]) == (2, 2)


def test_what_was_never_detached_belongs_to_its_first_owner(shop: Shop) -> None:
    location, west = shop.location, shop.cluster("west")
    shop.said("run", "--once")
    blocked = shop.typed("mount", "release", location, "--owner", west.cluster_id)
    assert blocked.code == 7
    assert "Cluster west of this workspace is that cluster, and answers: unmount it there" in blocked.err
    allow = ("--allow", f"release:{location}")
    done = shop.said("mount", "release", location, "--owner", west.cluster_id, *allow, "--yes")
    assert "that cluster is west of this workspace, and answers" in done
    assert shop.said("mount", "list").splitlines()[-1] == "1 topic: 1 mountable"


def test_bad_input_is_refused_with_what_is_there(shop: Shop) -> None:
    location = shop.unmounted()
    west = shop.cluster("west").cluster_id
    wrong = {
        (location, west): f"{location} is detached: no cluster owns it",
        (f"shop:orders/{west}/99", west): f"there is no topic at shop:orders/{west}/99 in file://",
        (f"shop:other/{location.partition('/')[2]}", west): "is the topic shop:orders",
        ("orders", west): "'orders' is not the location of a topic in object storage",
    }
    for (place, owner), said in wrong.items():
        refused = shop.typed("mount", "release", place, "--owner", owner, "--allow", "release:*", "--yes")
        assert (refused.code, refused.out, said in refused.err) == (1, "", True), refused.err
    shop.mounted(location)
    refused = shop.typed("mount", "release", location, "--owner", STRANGER, "--allow", "release:*", "--yes")
    owner = shop.cluster("east").cluster_id
    assert refused.code == 1
    assert f"{location} is owned by cluster {owner}, not by {STRANGER}" in refused.err
    assert f"--owner {owner}" in refused.err
    assert shop.typed("mount", "release", location).code == 64


def test_only_the_super_user_releases_and_lists(lost: tuple[Shop, str, str]) -> None:
    shop, location, owner = lost
    command = ("mount", "release", location, "--owner", owner, "--allow", "release:*", "--yes")
    refused = shop.typed(*command, "--principal", "User:anna")
    assert (refused.code, refused.out) == (1, "")
    assert f"User:anna may not release {location}" in refused.err
    listed = shop.typed("mount", "list", "--principal", "User:anna")
    assert (listed.code, listed.out) == (1, "")
    assert "User:anna may not list what can be mounted" in listed.err
    assert shop.typed("mount", "status", "--principal", "User:anna").code == 0


@pytest.mark.fact("F-R-114")
def test_a_list_is_narrowed_to_states_of_topics_or_of_their_migrations(shop: Shop) -> None:
    location = shop.unmounted()
    shop.mounting(location, "prepare", "")
    listed = {
        state: [row["state"] for row in follows("mounts", shop.typed(*LIST, "--state", state))["topics"]]
        for state in ("mountable", "mounted", "mounting", "prepared", "executed")
    }
    assert {state for state, rows in listed.items() if rows} == {"mounting", "prepared"}
    assert len(follows("mounts", shop.typed(*LIST, "--state", "mounted", "--state", "mounting"))["topics"]) == 1
    assert shop.said("mount", "list", "--state", "mounted") == "No topic is mounted.\n"
    by_url = shop.typed(*LIST, "--state", "prepared", "--state", f"file://{shop.folder}/.state")
    assert len(follows("mounts", by_url)["topics"]) == 1
    number = shop.cluster("east").mounts.list_unfinished().popitem()[0]
    shop.said("mount", "cancel", str(number), "--yes")
    (row,) = follows("mounts", shop.typed(*LIST, "--state", "cancelled"))["topics"]
    assert (row["location"], row["state"], [each["id"] for each in row["migrations"]]) == (
        location,
        "mountable",
        [number],
    )
    assert f"mountable (east {number}: cancelled)" in shop.said("mount", "list", "--state", "cancelled")
    assert f"mountable (east {number}: cancelled)" not in shop.said("mount", "list")
    assert (
        shop.said("mount", "list", "--state", "planned", "--state", "finished") == "No topic is planned or finished.\n"
    )
    wrong = shop.typed("mount", "list", "--state", "mountd")
    assert (wrong.code, "Did you mean mounted?" in wrong.err) == (64, True)


LIST = ("mount", "list", "--format", "json")
REFUSED = [
    (("unmount",), 64, "no topics were named"),
    (("unmount", "mirror/west/shop:orders"), 64, "is not the address of a topic"),
    (("unmount", "topic/west"), 64, "is not the address of a topic"),
    (("unmount", "topic/west/"), 64, "is not the address of a topic"),
    (("unmount", "topic/north/shop:orders"), 1, "there is no cluster 'north'"),
    (("unmount", "topic/west/shop:nix"), 1, "does not exist"),
    (("unmount", "topic/west/shop:../x"), 1, "does not exist"),
    (("unmount", "topic/west/nix*"), 1, "no topic matches topic/west/nix*: nothing was done"),
    (("unmount", "topic/west/shop:orders", "--prepare", "--finish"), 64, "are two phases"),
    (("unmount", "topic/west/shop:orders", "--finish"), 1, "no unmount of it that a command began is in progress"),
    (("unmount", "topic/west/*", "--finish"), 1, "no topic matches"),
    (("mount", "topic/east/shop:orders"), 1, "nothing of that name or place can be mounted"),
    (("mount", "topic/east/shop:orders/nix/1"), 1, "nothing of that name or place can be mounted"),
    (("mount", "topic/east/*"), 1, "no topic matches topic/east/*: nothing was done"),
    (("mount", "topic/east/a", "topic/east/b", "--to", "c"), 64, "--to takes one topic"),
    (("mount", "topic/east/*", "--to", "c"), 64, "--to takes one topic"),
    (("mount", "topic/east/a", "--to", "b/c"), 64, "--to 'b/c' is"),
    (("mount", "topic/east/a", "--to", "b", "--finish"), 64, "--to was given when the mount was begun"),
]


@pytest.mark.parametrize(("asked", "code", "says"), REFUSED, ids=str)
def test_what_cannot_be_mounted_or_unmounted_is_refused_before_anything_is_done(
    shop: Shop, asked: tuple[str, ...], code: int, says: str
) -> None:
    said = shop.typed("topic", *asked, "--yes")
    assert (said.code, said.out) == (code, "")
    assert says in said.err
    assert shop.said("mount", "status") == "No migration is in progress.\n"


@pytest.mark.fact("F-R-111", "F-R-115", "F-R-126")
def test_one_of_several_of_a_name_is_mounted_by_its_place_and_what_is_mounted_is_not_mounted_again(shop: Shop) -> None:
    first = shop.unmounted()
    shop.cluster("west").create_topic("shop:orders", configs={"remote.write": "true", "remote.read": "true"})
    second = shop.unmounted()
    said = shop.typed("topic", "mount", f"topic/east/{ORDERS}", "--yes")
    assert (said.code, first in said.err, second in said.err) == (1, True, True)
    assert f"topic/east/{first}" in said.err
    for others in (f"topic/east/{second}", "topic/east/*"):
        said = shop.typed("topic", "mount", f"topic/east/{first}", others, "--yes")
        assert (said.code, first in said.err, second in said.err) == (1, True, True)
    assert not shop.cluster("east").topics()
    lines = shop.said("topic", "mount", f"topic/east/{first}", "--yes", "--format", "json").splitlines()
    printed = json.loads(lines[-1])
    assert printed["resources"] == [
        {"address": f"topic/east/{ORDERS}", "changed": True, "state": first, "error": None, "hint": None}
    ]
    again = shop.typed("topic", "mount", f"topic/west/{first}", "--yes")
    assert (again.code, "it is mounted on cluster" in again.err) == (1, True)


def test_without_an_answer_nothing_is_unmounted_and_without_the_files_it_is(shop: Shop) -> None:
    address = f"topic/west/{ORDERS}"
    asked = shop.typed("topic", "unmount", address)
    assert (asked.code, "there is no terminal to confirm on" in asked.err) == (64, True)
    assert asked.out == shop.said("topic", "unmount", address, "--dry-run")
    (shop.folder / "manifests" / "all.yaml").unlink()
    state = f"file://{shop.folder}/.state"
    assert "unmounted" in shop.said("topic", "unmount", address, "--yes", "--state", state)
    assert "mounted" in shop.said("topic", "mount", f"topic/east/{ORDERS}", "--yes", "--state", state)


@pytest.mark.parametrize("verb", ["unmount", "mount"])
def test_a_finish_that_names_a_part_of_a_migration_moves_nothing_and_names_the_whole(shop: Shop, verb: str) -> None:
    cluster = "west" if verb == "unmount" else "east"
    shop.cluster("west").create_topic("shop:next", configs={"remote.write": "true", "remote.read": "true"})
    if verb == "mount":
        shop.said("topic", "unmount", "topic/west/*", "--yes")
    whole = f"topic/{cluster}/shop:next", f"topic/{cluster}/{ORDERS}"
    prepared = shop.typed("topic", verb, *whole, "--prepare", "--yes").err
    (migration,) = follows("mount-status", shop.typed("mount", "status", "--format", "json"))["migrations"]
    command = f"reconciler topic {verb} --finish {' '.join(whole)}"
    assert command in prepared
    assert migration["waits"] == [f"continue it with: {command}"]
    for part in (f"topic/{cluster}/{ORDERS}", f"topic/{cluster}/shop:o*", f"topic/{cluster}/{shop_place(migration)}"):
        for option in ("--yes", "--dry-run"):
            said = shop.typed("topic", verb, "--finish", part, option)
            assert (said.code, f"its {verb} is one migration with {whole[0]}" in said.err) == (1, True), said
            assert f"Name all of them: {command}" in said.err
        (after,) = follows("mount-status", shop.typed("mount", "status", "--format", "json"))["migrations"]
        assert after == migration
    shown = shop.said("topic", verb, "--finish", *whole, "--dry-run")
    assert "finish, 2 topics as one migration" in shown
    assert ORDERS in shown
    shop.said("topic", verb, "--finish", f"topic/{cluster}/shop:*", "--yes")
    assert shop.said("mount", "status") == "No migration is in progress.\n"
    assert sorted(shop.cluster(cluster).topics()) == (["shop:next", ORDERS] if verb == "mount" else [])


def shop_place(migration: dict[str, list[dict[str, str]]]) -> str:
    """Return where the orders of a printed migration are stored."""
    return next(topic["location"] for topic in migration["topics"] if topic["name"] == ORDERS)


def test_a_topic_that_was_cancelled_with_others_is_prepared_and_finished_alone(shop: Shop) -> None:
    shop.cluster("west").create_topic("shop:next", configs={"remote.write": "true", "remote.read": "true"})
    shop.said("topic", "unmount", "topic/west/*", "--prepare", "--yes")
    (migration,) = follows("mount-status", shop.typed("mount", "status", "--format", "json"))["migrations"]
    shop.said("mount", "cancel", str(migration["id"]), "--yes")
    shop.said("topic", "unmount", f"topic/west/{ORDERS}", "--prepare", "--yes")
    shop.said("topic", "unmount", f"topic/west/{ORDERS}", "--finish", "--yes")
    assert sorted(shop.cluster("west").topics()) == ["shop:next"]


def test_a_topic_that_joins_the_migration_after_the_look_is_not_moved(shop: Shop) -> None:
    shop.cluster("west").create_topic("shop:next", configs={"remote.write": "true", "remote.read": "true"})
    shop.said("topic", "unmount", "topic/west/*", "--prepare", "--yes")
    site = SiteOptions(invocation=build_invocation(shop.folder, warn=print_nothing), select=Select()).open_site()
    asked = HandMigration(direction="outbound", topics={ORDERS: ""}, phase="finish")
    with pytest.raises(StalePlanError, match="has other topics as well: shop:next"):
        site.providers["west"].migrations.run_migration(asked, lambda: None)
    assert sorted(shop.cluster("west").topics()) == ["shop:next", ORDERS]


def test_a_topic_whose_unmount_was_cancelled_is_listed_by_that_state_alone(shop: Shop) -> None:
    number = shop.unmounting("prepare")
    location = shop.location
    shop.said("mount", "cancel", str(number), "--yes")
    (row,) = follows("mounts", shop.typed(*LIST, "--state", "cancelled"))["topics"]
    assert (row["location"], row["state"], row["owner_cluster"]) == (location, "mounted", "west")
    assert follows("mounts", shop.typed(*LIST))["topics"] == []


def test_the_loser_of_two_prepared_mounts_is_told_who_won_and_how_to_give_its_own_up(shop: Shop) -> None:
    shop.unmounted()
    for cluster in ("east", "west"):
        shop.said("topic", "mount", f"topic/{cluster}/{ORDERS}", "--prepare", "--yes")
    shop.said("topic", "mount", "--finish", f"topic/west/{ORDERS}", "--yes")
    lost = shop.typed("topic", "mount", "--finish", f"topic/east/{ORDERS}", "--yes")
    assert (lost.code, f"is mounted on cluster west as {ORDERS}" in lost.err) == (1, True), lost.err
    assert "mount release" not in lost.err
    (migration,) = follows("mount-status", shop.typed("mount", "status", "--format", "json"))["migrations"]
    assert f"is mounted on cluster west as {ORDERS}" in migration["waits"][0]
    command = f"mount cancel {migration['id']} --cluster east"
    assert f"reconciler {command}" in lost.err
    shop.said(*command.split(), "--yes")
    assert shop.typed("plan").code == 0
