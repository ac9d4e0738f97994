"""Links that a platform copies itself, read as entries of the ledger."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.errors import NotFoundError
from reconciler.providers.brokers.links.link_site import LinkSite
from reconciler.providers.brokers.links.link_states import LinkStates, parse_states
from reconciler.providers.brokers.links.links import KafkaLinks

if TYPE_CHECKING:
    from reconciler.errors import NotAuthorizedError
    from reconciler.providers.brokers.ledger import Entries
    from reconciler.providers.brokers.translate import TopicMetadata
    from reconciler.resources.mirrors import ObservedLink, ObservedMirror, Position


@dataclass(frozen=True)
class NativeSite(LinkSite):
    """Cluster whose links the platform copies."""

    read_entries: Callable[[Mapping[str, TopicMetadata]], Entries]
    """Returns links and mirrors as the ledger stores them, for the brokers' topics by name."""

    def read_states(self) -> LinkStates:
        """Return links, and mirrors with existing topics."""
        return parse_states(self.read_entries(self.read_topics()))


@dataclass(frozen=True, slots=True)
class NativeLinks:
    """Links that one cluster copies itself."""

    site: NativeSite
    job_steps: None = None

    def list_links(self) -> Sequence[ObservedLink]:
        """Return the links by name."""
        return KafkaLinks(self.site).list_links()

    def list_mirrors(
        self, link: str | None = None, *, name: str | None = None, source: str | None = None
    ) -> Sequence[ObservedMirror]:
        """Return mirrors by full name."""
        return KafkaLinks(self.site).list_mirrors(link, name=name, source=source)

    def list_lost_mirrors(self, link: str) -> Sequence[str]:  # noqa: ARG002 - always empty
        """Return nothing."""
        return ()

    def find_hidden_mirrors(
        self,
        shown: Collection[str],  # noqa: ARG002 - always empty
        link: str | None = None,  # noqa: ARG002
    ) -> Mapping[str, NotAuthorizedError]:
        """Return nothing."""
        return {}

    def read_mirror(self, full_name: str) -> ObservedMirror:
        """Return one mirror; raise if the topic is none."""
        return KafkaLinks(self.site).read_mirror(full_name)

    def read_positions(self, full_name: str) -> Mapping[int, Position]:
        """Return each partition's position; offsets are those of the source."""
        positions = self.read_positions_of_topics([full_name])
        if full_name not in positions:
            raise NotFoundError(f"topic {full_name} does not exist", hint="List the topics with: reconciler topic list")
        return positions[full_name]

    @abstractmethod
    def read_positions_of_topics(self, full_names: Collection[str]) -> Mapping[str, Mapping[int, Position]]:
        """Return the positions of existing topics."""
