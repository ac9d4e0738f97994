"""One source with two mirrors: which of them a role change is about is said once, and holds to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from reconciler.errors import IncompleteError, StalePlanError, UserError
from reconciler.lifecycles import MirrorStatus
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.transitions import TransitionDriver
from reconciler.planning.actions import Transition
from reconciler.providers.embedded.links import EmbeddedLinks
from reconciler.resources.mirrors import Operation, Peer, set_end_offsets
from tests.operations.stage import (
    EAST,
    NORTH,
    ORDERS,
    WEST,
    ask,
    fan,
    give_roles,
    link_half,
    lose,
    opened,
    produce,
    refusals,
    role,
    roles,
    topic,
    upkeep,
    values,
)

if TYPE_CHECKING:
    from conftest import Bench

    from reconciler.operations.mirrors.mirror_rounds import PassResult
    from reconciler.planning.plan import Plan
    from reconciler.resources.mirrors import ObservedMirror

FAILOVER = Select(allow=("failover:*",))
RESTORE = Select(allow=(f"truncate-and-restore:{WEST}",))
FIVE = [f"a{number}" for number in range(5)]
TEN = [*FIVE, *(f"b{number}" for number in range(5))]


@pytest.fixture
def shop(bench: Bench) -> Bench:
    return fan(bench)


def declare(shop: Bench, cluster: str, name: str = "orders", partitions: int = 1) -> None:
    shop.write(f"manifests/{cluster}-{name}.yaml", topic(name, cluster, partitions=partitions, configs="{}"))


def parted(shop: Bench) -> Bench:
    """Let `east`, which has five records of ten, and `north`, which has all, fail over."""
    assert ask(shop, "pause", EAST).verdict is None
    produce(shop, "west", *TEN[5:])
    upkeep(shop, "mirror")
    roles(shop, "failed-over", "failed-over")
    assert shop.apply(FAILOVER).verdict is None
    return shop


def test_a_plan_restores_from_the_mirror_whose_entry_says_so(shop: Bench) -> None:
    parted(shop)
    roles(shop, "failed-over", "reversed")
    (action,) = shop.plan(RESTORE).plan.actions
    assert (action.id, action.estimate.role.lost_offsets) == (f"truncate-and-restore:{WEST}", 0)  # type: ignore[union-attr]
    assert shop.apply(RESTORE).verdict is None
    assert role(shop, "west") == "ACTIVE of north"
    assert values(shop, "west") == TEN
    assert shop.plan().plan.actions == ()


@pytest.mark.parametrize(
    ("given", "source", "left"),
    [
        (((), ("link/north/b",)), "north", TEN),
        (((WEST,), ("link/north/b",)), "north", TEN),
        ((("mirror/west/*",), ("link/east/a",)), "east", FIVE),
    ],
)
def test_a_link_says_from_which_mirror_a_command_restores(
    shop: Bench, given: tuple[tuple[str, ...], tuple[str, ...]], source: str, left: list[str]
) -> None:
    parted(shop)
    addresses, links = given
    foreseen = ask(shop, "truncate-and-restore", *addresses, links=links, is_dry_run=True)
    (action,) = foreseen.plan.actions
    assert isinstance(action, Transition)
    assert (foreseen.verdict, action.after.to_json()["sourceCluster"]) == (None, source)
    assert ask(shop, "truncate-and-restore", *addresses, links=links).verdict is None
    assert (role(shop, "west"), values(shop, "west")) == (f"ACTIVE of {source}", left)


def test_a_restore_that_could_be_from_several_mirrors_names_them_and_does_nothing(shop: Bench) -> None:
    parted(shop)
    for is_dry_run in (True, False):
        assert refusals(ask(shop, "truncate-and-restore", WEST, is_dry_run=is_dry_run)) == [
            (
                "topic shop:orders of cluster west can be restored from each of 2 stopped mirrors: "
                "mirror/east/shop:orders, mirror/north/shop:orders. Choose one by its link: "
                "reconciler mirror restore mirror/west/shop:orders --link link/east/a. The others: link/north/b."
            )
        ]
    assert (role(shop, "west"), values(shop, "west")) == ("", TEN)


def test_a_link_without_a_stopped_mirror_of_the_topic_restores_nothing(shop: Bench) -> None:
    assert ask(shop, "failover", EAST).verdict is None
    link_half(shop, "c", "north", "mirroring", of="shop:clicks")
    declare(shop, "west", "clicks")
    assert shop.apply().verdict is None
    assert ask(shop, "failover", "mirror/north/shop:clicks").verdict is None
    with pytest.raises(Exception, match=r"mirror/west/shop:orders: link/north/c has no stopped mirror of it"):
        ask(shop, "truncate-and-restore", WEST, links=("link/north/c",))
    assert role(shop, "west") == ""


def test_a_restore_that_was_stopped_goes_on_from_the_mirror_it_began_with(
    shop: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    parted(shop)
    with monkeypatch.context() as patched:
        patched.setattr(TransitionDriver, "_prepare_restore", stops)
        assert ask(shop, "truncate-and-restore", WEST, links=("link/north/b",)).verdict is not None
    assert role(shop, "west") == "PENDING_SETUP_FOR_RESTORE of north"
    assert upkeep(shop, "mirror").verdict is None
    assert (role(shop, "west"), values(shop, "west")) == ("ACTIVE of north", TEN)


def test_a_restore_cuts_off_no_more_than_was_shown(shop: Bench) -> None:
    parted(shop)

    def confirm(plan: Plan) -> bool:
        (shown,) = plan.actions
        assert shown.estimate.role is not None
        assert shown.estimate.role.lost_offsets == 0
        produce(shop, "west", "late")
        return True

    acting = shop.acting("mirror restore")
    result = give_roles(acting, "truncate-and-restore", WEST, links=("link/north/b",), confirm=confirm)
    assert refusals(result) == [
        (
            "topic shop:orders of cluster west has more to cut off than was approved: 1 offset of partition 0 "
            "from 10 on; nothing was cut off. Stop what writes to it. Then look again: "
            "reconciler mirror restore mirror/west/shop:orders --link link/north/b --dry-run"
        )
    ]
    assert isinstance(result.verdict, StalePlanError)
    assert (role(shop, "west"), values(shop, "west")) == ("", [*TEN, "late"])
    assert ask(shop, "truncate-and-restore", WEST, links=("link/north/b",)).verdict is None
    assert values(shop, "west") == TEN


@pytest.mark.parametrize("is_killed", [False, True])
def test_what_was_written_until_a_topic_was_shut_is_not_cut_off_unseen(
    shop: Bench, monkeypatch: pytest.MonkeyPatch, *, is_killed: bool
) -> None:
    parted(shop)
    join = EmbeddedLinks.convert_to_mirror

    def joined(self: EmbeddedLinks, *given: Any, **named: Any) -> ObservedMirror:
        if "late" not in values(shop, "west"):
            produce(shop, "west", "late")
        return join(self, *given, **named)

    with monkeypatch.context() as patched:
        patched.setattr(EmbeddedLinks, "convert_to_mirror", joined)
        if is_killed:
            patched.setattr(TransitionDriver, "_prepare_restore", stops)
        (told,) = refusals(ask(shop, "truncate-and-restore", WEST, links=("link/north/b",)))
    if is_killed:
        assert upkeep(shop, "mirror").verdict is not None
    else:
        assert told.startswith(
            "topic shop:orders of cluster west has more to cut off than was approved: 1 offset of partition 0 "
            "from 10 on; nothing was cut off. Stop what writes to it."
        )
    assert (role(shop, "west"), values(shop, "west")) == ("STOPPED of north", [*TEN, "late"])
    produce(shop, "west", "more")
    assert ask(shop, "truncate-and-restore", WEST, links=("link/north/b",)).verdict is None
    assert (role(shop, "west"), values(shop, "west")) == ("ACTIVE of north", TEN)


def test_a_topic_that_mirrored_one_cluster_is_restored_from_the_other(shop: Bench) -> None:
    parted(shop)
    assert ask(shop, "truncate-and-restore", WEST, links=("link/east/a",)).verdict is None
    assert ask(shop, "failover", WEST).verdict is None
    assert ask(shop, "truncate-and-restore", WEST, links=("link/north/b",)).verdict is None
    assert role(shop, "west") == "ACTIVE of north"


# Clusters that are away: only those matter that the topic could be restored from.


def test_a_cluster_that_cannot_have_a_mirror_of_the_topic_is_not_asked(shop: Bench) -> None:
    declare(shop, "north", "other")
    link_half(shop, "n", "west", "mirroring", source="north", mode="destination", of="shop:other")
    assert shop.apply().verdict is None
    assert ask(shop, "failover", EAST).verdict is None
    produce(shop, "east", "own")
    lose(shop, "north")
    assert ask(shop, "truncate-and-restore", WEST, is_dry_run=True).verdict is None
    assert ask(shop, "truncate-and-restore", WEST).verdict is None
    assert role(shop, "west") == "ACTIVE of east"


def test_the_only_cluster_that_may_have_the_mirror_has_to_be_there(shop: Bench) -> None:
    assert ask(shop, "failover", NORTH).verdict is None
    lose(shop, "north")
    (why,) = refusals(ask(shop, "truncate-and-restore", WEST))
    assert why.startswith(f"{WEST}: truncate-and-restore needs both clusters, and north is not there: nothing is at ")
    assert role(shop, "west") == ""


# Reversals: one source becomes the mirror of one.


def test_a_command_does_not_reverse_two_mirrors_of_one_source(shop: Bench) -> None:
    both = f"{EAST}, {NORTH} have one source, topic/west/shop:orders: it can become the mirror of only one of them"
    for is_dry_run in (True, False):
        assert refusals(ask(shop, "reverse-and-start", "mirror/*/shop:orders", is_dry_run=is_dry_run)) == [
            f"{both}. Reverse one of them: reconciler mirror reverse {EAST}",
            f"{both}. Reverse one of them: reconciler mirror reverse {NORTH}",
        ]
    assert [role(shop, name) for name in ("west", "east", "north")] == ["", "ACTIVE of west", "ACTIVE of west"]
    assert ask(shop, "reverse-and-start", NORTH).verdict is None
    assert role(shop, "west") == "ACTIVE of north"


def test_a_mirror_whose_source_is_a_mirror_is_not_reversed(shop: Bench) -> None:
    assert ask(shop, "reverse-and-start", NORTH).verdict is None
    for is_dry_run in (True, False):
        (why,) = refusals(ask(shop, "reverse-and-start", EAST, is_dry_run=is_dry_run))
        assert why.startswith(
            f"{EAST}: it is ACTIVE and cannot become reversed: its source topic/west/shop:orders is itself a mirror"
        )
    roles(shop, "reversed", "mirroring")
    (why,) = errors(shop)
    assert why == (
        f"{EAST}: it is ACTIVE and cannot become reversed: its source topic/west/shop:orders is itself a mirror of "
        "topic/north/shop:orders (ACTIVE). "
        "Leave it mirroring until topic/west/shop:orders is a topic again, and apply that first."
    )


def test_a_plan_refuses_two_reversals_of_one_source(shop: Bench) -> None:
    roles(shop, "reversed", "reversed")
    hint = "Leave one of them reversed, and give the other another state."
    why = "their source topic/west/shop:orders can become the mirror of only one of them"
    assert errors(shop) == [
        f"{EAST}: it and {NORTH} (manifests/link-b.yaml:1) are both to be reversed: {why}. {hint}",
        f"{NORTH}: it and {EAST} (manifests/link-a.yaml:1) are both to be reversed: {why}. {hint}",
    ]


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_reversal_that_lost_against_another_one_is_taken_back(
    shop: Bench, monkeypatch: pytest.MonkeyPatch, *, is_killed: bool
) -> None:
    asked = opened(shop, "east").linking.start_operation(ORDERS, "reverse-and-start", operation="lost")
    assert asked.state == "PENDING_SYNCHRONIZE"
    assert ask(shop, "reverse-and-start", NORTH).verdict is None
    if is_killed:
        with monkeypatch.context() as patched:
            patched.setattr(TransitionDriver, "_abandon_reversal", stops)
            upkeep(shop, "mirror")
        assert role(shop, "east") == "PENDING_SYNCHRONIZE of west"
    (error,) = errors_of_run(upkeep(shop, "mirror"))
    assert error == (
        f"{EAST}: mirror shop:orders of cluster east was not reversed, and mirrors its source as before: "
        "its source is itself a mirror of shop:orders of cluster north (ACTIVE). "
        "Only one of the mirrors of a source can be reversed."
    )
    assert role(shop, "east") == "ACTIVE of west"
    produce(shop, "north", "then")
    assert upkeep(shop, "mirror").verdict is None
    assert upkeep(shop, "mirror").verdict is None
    assert values(shop, "east") == [*FIVE, "then"]
    assert ask(shop, "reverse-and-start", WEST).verdict is None
    assert upkeep(shop, "mirror").verdict is None
    assert [role(shop, name) for name in ("west", "east")] == ["STOPPED of north", "ACTIVE of west"]


def test_a_reversal_whose_source_was_shut_is_not_taken_back(shop: Bench) -> None:
    east, west = opened(shop, "east").linking, opened(shop, "west").linking
    east.start_operation(ORDERS, "reverse-and-start", operation="it")
    west.mirror_own_mirror(ORDERS, Peer("a", ORDERS, "topic"), Operation("it", "reverse-and-start"))
    east.change_mirror_entry(ORDERS, lambda entry: set_end_offsets(ORDERS, entry, "it", {0: 5}))
    with pytest.raises(UserError, match="its source is sealed: its reversal cannot be undone"):
        east.advance_operation(ORDERS, MirrorStatus.ACTIVE, operation="it")
    assert role(shop, "east") == "PENDING_SYNCHRONIZE of west"


# Partitions: what is followed has as many as what follows it.


def test_a_plan_restores_from_a_mirror_with_fewer_partitions_only_once_it_adds_them(shop: Bench) -> None:
    assert ask(shop, "failover", EAST).verdict is None
    declare(shop, "west", partitions=3)
    roles(shop, "failed-over", "mirroring")
    assert shop.apply().verdict is None
    roles(shop, "reversed", "mirroring")
    why = "topic shop:orders of cluster west cannot be restored from shop:orders of cluster east"
    why += ": it has 3 partitions, and shop:orders 1"
    assert errors(shop) == [
        f"{EAST}: {why}. Declare topic/east/shop:orders with `partitions: 3`: the same plan adds them first."
    ]
    assert refusals(ask(shop, "truncate-and-restore", WEST, is_dry_run=True)) == [
        f"{why}. Declare topic/east/shop:orders with `partitions: 3`, and apply that first."
    ]
    declare(shop, "east", partitions=2)
    assert errors(shop) != []
    declare(shop, "east", partitions=3)
    assert errors(shop) == []
    assert shop.apply(RESTORE).verdict is None
    assert role(shop, "west") == "ACTIVE of east"


def test_a_topic_that_mirrors_another_cluster_is_not_restored(shop: Bench) -> None:
    parted(shop)
    assert ask(shop, "truncate-and-restore", WEST, links=("link/north/b",)).verdict is None
    roles(shop, "reversed", "failed-over")
    (why,) = errors(shop)
    assert why == (
        f"{EAST}: it is STOPPED and cannot become reversed: topic/west/shop:orders is a mirror of "
        f"topic/north/shop:orders (ACTIVE). To leave it so: state failed-over. To mirror this one instead: "
        f"reconciler mirror failover {WEST}, then reconciler mirror restore {WEST} --link link/east/a"
    )
    assert ask(shop, "failover", WEST).verdict is None
    assert ask(shop, "truncate-and-restore", WEST, links=("link/east/a",)).verdict is None
    assert errors(shop) == []
    assert role(shop, "west") == "ACTIVE of east"


def errors(shop: Bench) -> list[str]:
    return [f"{each.address}: {each.message}. {each.hint}" for each in shop.plan().plan.errors]


def errors_of_run(done: PassResult) -> list[str]:
    """Return what a pass of `run` failed with."""
    return [f"{error.message}. {error.hint}" for one in done.outcomes for error in one.errors]


def stops(*_given: object) -> ObservedMirror:
    raise IncompleteError("stopped before it had ended", hint="Go on.")
