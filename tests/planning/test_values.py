"""Values, fingerprints and limits: the small decisions everything else rests on."""

from __future__ import annotations

import pytest

from reconciler.planning.diff.converge import precondition
from reconciler.planning.diff.retention_loss import Keeping, loss
from reconciler.planning.fields import equal, fields_of
from reconciler.planning.plan_rows import canonical, fingerprint
from reconciler.planning.resolve.physical_names import physical_name
from reconciler.resources.address import Address
from reconciler.resources.cluster import Cluster
from reconciler.resources.configs import EMBEDDED_CONFIGS
from reconciler.resources.inventory import Observed
from reconciler.resources.measures import Measure
from tests.planning.short import resource


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
    assert equal(path, left, right, EMBEDDED_CONFIGS) is same  # type: ignore[arg-type]
    assert equal(path, right, left, EMBEDDED_CONFIGS) is same  # type: ignore[arg-type]


def test_canonical_json_does_not_depend_on_the_order_of_keys() -> None:
    assert canonical({"b": [1, {"d": None, "c": "é"}], "a": True}) == '{"a":true,"b":[1,{"c":"é","d":null}]}'.encode()
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})


def test_a_precondition_rests_on_the_fields_that_change_and_on_nothing_else() -> None:
    address = Address("topic/west/orders")

    def seen(incarnation: str = "one", **configs: str) -> str:
        before = Observed(resource({"topic": "orders", "configs": configs}), incarnation)
        return precondition(address, before, ["configs.segment.ms"])

    first = seen(**{"segment.ms": "1"})
    assert first == seen(**{"segment.ms": "1", "retention.ms": "9"})
    assert first != seen(**{"segment.ms": "2"})
    assert first != seen(incarnation="two", **{"segment.ms": "1"})
    assert first != seen()
    assert precondition(address, None, ["configs.segment.ms"]) == ""


def test_a_link_is_compared_without_its_mirrors() -> None:
    one = fields_of(resource({"link": "l", "where": "east", "source": "west", "mirrors": ["a"]}))
    assert one == fields_of(resource({"link": "l", "where": "east", "source": "west"}))
    assert one["source"] == "west"


@pytest.mark.parametrize(
    ("provider", "separator", "name"), [("embedded", ".", "a:b:t"), ("kafka", ".", "a.b.t"), ("kafka", "-", "a-b-t")]
)
def test_a_platform_without_tiers_has_flat_names(provider: str, separator: str, name: str) -> None:
    spec = {"provider": provider, "embedded": {"root": "memory://x"}}
    if provider == "kafka":
        spec = {"provider": provider, "kafka": {"bootstrapServers": ["a:1"], "namespaceSeparator": separator}}
    cluster = Cluster.model_validate({"metadata": {"name": "west"}, "spec": spec})
    assert physical_name(cluster, "a:b:t") == name


WEEK, DAY, NOW = 604_800_000, 86_400_000, 10**12


def keeping(**configs: str) -> Keeping:
    return Keeping.read({key.replace("_", "."): value for key, value in configs.items()}.get, EMBEDDED_CONFIGS)


def test_what_is_not_set_is_kept_as_the_platform_does() -> None:
    assert keeping() == Keeping(WEEK, float("inf"), deletes=True)
    assert keeping(retention_ms="-1").ms == float("inf")
    assert keeping(retention_bytes="x").bytes == float("inf")
    assert not keeping(cleanup_policy="compact").deletes


def test_records_without_known_ages_may_all_expire() -> None:
    found = loss(keeping(), keeping(retention_ms=str(DAY)), Measure(9, 9), 1, NOW)
    assert not found.is_known
    aged = loss(keeping(), keeping(retention_ms=str(DAY)), Measure(9, 9, ages=((NOW - 2 * DAY, 4), (NOW, 5))), 1, NOW)
    assert (aged.bytes, aged.is_known) == (4, True)
    assert (found + aged).is_known is False
    assert (found + aged).bytes == 4
