"""What a topic's configs make of tiering: whether it writes and reads remotely, and how much it keeps where. Pure.

The tables are Redpanda's; Kafka's words of KIP-405 and KIP-950 mean the same where Redpanda's are not set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

Configs: TypeAlias = Mapping[str, tuple[str, str]]
"""Config key → (value, where it comes from); a value of the origin `cluster` is a default of the cluster."""

CLUSTER: Final = "cluster"
RETAIN: Final = "retain"
"""The policy of a disabling that deletes nothing (KIP-950)."""
SWITCHES: Final = frozenset(
    {
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.log.disable.policy",
        "remote.read",
        "remote.storage.enable",
        "remote.write",
    }
)
"""The configs that switch the tiering of a topic on and off."""
_HIDDEN_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "remote.storage.enable": ("remote.write", "remote.read"),
    "remote.log.copy.disable": ("remote.write",),
    "local.retention.ms": ("retention.local.target.ms",),
    "local.retention.bytes": ("retention.local.target.bytes",),
    "remote.log.delete.on.disable": ("remote.log.disable.policy",),
}
"""Kafka's word → Redpanda's words that say the same, and go before it where one tier says both."""
_DEFAULT: Final = "nothing says otherwise: the default"
_TOTAL_MS: Final = 7 * 24 * 60 * 60 * 1000
_LOCAL_MS: Final = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class Switches:
    """Whether a topic uploads to and fetches from the remote tier, each judged by itself."""

    write: bool
    read: bool

    @property
    def is_off(self) -> bool:
        """Tell whether the topic is not tiered at all: switching both off is what KIP-950 calls disabling."""
        return not (self.write or self.read)


@dataclass(frozen=True, slots=True)
class Targets:
    """How much a tiered topic keeps, each partition for itself; `None`: no limit. Times in ms.

    `rules` says of each number by which rule it came about.
    """

    total_ms: int | None
    total_bytes: int | None
    local_ms: int | None
    local_bytes: int | None
    is_strict: bool
    rules: Mapping[str, str] = field(default_factory=dict, compare=False)


def lay_over(found: dict[str, tuple[str, str]], configs: Mapping[str, str], origin: str) -> None:
    """Lay the configs of a nearer tier over those found so far: the nearest wins, in whichever words it says it."""
    for word in _HIDDEN_BY.keys() & configs.keys():
        if word != "remote.log.copy.disable" or configs[word] == "true":
            for hidden in _HIDDEN_BY[word]:
                found.pop(hidden, None)
    for key, value in configs.items():
        found[key] = value, origin


def switches_in(configs: Configs) -> Switches:
    """Return what holds: the topic's own word, else what its tiers or the cluster's defaults at creation say."""
    is_stored = _is_true(configs, "remote.storage.enable")
    write = _boolean(configs, "remote.write")
    read = _boolean(configs, "remote.read")
    return Switches(
        is_stored and not _is_true(configs, "remote.log.copy.disable") if write is None else write,
        is_stored if read is None else read,
    )


def switch_rules_in(configs: Configs) -> Mapping[str, str]:
    """Return by which rule each of `switches_in` came about."""
    stored = _said_or_default("remote.storage.enable", configs)
    is_copying_off = _is_true(configs, "remote.storage.enable") and _is_true(configs, "remote.log.copy.disable")
    write = _said_or_default("remote.log.copy.disable", configs) if is_copying_off else stored
    return {
        "remote.write": _said("remote.write", configs) if "remote.write" in configs else write,
        "remote.read": _said("remote.read", configs) if "remote.read" in configs else stored,
    }


def disable_policy_in(configs: Configs) -> str:
    """Return what switching off does to remote data: `retain`, unless `delete` is asked for (F-K-052)."""
    found = configs.get("remote.log.disable.policy")
    if found is not None:
        return found[0]
    return "delete" if _is_true(configs, "remote.log.delete.on.disable") else RETAIN


def targets_in(configs: Configs) -> Targets:
    """Return the total and local limits of a tiered topic (F-R-026, F-R-027, F-R-028)."""
    rules: dict[str, str] = {}
    total_ms = _limit(configs, "retention.ms", _TOTAL_MS, rules)
    total_bytes = _limit(configs, "retention.bytes", None, rules)
    local_ms = _local(configs, ("retention.local.target.ms", "local.retention.ms"), total_ms, _LOCAL_MS, rules)
    local_bytes = _local(configs, ("retention.local.target.bytes", "local.retention.bytes"), total_bytes, None, rules)
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
    rules["retention.local.strict"] = _said("retention.local.strict", configs)
    return Targets(total_ms, total_bytes, local_ms, local_bytes, strict, rules)


def _limit(configs: Configs, key: str, default: int | None, rules: dict[str, str]) -> int | None:
    rules[key] = _said(key, configs)
    if key not in configs:
        return default
    value = int(configs[key][0])
    return value if value >= 0 else None


def _local(
    configs: Configs, keys: tuple[str, str], total: int | None, default: int | None, rules: dict[str, str]
) -> int | None:
    key = next((key for key in keys if key in configs), None)
    if key is None:
        rules[keys[0]] = _DEFAULT
        return default
    rule = f"{key}, {_said(key, configs)}" if key != keys[0] else _said(key, configs)
    value = int(configs[key][0])
    rules[keys[0]] = f"{rule}: as much as in total" if value < 0 else rule
    return total if value < 0 else value


def _said(key: str, configs: Configs) -> str:
    if key not in configs:
        return _DEFAULT
    origin = configs[key][1]
    if origin != CLUSTER:
        return f"set by {origin}"
    return "the cluster's default when it was made" if key in SWITCHES else "the cluster's default"


def _said_or_default(key: str, configs: Configs) -> str:
    return f"{key}, {_said(key, configs)}" if key in configs else _DEFAULT


def _is_above(local: int | None, total: int | None) -> bool:
    return total is not None and (local is None or local > total)


def _is_own(configs: Configs, key: str) -> bool:
    return key in configs and configs[key][1] != CLUSTER and int(configs[key][0]) >= 0


def _boolean(configs: Configs, key: str) -> bool | None:
    return configs[key][0] == "true" if key in configs else None


def _is_true(configs: Configs, key: str) -> bool:
    return _boolean(configs, key) or False
