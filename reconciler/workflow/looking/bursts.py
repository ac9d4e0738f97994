"""Bursts of long-lived objects, made without the cyclic collector looking at them again and again."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def burst() -> Iterator[None]:
    """Make many objects that stay: tens of thousands of resources, none of them garbage.

    The collector would walk all of them again and again, and free nothing: reading the state of 10,000 topics, reading
    them from their cluster and planning take half as long again with it.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
