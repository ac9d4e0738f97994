"""Faults that a test asks for: the next matching requests get them, everything else is answered as usual."""

from __future__ import annotations

import threading
from dataclasses import dataclass, fields
from typing import Any, Final

KINDS: Final = ("slow", "lost", "status", "redirect", "text", "state")
KAFKA: Final = "KAFKA"
"""The method of faults on the Kafka API; their path is the name of an API, such as `CreateTopics`."""


@dataclass
class Fault:
    """What happens to requests whose path contains `path`.

    `slow`: answered after `seconds`. `lost`: done, and the connection ends instead of an answer. `status`: not done,
    answered with `status` and `message`. `redirect`: 307 to node `to`. `text`: 200 with `message`, which is no JSON.
    `state`: done; the answer's migrations are in the state `message`.
    """

    kind: str
    method: str = ""
    path: str = ""
    node: int | None = None
    times: int = 1
    seconds: float = 1.0
    status: int = 500
    message: str = "Unexpected cluster error: injected"
    to: int = 1

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"unknown fault {self.kind!r}: one of {KINDS}")

    def matches(self, method: str, path: str, node: int) -> bool:
        is_kind = self.method in {"", method} if method != KAFKA else self.method == KAFKA
        return self.times > 0 and is_kind and self.path in path and self.node in {None, node}


class Faults:
    """The faults that wait for their requests, and the pace of migrations."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Fault] = []
        self.pace = "steady"
        """`steady`: migrations move by themselves; `told`: only by `advance`; `polls`: after `polls_per_step` reads."""
        self.polls_per_step = 1

    def add(self, kind: str, method: str = "", path: str = "", **options: Any) -> None:
        """Wait for the next `times` requests of a method with `path` in their path; `options` are fields of `Fault`."""
        with self._lock:
            self._waiting.append(Fault(kind, method, path, **options))

    def take(self, method: str, path: str, node: int) -> Fault | None:
        """Return the fault meant for a request, and count it as used."""
        with self._lock:
            for fault in self._waiting:
                if fault.matches(method, path, node):
                    fault.times -= 1
                    return fault
        return None

    def clear(self) -> None:
        """Forget all faults, and let migrations move by themselves."""
        with self._lock:
            self._waiting.clear()
        self.pace, self.polls_per_step = "steady", 1


FIELDS: Final = frozenset(field.name for field in fields(Fault))
