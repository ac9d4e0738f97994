"""Settings of confluent-kafka in clear, for the constructor of a client alone; what clients log is kept off."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from reconciler.providers.secrets import Secret

if TYPE_CHECKING:
    from collections.abc import Mapping

_BASE: Final = {
    "client.id": "reconciler",
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1000,
    "retry.backoff.ms": 50,
}
_quiet: Final = logging.getLogger("reconciler.kafka")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False  # whatever matters of it is raised, too


def revealed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of any client of records, secrets in clear; what is not set stands as it does for all of them."""
    clear = {name: value.reveal() if isinstance(value, Secret) else value for name, value in settings.items()}
    return {**_BASE, **clear, "logger": _quiet}
