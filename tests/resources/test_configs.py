from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.resources.configs import (
    EMBEDDED_CONFIGS,
    POLICY_KEYS,
    TIERING_CONFIGS,
    canonicalize_value,
    explain_refused_value,
    fit_value,
    format_value,
)
from reconciler.resources.kafka_configs import KAFKA_CONFIGS
from reconciler.resources.redpanda_configs import LONGEST_MS, redpanda_configs
from reconciler.resources.tiering_policy import TieringPolicySpec

WRITTEN = (
    st.text(max_size=12)
    | st.integers()
    | st.booleans()
    | st.floats()
    | st.lists(st.text(max_size=5) | st.integers(), max_size=3)
    | st.sampled_from(
        [
            "7d",
            "10GiB",
            "infinite",
            "unlimited",
            "total",
            str(2**63 - 1),
            "-2",
            "true",
            "FALSE",
            "compact,delete",
            "LZ4",
            "0.50",
            "1e-5",
            "default",
        ]
    )
)


@given(st.sampled_from([*EMBEDDED_CONFIGS, "some.other.key"]), WRITTEN)
def test_a_canonical_value_is_canonical(key: str, written: Any) -> None:
    try:
        stored = canonicalize_value(key, written)
    except ValueError as error:
        assert str(error)  # noqa: PT017 - refused is right, too, if it says why
        return
    assert canonicalize_value(key, stored) == stored


@given(st.sampled_from(sorted(EMBEDDED_CONFIGS)), WRITTEN)
def test_what_is_shown_to_people_reads_back_as_what_is_stored(key: str, written: Any) -> None:
    try:
        stored = canonicalize_value(key, written)
    except ValueError:
        return
    shown = format_value(key, stored)
    assert canonicalize_value(key, "" if shown == "''" else shown) == stored


@pytest.mark.parametrize("key", EMBEDDED_CONFIGS.values(), ids=lambda key: key.name)
def test_every_config_is_described_and_its_default_is_canonical(key: Any) -> None:
    assert key.description.endswith(".")
    assert key.default is None or canonicalize_value(key.name, key.default) == key.default


@pytest.mark.parametrize(
    ("key", "written", "stored"),
    [
        ("cleanup.policy", ["delete,compact"], "compact,delete"),
        ("leader.replication.throttled.replicas", [",", "1:2,0:1"], "0:1,1:2"),
        ("retention.ms", "7d", "604800000"),
        ("retention.ms", 604_800_000, "604800000"),
        ("retention.ms", "infinite", "-1"),
        ("retention.ms", "default", "default"),
        ("retention.bytes", "10GiB", "10737418240"),
        ("local.retention.ms", -2, "-2"),
        ("cleanup.policy", ["delete", "compact"], "compact,delete"),
        ("cleanup.policy", "Delete, compact,delete", "compact,delete"),
        ("cleanup.policy", [], ""),
        ("compression.type", "ZSTD", "zstd"),
        ("message.timestamp.type", "logappendtime", "LogAppendTime"),
        ("preallocate", True, "true"),
        ("preallocate", "FALSE", "false"),
        ("min.insync.replicas", "2", "2"),
        ("min.cleanable.dirty.ratio", 1, "1.0"),
        ("min.cleanable.dirty.ratio", "0.50", "0.5"),
        ("leader.replication.throttled.replicas", ["1:2", "0:1"], "0:1,1:2"),
        ("remote.write", "true", "true"),
        ("retention.local.target.ms", "6h", "21600000"),
        ("confluent.placement.constraints", "{}", "{}"),
        ("some.flag", True, "true"),
        ("some.list", ["b", "a"], "a,b"),
    ],
)
def test_what_people_write_becomes_the_string_platforms_store(key: str, written: Any, stored: str) -> None:
    assert canonicalize_value(key, written) == stored


