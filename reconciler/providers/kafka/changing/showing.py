"""Waiting until brokers show what the controller has done: their metadata lag behind its answer (6.2).

Whoever looks next must see it, or it would be decided on what was there before.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from reconciler.errors import RetryableError
from reconciler.providers.kafka.acls import read_bindings
from reconciler.providers.kafka.metadata import own_values
from reconciler.providers.kafka.reaching.patience import pause

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from reconciler.providers.kafka.changing.asked import Asked
    from reconciler.providers.kafka.client import KafkaClient
    from reconciler.providers.kafka.metadata import ConfigSeen, TopicSeen

_PATIENCE_S: Final = 30.0
_FIRST_S, _MOST_S = 0.005, 0.25


def wait_until_made(client: KafkaClient, names: Sequence[str]) -> None:
    """Return once new topics show, with a leader for each partition."""

    def missing(left: Sequence[str]) -> list[str]:
        seen = client.topics(left)
        return [name for name in left if name not in seen or seen[name].error or not seen[name].is_led]

    _wait(missing, names, "new topics do not show")


def wait_until_gone(client: KafkaClient, ids: Mapping[str, str]) -> None:
    """Return once deleted topics, by name and id, do not show any more."""

    def left_of(names: Sequence[str]) -> list[str]:
        seen = client.topics(names)
        return [name for name in names if name in seen and not seen[name].error and seen[name].id == ids[name]]

    _wait(left_of, sorted(ids), "deleted topics still show")


def wait_until_changed(client: KafkaClient, asked: Sequence[Asked]) -> None:
    """Return once topics show their new configs and partitions."""
    wanted = {each.name: each for each in asked}
    keys = sorted({key for each in asked for key in each.configs})

    def old(names: Sequence[str]) -> list[str]:
        seen = client.topics(names)
        configs = dict(client.configs(names, keys)) if keys else {}
        return [name for name in names if name in seen and not _shows(wanted[name], seen[name], configs.get(name))]

    _wait(old, sorted(wanted), "changed topics still show what they had")


def wait_until_bound(client: KafkaClient, asked: Sequence[Asked]) -> None:
    """Return once the brokers show the access rules there are to be."""
    made = {bound for each in asked for bound in each.binds}
    gone = {bound for each in asked for bound in each.unbinds} - made

    def waiting(names: Sequence[str]) -> list[str]:
        there = set(read_bindings(client)[0])
        return [] if made <= there and not gone & there else list(names)

    _wait(waiting, sorted({each.name for each in asked}), "names still show other access rules")


def _shows(asked: Asked, seen: TopicSeen, configs: Mapping[str, ConfigSeen] | int | None) -> bool:
    if asked.partitions is not None and len(seen.replicas) < asked.partitions:
        return False
    if asked.replicas is not None and any(len(each) != asked.replicas for each in seen.replicas):
        return False
    own = own_values(configs) if isinstance(configs, Mapping) else {}
    return all(own.get(key) == value for key, value in asked.configs.items())


def _wait(left_of: Callable[[Sequence[str]], list[str]], names: Sequence[str], words: str) -> None:
    """Look until none is left; give up only after a while in which brokers have shown nothing more."""
    deadline, wait = time.monotonic() + _PATIENCE_S, _FIRST_S
    left = left_of(names) if names else []
    while left:
        if time.monotonic() > deadline:
            message = f"{len(left)} {words} after {_PATIENCE_S:.0f} s, such as {left[0]}"
            raise RetryableError(message, hint="The brokers lag behind their controller: plan again.")
        pause(wait)
        began, before = time.monotonic(), len(left)
        left = left_of(left)
        if len(left) < before:
            deadline = time.monotonic() + _PATIENCE_S
        # Brokers that are slow to answer have other things to do.
        wait = max(min(2 * wait, _MOST_S), time.monotonic() - began)
