"""Topic configs on an embedded cluster: which there are, and what a topic inherits (KIP-37)."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from reconciler.errors import UserError
from reconciler.resources.address import split_name, tiers_of
from reconciler.resources.clusterproperties import CONFIG_DEFAULTS
from reconciler.resources.configs import DEFAULT, EMBEDDED_CONFIGS, canonical_value
from reconciler.resources.tierrules import CLUSTER, lay_over

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.embedded.catalog.tables import Catalog, Draft
    from reconciler.resources.configkeys import ConfigKey

CONFIGS: Final[Mapping[str, ConfigKey]] = EMBEDDED_CONFIGS
"""Every topic config an embedded cluster knows."""


@dataclass(frozen=True, slots=True)
class EffectiveConfig:
    """A value that holds for a topic.

    `origin` is `topic`, the namespace it is inherited from, `cluster` (its properties) or `default`.
    """

    value: str | None
    origin: str


def effective_configs(catalog: Catalog | Draft, full_name: str) -> dict[str, EffectiveConfig]:
    """Return every config of a topic: its own value, else the nearest tier's, else the default. Sorted by key."""
    effective = {key: EffectiveConfig(known.default, "default") for key, known in CONFIGS.items()}
    for key, (value, origin) in set_configs(catalog, full_name).items():
        effective[key] = EffectiveConfig(value, origin)
    return dict(sorted(effective.items()))


def set_configs(catalog: Catalog | Draft, full_name: str) -> dict[str, tuple[str, str]]:
    """Return what the topic, a tier above it or the cluster sets: key → (value, origin)."""
    namespace, _ = split_name(full_name)
    topic = catalog.topics.get(full_name)
    found = {
        CONFIG_DEFAULTS[name]: (value, CLUSTER)
        for name, value in catalog.cluster.properties.items()
        if name in CONFIG_DEFAULTS
    }
    if topic is not None:
        lay_over(found, topic.initial, CLUSTER)
    for tier in tiers_of(namespace):
        entry = catalog.namespaces.get(tier)
        if entry is not None:
            lay_over(found, entry.configs, tier)
    if topic is not None:
        lay_over(found, topic.configs, "topic")
    return found


def checked_configs(where: str, configs: Mapping[str, str]) -> dict[str, str]:
    """Return configs in canonical form, sorted; a value `default` means none.

    Raises:
        UserError: A key or a value cannot be.
    """
    checked = ((key, checked_value(where, key, configs[key])) for key in sorted(configs))
    return {key: value for key, value in checked if value is not None}


def changed_configs(where: str, before: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """Return `before` with some keys set and some (`None`) back to what they inherit."""
    merged: dict[str, str | None] = {**before, **changes}
    kept = {key: value for key, value in merged.items() if value is not None}
    return checked_configs(where, kept)


def checked_value(where: str, key: str, value: str) -> str | None:
    """Return a value in canonical form, `None` for `default`."""
    if key not in CONFIGS:
        near = get_close_matches(key, CONFIGS, n=1)
        hint = f"Did you mean {near[0]}?" if near else "Correct its name: configs have Kafka's names."
        raise UserError(f"{where}: there is no config {key!r}", hint=hint)
    if value == DEFAULT:
        return None
    try:
        return canonical_value(key, value, CONFIGS)
    except ValueError as error:
        message = f"{where}: {key}: {error}"
        raise UserError(message, hint=f"Its default is {CONFIGS[key].default!r}.") from error
