"""The administrative connection of an executor: made of settings alone, one for each cluster and process."""

from __future__ import annotations

import atexit
import os
import pickle
import threading
from typing import TYPE_CHECKING, Any, Final

from reconciler.providers.kafka.client import KafkaClient

if TYPE_CHECKING:
    from collections.abc import Mapping

_opened: Final[dict[tuple[int, str, bytes], KafkaClient]] = {}
_opening: Final = threading.Lock()


def asking(settings: Mapping[str, Any], cluster: str) -> KafkaClient:
    """Return the connection of this process, over settings of kafka-python that have travelled."""
    key = (os.getpid(), cluster, pickle.dumps(dict(settings)))
    with _opening:
        if key not in _opened:
            _opened[key] = KafkaClient(cluster, lambda: settings)
        return _opened[key]


def close_connections() -> None:
    """Close what this process has open. Another question opens it again."""
    with _opening:
        for key in list(_opened):
            client = _opened.pop(key)
            if key[0] == os.getpid():
                client.close()


atexit.register(close_connections)
