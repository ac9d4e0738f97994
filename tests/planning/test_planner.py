"""Same or less may happen than what was approved, never more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconciler.planning.diff.converge import compute_precondition
from reconciler.planning.diff.retention_loss import Loss, RetentionRule, compute_loss
from reconciler.planning.fields import is_equal_value, list_fields
from reconciler.planning.plan import Plan, PlanFinding
from reconciler.planning.plan_rows import encode_canonical, hash_value
from reconciler.planning.planner import list_topics_to_measure
from reconciler.planning.resolve.physical_names import build_physical_name
from reconciler.planning.same_or_less import Why, compare_plans
from reconciler.planning.selection import build_other_half
from reconciler.resources.address import Address
from reconciler.resources.base import OnCluster
from reconciler.resources.cluster import Cluster
from reconciler.resources.configs import EMBEDDED_CONFIGS
from reconciler.resources.inventory import ClusterIdentity, Observed
from reconciler.resources.kafka_configs import KAFKA_CONFIGS
from reconciler.resources.measures import Measure
from reconciler.resources.mirror_link import (
    AclFilter,
    AclSyncSpec,
    AutoCreateSpec,
    ConsumerOffsetSyncSpec,
    MirrorLink,
    MirrorLinkSpec,
    MirrorTopicSpec,
    NameFilter,
    TopicConfigSyncSpec,
)
from tests.planning.casefile import Case
from tests.planning.short import resource

APPROVED: dict[str, Any] = {
    "desired": [{"topic": "a"}, {"topic": "b", "configs": {"segment.ms": "2d"}}],
    "recorded": [{"topic": "b", "configs": {"segment.ms": "1d"}}],
    "observed": [{"topic": "b", "configs": {"segment.ms": "1d"}}],
}


def planned(**other: Any) -> Plan:
    return Case("sample", {**APPROVED, **other}).world.plan()


def test_the_same_plan_is_allowed() -> None:
    found = compare_plans(planned(), planned())
    assert found.is_allowed
    assert found.not_needed == ()


def test_less_is_allowed_and_said() -> None:
    now = planned(
        observed=[{"topic": "b", "configs": {"segment.ms": "2d"}}],
        recorded=[{"topic": "b", "configs": {"segment.ms": "2d"}}],
    )
    found = compare_plans(planned(), now)
    assert found.is_allowed
    assert found.not_needed == ("update:topic/west/b",)


@pytest.mark.parametrize(
    ("other", "wrong", "message"),
    [
        ({"desired": [*APPROVED["desired"], {"topic": "c"}]}, "create:topic/west/c", "not in the approved plan"),
        (
            {"desired": [{"topic": "a", "partitions": 9}, APPROVED["desired"][1]]},
            "create:topic/west/a",
            "lead to something else",
        ),
        (
            {"observed": [{"topic": "b", "configs": {"segment.ms": "3d"}}]},
            "update:topic/west/b",
            "has changed on the cluster",
        ),
    ],
)
def test_more_is_refused(other: dict[str, Any], wrong: str, message: str) -> None:
    found = compare_plans(planned(), planned(**other))
    assert not found.is_allowed
    assert [difference.id for difference in found.more] == [wrong]
    assert message in found.more[0].message


LOWERED: dict[str, Any] = {
    "desired": [{"topic": "b", "configs": {"retention.ms": "1d"}}],
    "recorded": [{"topic": "b", "configs": {"retention.ms": "2d"}}],
    "observed": [{"topic": "b", "configs": {"retention.ms": "2d"}}],
}
EMPTY = {"topic/west/b": {"bytes": 0, "records": 0}}
FILLED = {"topic/west/b": {"bytes": 9, "records": 9, "ages": [[10**9, 9]]}}


def test_where_only_the_files_say_less_now_nobody_is_said_to_have_changed_the_cluster() -> None:
    def of(desired: dict[str, str], **live: str) -> Plan:
        before = {"segment.ms": "1d", "max.message.bytes": "5000"}
        return planned(
            desired=[{"topic": "b", "configs": desired}],
            recorded=[{"topic": "b", "configs": before}],
            observed=[{"topic": "b", "configs": {**before, "segment.ms": "3d", **live}}],
        )

    approved = of({"segment.ms": "1d", "max.message.bytes": "5000"})
    (found,) = compare_plans(approved, of({"segment.ms": "1d"})).more
    assert found.whys == (Why.RESULT,)
    (found,) = compare_plans(approved, of({"segment.ms": "1d"}, **{"segment.ms": "4d"})).more
    assert found.whys == (Why.RESULT, Why.GROUND)


def test_a_higher_risk_than_was_approved_is_refused_and_a_lower_one_is_not() -> None:
    allowed = {"allow": ["update:topic/west/b"]}
    empty = planned(**LOWERED, given={"measures": EMPTY, **allowed})
    filled = planned(**LOWERED, given={"measures": FILLED, **allowed})
    (found,) = compare_plans(empty, filled).more
    assert found.message.startswith("its risk was none when it was approved, and is data-loss now; about ")
    assert (found.is_dangerous, found.approved_risk, found.risk) == (True, "none", "data-loss")
    assert compare_plans(filled, empty).is_allowed


def test_what_a_guard_refuses_now_and_did_not_is_told_with_the_guard() -> None:
    empty, filled = (planned(**LOWERED, given={"measures": sizes}) for sizes in (EMPTY, FILLED))
    (found,) = compare_plans(empty, filled).more
    assert found.whys == (Why.RISK, Why.BLOCKED)
    assert found.blocked is not None
    assert found.blocked.allow == "update:topic/west/b"
    assert "a guard refuses it now" in found.message


def test_what_was_blocked_when_it_was_approved_is_blocked_still_or_was_never_agreed_to() -> None:
    empty, filled = (planned(**LOWERED, given={"measures": sizes}) for sizes in (EMPTY, FILLED))
    assert compare_plans(filled, filled).is_allowed
    (found,) = compare_plans(filled, empty).more
    assert found.whys == (Why.UNBLOCKED,)


def test_a_field_that_moved_is_told_before_and_after_on_both_sides() -> None:
    now = planned(observed=[{"topic": "b", "configs": {"segment.ms": "3d"}}])
    (found,) = compare_plans(planned(), now).more
    assert found.whys == (Why.GROUND,)
    (field,) = found.fields
    assert field.path == "configs.segment.ms"
    assert field.approved is not None
    assert field.now is not None
    day = 86_400_000
    assert (field.approved.before, field.approved.after) == (str(day), str(2 * day))
    assert (field.now.before, field.now.after) == (str(3 * day), str(2 * day))


def test_a_field_of_what_is_made_is_told_with_what_it_would_be() -> None:
    now = planned(desired=[{"topic": "a", "partitions": 9, "configs": {"segment.ms": "1d"}}, APPROVED["desired"][1]])
    (found,) = compare_plans(planned(), now).more
    assert found.whys == (Why.RESULT,)
    told = {each.path: (each.approved and each.approved.after, each.now and each.now.after) for each in found.fields}
    assert told == {"configs.segment.ms": (None, "86400000"), "partitions": (1, 9)}


def denying(*principals: str) -> Plan:
    """Return a plan that keeps so many from writing to a mirror that is there."""
    link = {"link": "l", "where": "east", "source": "west", "protect": "acl"}
    there = [{"topic": "a"}, link, {"mirror": "a", "where": "east", "link": "l"}]
    rules = [f"allow {principal} write on a" for principal in principals]
    given = {"capabilities": {"principal": "User:me", "write_rules": rules}}
    desired = [{"topic": "a"}, {**link, "mirrors": ["a"]}]
    world = {"platform": "kafka", "clusters": ["west", "east"], "given": given}
    return planned(**world, desired=desired, recorded=there, observed=there)


def test_whom_a_mirror_denies_to_write_is_agreed_to_one_by_one() -> None:
    approved = denying("User:app", "User:job")
    assert compare_plans(approved, denying("User:app")).is_allowed
    (found,) = compare_plans(approved, denying("User:app", "User:job", "User:other")).more
    assert found.whys == (Why.RESULT,)
    assert [field.path for field in found.fields] == ["acls.deny User:other"]


def test_whom_a_mirror_denies_to_write_is_part_of_the_digest() -> None:
    one, another = denying("User:app"), denying("User:app", "User:job")
    assert one.digest != another.digest


def test_what_was_made_again_since_is_told_so() -> None:
    there = [*APPROVED["observed"], {"topic": "a"}]
    again = [*APPROVED["observed"], {"topic": "a", "is": {"incarnation": "another"}}]
    (found,) = compare_plans(planned(observed=there), planned(observed=again)).more
    assert found.id == "adopt:topic/west/a"
    assert found.message == "it was deleted and created again on the cluster since it was approved"
    assert found.fields == ()


def test_what_would_be_done_instead_names_what_was_approved() -> None:
    exists = planned(observed=[*APPROVED["observed"], {"topic": "a"}])
    found = compare_plans(planned(), exists)
    assert {each.id: each.instead_of for each in found.more} == {"adopt:topic/west/a": ("create:topic/west/a",)}
    assert found.not_needed == ("create:topic/west/a",)


def test_danger_comes_first_and_else_the_order_of_the_plan_stays() -> None:
    two = planned(
        desired=[*APPROVED["desired"], {"topic": "c"}, {"topic": "d"}],
        observed=[*APPROVED["observed"], {"topic": "z"}],
        recorded=[*APPROVED["recorded"], {"topic": "z"}],
    )
    found = compare_plans(planned(), two)
    assert [each.id for each in found.more] == ["delete:topic/west/z", "create:topic/west/c", "create:topic/west/d"]


def test_what_changes_elsewhere_does_not_make_a_plan_stale() -> None:
    observed = [{"topic": "b", "configs": {"segment.ms": "1d", "max.message.bytes": "9"}}, {"topic": "stranger"}]
    assert compare_plans(planned(), planned(observed=observed)).is_allowed


STANDING: dict[str, Any] = {
    "clusters": ["west", "east"],
    "has_links": True,
    "desired": [
        {"topic": "orders", "partitions": 2},
        {
            "link": "l",
            "where": "east",
            "source": "west",
            "mode": "bidirectional",
            "mirrors": [{"source": "orders", "state": "failed-over"}],
        },
    ],
    "recorded": [
        {"topic": "orders", "partitions": 2},
        {"link": "l", "where": "east", "source": "west", "mode": "bidirectional"},
        {"link": "l", "source": "east", "mode": "bidirectional"},
        {"mirror": "orders", "where": "east", "link": "l", "state": "mirroring"},
    ],
    "observed": [
        {"topic": "orders", "partitions": 2},
        {"link": "l", "where": "east", "source": "west", "mode": "bidirectional"},
        {"link": "l", "source": "east", "mode": "bidirectional"},
        {"mirror": "orders", "where": "east", "link": "l", "partitions": 2},
    ],
}
"""A mirror that is to fail over."""


def failing_over(lag: int | None, *, is_allowed: bool = True) -> Plan:
    """Return a plan whose failover loses so many offsets; `None`: that was not measured."""
    measures = {
        "topic/west/orders": {"bytes": 100, "records": 10 + (lag or 0), "positions": {0: {"end": 10 + (lag or 0)}}},
        "topic/east/orders": {"bytes": 100, "records": 10, "positions": {0: {"end": 10}}},
    }
    given = {"measures": {} if lag is None else measures, "allow": ["failover:*"] if is_allowed else []}
    return planned(**STANDING, given=given)


@pytest.mark.fact("F-C-065")
@pytest.mark.parametrize(("before", "after"), [(3, 3), (3, 2), (0, 0), (None, 7), (None, None)])
def test_a_failover_that_loses_no_more_than_was_approved_is_allowed(before: int | None, after: int | None) -> None:
    assert compare_plans(failing_over(before), failing_over(after)).is_allowed


@pytest.mark.fact("F-C-065")
@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (0, 1, "1 offset would be lost now, and nothing when it was approved"),
        (3, 2_000, "2,000 offsets would be lost now, and 3 when it was approved"),
        (3, None, "the number of offsets that would be lost is no longer known; 3 when it was approved"),
    ],
)
def test_a_failover_that_loses_more_than_was_approved_is_refused(before: int, after: int | None, message: str) -> None:
    approved = failing_over(before)
    assert approved.digest == failing_over(after).digest
    (found,) = compare_plans(approved, failing_over(after)).more
    assert (found.whys, found.is_dangerous, found.message) == ((Why.LOSS,), True, message)


def test_what_a_blocked_failover_would_lose_is_no_difference() -> None:
    assert compare_plans(failing_over(0, is_allowed=False), failing_over(9, is_allowed=False)).is_allowed


DELETING: dict[str, Any] = {"desired": [], "recorded": [{"topic": "d"}], "observed": [{"topic": "d"}]}
"""A topic that is to be deleted."""

SHORTENED: dict[str, Any] = {
    "desired": [{"topic": "t", "configs": {"retention.ms": "-1", "retention.bytes": "1000"}}],
    "recorded": [{"topic": "t", "configs": {"retention.ms": "-1"}}],
    "observed": [{"topic": "t", "configs": {"retention.ms": "-1"}}],
}
"""A topic that is to keep no more than 1,000 bytes."""

_TIERED = {"remote.write": "true", "remote.read": "true"}
SWITCHING: dict[str, Any] = {
    "has_storage": "enabled",
    "desired": [
        {
            "topic": "t",
            "configs": {"remote.write": "false", "remote.read": "false", "remote.log.disable.policy": "delete"},
        }
    ],
    "recorded": [{"topic": "t", "configs": _TIERED}],
    "observed": [{"topic": "t", "configs": _TIERED, "is": {"state": "ENABLED"}}],
}
"""A topic whose objects are to be deleted."""


def losing(case: dict[str, Any], size: int | None) -> Plan:
    """Return a plan that loses so much: records, bytes beyond the first 1,000, or offsets; `None`: not measured."""
    (name,) = (each["topic"] for each in case["recorded"])
    tiered = [[0, 0, size, size, 7]] if case is SWITCHING else []
    beyond = 1000 if case is SHORTENED else 0
    measure = {"bytes": beyond + (size or 0), "records": size, "tiered": tiered}
    measures = {} if size is None else {f"topic/west/{name}": measure}
    allow = [f"{verb}:topic/west/{name}" for verb in ("delete", "update", "disable-tiering")]
    given = {"measures": measures, "allow": allow, "capabilities": {"cluster_properties": "embedded"}}
    return planned(**case, given=given)


@pytest.mark.parametrize(
    ("case", "before", "after"),
    [
        (DELETING, 10, 10),
        (DELETING, 10, 3),
        (DELETING, None, None),
        (SWITCHING, 3_230, 3_230),
        (SWITCHING, 3_230, 1),
        (SHORTENED, 1_000, 900),
        (SHORTENED, 1_000, 1_100),
        (SHORTENED, None, None),
    ],
)
def test_what_loses_no_more_than_was_approved_is_allowed(
    case: dict[str, Any], before: int | None, after: int | None
) -> None:
    assert compare_plans(losing(case, before), losing(case, after)).is_allowed


@pytest.mark.parametrize(
    ("case", "before", "after", "message"),
    [
        (DELETING, 10, 20_010, "20,010 records would be deleted now, and 10 when it was approved"),
        (DELETING, 10, 11, "11 records would be deleted now, and 10 when it was approved"),
        (DELETING, None, 1, "1 record would be deleted now, and when it was approved it could not be told how much"),
        (DELETING, 1, None, "not all that would be lost can be measured now, and it was when it was approved"),
        (SWITCHING, 3_230, 3_231, "3,231 offsets would become unreadable now, and 3,230 when it was approved"),
        (SHORTENED, 10_240, 11_265, "about 11 KiB would expire now, and about 10 KiB when it was approved"),
    ],
)
def test_what_loses_more_than_was_approved_is_refused(
    case: dict[str, Any], before: int | None, after: int | None, message: str
) -> None:
    (found,) = compare_plans(losing(case, before), losing(case, after)).more
    assert (found.whys, found.is_dangerous, found.message) == ((Why.LOSS,), True, message)


def test_an_empty_topic_that_has_records_now_is_not_deleted() -> None:
    (found,) = compare_plans(losing(DELETING, 0), losing(DELETING, 5)).more
    assert found.whys == (Why.RISK, Why.LOSS)
    assert "5 records would be deleted now, and nothing when it was approved" in found.message


# Values, fingerprints and limits: the small decisions everything else rests on.


@pytest.mark.parametrize(
    ("path", "left", "right", "same"),
    [
        ("configs.retention.ms", "604800000", "7d", True),
        ("configs.retention.ms", "-1", "infinite", True),
        ("configs.cleanup.policy", "compact,delete", "delete, compact", True),
        ("configs.preallocate", "true", "TRUE", True),
        ("configs.min.cleanable.dirty.ratio", "0.5", "0.50", True),
        ("configs.retention.ms", "1", "2", False),
        ("configs.retention.ms", "1", None, False),
        ("configs.retention.ms", None, None, True),
        ("configs.retention.ms", "nonsense", "7d", False),
        ("configs.unknown.key", "a", "A", False),
        ("partitions", 3, 3, True),
        ("partitions", 3, "3", False),
    ],
)
def test_values_are_equal_when_they_mean_the_same(path: str, left: object, right: object, same: bool) -> None:  # noqa: FBT001 - a column of the table
    assert is_equal_value(path, left, right, EMBEDDED_CONFIGS) is same  # type: ignore[arg-type]
    assert is_equal_value(path, right, left, EMBEDDED_CONFIGS) is same  # type: ignore[arg-type]


def test_canonical_json_does_not_depend_on_the_order_of_keys() -> None:
    assert (
        encode_canonical({"b": [1, {"d": None, "c": "é"}], "a": True})
        == '{"a":true,"b":[1,{"c":"é","d":null}]}'.encode()
    )
    assert hash_value({"a": 1, "b": 2}) == hash_value({"b": 2, "a": 1})


def test_a_precondition_rests_on_the_fields_that_change_and_on_nothing_else() -> None:
    address = Address("topic/west/orders")

    def seen(incarnation: str = "one", **configs: str) -> str:
        before = Observed(resource({"topic": "orders", "configs": configs}), incarnation)
        return compute_precondition(address, before, ["configs.segment.ms"])

    first = seen(**{"segment.ms": "1"})
    assert first == seen(**{"segment.ms": "1", "retention.ms": "9"})
    assert first != seen(**{"segment.ms": "2"})
    assert first != seen(incarnation="two", **{"segment.ms": "1"})
    assert first != seen()
    assert compute_precondition(address, None, ["configs.segment.ms"]) == ""


def test_a_link_is_compared_without_its_mirrors() -> None:
    one = list_fields(resource({"link": "l", "where": "east", "source": "west", "mirrors": ["a"]}))
    assert one == list_fields(resource({"link": "l", "where": "east", "source": "west"}))
    assert one["source"] == "west"


@pytest.mark.parametrize(
    ("provider", "separator", "name"), [("embedded", ".", "a:b:t"), ("kafka", ".", "a.b.t"), ("kafka", "-", "a-b-t")]
)
def test_a_platform_without_tiers_has_flat_names(provider: str, separator: str, name: str) -> None:
    spec = {"provider": provider, "embedded": {"root": "memory://x"}}
    if provider == "kafka":
        spec = {"provider": provider, "kafka": {"bootstrapServers": ["a:1"], "namespaceSeparator": separator}}
    cluster = Cluster.model_validate({"metadata": {"name": "west"}, "spec": spec})
    assert build_physical_name(cluster, "a:b:t") == name


OTHER: dict[str, object] = {
    "paused": True,
    "retry_timeout": 1,
    "consumer_offset_sync": ConsumerOffsetSyncSpec(enabled=True, filters=(NameFilter(name="*"),)),
    "topic_config_sync": TopicConfigSyncSpec(interval=9_000),
    "protect": "acl",
    "keep_diverged": True,
    "metadata_interval": 1,
    "source": "east",
    "mode": "bidirectional",
    "prefix": "w.",
    "start_offset": "latest",
    "auto_create": AutoCreateSpec(enabled=True, filters=(NameFilter(name="*"),)),
    "acl_sync": AclSyncSpec(enabled=True, filters=(AclFilter(),)),
    "mirror_topics": (MirrorTopicSpec(source="a"),),
    "moved_from": "old",
}
"""A value of each field of a link that is not its default."""

STAYS: dict[str, object] = {
    "source": "west",  # the other way round
    "mode": "bidirectional",
    "prefix": "",  # over a link with one roles cannot be swapped
    "start_offset": "earliest",  # what roles swap is whole on both sides; a partition that comes later is copied whole
    "auto_create": None,  # both halves would make mirrors of each other's topics
    "acl_sync": None,  # a rule that goes on one side would come back from the other
    "mirror_topics": (),
    "moved_from": None,  # is said beside the resource
}
"""What the other half has, whatever this one says."""


@pytest.mark.parametrize("field", sorted(MirrorLinkSpec.model_fields))
def test_the_other_half_of_a_link_has_every_field_that_does_not_stay_with_the_first(field: str) -> None:
    spec = MirrorLinkSpec(source="west", mode="bidirectional").model_copy(update={field: OTHER[field]})
    spec = spec.model_copy(update={"source": "west"})
    link = MirrorLink(metadata=OnCluster(name="l", cluster="east"), spec=MirrorLinkSpec(source="west"))
    link = link.model_copy(update={"spec": spec})
    half = build_other_half(link, "").resource
    assert isinstance(half, MirrorLink)
    wanted = {"source": "east"}.get(field, STAYS.get(field, OTHER[field]))
    assert getattr(half.spec, field) == wanted
    others = MirrorLinkSpec(source="east", mode="bidirectional")
    assert half.spec.model_copy(update={field: getattr(others, field)}) == others


WEEK, DAY, NOW = 604_800_000, 86_400_000, 10**12


def keeping(**configs: str) -> RetentionRule:
    return RetentionRule.read({key.replace("_", "."): value for key, value in configs.items()}.get, EMBEDDED_CONFIGS)


def test_what_is_not_set_is_kept_as_the_platform_does() -> None:
    assert keeping() == RetentionRule(WEEK, float("inf"), deletes=True, compacts=False)
    assert keeping(retention_ms="-1").ms == float("inf")
    assert keeping(retention_bytes="x").bytes == float("inf")
    assert not keeping(cleanup_policy="compact").deletes


def test_records_without_known_ages_may_all_expire() -> None:
    found = compute_loss(keeping(), keeping(retention_ms=str(DAY)), Measure(9, 9), 1, NOW)
    assert not found.is_known
    aged = compute_loss(
        keeping(), keeping(retention_ms=str(DAY)), Measure(9, 9, ages=((NOW - 2 * DAY, 4), (NOW, 5))), 1, NOW
    )
    assert (aged.bytes, aged.is_known) == (4, True)
    assert (found + aged).is_known is False
    assert (found + aged).bytes == 4


def test_what_is_older_than_the_new_retention_expires_where_a_platform_tells_of_that_time_alone() -> None:
    def of(**older: int) -> tuple[int, bool]:
        measure = Measure(9, 9, older={NOW - int(days.removeprefix("d")) * DAY: size for days, size in older.items()})
        found = compute_loss(keeping(), keeping(retention_ms=str(5 * DAY)), measure, 1, NOW)
        return found.bytes, found.is_known

    assert of(d5=7, d7=2) == (7, True)
    assert of(d5=0) == (0, True)
    assert of(d7=2, d3=8) == (0, False), "of five days nobody was asked"


def test_what_a_default_keeps_that_is_not_known_may_be_anything() -> None:
    catalog = {**KAFKA_CONFIGS, "retention.ms": replace(KAFKA_CONFIGS["retention.ms"], default=None)}

    def kept(**configs: str) -> RetentionRule:
        return RetentionRule.read({key.replace("_", "."): value for key, value in configs.items()}.get, catalog)

    full, day = Measure(9, 9, older={NOW - WEEK: 0, NOW - DAY: 0}), str(DAY)
    assert kept().unknown == {"retention.ms"}
    assert not compute_loss(kept(retention_ms=day), kept(), full, 1, NOW).is_known
    assert not compute_loss(kept(), kept(retention_ms=str(WEEK)), full, 1, NOW).is_known
    assert compute_loss(kept(retention_ms=day), kept(), Measure(0, 0), 1, NOW) == Loss()
    assert compute_loss(kept(), kept(), full, 1, NOW) == Loss()
    assert compute_loss(kept(), kept(retention_ms="-1"), full, 1, NOW) == Loss()
    assert compute_loss(kept(retention_ms=day), kept(cleanup_policy="compact"), Measure(9, 9), 1, NOW) == Loss(
        is_compacted=True
    )


def test_a_plan_asks_how_much_is_older_than_each_new_retention() -> None:
    row = {
        "desired": [{"topic": "a", "configs": {"retention.ms": "5d"}}, {"topic": "b"}],
        "recorded": [{"topic": "a", "configs": {"retention.ms": "30d"}}, {"topic": "c"}],
        "observed": [{"topic": "a", "configs": {"retention.ms": "30d"}}, {"topic": "c"}],
    }
    world = Case("lowered", row).world
    a, c = Address("topic/west/a"), Address("topic/west/c")
    assert list_topics_to_measure(world.draft()) == {a: (world.given.now_ms - 5 * DAY,), c: ()}


# Which clusters a link may lie between, as their identities say.


ROW = {"clusters": ["west", "east"], "has_links": True, "desired": [{"link": "l", "where": "east", "source": "west"}]}


def errors(west: ClusterIdentity, east: ClusterIdentity) -> tuple[PlanFinding, ...]:
    world = Case("linked", ROW).world
    recorded = {address: item for address, item in world.recorded.items() if not address.startswith("cluster/")}
    given = replace(world.given, identities={"west": west, "east": east})
    return replace(world, recorded=recorded, given=given).plan().errors


def test_two_names_of_one_cluster_are_not_linked() -> None:
    one = ClusterIdentity("embedded", "one")
    (error,) = errors(one, one)
    assert error.message == "west and east are one cluster (one): no link leads to itself"
    assert error.marks == (("link/east/l", ("spec", "source")),)


@pytest.mark.parametrize(("here", "there", "is_refused"), [("2", "1", True), ("2", "2", False), ("2", None, False)])
def test_clusters_of_two_formats_are_not_linked_where_that_can_be_told(
    here: str, there: str | None, *, is_refused: bool
) -> None:
    found = errors(ClusterIdentity("embedded", "a", there), ClusterIdentity("embedded", "b", here))
    assert [error.message.partition(":")[0] for error in found] == (
        ["east is of format 2 and west of 1"] if is_refused else []
    )
