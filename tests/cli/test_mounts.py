"""`mount list|status|cancel|delete|release` as people call them: what they print, ask, refuse and do."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from reconciler.cli.text.lines import text_of
from reconciler.cli.text.mounts_text import mountables_text
from reconciler.embedded.mounts.mounts import Mount
from reconciler.operations.clusters.mounts import MountList, MountRow
from tests.cli.sample_mounts import CLUSTER, ORDERS, Shop, follows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.fact("F-R-114", "F-R-116")
def test_a_topic_is_listed_once_wherever_it_is_between_two_clusters(shop: Shop) -> None:
    assert "Nothing was ever detached in file://" in shop.said("mount", "list")
    location = shop.unmounted()
    listed = shop.said("mount", "list")
    assert listed.splitlines()[-1] == "1 topic: 1 mountable"
    assert listed.splitlines()[1].split()[:6] == [location, ORDERS, "mountable", "-", "2", "2"]
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


def test_an_owner_that_is_not_of_the_workspace_goes_by_its_id(shop: Shop) -> None:
    shop.mounted(shop.unmounted())
    assert shop.said("mount", "list", "west").splitlines()[1].split()[3] == "east"
    manifests = shop.folder / "manifests" / "all.yaml"
    manifests.write_text(CLUSTER.format(name="west"))
    assert shop.said("mount", "list").splitlines()[1].split()[3] == shop.cluster("east").cluster_id


def test_what_is_on_its_way_is_listed_with_its_migration(shop: Shop) -> None:
    location = shop.location
    number = shop.unmounting("prepare")
    (row,) = follows("mounts", shop.typed("mount", "list", "--format", "json"))["topics"]
    assert (row["location"], row["state"], row["owner_cluster"]) == (location, "unmounting", "west")
    assert row["migrations"] == [{"cluster": "west", "id": number, "state": "preparing"}]
    assert (row["partitions"], row["records"], row["bytes"]) == (2, None, None)
    mounts = shop.cluster("west").mounts
    mounts.cancel(number)
    assert "Nothing was ever detached" in shop.said("mount", "list")
    mounts.drive(mounts.unmount(ORDERS))
    number = shop.mounting(location, "prepare", name="shop:bought")
    text = shop.said("mount", "list").splitlines()
    assert text[1].split()[1:6] == ["shop:bought", "mounting", "(east", f"{number}:", "preparing)"]
    assert text[-1] == "1 topic: 1 mounting", text


def test_a_damaged_register_is_told_and_the_others_are_listed(shop: Shop) -> None:
    location = shop.unmounted()
    key = f"mountable/shop/orders/{location.split('/')[1]}/999.json"
    shop.bucket.path_of(key).write_text("{")
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
    assert text_of(mountables_text(found)).splitlines()[2:] == [
        "",
        "1 topic: 1 mounted",
        "What is mounted is shown as large as it was when it was detached last.",
    ]
    assert text_of(mountables_text(found, width=80)).splitlines()[:3] == [
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
    told = text_of(mountables_text(MountList(rows, (), {}, ("file://b",)))).splitlines()
    assert [len(each) > 200 for each in told[:4]] == [False, True, False, False]
    assert told[2].index("mounted") == told[3].index("mounted") == told[0].index("state")


def test_a_status_says_how_far_what_is_left_and_what_may_be_asked(shop: Shop) -> None:
    assert shop.said("mount", "status") == "No migration is under way.\n"
    number = shop.unmounting("prepare")
    text = shop.said("mount", "status", str(number))
    assert text.splitlines()[0].startswith(f"migration {number} of west: unmount, preparing, begun 20")
    assert text.splitlines()[0].endswith("B left to upload")
    assert shop.location in text
    assert f"`reconciler mount cancel {number} --cluster west`" in text
    assert "`reconciler run --once --only migrations` goes on with it" in text
    (printed,) = follows("mount-status", shop.typed("mount", "status", "--format", "json"))["migrations"]
    assert (printed["id"], printed["direction"], printed["state"]) == (number, "outbound", "preparing")
    assert (printed["legal"], printed["waits"], printed["bytes_left"] > 0) == (["cancel"], [], True)
    shop.cluster("west").mounts.drive(number)
    (printed,) = follows("mount-status", shop.typed("mount", "status", "--format", "json"))["migrations"]
    assert (printed["state"], printed["bytes_left"]) == ("prepared", 0)
    asked = f'it goes on where somebody asks for it: execute, by the library: cluster.mounts.ask({number}, "execute")'
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
        assert f"migration {number} is one of each of the clusters east, west" in said.err
        assert "--cluster east" in said.err
    assert f"migration {number} of west" in shop.said("mount", "status", str(number), "--cluster", "west")
    for verb in ("status", "cancel", "delete"):
        said = shop.typed("mount", verb, "999")
        assert said.code == 1
        assert "migration 999: Data migration does not exist on any of east, west" in said.err
        assert "One that is done is gone" in said.err
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
    assert "no terminal to confirm on, so nothing was done" in unasked.err
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
    assert "Legal there: delete" in refused.err
    assert (
        shop.said("mount", "delete", str(number), "--yes").splitlines()[-1]
        == f"Deleted migration {number} of {cluster}"
    )
    assert shop.said("mount", "status") == "No migration is under way.\n"


@pytest.mark.fact("F-R-121")
@pytest.mark.parametrize("kind", ["unmount", "mount"])
@pytest.mark.parametrize(
    ("state", "verb", "said", "legal"),
    [
        ("planned", "cancel", "cannot cancel what has not begun: it is only planned; delete it", "prepare, delete"),
        ("cut_over", "cancel", "cannot cancel in cut_over: ownership has moved already", "becomes finished by itself"),
        ("preparing", "delete", "cannot delete while preparing", "Legal there: cancel"),
        ("executed", "delete", "cannot delete while executed", "Legal there: finish, cancel"),
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


@pytest.mark.fact("F-R-122")
def test_what_is_only_planned_is_deleted_and_its_topic_is_free(shop: Shop) -> None:
    number = shop.unmounting()
    asked = shop.said("mount", "delete", str(number), "--yes")
    assert "nothing was done yet; the topic as now" in asked
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
    assert shop.said("mount", "status") == "No migration is under way.\n"
    assert (ORDERS in shop.cluster("east").topics()) == (kind == "mount")


def test_a_terminal_is_asked_and_only_yes_cancels(shop: Shop, on_terminal: Callable[..., tuple[int, str]]) -> None:
    number = shop.unmounting("prepare")
    for answer, code, state in ((b"no\n", 1, "preparing"), (b"yes\n", 0, "cancelled")):
        left, shown = on_terminal("mount", "cancel", str(number), types=[("Cancel it?", answer)])
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
