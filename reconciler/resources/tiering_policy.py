"""The TieringPolicy kind, and the meaning of tiered storage configs on each platform (KIP-405)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from reconciler.resources.acls import fold_case
from reconciler.resources.address import Address
from reconciler.resources.base import DurationMs, Flag, Model, NameOnly, SizeBytes
from reconciler.resources.configs import STORAGE_MODE, format_value
from reconciler.runtime.dataclass import dataclass, field


class RetentionSpec(Model):
    """Limits by time and by size. Both apply; sizes are bytes per partition."""

    time: DurationMs | None = Field(default=None, description="How long records are kept.", examples=["30d"])
    bytes: SizeBytes | None = Field(default=None, description="How many bytes per partition.", examples=["500GiB"])


class LocalRetentionSpec(RetentionSpec):
    """Retention on local disk."""

    strict: Flag | None = Field(
        default=None, description="Expire by these targets at once, not only when space is needed.", examples=[False]
    )


class TieringPolicySpec(Model):
    """Settings of a policy. The platform decides absent settings."""

    remote_write: Flag | None = Field(default=None, description="Upload to object storage.", examples=[True])
    remote_read: Flag | None = Field(default=None, description="Read from object storage.", examples=[True])
    remote_delete: Flag | None = Field(
        default=None,
        description="Deleting the topic deletes its objects, where write and read are both on.",
        examples=[True],
    )
    retention: RetentionSpec | None = Field(
        default=None, description="In total, on object storage.", examples=[{"time": "30d", "bytes": "500GiB"}]
    )
    local_retention: LocalRetentionSpec | None = Field(
        default=None, description="What stays on local disk.", examples=[{"time": "6h", "bytes": "10GiB"}]
    )
    initial_local_retention: RetentionSpec | None = Field(
        default=None, description="What a moved or recovered replica fetches at first.", examples=[{"time": "1h"}]
    )
    on_disable: Annotated[Literal["retain", "delete"], BeforeValidator(fold_case)] = Field(
        default="retain",
        description="What switching remoteWrite and remoteRead off together does to remote data (KIP-950).",
        examples=["retain"],
    )
    segment_bytes: SizeBytes | None = Field(
        default=None, description="Size at which a segment closes and can be uploaded.", examples=["128MiB"]
    )


class TieringPolicy(Model):
    """Tiered storage and retention of topics."""

    api_version: Literal["reconciler/v1"] = Field(default="reconciler/v1", description="Form of this document.")
    kind: Literal["TieringPolicy"] = Field(default="TieringPolicy", description="What this document declares.")
    metadata: NameOnly = Field(description="Its name.")
    spec: TieringPolicySpec = Field(description="Its settings; the platform decides what is absent.")

    @property
    def address(self) -> Address:
        """Address such as `policy/short-local`."""
        return Address(f"policy/{self.metadata.name}")

    @property
    def cluster(self) -> None:
        """`None`, because a policy belongs to no cluster."""
        return


# Rules of Redpanda. Kafka's configs (KIP-405, KIP-950) apply if Redpanda's are not set.


Configs: TypeAlias = Mapping[str, tuple[str, str]]
"""(value, origin) by config. Cluster defaults have the origin `cluster`."""

CLUSTER: Final = "cluster"
RETAIN: Final = "retain"
SWITCHES: Final = frozenset(
    {
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.log.disable.policy",
        "remote.read",
        "remote.storage.enable",
        "remote.write",
        STORAGE_MODE,
    }
)
_HIDDEN_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "remote.storage.enable": ("remote.write", "remote.read"),
    "remote.log.copy.disable": ("remote.write",),
    "local.retention.ms": ("retention.local.target.ms",),
    "local.retention.bytes": ("retention.local.target.bytes",),
    "remote.log.delete.on.disable": ("remote.log.disable.policy",),
}
_DEFAULT: Final = "not set: the default"
_TOTAL_MS: Final = 7 * 24 * 60 * 60 * 1000
_LOCAL_MS: Final = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class Switches:
    """Whether a topic uploads to, and fetches from, object storage."""

    write: bool
    read: bool

    @property
    def is_off(self) -> bool:
        """Return whether upload and fetch are off."""
        return not (self.write or self.read)


@dataclass(frozen=True, slots=True)
class Targets:
    """Retention of a tiered topic per partition, in ms and bytes; `None` means no limit.

    `rules` explains each value.
    """

    total_ms: int | None
    total_bytes: int | None
    local_ms: int | None
    local_bytes: int | None
    is_strict: bool
    rules: Mapping[str, str] = field(default_factory=dict, compare=False)


def apply_layer(effective: dict[str, tuple[str, str]], configs: Mapping[str, str], origin: str) -> None:
    """Apply the configs of a lower level, which override the `effective` configs and their synonyms."""
    for word in _HIDDEN_BY.keys() & configs.keys():
        if word != "remote.log.copy.disable" or configs[word] == "true":
            for hidden in _HIDDEN_BY[word]:
                effective.pop(hidden, None)
    for key, value in configs.items():
        effective[key] = value, origin


def read_switches(configs: Configs) -> Switches:
    """Return the effective upload and fetch switches. A set storage mode decides both (F-R-211)."""
    if _has_mode(configs):
        is_tiered = configs[STORAGE_MODE][0] == "tiered"
        return Switches(write=is_tiered, read=is_tiered)
    is_stored = _is_true(configs, "remote.storage.enable")
    write = _read_boolean(configs, "remote.write")
    read = _read_boolean(configs, "remote.read")
    return Switches(
        is_stored and not _is_true(configs, "remote.log.copy.disable") if write is None else write,
        is_stored if read is None else read,
    )


def _has_mode(configs: Configs) -> bool:
    return configs.get(STORAGE_MODE, ("unset", CLUSTER))[0] != "unset"


def explain_switches(configs: Configs) -> Mapping[str, str]:
    """Return the rule that decides each switch of `read_switches`."""
    if _has_mode(configs):
        return dict.fromkeys(("remote.write", "remote.read"), _explain_by_key(STORAGE_MODE, configs))
    stored = _explain_by_key("remote.storage.enable", configs)
    is_copying_off = _is_true(configs, "remote.storage.enable") and _is_true(configs, "remote.log.copy.disable")
    write = _explain_by_key("remote.log.copy.disable", configs) if is_copying_off else stored
    return {
        "remote.write": _explain_limit("remote.write", configs) if "remote.write" in configs else write,
        "remote.read": _explain_limit("remote.read", configs) if "remote.read" in configs else stored,
    }


def read_disable_policy(configs: Configs) -> str:
    """Return what disabling does with remote data: `retain`, unless `delete` is set (F-K-052)."""
    policy = configs.get("remote.log.disable.policy")
    if policy is not None:
        return policy[0]
    return "delete" if _is_true(configs, "remote.log.delete.on.disable") else RETAIN


def read_targets(configs: Configs) -> Targets:
    """Return the total and local limits of a tiered topic (F-R-026, F-R-027, F-R-028)."""
    rules: dict[str, str] = {}
    total_ms = _read_limit(configs, "retention.ms", _TOTAL_MS, rules)
    total_bytes = _read_limit(configs, "retention.bytes", None, rules)
    local_ms = _read_local_target(
        configs, ("retention.local.target.ms", "local.retention.ms"), total_ms, _LOCAL_MS, rules
    )
    local_bytes = _read_local_target(
        configs, ("retention.local.target.bytes", "local.retention.bytes"), total_bytes, None, rules
    )
    if _is_above(local_ms, total_ms):
        if _is_own(configs, "retention.local.target.ms") or _is_own(configs, "local.retention.ms"):
            total_ms = local_ms
            rules["retention.ms"] = "raised to the local target: nothing local is kept longer than in total"
        else:
            local_ms = total_ms
            rules["retention.local.target.ms"] = "capped at the total: nothing local is kept longer than in total"
    if _is_above(local_bytes, total_bytes):
        local_bytes = total_bytes
        rules["retention.local.target.bytes"] = "capped at the total: no more is local than in total"
    strict = _is_true(configs, "retention.local.strict")
    rules["retention.local.strict"] = _explain_limit("retention.local.strict", configs)
    return Targets(total_ms, total_bytes, local_ms, local_bytes, strict, rules)


def _read_limit(configs: Configs, key: str, default: int | None, rules: dict[str, str]) -> int | None:
    rules[key] = _explain_limit(key, configs)
    if key not in configs:
        return default
    value = int(configs[key][0])
    return value if value >= 0 else None


def _read_local_target(
    configs: Configs, keys: tuple[str, str], total: int | None, default: int | None, rules: dict[str, str]
) -> int | None:
    key = next((key for key in keys if key in configs), None)
    if key is None:
        rules[keys[0]] = _DEFAULT
        return default
    rule = f"{key}, {_explain_limit(key, configs)}" if key != keys[0] else _explain_limit(key, configs)
    value = int(configs[key][0])
    rules[keys[0]] = f"{rule}: as much as in total" if value < 0 else rule
    return total if value < 0 else value


def _explain_limit(key: str, configs: Configs) -> str:
    if key not in configs:
        return _DEFAULT
    origin = configs[key][1]
    if origin != CLUSTER:
        return f"set by {origin}"
    return "the cluster's default when it was made" if key in SWITCHES else "the cluster's default"


def _explain_by_key(key: str, configs: Configs) -> str:
    return f"{key}, {_explain_limit(key, configs)}" if key in configs else _DEFAULT


def _is_above(local: int | None, total: int | None) -> bool:
    return total is not None and (local is None or local > total)


def _is_own(configs: Configs, key: str) -> bool:
    return key in configs and configs[key][1] != CLUSTER and int(configs[key][0]) >= 0


def _read_boolean(configs: Configs, key: str) -> bool | None:
    return configs[key][0] == "true" if key in configs else None


def _is_true(configs: Configs, key: str) -> bool:
    return _read_boolean(configs, key) or False


# In Kafka, `remote.storage.enable` tiers a topic and makes remote records readable. Disabling
# it may delete remote records. Disabling only copying keeps them (KIP-950, Kafka 3.9).


ENABLE: Final = "remote.storage.enable"
COPY_DISABLE: Final = "remote.log.copy.disable"
DELETE_ON_DISABLE: Final = "remote.log.delete.on.disable"
TOTALS: Final[Mapping[str, str]] = {"local.retention.ms": "retention.ms", "local.retention.bytes": "retention.bytes"}
"""Total limit by the local limit that it bounds."""
LAGS: Final[Mapping[str, str]] = {
    "remote.copy.lag.ms": "local.retention.ms",
    "remote.copy.lag.bytes": "local.retention.bytes",
}
"""Local limit by the upload delay that it bounds (KIP-1241)."""
AS_TOTAL: Final = "-2"
OFF: Final = "tiering off"
"""Placeholder config `retain` or `delete` of a policy that disables tiered storage; a topic's current tiering decides.
"""

ConfigLayer: TypeAlias = dict[str, tuple[str, str]]
"""(value, address of its origin) by config."""

RULED: Final = frozenset({ENABLE, COPY_DISABLE, DELETE_ON_DISABLE, *TOTALS, *LAGS})
"""Configs that depend on `remote.storage.enable`."""


def to_policy_configs(policy: TieringPolicySpec) -> dict[str, str]:
    """Return a policy's configs, without settings that Kafka cannot express."""
    words: dict[str, str] = {}
    if policy.remote_write:
        words = {ENABLE: "true"}
    elif policy.remote_write is False:
        words = {OFF: "retain" if policy.remote_read else policy.on_disable}
    limits = {
        "retention.ms": policy.retention and policy.retention.time,
        "retention.bytes": policy.retention and policy.retention.bytes,
        "local.retention.ms": policy.local_retention and policy.local_retention.time,
        "local.retention.bytes": policy.local_retention and policy.local_retention.bytes,
        "segment.bytes": policy.segment_bytes,
    }
    return {**words, **{key: str(limit) for key, limit in limits.items() if limit is not None}}


