"""Configs of a topic on its way between brokers and object storage. Pure.

While a topic is filled nothing of it may expire, be compacted, or get another time: what a restore has written is
compared first, and only then has the topic the configs it had (facts, 7: old records were gone within a second).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.resources.configs import KAFKA_CONFIGS, canonical_value
from reconciler.resources.kafkaconfigs import PASSING
from reconciler.resources.tieringconfigs import EMBEDDED_CONFIGS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.embedded.remote.manifests.topicmanifest import TopicManifest
    from reconciler.resources.configs import ConfigKey

_MAX_LONG: Final = str(2**63 - 1)
_LARGEST_RECORD: Final = str(100 << 20)
"""As large as a request may be (`socket.request.max.bytes`)."""
FILLING: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": _MAX_LONG,
    "message.timestamp.after.max.ms": _MAX_LONG,
    "max.message.bytes": _LARGEST_RECORD,
}
"""What holds for a topic while it is filled."""
_ELSEWHERE: Final = ("remote.", "local.retention.", "retention.local.", "initial.retention.")
_OF_BROKERS: Final = PASSING | {"unclean.leader.election.enable"}
_KEPT: Final = ("cleanup.policy", "retention.ms", "retention.bytes", "message.timestamp.type", "max.message.bytes")
"""What a topic must not lose by coming to a cluster with other defaults."""


def filling(known: Mapping[str, ConfigKey]) -> dict[str, str]:
    """Return what a topic is made with, as far as this version of the brokers knows it."""
    return {key: value for key, value in FILLING.items() if key in known}


def finished(
    found: TopicManifest, known: Mapping[str, ConfigKey], defaults: Mapping[str, str]
) -> dict[str, str | None]:
    """Return the changes after which a topic has the configs it had; `None`: what its cluster says is the same."""
    changes: dict[str, str | None] = dict.fromkeys(filling(known))
    for key in sorted({*found.configs, *found.effective, *_KEPT}):
        value = found.configs.get(key, found.effective.get(key, _default(key)))
        if (
            key not in KAFKA_CONFIGS
            or key not in known
            or key.startswith(_ELSEWHERE)
            or key in _OF_BROKERS
            or value is None
        ):
            continue
        is_own = key in found.configs
        if is_own or canonical_value(key, value, KAFKA_CONFIGS) != defaults.get(key, KAFKA_CONFIGS[key].default):
            changes[key] = value
    return changes


def archived(own: Mapping[str, str], said: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return a topic's own configs, and all that are set for it, without what is about where its records lie."""

    def kept(configs: Mapping[str, str]) -> dict[str, str]:
        return {key: value for key, value in sorted(configs.items()) if not _is_elsewhere(key)}

    return kept(own), kept({**said, **own})


def _is_elsewhere(key: str) -> bool:
    """Tell whether a config is about where records lie, or was put there by the brokers."""
    return key.startswith(_ELSEWHERE) or key in _OF_BROKERS


def _default(key: str) -> str | None:
    """Return what an embedded cluster has where nothing is set: it keeps what is set alone."""
    return EMBEDDED_CONFIGS[key].default if key in EMBEDDED_CONFIGS else None
