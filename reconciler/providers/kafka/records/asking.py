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

_opened: Final[dict[tuple[int, str, bytes], Asking]] = {}
_opening: Final = threading.Lock()


class Asking(KafkaClient):
    """The same requests as the provider's, over settings that have travelled."""

    def __init__(self, settings: Mapping[str, Any], cluster: str) -> None:
        """Keep settings of kafka-python; as `connecting.opened_admin` takes them."""
        self._admin: Any = None
        self._opening = threading.Lock()
        self._settings, self._cluster = settings, cluster

    @classmethod
    def of(cls, settings: Mapping[str, Any], cluster: str) -> Asking:
        """Return the connection of this process."""
        key = (os.getpid(), cluster, pickle.dumps(dict(settings)))
        with _opening:
            if key not in _opened:
                _opened[key] = cls(settings, cluster)
            return _opened[key]

    @property
    def name(self) -> str:
        """The name of the cluster in the files."""
        return self._cluster

    def _opened(self) -> Any:
        from reconciler.providers.kafka.connecting import opened_admin  # noqa: PLC0415 - only who asks pays

        return opened_admin(self._settings, cluster=self.name)


def close_connections() -> None:
    """Close what this process has open. Another question opens it again."""
    with _opening:
        for key in list(_opened):
            asking = _opened.pop(key)
            if key[0] == os.getpid():
                asking.close()


atexit.register(close_connections)
