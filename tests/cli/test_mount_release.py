"""`mount release`: a topic is taken from an owner that will not come back, by who says so, and loses what it says."""

from __future__ import annotations

import shutil

import pytest

from reconciler.embedded.mounts.mounts import Mount
from reconciler.errors import OwnershipLostError
from tests.cli.sample_mounts import CLUSTER, Shop, follows

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
    assert (again.code, f"{location} is detached: nobody owns it" in again.err) == (1, True)
    west = shop.cluster("west")
    assert west.mounts.drive(west.mounts.mount(Mount(location, "shop:back"))) is None
    assert sorted(record.value for record in west.consume("shop:back")) == [b"1", b"2"]


def test_an_owner_that_does_come_back_is_told_that_the_topic_is_not_its_own(lost: tuple[Shop, str, str]) -> None:
    shop, location, owner = lost
    shop.said("mount", "release", location, "--owner", owner, "--allow", f"release:{location}", "--yes")
    shutil.move(shop.folder / "gone", shop.folder / ".clusters" / "east")
    east = shop.cluster("east")
    with east.producer() as producer:
        producer.send("shop:bought", b"late", partition=0)
    with pytest.raises(OwnershipLostError):
        east.mounts.drive(east.mounts.unmount("shop:bought"))


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
        (location, west): f"{location} is detached: nobody owns it",
        (f"shop:orders/{west}/99", west): f"there is no topic at shop:orders/{west}/99 in file://",
        (f"shop:other/{location.partition('/')[2]}", west): "lies topic shop:orders",
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
