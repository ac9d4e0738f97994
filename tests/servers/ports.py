"""Ports nobody uses."""

from __future__ import annotations

import secrets
import socket
from typing import Final

_LOWEST: Final = 10_000
_HIGHEST: Final = 21_999  # with its twin below 32,768, where systems begin to hand out ports by themselves
TWIN: Final = 10_000
"""A port's gRPC twin stands this much above it."""


def free_ports(count: int) -> list[int]:
    """Return ports that are free now, and whose twins are."""
    found: list[int] = []
    while len(found) < count:
        port = _LOWEST + secrets.randbelow(_HIGHEST - _LOWEST + 1)
        if port not in found and _is_free(port) and _is_free(port + TWIN):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
