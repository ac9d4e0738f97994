"""A tiering policy in the config words of its cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.resources.capabilities import Capabilities
    from reconciler.resources.tieringpolicy import TieringPolicySpec

REMOTE_WRITE: Final = "remote.write"

NEEDS_TIERING: Final = frozenset(
    {
        "remote.write",
        "remote.read",
        "remote.delete",
        "remote.storage.enable",
        "remote.copy.disable",
        "remote.log.delete.on.disable",
        "remote.log.disable.policy",
        "local.retention.ms",
        "local.retention.bytes",
        "local.retention.strict",
        "initial.local.retention.ms",
        "initial.local.retention.bytes",
    }
)
"""Configs that say nothing on a cluster without tiered storage."""


def compile_policy(policy: TieringPolicySpec, capabilities: Capabilities) -> dict[str, str]:
    """Return the configs a policy stands for; what it leaves open is absent.

    What is switched off needs no words where a cluster has no tiering; everything else keeps its words, so that the
    check of configs refuses what the cluster cannot do.
    """
    words = dict(_words(policy))
    if capabilities.tiering:
        return words
    return {key: value for key, value in words.items() if not (key in NEEDS_TIERING and _is_off(key, value))}


def is_harmless(key: str, value: str, default: str | None) -> bool:
    """Tell whether a tiering config asks for nothing that a cluster without tiering lacks."""
    return value == default or _is_off(key, value)


def _is_off(key: str, value: str) -> bool:
    return value == "false" or key == "remote.log.disable.policy"


def _words(policy: TieringPolicySpec) -> Iterator[tuple[str, str]]:
    for key, flag in (
        (REMOTE_WRITE, policy.remote_write),
        ("remote.read", policy.remote_read),
        ("remote.delete", policy.remote_delete),
        ("local.retention.strict", policy.local_retention.strict if policy.local_retention else None),
    ):
        if flag is not None:
            yield key, "true" if flag else "false"
    for prefix, limits in (
        ("retention", policy.retention),
        ("local.retention", policy.local_retention),
        ("initial.local.retention", policy.initial_local_retention),
    ):
        if limits is not None and limits.time is not None:
            yield f"{prefix}.ms", str(limits.time)
        if limits is not None and limits.bytes is not None:
            yield f"{prefix}.bytes", str(limits.bytes)
    if policy.segment_bytes is not None:
        yield "segment.bytes", str(policy.segment_bytes)
    yield "remote.log.disable.policy", policy.on_disable