def find_inexpressible(policy: TieringPolicySpec) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the settings that Kafka cannot express: path of the field, and reason."""
    if policy.remote_write and policy.remote_read is False:
        yield ("remoteRead",), "remoteRead: false with remoteWrite: true: what is uploaded can be read there"
    elif policy.remote_write is None and policy.remote_read is not None:
        yield ("remoteRead",), "remoteRead by itself: one switch is for both, and remoteWrite is to say how it stands"
    if policy.remote_delete is False:
        yield ("remoteDelete",), "remoteDelete: false: deleting a topic deletes what it has in object storage"
    if policy.initial_local_retention is not None:
        yield ("initialLocalRetention",), "initialLocalRetention: a replica there fetches what localRetention says"
    if policy.local_retention is not None and policy.local_retention.strict is False:
        yield ("localRetention", "strict"), "localRetention.strict: false: local limits hold at once there"


def merge_layers(above: ConfigLayer, own: ConfigLayer) -> ConfigLayer:
    """Return the configs of a level merged into those above. A tiering switch replaces all switch configs above."""
    if OFF in own:
        above = {key: held for key, held in above.items() if key not in {ENABLE, COPY_DISABLE, DELETE_ON_DISABLE}}
    elif own.keys() & {ENABLE, COPY_DISABLE}:
        above = {key: held for key, held in above.items() if key != OFF}
    return {**above, **own}


def resolve_policy(layer: ConfigLayer, topic: str, seen: Mapping[str, str], *, can_untier: bool = True) -> ConfigLayer:
    """Replace the placeholder `OFF` by configs for one topic, whose current configs are `seen`.

    A topic never tiered needs none; `retain` would enable its tiered storage.
    """
    if OFF not in layer:
        value, origin = layer.get(ENABLE, ("", ""))
        is_on = value == "true" and origin.startswith("policy/") and COPY_DISABLE in seen
        return {COPY_DISABLE: ("false", origin), **layer} if is_on else layer
    policy, origin = layer[OFF]
    is_tiered, was_switched = seen.get(ENABLE) == "true", ENABLE in seen
    remaining = {key: held for key, held in layer.items() if key != OFF and not (key in TOTALS and held[1] == origin)}
    words: dict[str, str] = {}
    if not can_untier:
        words = {ENABLE: "false"} if was_switched else {}  # Before KIP-950, brokers reject this on a tiered topic.
    elif policy == "delete" and was_switched:
        words = {ENABLE: "false", DELETE_ON_DISABLE: "true"}
    elif is_tiered:
        words = {ENABLE: "true", COPY_DISABLE: "true", **dict.fromkeys(TOTALS, AS_TOTAL)}
    elif was_switched:
        words = {ENABLE: "false"}
    nearer = {key for key, held in remaining.items() if key in TOTALS and held[1] == topic}
    return {**remaining, **{key: (value, origin) for key, value in words.items() if key not in nearer}}


def find_refused_configs(configs: Mapping[str, str]) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yield effective configs that brokers reject on a tiered topic: keys, reason, remedy."""
    if configs.get(ENABLE) != "true":
        return
    if "compact" in configs.get("cleanup.policy", "delete").split(","):
        yield (
            (ENABLE, "cleanup.policy"),
            "a topic that is compacted cannot be tiered",
            "Set cleanup.policy: delete, or do not tier it.",
        )
    for local, total in TOTALS.items():
        yield from _check_local_limit(local, total, configs)
    for lag, local in LAGS.items():
        yield from _check_lag(lag, local, configs)


