"""Configs that become a topic's own when it is mounted: nothing of it changes by what its new surroundings say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.resources.configs import EMBEDDED_CONFIGS
from reconciler.resources.tierrules import (
    CLUSTER,
    Configs,
    Targets,
    disable_policy_in,
    lay_over,
    switches_in,
    targets_in,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.resources.configkeys import ConfigKey

_ONLY_AT_CREATION: Final = "remote.recovery"
_NO_LIMIT: Final = "-1"
_NO_LIMIT_UNLESS_SAID: Final = frozenset({"initial.retention.local.target.bytes", "initial.retention.local.target.ms"})
_UNLIKE_UNSAID: Final = frozenset({"local.retention.bytes", "local.retention.ms", "retention.local.target.ms"})
"""Where these are said other rules hold than where they are not, whatever they say."""


def pinned(
    around: Configs,
    own: Mapping[str, str],
    effective: Mapping[str, str],
    known: Mapping[str, ConfigKey] = EMBEDDED_CONFIGS,
) -> dict[str, str]:
    """Return the configs a topic has of its own, so that under those `around` it all that held for it holds.

    `own` are those it had, `effective` all that were set for it: what is missing there had its default, as
    `known`. What is the same here stays inherited. Of two words for one thing the nearest hides others: each round may
    ask for another.
    """
    kept = dict(own)
    while missing := {
        key: value for key, value in _missing(_laid(around, kept), effective, known) if kept.get(key) != value
    }:
        kept |= missing
    before = {key: (value, "topic") for key, value in effective.items()}
    while missing := _tiered(_laid(around, kept), before):
        kept |= missing
    return dict(sorted(kept.items()))


def _laid(around: Configs, own: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    found = dict(around)
    lay_over(found, own, "topic")
    return found


def _missing(now: Configs, effective: Mapping[str, str], known: Mapping[str, ConfigKey]) -> list[tuple[str, str]]:
    """Return what does not hold now, as it would be written down."""
    missing = []
    for key in sorted({*now, *effective} - {_ONLY_AT_CREATION}):
        default = _default(key, known)
        before, after = effective.get(key, default), now[key][0] if key in now else default
        if before is not None and before != after:
            missing.append((key, before))
    return missing


def _default(key: str, known: Mapping[str, ConfigKey]) -> str | None:
    if key in _NO_LIMIT_UNLESS_SAID:
        return _NO_LIMIT
    return known[key].default if key in known and key not in _UNLIKE_UNSAID else None


def _tiered(now: Configs, before: Configs) -> dict[str, str]:
    """Return what it takes that the tiering is as it was: not being set is no value that could be written down."""
    kept: dict[str, str] = {}
    if (switches := switches_in(before)) != switches_in(now):
        kept |= {"remote.write": str(switches.write).lower(), "remote.read": str(switches.read).lower()}
    if (policy := disable_policy_in(before)) != disable_policy_in(now):
        kept["remote.log.disable.policy"] = policy
    limits, now_limits = _limits(targets_in(before)), _limits(targets_in(now))
    changed = {key: _written(limit) for key, limit in limits.items() if limit != now_limits[key]}
    # A total that a local target raises comes with that.
    return kept | ({key: value for key, value in changed.items() if "local" in key} or changed)


def _limits(targets: Targets) -> dict[str, int | None]:
    return {
        "retention.ms": targets.total_ms,
        "retention.bytes": targets.total_bytes,
        "retention.local.target.ms": targets.local_ms,
        "retention.local.target.bytes": targets.local_bytes,
    }


def _written(value: int | None) -> str:
    return _NO_LIMIT if value is None else str(value)


def told(configs: Configs) -> dict[str, str]:
    """Return configs without where each comes from, as they are told to who mounts the topic.

    A local target of the cluster's is told as it holds, no longer than the total: as a topic's own it would raise that.
    """
    found = {key: value for key, (value, _) in configs.items()}
    key = "retention.local.target.ms"
    if key in configs and configs[key][1] == CLUSTER:
        local_ms = targets_in(configs).local_ms
        found[key] = configs[key][0] if local_ms is None else str(local_ms)
    return found
