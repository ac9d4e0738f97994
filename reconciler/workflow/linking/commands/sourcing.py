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
        if (other := another_cluster(site, mirror.cluster, mirror.link)) is not None:
            return f"at the place of {name} lies another cluster, {other}"
        positions = provider.links.positions(mirror.source)
        source = provider.source_topic(address_of("topic", name, mirror.source))
    except RetryableError:
        return f"{name} does not answer"
    except ReconcilerError as error:
        return f"{name}: {error.message}"  # Its source is not there, or may not be seen.
    return Standing(source.incarnation, positions)


def another_cluster(site: Site, cluster: str, name: str) -> str | None:
    """Return the cluster at the place of a link's source, where that is not the one the link was made to.

    Raises:
        RetryableError: It does not answer.
    """
    link = next((link for link in site.providers[cluster].links.links() if link.name == name), None)
    if link is None or link.source_cluster_id is None:
        return None  # It has not met its source yet.
    found = site.providers[link.declared.spec.source].identify()
    return None if found is None or found.cluster_id == link.source_cluster_id else found.cluster_id
