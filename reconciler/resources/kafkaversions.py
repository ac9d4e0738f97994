"""Kafka's topic configs as one version has them: which there are, and the ranges and defaults that changed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from reconciler.resources.configkeys import ConfigKey
from reconciler.resources.kafkaconfigs import KAFKA_CONFIGS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_FOUR: Final = (4, 0)
_SINCE_FOUR: Final[Mapping[str, Mapping[str, Any]]] = {"segment.bytes": {"minimum": 1024 * 1024}}
_BEFORE_FOUR: Final[Mapping[str, Mapping[str, Any]]] = {
    "message.timestamp.after.max.ms": {"default": str(2**63 - 1)},
}


def kafka_configs(listed: Iterable[str], version: str) -> Mapping[str, ConfigKey]:
    """Return the catalog of a cluster whose brokers list these topic configs; `version`: such as `4.3.1`, `3.9`.

    A config that is listed and that we do not know is kept as text: it may be declared, and is compared as it stands.
    """
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    changed = _SINCE_FOUR if numbers >= _FOUR else _BEFORE_FOUR
    return {name: _as_of(name, changed) for name in sorted(listed)}


def _as_of(name: str, changed: Mapping[str, Mapping[str, Any]]) -> ConfigKey:
    known = KAFKA_CONFIGS.get(name)
    if known is None:
        return ConfigKey(name, "string")
    return replace(known, **changed[name]) if name in changed else known
