"""How long brokers are waited for until they show what was done: as long as they show more of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from reconciler.errors import RetryableError
from reconciler.providers.kafka import admin

if TYPE_CHECKING:
    from collections.abc import Sequence

PATIENCE_S = 0.2
MANY = [f"topic-{number:05d}" for number in range(12)]


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "_PATIENCE_S", PATIENCE_S)


def test_brokers_that_go_on_showing_more_are_waited_for_however_long_it_takes() -> None:
    def one_less(left: Sequence[str]) -> list[str]:
        return list(left[1:])

    began = time.monotonic()
    admin._wait(one_less, MANY, "new topics do not show")
    assert time.monotonic() - began > PATIENCE_S


def test_brokers_that_show_nothing_more_are_given_up() -> None:
    def never_the_last_two(left: Sequence[str]) -> list[str]:
        return list(left[:-1]) if len(left) > 2 else list(left)

    with pytest.raises(RetryableError, match="2 new topics do not show") as raised:
        admin._wait(never_the_last_two, MANY, "new topics do not show")
    assert "plan again" in raised.value.hint