@pytest.mark.parametrize(
    ("key", "written"),
    [
        ("retention.ms", "7 dayz"),
        ("retention.ms", -2),
        ("retention.ms", 2**63),
        ("retention.bytes", True),
        ("segment.bytes", "3GiB"),
        ("cleanup.policy", "burn"),
        ("compression.type", ["gzip"]),
        ("preallocate", 1),
        ("preallocate", "yes"),
        ("min.insync.replicas", 0),
        ("min.insync.replicas", 1.0),
        ("min.insync.replicas", "1_0"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", 1.5),
        ("remote.copy.lag.ms", "infinite"),
        ("remote.copy.lag.bytes", "unlimited"),
        ("compression.gzip.level", 0),
        ("compression.gzip.level", 10),
        ("some.key", None),
        ("some.key", {"a": 1}),
    ],
)
def test_a_value_that_is_none_of_its_type_is_refused(key: str, written: Any) -> None:
    with pytest.raises(ValueError, match=r"not|out of range|found a list"):
        canonicalize_value(key, written)


@pytest.mark.parametrize(
    ("key", "written", "said"),
    [
        ("segment.bytes", "0", "0 is out of range: at least 14"),
        ("retention.ms", "soon", "'soon' is not a duration such as 7d, 36h, 90s, 1500ms or infinite"),
        ("cleanup.policy", "burn", "'burn' is not one of compact, delete"),
    ],
)
def test_a_refused_value_is_named_once(key: str, written: str, said: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        canonicalize_value(key, written)
    assert explain_refused_value(written, caught.value) == said


@pytest.mark.parametrize(
    ("key", "stored", "shown"),
    [
        ("retention.ms", "604800000", "7d"),
        ("retention.ms", "-1", "infinite"),
        ("local.retention.ms", "-2", "total"),
        ("remote.copy.lag.ms", "-1", "-1"),
        ("remote.copy.lag.bytes", "-1", "-1"),
        ("remote.copy.lag.ms", "3600000", "1h"),
        ("flush.ms", str(2**63 - 1), "infinite"),
        ("flush.messages", str(2**63 - 1), "infinite"),
        ("retention.ms", str(2**63 - 1), str(2**63 - 1)),
        ("retention.bytes", "10737418240", "10GiB"),
        ("cleanup.policy", "", "''"),
        ("retention.ms", None, "unset"),
        ("retention.ms", "soon", "soon"),
        ("some.key", "x", "x"),
    ],
)
def test_stored_values_are_shown_with_their_units(key: str, stored: str | None, shown: str) -> None:
    assert format_value(key, stored) == shown


ENDLESS = str(2**63 - 1)


@pytest.mark.parametrize(
    ("key", "value", "on_kafka", "on_redpanda"),
    [
        ("max.compaction.lag.ms", ENDLESS, ENDLESS, str(LONGEST_MS)),
        ("max.compaction.lag.ms", "60000", "60000", "60000"),
        ("delete.retention.ms", "-1", None, "-1"),
        ("retention.ms", "-1", "-1", "-1"),
        ("cleanup.policy", "compact", "compact", "compact"),
    ],
)
def test_a_value_of_another_platform_is_fitted(
    key: str, value: str, on_kafka: str | None, on_redpanda: str | None
) -> None:
    redpanda = redpanda_configs((), (26, 1))
    assert fit_value(KAFKA_CONFIGS[key], value) == on_kafka
    assert fit_value(redpanda[key], value) == on_redpanda


def test_kafka_knows_the_names_of_its_documentation() -> None:
    assert {"remote.storage.enable", "remote.log.copy.disable", "remote.log.delete.on.disable"} <= KAFKA_CONFIGS.keys()
    assert {"local.retention.ms", "local.retention.bytes", "remote.copy.lag.ms"} <= KAFKA_CONFIGS.keys()
    assert not TIERING_CONFIGS.keys() & KAFKA_CONFIGS.keys()


def test_every_field_of_a_policy_has_its_words_and_every_word_is_known() -> None:
    fields: set[str] = set()
    for name, field in TieringPolicySpec.model_fields.items():
        inner = [part for part in getattr(field.annotation, "__args__", ()) if hasattr(part, "model_fields")]
        fields |= {f"{name}.{below}" for part in inner for below in part.model_fields} or {name}
    assert fields == POLICY_KEYS.keys()
    assert {key for keys in POLICY_KEYS.values() for key in keys} <= EMBEDDED_CONFIGS.keys()
