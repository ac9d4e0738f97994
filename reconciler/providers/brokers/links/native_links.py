"""Links that a platform copies itself: read as entries of the ledger, and changed in batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from reconciler.errors import NotFoundError, ReconcilerError, UserError
from reconciler.planning.actions import HALF, Create, Delete, Transition, Update
from reconciler.providers.brokers.admin_requests import unsupported_error
from reconciler.providers.brokers.links.link_site import LinkSite
from reconciler.providers.brokers.links.link_states import LinkStates, parse_states
from reconciler.providers.brokers.links.links import KafkaLinks
from reconciler.providers.protocol import CompletedAction, FailedAction, Outcome
from reconciler.resources.address import full_name_of
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic
from reconciler.runtime.dataclass import dataclass, field

if TYPE_CHECKING:
    from reconciler.errors import NotAuthorizedError
    from reconciler.planning.actions import Change, ControlAction
    from reconciler.providers.brokers.ledger import Entries
    from reconciler.providers.brokers.offsets import Place
    from reconciler.providers.brokers.translate import TopicMetadata
    from reconciler.resources.mirrors import ObservedLink, ObservedMirror, OffsetStretch, Position


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

    def read_positions_of_topics(self, full_names: Collection[str]) -> Mapping[str, Mapping[int, Position]]:
        """Return the positions of existing topics."""
        names = {self.site.naming.to_physical(full_name): full_name for full_name in full_names}
        topics = self.site.read_topics(sorted(names))
        places = [(topic, number) for topic in sorted(topics) for number in range(len(topics[topic].replicas))]
        positions: dict[str, dict[int, Position]] = {names[topic]: {} for topic in topics}
        for (topic, number), position in self._read_positions(places).items():
            positions[names[topic]][number] = position
        return positions

    def preview_verb(
        self,
        verb: str,  # noqa: ARG002 - always empty
        link: str,  # noqa: ARG002
        full_names: Collection[str],  # noqa: ARG002
    ) -> Mapping[str, Sequence[OffsetStretch] | ReconcilerError]:
        """Return nothing."""
        return {}

    @abstractmethod
    def _read_positions(self, places: Sequence[Place]) -> Mapping[Place, Position]:
        """Return the positions of partitions, by flat name and number."""


@dataclass
class NativeLinkBatch(ABC):
    """Applies actions about links and mirrors to one cluster."""

    site: NativeSite
    may_go_on: Callable[[], None]
    results: dict[str, str | ReconcilerError | None] = field(default_factory=dict)
    """Id of the changed object, or the error, by the action's id."""

    def apply(self, actions: Sequence[ControlAction]) -> Iterator[Outcome]:
        """Yield the outcome of each action. Idempotent."""
        verbs: dict[str, dict[str, Transition]] = {}
        deleted: dict[str, Delete] = {}
        created: dict[str, dict[str, Create]] = {}
        others: list[ControlAction] = []
        for action in actions:
            name = self.site.naming.to_physical(full_name_of(action.address))
            match action:
                case Transition():
                    verbs.setdefault(action.verb, {})[name] = action
                case Delete(before=MirrorTopic()):
                    deleted[name] = action
                case Create(after=MirrorTopic() as mirror):
                    created.setdefault(mirror.link, {})[name] = action
                case _:
                    others.append(action)
        for verb, transitions in verbs.items():
            self._try(transitions.values(), partial(self._request_verb, verb, transitions))
        self._try(deleted.values(), partial(self._delete_mirrors, deleted))
        for action in sorted(others, key=lambda action: not isinstance(action, Delete)):
            self._try([action], partial(self._change, action))
        for link, creations in created.items():
            self._try(creations.values(), partial(self._create_mirrors, link, creations))
        for action in actions:
            result = self.results[action.id]
            if isinstance(result, ReconcilerError):
                yield FailedAction(action.id, result)
            else:
                yield CompletedAction(action.id, result, self._find_topic_name(action))

    @abstractmethod
    def _request_verb(self, verb: str, actions: Mapping[str, Transition]) -> None:
        """Change the role of mirrors. `actions`: by flat name."""

    @abstractmethod
    def _create_mirrors(self, link: str, actions: Mapping[str, Create]) -> None:
        """Create mirrors of a link. `actions`: by flat name."""

    @abstractmethod
    def _delete_mirrors(self, actions: Mapping[str, Delete]) -> None:
        """Delete mirrors with their topics. `actions`: by flat name."""

    @abstractmethod
    def _create_link(self, link: MirrorLink, *, is_source_half: bool) -> str:
        """Create a link, or the source's half of a link that its source opens, and return its id."""

    @abstractmethod
    def _update_link(self, name: str, changes: Sequence[Change]) -> str:
        """Change a link, and return its id."""

    @abstractmethod
    def _delete_link(self, name: str, link_id: str | None) -> None:
        """Delete a link; reject one that has another id."""

    def _change(self, action: ControlAction) -> None:
        match action:
            case Create(after=MirrorLink() as link):
                self.results[action.id] = self._create_link(link, is_source_half=HALF in action.parameters)
            case Update(after=MirrorLink() as link):
                self.results[action.id] = self._update_link(link.metadata.name, action.changes)
            case Delete(before=MirrorLink() as link):
                self._delete_link(link.metadata.name, action.incarnation)
                self.results[action.id] = None
            case _:
                raise unsupported_error(action)

    def _try(self, actions: Iterable[ControlAction], change: Callable[[], None]) -> None:
        """Run a change; its error is that of all its actions without a result."""
        try:
            change()
        except ReconcilerError as error:
            self.results |= {action.id: error for action in actions if action.id not in self.results}

    def _select_existing(self, actions: Mapping[str, Delete]) -> dict[str, TopicMetadata]:
        """Return the topics to delete; missing ones are done, and those created again since the plan are rejected."""
        existing = self.site.read_topics(sorted(actions)) if actions else {}
        for name, action in actions.items():
            if name not in existing:
                self.results[action.id] = None
            elif action.incarnation not in {None, existing[name].id}:
                message = f"topic {self.site.naming.to_full_name(name)} was deleted and created again since the plan"
                self.results[action.id] = UserError(message, hint="Plan again.")
                del existing[name]
        return existing

    def _find_topic_name(self, action: ControlAction) -> str | None:
        is_mirror = isinstance(action, Transition) or isinstance(getattr(action, "after", None), MirrorTopic)
        return self.site.naming.to_physical(full_name_of(action.address)) if is_mirror else None

    def _find_ids(self, names: Collection[str]) -> dict[str, str]:
        """Return the ids of existing topics by flat name."""
        return {name: topic.id for name, topic in self.site.read_topics(sorted(names)).items()} if names else {}

    def _suggest_errors(self, link: str) -> str:
        return f"See what the link reports: reconciler mirror errors link/{self.site.cluster}/{link}"
