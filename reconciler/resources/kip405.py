"""Tiered storage in Kafka's own words (KIP-405, KIP-950): what a policy says in them, and what cannot be. Pure.

One switch, `remote.storage.enable`, tiers a topic; its remote records are read wherever it is on. Switched off it
deletes them, and only when it is told to; to keep them, only copying is switched off (KIP-950, Kafka 3.9).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from reconciler.resources.configs import show_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from reconciler.resources.tieringpolicy import TieringPolicySpec

ENABLE: Final = "remote.storage.enable"
COPY_DISABLE: Final = "remote.log.copy.disable"
DELETE_ON_DISABLE: Final = "remote.log.delete.on.disable"
TOTALS: Final[Mapping[str, str]] = {
    "local.retention.ms": "retention.ms",
    "local.retention.bytes": "retention.bytes",
}
"""Local limit → the total it must fit in."""
LAGS: Final[Mapping[str, str]] = {
    "remote.copy.lag.ms": "local.retention.ms",
    "remote.copy.lag.bytes": "local.retention.bytes",
}
"""KIP-1241: how long a record is kept back from the remote tier → the local limit it must be within."""
AS_TOTAL: Final = "-2"
OFF: Final = "tiering off"
"""What a policy that switches tiering off says of each topic below it, until it is known whether that is tiered: the
name of no config. Its value is `retain` or `delete`."""

Layer: TypeAlias = dict[str, tuple[str, str]]
"""Config → (value, the address it comes from)."""

RULED: Final = frozenset({ENABLE, COPY_DISABLE, DELETE_ON_DISABLE, *TOTALS, *LAGS})
"""The configs that say nothing without the switch, or that it needs."""


def policy_words(policy: TieringPolicySpec) -> dict[str, str]:
    """Return the configs a policy stands for; what it leaves open is absent, and so is what `unsayable` names."""
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


def unsayable(policy: TieringPolicySpec) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield what of a policy Kafka has no words for: the way to the field, and why."""
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


def laid_over(above: Layer, own: Layer) -> Layer:
    """Lay a nearer tier over what is above it: whoever says how tiering is switched says all of it."""
    if OFF in own:
        above = {key: held for key, held in above.items() if key not in {ENABLE, COPY_DISABLE, DELETE_ON_DISABLE}}
    elif own.keys() & {ENABLE, COPY_DISABLE}:
        above = {key: held for key, held in above.items() if key != OFF}
    return {**above, **own}


def of_topic(layer: Layer, topic: str, seen: Mapping[str, str], *, can_untier: bool = True) -> Layer:
    """Return a layer with what its policy means for one topic, which has the configs `seen` now.

    Switched on, copying is on again where it was switched off. Switched off, a topic that never was tiered needs no
    words: `retain` would switch its tiering on.
    """
    if OFF not in layer:
        value, origin = layer.get(ENABLE, ("", ""))
        is_on = value == "true" and origin.startswith("policy/") and COPY_DISABLE in seen
        return {COPY_DISABLE: ("false", origin), **layer} if is_on else layer
    policy, origin = layer[OFF]
    is_tiered, was_switched = seen.get(ENABLE) == "true", ENABLE in seen
    found = {key: held for key, held in layer.items() if key != OFF and not (key in TOTALS and held[1] == origin)}
    words: dict[str, str] = {}
    if not can_untier:
        words = {ENABLE: "false"} if was_switched else {}  # before KIP-950, and refused where it is on
    elif policy == "delete" and was_switched:
        words = {ENABLE: "false", DELETE_ON_DISABLE: "true"}
    elif is_tiered:
        words = {ENABLE: "true", COPY_DISABLE: "true", **dict.fromkeys(TOTALS, AS_TOTAL)}
    elif was_switched:
        words = {ENABLE: "false"}
    nearer = {key for key, held in found.items() if key in TOTALS and held[1] == topic}
    return {**found, **{key: (value, origin) for key, value in words.items() if key not in nearer}}


def broken(configs: Mapping[str, str]) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yield what brokers refuse of a tiered topic's effective configs: the keys, why, and what to do (V2 to V5, V10).

    Without the switch none of it is looked at, by them or here.
    """
    if configs.get(ENABLE) != "true":
        return
    if "compact" in configs.get("cleanup.policy", "delete").split(","):
        yield (
            (ENABLE, "cleanup.policy"),
            "a topic that is compacted cannot be tiered",
            "Set cleanup.policy: delete, or do not tier it.",
        )
    for local, total in TOTALS.items():
        yield from _local(local, total, configs)
    for lag, local in LAGS.items():
        yield from _lag(lag, local, configs)


def _local(local: str, total: str, configs: Mapping[str, str]) -> Iterator[tuple[tuple[str, ...], str, str]]:
    here, whole = int(configs.get(local, AS_TOTAL)), int(configs.get(total, "-1"))
    shown = f"{local} is {show_value(local, str(here))} and {total} {show_value(total, str(whole))}"
    is_same = here in {int(AS_TOTAL), whole}
    if configs.get(COPY_DISABLE) == "true" and not is_same:
        why = f"{shown}: while copying is off ({COPY_DISABLE}) both are one limit"
        yield (COPY_DISABLE, local, total), why, f"Set {local}: total, or leave it out."
    elif whole >= 0 and (here == -1 or here > whole):
        why = f"{shown}: nothing stays local that is not kept at all"
        yield (local, total), why, f"Lower {local}, set it to total, or raise {total}."


def _lag(lag: str, local: str, configs: Mapping[str, str]) -> Iterator[tuple[tuple[str, ...], str, str]]:
    kept = int(configs.get(lag, "0"))
    limit = int(configs.get(local, AS_TOTAL))
    limit = int(configs.get(TOTALS[local], "-1")) if limit == int(AS_TOTAL) else limit
    if kept > limit >= 0:
        shown = f"{lag} is {show_value(lag, str(kept))}, above {local} of {show_value(local, str(limit))}"
        yield (lag, local), f"{shown}: it would expire before it is copied", f"Lower {lag}, or raise {local}."


def without_effect(configs: Mapping[str, str]) -> tuple[str, ...]:
    """Return the configs of a topic that is not tiered that brokers take, and do nothing with."""
    if configs.get(ENABLE) == "true":
        return ()
    idle = {COPY_DISABLE: "false", **dict.fromkeys(TOTALS, AS_TOTAL), **dict.fromkeys(LAGS, "0")}
    return tuple(key for key, nothing in sorted(idle.items()) if configs.get(key, nothing) != nothing)
