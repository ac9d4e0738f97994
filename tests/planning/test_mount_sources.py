"""Which topic of object storage a mounting means, and what is said where it is none, several or somebody else's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from reconciler.errors import UserError
from reconciler.planning.resolve.mount_sources import (
    AttachedTopic,
    SharedStorage,
    are_equal_locations,
    build_missing_topic_error,
    find_detached_source,
    find_in_other_storages,
    find_source,
)
from reconciler.resources.address import Address
from reconciler.resources.mount import MountableTopic, Mounting, MountSource
from tests.planning.short import resource

WEST, EAST = "67f5505a-32f3-4677-bcad-3c75a1a702a6", "11111111-2222-4333-8444-555555555555"
URL = "s3://topics"


def at(name: str, revision: int = 10, made_by: str = WEST) -> str:
    return f"{name}/{made_by}/{revision}"


def lies(location: str, state: str = "detached", owner: str | None = WEST, name: str = "") -> MountableTopic:
    made_as = location.split("/", maxsplit=1)[0]
    return MountableTopic(location, made_as, state, owner, name or made_as)  # type: ignore[arg-type]  # one of the three


def mounting(name: str = "shop:clicks", state: str = "mounted", **spec: Any) -> Mounting:
    found = resource({"mounting": name, "where": "east", "state": state, **spec})
    assert isinstance(found, Mounting)
    return found


def lying(*mountables: MountableTopic, attached: Sequence[AttachedTopic] = ()) -> SharedStorage:
    return SharedStorage(URL, EAST, mountables, attached, {WEST: "west", EAST: "east"})


def taken(wanted: Mounting, there: SharedStorage, kept: str | None = None) -> MountSource:
    found = find_source(wanted, kept, there)
    assert isinstance(found, MountSource), found
    return found


def refused(wanted: Mounting, there: SharedStorage, kept: str | None = None) -> str:
    found = find_source(wanted, kept, there)
    assert isinstance(found, UserError), found
    return str(found) if found.hint in str(found) else f"{found.message}. {found.hint}"


class TestByName:
    @pytest.mark.fact("F-R-115")
    def test_a_unique_name_in_the_namespace_of_the_mounting_is_taken(self) -> None:
        there = lying(lies(at("shop:clicks")), lies(at("clicks", 11)), lies(at("shop:orders", 12)))
        assert taken(mounting(), there).location == at("shop:clicks")
        assert taken(mounting(source="orders"), there).location == at("shop:orders", 12)
        assert taken(mounting("clicks"), there).location == at("clicks", 11)

    @pytest.mark.fact("F-R-115", "F-R-126")
    def test_an_ambiguous_name_is_refused_with_all_locations(self) -> None:
        there = lying(lies(at("shop:clicks", 12)), lies(at("shop:clicks", 10)))
        said = refused(mounting(), there)
        assert f"2 topics called shop:clicks lie in {URL}: {at('shop:clicks', 10)}, {at('shop:clicks', 12)}" in said
        assert "Write the location" in said

    def test_one_of_a_name_that_somebody_has_mounted_does_not_make_the_other_ambiguous(self) -> None:
        there = lying(lies(at("shop:clicks", 10), "mounted"), lies(at("shop:clicks", 12)))
        assert taken(mounting(), there).location == at("shop:clicks", 12)

    @pytest.mark.fact("F-R-126")
    def test_what_a_mounting_detached_itself_is_what_its_name_means(self) -> None:
        there = lying(lies(at("shop:clicks", 10)), lies(at("shop:clicks", 12)))
        assert taken(mounting(), there, kept=at("shop:clicks", 12)).location == at("shop:clicks", 12)
        assert "2 topics" in refused(mounting(source="clicks"), there, kept=at("shop:clicks", 12))

    def test_what_it_detached_and_another_cluster_has_by_now_it_means_no_more(self) -> None:
        there = lying(lies(at("shop:clicks"), "mounted", WEST, "shop:clicks"))
        assert "is mounted on cluster" in refused(mounting(), there, kept=at("shop:clicks"))

    def test_a_name_of_another_namespace_is_refused_with_where_it_lies(self) -> None:
        there = lying(lies(at("ads:clicks")), lies(at("clicks", 11)))
        said = refused(mounting(), there)
        assert f"no unmounted topic shop:clicks is in {URL}; a topic of that name in another namespace is at" in said
        assert f"{at('ads:clicks')}, {at('clicks', 11)}" in said
        assert "Write the location as source: it is mounted in the mounting's own namespace" in said

    def test_a_name_that_a_topic_got_later_is_refused_with_where_it_lies(self) -> None:
        there = lying(lies(at("shop:old"), name="shop:clicks"))
        said = refused(mounting(), there)
        assert f"the last topic of that name is at {at('shop:old')}" in said

    def test_a_name_that_a_topic_got_later_is_refused_with_its_location_while_a_mounting_unmounts_it(self) -> None:
        leaving = AttachedTopic("west", "shop:clicks", at("shop:old"), Address("mounting/west/shop:clicks"))
        said = refused(mounting(), lying(lies(at("shop:old"), "mounted"), attached=[leaving]))
        assert f"the one that mounting/west/shop:clicks unmounts is at {at('shop:old')}" in said
        assert "Write that location as source" in said
        assert taken(mounting(source=at("shop:old")), lying(attached=[leaving])).unmounts == leaving.leaves_by

    @pytest.mark.parametrize(
        ("cluster", "name", "is_said"),
        [("east", "shop:seen", True), ("west", "shop:seen", False), ("east", "seen", False)],
    )
    def test_what_its_own_cluster_has_under_another_name_may_stay_so(
        self, cluster: str, name: str, *, is_said: bool
    ) -> None:
        said = refused(mounting(), lying(attached=[AttachedTopic(cluster, name, at("shop:clicks"))]))
        assert f"is attached to cluster {cluster} as {name}" in said
        assert ("To leave it there write as: seen. Unmount it there first" in said) is is_said

    def test_a_name_that_nobody_knows_is_left_to_other_storages(self) -> None:
        assert find_source(mounting(), None, lying(lies(at("shop:orders")))) is None
        assert f"no unmounted topic shop:clicks is in {URL}" in build_missing_topic_error(mounting(), URL).message


class TestByLocation:
    @pytest.mark.fact("F-R-115")
    def test_a_location_is_taken_whatever_else_has_its_name(self) -> None:
        there = lying(lies(at("shop:clicks", 10)), lies(at("shop:clicks", 12)))
        assert taken(mounting(source=at("shop:clicks", 12)), there).location == at("shop:clicks", 12)

    def test_a_location_of_another_namespace_is_taken(self) -> None:
        assert taken(mounting(source=at("ads:clicks")), lying(lies(at("ads:clicks")))).location == at("ads:clicks")

    def test_the_namespace_may_be_left_out_and_the_whole_location_is_told(self) -> None:
        there = lying(lies(at("shop:clicks")))
        assert taken(mounting(source=at("clicks")), there).location == at("shop:clicks")
        assert taken(mounting(source=at("clicks", made_by=WEST.upper())), there).location == at("shop:clicks")

    def test_a_location_with_another_name_is_refused_with_the_right_one(self) -> None:
        said = refused(mounting(source=at("shop:clocks")), lying(lies(at("shop:clicks"))))
        assert f"at {at('shop:clocks')} in {URL} is the topic shop:clicks" in said
        assert at("shop:clicks") in said

    def test_a_location_that_nobody_knows_names_the_cluster_that_made_it(self) -> None:
        wanted = mounting(source=at("shop:clicks"))
        assert find_source(wanted, None, lying()) is None
        error = build_missing_topic_error(wanted, URL)
        assert f"no unmounted topic is at {at('shop:clicks')} in {URL}" in error.message
        assert WEST in error.hint
        assert (
            f"its register is lost; whose it is says: reconciler mount release {at('shop:clicks')} --owner {WEST}"
            in error.hint
        )


class TestOwned:
    @pytest.mark.fact("F-R-111")
    @pytest.mark.parametrize("source", [None, at("shop:clicks")])
    def test_what_another_cluster_has_is_refused_with_its_id_and_its_name(self, source: str | None) -> None:
        wanted = mounting(source=source) if source else mounting()
        said = refused(wanted, lying(lies(at("shop:clicks"), "mounted", WEST, "shop:visits")))
        assert f"{at('shop:clicks')} is mounted on cluster {WEST} (west) as shop:visits" in said
        assert f"reconciler mount release {at('shop:clicks')} --owner {WEST}" in said

    def test_what_another_cluster_is_mounting_is_refused_with_what_cancels_that(self) -> None:
        other = "99999999-2222-4333-8444-555555555555"
        said = refused(mounting(), lying(lies(at("shop:clicks"), "claimed", other)))
        assert f"is being mounted on cluster {other} as" in said
        assert "reconciler mount cancel ID. Where that cluster is lost permanently: reconciler mount release" in said

    def test_what_this_cluster_has_under_another_name_is_refused(self) -> None:
        there = lies(at("shop:clicks"), "mounted", EAST, "shop:clicks")
        attached = [AttachedTopic("east", "shop:clicks", at("shop:clicks"))]
        said = refused(mounting(**{"as": "visits"}), lying(there, attached=attached))
        assert f"{at('shop:clicks')} is attached to cluster east as shop:clicks" in said

    def test_what_was_mounted_here_and_deleted_by_hand_says_how_to_have_the_rest(self) -> None:
        said = refused(mounting(), lying(lies(at("shop:clicks"), "mounted", EAST, "shop:clicks")))
        assert (
            f"{at('shop:clicks')} was mounted on this cluster as shop:clicks, and was deleted there outside reconciler"
            in said
        )
        assert f"reconciler mount release {at('shop:clicks')} --owner {EAST}" in said

    def test_what_was_never_detached_and_is_attached_to_a_cluster_of_the_files_is_refused(self) -> None:
        attached = [AttachedTopic("west", "shop:visits", at("shop:clicks"))]
        for wanted in (mounting(), mounting(source=at("shop:clicks"))):
            said = refused(wanted, lying(attached=attached))
            assert f"{at('shop:clicks')} is attached to cluster west as shop:visits" in said
            assert "a Mounting of shop:visits on west with state: unmounted" in said

    def test_what_this_plan_detaches_is_taken_after_that(self) -> None:
        by = Address("mounting/west/shop:clicks")
        there = lying(attached=[AttachedTopic("west", "shop:clicks", at("shop:clicks"), by)])
        assert taken(mounting(), there) == MountSource(at("shop:clicks"), None, by)
        assert taken(mounting(source=at("clicks")), there) == MountSource(at("shop:clicks"), None, by)

    def test_what_this_plan_detaches_and_what_lies_detached_of_one_name_are_ambiguous(self) -> None:
        by = Address("mounting/west/shop:clicks")
        there = lying(
            lies(at("shop:clicks", 12)), attached=[AttachedTopic("west", "shop:clicks", at("shop:clicks"), by)]
        )
        assert "2 topics called shop:clicks" in refused(mounting(), there)


class TestElsewhere:
    def test_what_lies_in_the_storage_of_other_clusters_is_said_to_lie_there(self) -> None:
        there = [("west", lying(lies(at("shop:clicks"))))]
        error = find_in_other_storages(mounting(), "s3://mine", there)
        assert error is not None
        assert error.message == f"{at('shop:clicks')} is in {URL}, the objectStorage of cluster west"
        assert "s3://mine" in error.hint

    def test_what_cannot_be_had_there_either_is_said_with_the_place(self) -> None:
        there = [("west", lying(lies(at("shop:clicks"), "mounted", WEST)))]
        error = find_in_other_storages(mounting(), "s3://mine", there)
        assert error is not None
        assert f"in {URL}, the objectStorage of cluster west" in error.message

    def test_what_no_cluster_knows_is_nowhere(self) -> None:
        assert find_in_other_storages(mounting(), "s3://mine", [("west", lying())]) is None


class TestDetachedAlready:
    def test_what_the_cluster_detached_last_under_that_name_is_where_it_lies(self) -> None:
        there = lying(lies(at("shop:clicks", 10)), lies(at("shop:made-so", 12), owner=EAST, name="shop:clicks"))
        found = find_detached_source(mounting(state="unmounted"), there)
        assert found == MountSource(at("shop:made-so", 12), None)

    def test_of_several_nobody_can_tell_and_that_is_no_error(self) -> None:
        there = lying(lies(at("shop:clicks", 10)), lies(at("shop:clicks", 12)))
        assert find_detached_source(mounting(state="unmounted"), there) is None

    def test_what_another_cluster_has_by_now_is_no_error(self) -> None:
        assert find_detached_source(mounting(state="unmounted"), lying(lies(at("shop:clicks"), "mounted"))) is None

    def test_what_never_was_is_one(self) -> None:
        found = find_detached_source(mounting(state="unmounted"), lying())
        assert isinstance(found, UserError)
        assert "there is no topic shop:clicks" in found.message


def test_two_locations_are_one_place_by_cluster_and_revision_and_name() -> None:
    assert are_equal_locations(at("shop:clicks"), at("clicks"))
    assert are_equal_locations(at("shop:clicks"), at("shop:clicks", made_by=WEST.upper()))
    assert not are_equal_locations(at("shop:clicks"), at("ads:clicks"))
    assert not are_equal_locations(at("shop:clicks"), at("shop:clocks"))
    assert not are_equal_locations(at("shop:clicks"), at("shop:clicks", 11))
    assert not are_equal_locations(at("shop:clicks"), at("shop:clicks", made_by=EAST))
