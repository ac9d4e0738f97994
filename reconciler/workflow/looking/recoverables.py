"""What object storage has of the new topics that are to be made from it: asked only where there are such topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.planning.judging.recovering import is_recovery
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.providers.base import Provider
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Desired
    from reconciler.resources.recoverable import Recoveries
    from reconciler.workflow.looking.observing import Seen


def recoverables(providers: Mapping[str, Provider], desired: Desired, seen: Seen) -> Recoveries:
    """Look for what new topics name, on clusters that were read and can recover.

    Raises:
        RetryableError: An object storage cannot be reached.
    """
    asked: dict[str, dict[Address, str | None]] = {}
    for address, declared in desired.items():
        topic = declared.resource
        if not (isinstance(topic, Topic) and is_recovery(topic)) or address in seen.inventory or address in seen.hidden:
            continue
        capabilities = seen.capabilities.get(topic.cluster)
        if capabilities is not None and capabilities.recovery:
            asked.setdefault(topic.cluster, {})[address] = topic.spec.recover_from
    return {
        address: found
        for cluster, topics in sorted(asked.items())
        for address, found in providers[cluster].recoverable(topics).items()
    }
