"""Where the source of a mirror stands, or why it cannot be asked: a failover does without it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.errors import ReconcilerError, RetryableError
from reconciler.resources.address import address_of

if TYPE_CHECKING:
    from reconciler.resources.mirroring import MirrorSeen
    from reconciler.resources.standing import Positions
    from reconciler.workflow.beginning.opening import Site


@dataclass(frozen=True, slots=True)
class Standing:
    """A source as its own cluster has it."""

    topic_id: str | None
    positions: Positions


def source_standing(site: Site, mirror: MirrorSeen) -> Standing | str:
    """Return where the source of a mirror stands, or in words why that cannot be told."""
    name = mirror.source_cluster
    if name not in site.clusters:
        return f"{name} is not known here"
    try:
        provider = site.providers[name]
        positions = provider.links.positions(mirror.source)
        source = provider.source_topic(address_of("topic", name, mirror.source))
    except RetryableError:
        return f"{name} does not answer"
    except ReconcilerError as error:
        return f"{name}: {error.message}"  # Its source is not there, or may not be seen.
    return Standing(source.incarnation, positions)
