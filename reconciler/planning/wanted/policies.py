"""A tiering policy in the config words of its cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.resources.kip405 import OFF, policy_words
from reconciler.resources.tieringconfigs import POLICY_KEYS, TIERING_CONFIGS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.resources.capabilities import Capabilities
    from reconciler.resources.tieringpolicy import TieringPolicySpec

REMOTE_WRITE: Final = "remote.write"
RECOVERY: Final = "remote.recovery"

NEEDS_TIERING: Final = frozenset(
    {
        *TIERING_CONFIGS,
        "local.retention.bytes",
        "local.retention.ms",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        OFF,
    }
)
"""Configs that say nothing on a cluster without tiered storage."""


def compile_policy(policy: TieringPolicySpec, capabilities: Capabilities) -> dict[str, str]:
    """Return the configs a policy stands for; what it leaves open is absent.

    What is switched off needs no words where a cluster has no tiering; everything else keeps its words, so that the
    check of configs refuses what the cluster cannot do.
    """
    words = dict(_words(policy) if capabilities.tiering_words == "directions" else policy_words(policy))
    if capabilities.tiering:
        return words
    return {key: value for key, value in words.items() if not (key in NEEDS_TIERING and _is_off(key, value))}


def is_harmless(key: str, value: str, default: str | None) -> bool:
    """Tell whether a tiering config asks for nothing that a cluster without tiering lacks."""
    return value == default or _is_off(key, value)


def _is_off(key: str, value: str) -> bool:
    return value == "false" or key in {"remote.log.disable.policy", OFF}


def _words(policy: TieringPolicySpec) -> Iterator[tuple[str, str]]:
    for field, (word, *_others) in POLICY_KEYS.items():
        value: object = policy
        for part in field.split("."):
            value = getattr(value, part) if value is not None else None
        if value is not None:
            yield word, str(value).lower() if isinstance(value, bool) else str(value)