def _check_local_limit(
    local: str, total: str, configs: Mapping[str, str]
) -> Iterator[tuple[tuple[str, ...], str, str]]:
    local_limit, whole = int(configs.get(local, AS_TOTAL)), int(configs.get(total, "-1"))
    shown = f"{local} is {format_value(local, str(local_limit))} and {total} {format_value(total, str(whole))}"
    is_same = local_limit in {int(AS_TOTAL), whole}
    if configs.get(COPY_DISABLE) == "true" and not is_same:
        why = f"{shown}: while copying is off ({COPY_DISABLE}) both are one limit"
        yield (COPY_DISABLE, local, total), why, f"Set {local}: total, or leave it out."
    elif whole >= 0 and (local_limit == -1 or local_limit > whole):
        why = f"{shown}: nothing stays local that is not kept at all"
        yield (local, total), why, f"Lower {local}, set it to total, or raise {total}."


def _check_lag(lag: str, local: str, configs: Mapping[str, str]) -> Iterator[tuple[tuple[str, ...], str, str]]:
    copy_lag = int(configs.get(lag, "0"))
    limit = int(configs.get(local, AS_TOTAL))
    limit = int(configs.get(TOTALS[local], "-1")) if limit == int(AS_TOTAL) else limit
    if copy_lag > limit >= 0:
        shown = f"{lag} is {format_value(lag, str(copy_lag))}, above {local} of {format_value(local, str(limit))}"
        yield (lag, local), f"{shown}: it would expire before it is copied", f"Lower {lag}, or raise {local}."


def find_ineffective_configs(configs: Mapping[str, str]) -> tuple[str, ...]:
    """Return the configs that have no effect without tiered storage."""
    if configs.get(ENABLE) == "true":
        return ()
    idle = {COPY_DISABLE: "false", **dict.fromkeys(TOTALS, AS_TOTAL), **dict.fromkeys(LAGS, "0")}
    return tuple(key for key, nothing in sorted(idle.items()) if configs.get(key, nothing) != nothing)
