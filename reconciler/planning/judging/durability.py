"""Topics to which nobody who wants every replica to have a record can write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.planning.fields import CONFIGS
from reconciler.planning.finding import Finding
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.planning.review import Review

_LEAST: Final = "min.insync.replicas"


def warnings_of_insync(review: Review) -> Iterator[Finding]:
    """Yield topics that ask for more replicas in sync than they have: every write with acks=all is refused."""
    situation = review.situation
    for address in sorted(situation.wanted):
        wanted = situation.wanted[address]
        topic = wanted.resource
        if not isinstance(topic, Topic) or not situation.is_decidable(address):
            continue
        capabilities = situation.capabilities(topic.cluster)
        own = topic.spec.configs.get(_LEAST)
        least, replicas = own or capabilities.defaults.get(_LEAST), topic.spec.replication_factor
        if capabilities.platform == "embedded" or replicas is None or not (least or "").isdecimal():
            continue
        if int(least or 0) <= replicas:
            continue
        whose = "" if own is not None else ", the default of its cluster,"
        message = (
            f"{_LEAST} {least}{whose} is more than replicationFactor {replicas}: producers with acks=all are refused"
        )
        marks = () if own is None or CONFIGS + _LEAST in wanted.origins else ((address, ("spec", "configs", _LEAST)),)
        hint = f"Raise replicationFactor to {least} or more, or set {_LEAST} to {max(1, replicas - 1)}."
        yield Finding(address, wanted.source, message, hint, marks)
