"""The administrative connection of an executor: made of settings alone, one for each cluster and process."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, Final

from reconciler.providers.kafka.client import KafkaClient
from reconciler.providers.kafka.faults import translated
from reconciler.providers.kafka.records.clients import clear

if TYPE_CHECKING:
    from collections.abc import Mapping

_opened: Final[dict[tuple[int, str, str], Asking]] = {}
_opening: Final = threading.Lock()


class Asking(KafkaClient):
    """The same requests as the provider's, over settings that have travelled."""

    def __init__(self, settings: Mapping[str, Any], cluster: str) -> None:
        """Keep settings of kafka-python; values with `reveal` are secrets."""
        self._admin: Any = None
        self._opening = threading.Lock()
        self._settings, self._cluster = settings, cluster

    @classmethod
    def of(cls, settings: Mapping[str, Any], cluster: str) -> Asking:
        """Return the connection of this process."""
        key = (os.getpid(), cluster, repr(sorted((name, repr(value)) for name, value in clear(settings).items())))
        with _opening:
            if key not in _opened:
                _opened[key] = cls(settings, cluster)
            return _opened[key]

    @property
    def name(self) -> str:
        """The name of the cluster in the files."""
        return self._cluster

    def _opened(self) -> Any:
        from kafka.admin import KafkaAdminClient  # noqa: PLC0415 - only who asks pays

        try:
            return KafkaAdminClient(**clear(self._settings))
        except Exception as error:
            raise translated(error, doing="connecting", cluster=self.name) from error
