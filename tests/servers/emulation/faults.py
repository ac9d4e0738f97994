"""Faults that a test asks for: the next matching requests get them, everything else is answered as usual."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

ALWAYS: Final = 1_000_000
"""Number of requests of a fault that stays until `Fault.end`."""

KAFKA: Final = "KAFKA"
"""The method of faults on the Kafka API (`slow`, `lost`); their path is the name of an API, such as `CreateTopics`."""


LINK: Final = "LINK"
"""The method of faults inside a shadow link. Their path is the name of a task (`fails`, with `message`), `source`
(`lost`: it does not answer), or `failover/TOPIC/` (`slow`, `fails`)."""

RECOVERY: Final = "RECOVERY"
"""The method of faults while topics come back (`slow`, `fails`): their path is `TOPIC/` or `cluster/`."""


@dataclass
class Fault:
    """What happens to requests whose path contains `path`.

    `slow`: answered after `seconds`. `lost`: done, and the connection ends instead of an answer. `status`: not done,
    answered with `status`, `message` and `headers`; Redpanda answers as Connect does if it has a `code`, which is a
    number for Confluent. `redirect`: 307 to node `to`.
    `text`: 200 with `message`, which is no JSON. `html`: not done, answered with `status` as a web page, and `headers`.
    `empty`: done, and answered with `status` and no body.
    `state`: done; all states in the answer are `message`. `task`: done; the tasks in the answer have that name.
    """

    kind: str
    method: str = ""
    path: str = ""
    node: int | None = None
    times: int = 1
    seconds: float = 1.0
    status: int = 500
    message: str = "Unexpected cluster error: injected"
    code: str = ""
    to: int = 1
    headers: dict[str, str] = field(default_factory=dict)

    def end(self) -> None:
        """Let the next requests through."""
        self.times = 0

    def matches(self, method: str, path: str, node: int) -> bool:
        is_method = method == self.method or (method not in {KAFKA, LINK, RECOVERY} and not self.method)
        return self.times > 0 and is_method and self.path in path and self.node in {None, node}


class Faults:
    """The faults that wait for their requests, and the pace of migrations."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all faults, and let migrations move by themselves."""
        self._waiting: list[Fault] = []
        self.pace = "steady"
        """`steady`: migrations move by themselves; `told`: only by `advance`; `polls`: after `polls_per_step` reads."""
        self.polls_per_step = 1

    def add(self, kind: str, method: str = "", path: str = "", **options: Any) -> Fault:
        """Wait for the next `times` requests of a method with `path` in their path; `options` are fields of `Fault`."""
        self._waiting.append(Fault(kind, method, path, **options))
        return self._waiting[-1]

    def take(self, method: str, path: str, node: int = 1) -> Fault | None:
        """Return the fault meant for a request, and count it as used."""
        fault = next((each for each in self._waiting if each.matches(method, path, node)), None)
        if fault is not None:
            fault.times -= 1
        return fault
