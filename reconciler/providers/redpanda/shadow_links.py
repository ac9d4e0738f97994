"""Shadow links: topics of another cluster that Redpanda itself copies, under their own names (redpanda.md, 15 and 18).

Topics are selected by filters. A shadow topic can be failed over, but neither paused nor promoted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import IncompleteError, NotFoundError, ReconcilerError, UnansweredError, UserError
from reconciler.lifecycles import LinkStatus, MirrorStatus
from reconciler.planning.actions import Change, ControlAction, Create, Delete, Transition
from reconciler.providers.brokers.admin_requests import unsupported_error
from reconciler.providers.brokers.ledger import Entries, link_key, mirror_key
from reconciler.providers.brokers.links.link_states import RecordedMirror
from reconciler.providers.brokers.links.native_links import NativeLinkBatch, NativeLinks, NativeSite
from reconciler.providers.brokers.offsets import Place, read_bounds
from reconciler.providers.models import apply_declared_changes, to_declared_link
from reconciler.providers.redpanda.client import POLLS
from reconciler.providers.redpanda.link_options import FILTERS, TOPICS, LinkOptions, build_literal_filter
from reconciler.resources.address import full_name_of
from reconciler.resources.mirror_link import MirrorLink
from reconciler.resources.mirrors import FAILOVER, LinkEntry, MirrorEntry, Position, Trouble
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.retry import Tries
from reconciler.runtime.text import to_one_line

if TYPE_CHECKING:
    from reconciler.providers.brokers.translate import ClusterNaming, TopicMetadata
    from reconciler.providers.redpanda.client import AdminClient

_FAILOVER_LIMIT_S: Final = 120.0
"""Longest time without any topic that is failed over."""
_CREATION_ROUNDS: Final = 3
"""Intervals that a link gets to create the topics of new filters."""
_ACTIVE: Final = "ACTIVE"
_PROMOTED: Final = frozenset({"FAILED_OVER", "PROMOTED"})
"""States of ordinary topics."""
_ENDING: Final = frozenset({"FAILING_OVER", "PROMOTING"})
_COPYING: Final = frozenset({_ACTIVE, "PAUSED"})
_LINK_STATES: Final = frozenset({_ACTIVE, "PAUSED", "UNSPECIFIED"})
_IDLE_TASKS: Final = frozenset({_ACTIVE, "NOT_RUNNING", "UNSPECIFIED"})
_UNREACHABLE: Final = "LINK_UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class ShadowTopic:
    """A shadow topic, as the Admin API lists it."""

    name: str
    state: str
    """Such as `ACTIVE`; unknown states as the platform says them."""
    source: str
    source_topic_id: str | None
    source_ends: Mapping[int, int]
    """Ends of the source's partitions, when the link last saw them."""

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> ShadowTopic:
        """Parse a shadow topic."""
        name, status = str(row.get("name", "")), row.get("status") or {}
        state = str(status.get("state", "")).removeprefix("SHADOW_TOPIC_STATE_")
        ends = {
            int(row.get("partitionId", 0)): int(row.get("sourceHighWatermark", 0))
            for row in status.get("partitionInformation") or ()
        }
        return cls(name, state, str(row.get("sourceTopicName") or name), row.get("sourceTopicId") or None, ends)


@dataclass(frozen=True, slots=True)
class ShadowLink:
    """A shadow link with its topics, as the Admin API lists it."""

    name: str
    uid: str
    configurations: Mapping[str, Any]
    state: str
    tasks: Mapping[str, Trouble]
    """Tasks that are not active, by name."""
    topics: Sequence[ShadowTopic]

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> ShadowLink:
        """Parse a shadow link."""
        status = row.get("status") or {}
        return cls(
            str(row.get("name", "")),
            str(row.get("uid", "")),
            row.get("configurations") or {},
            str(status.get("state", _ACTIVE)).removeprefix("SHADOW_LINK_STATE_"),
            dict(_parse_tasks(status.get("taskStatuses") or ())),
            [ShadowTopic.from_json(row) for row in status.get("shadowTopics") or ()],
        )

    def explain_tasks(self) -> str:
        """Return a sentence's end with what tasks report; empty if all are active."""
        reasons = "; ".join(f"{name}: {trouble.message}" for name, trouble in self.tasks.items())
        return f": {reasons}" if reasons else ""


def _parse_tasks(rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Trouble]]:
    """Yield tasks that are not active; several brokers may run one."""
    for row in rows:
        name, state = str(row.get("name", "")), str(row.get("state", "")).removeprefix("TASK_STATE_")
        if state not in _IDLE_TASKS:
            yield name, Trouble(state, f"{row.get('reason') or 'no reason is reported'} (broker {row.get('brokerId')})")


@dataclass(frozen=True)
class ShadowReader:
    """Reads shadow links as links and mirrors."""

    admin: AdminClient
    options: LinkOptions

    def list_links(self) -> Sequence[ShadowLink]:
        """Return the shadow links with their topics. Sends one request."""
        answer = self.admin.call_shadow_links("ListShadowLinks", {})
        with self._refusing("a shadow link"):
            # Redpanda answers `{}` without links.
            rows = answer["shadowLinks"] if answer else ()
            return [ShadowLink.from_json(row) for row in rows]

    @contextmanager
    def _refusing(self, what: str) -> Iterator[None]:
        """Translate errors of parsing; `what` names their object."""
        try:
            yield
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            message = (
                f"cluster {self.admin.name}: {what} has options that are not understood: {to_one_line(str(error))}"
            )
            raise UserError(
                message, hint="See it with: rpk shadow describe. Leave the cluster out with --exclude."
            ) from error

    def read_entries(self, topics: Mapping[str, TopicMetadata]) -> Entries:
        """Return links and mirrors as the ledger does. `topics`: those of the brokers, by name."""
        entries: dict[tuple[str | int, ...], Mapping[str, Any]] = {}
        for link in self.list_links():
            entries[link_key(link.name)] = self.build_entry(link).to_json()
            for topic in link.topics:
                if topic.name in topics:
                    mirror = self._build_mirror(link, topic, topics[topic.name].id)
                    entries[mirror_key(topic.name)] = mirror.to_document()
        return entries

    def build_entry(self, link: ShadowLink) -> LinkEntry:
        """Return a link's entry; raise `UserError` if no MirrorLink can say it."""
        with self._refusing(f"shadow link {link.name}"):
            spec = self.options.to_declared(link.configurations)
            to_declared_link(link.name, self.options.cluster, LinkEntry(link.uid, spec["source"], spec))
        trouble = next((trouble for trouble in link.tasks.values() if trouble.code == _UNREACHABLE), None)
        status = LinkStatus.ACTIVE if trouble is None else LinkStatus.UNAVAILABLE
        if link.state not in _LINK_STATES:
            trouble = Trouble(link.state, "Redpanda reports a state of the link that is unknown here")
        return LinkEntry(
            link.uid,
            spec["source"],
            {**spec, **({"paused": True} if link.state == "PAUSED" else {})},
            status,
            trouble,
            link.tasks,
            (link.configurations.get("clientOptions") or {}).get("sourceClusterId") or None,
        )

    def _build_mirror(self, link: ShadowLink, topic: ShadowTopic, topic_id: str) -> RecordedMirror:
        state, trouble = MirrorStatus.ACTIVE, None
        if topic.state in _PROMOTED:
            state = MirrorStatus.STOPPED
        elif topic.state in _ENDING:
            state = MirrorStatus.PENDING_STOPPED
        elif topic.state not in _COPYING:
            reasons = link.explain_tasks().removeprefix(": ")
            trouble = Trouble(topic.state, reasons or "Redpanda reports no reason: see the log of its brokers")
        full_name = self.options.naming.to_full_name(topic.name)
        entry = MirrorEntry(
            link.uid,
            self.options.naming.to_full_name(topic.source),
            topic.source_topic_id,
            state,
            first_copy_done=True,
            trouble=trouble,
            stopped_by=FAILOVER if topic.state in _PROMOTED else None,
            is_automatic=full_name not in self.options.mirrors,
        )
        return RecordedMirror(full_name, link.name, topic_id, entry)


@dataclass(frozen=True)
class ShadowSite(NativeSite):
    """Cluster whose links and mirrors are shadow links and their topics."""

    reader: ShadowReader


@dataclass(frozen=True, slots=True)
class RedpandaLinks(NativeLinks):
    """Links that one Redpanda cluster copies itself."""

    site: ShadowSite

    def _read_positions(self, places: Sequence[Place]) -> Mapping[Place, Position]:
        shadows = {topic.name: topic for link in self.site.reader.list_links() for topic in link.topics}
        positions = {}
        for (topic, number), at in read_bounds(self.site.client, places).items():
            shadow = shadows.get(topic)
            source_end = None if shadow is None or shadow.state in _PROMOTED else shadow.source_ends.get(number)
            positions[topic, number] = Position(at.start, at.end, fetched=at.end, source_end=source_end)
        return positions


@dataclass
class ShadowBatch(NativeLinkBatch):
    """Applies actions about shadow links and their topics to one cluster."""

    site: ShadowSite

    @property
    def _naming(self) -> ClusterNaming:
        return self.site.naming

    @property
    def _options(self) -> LinkOptions:
        return self.site.reader.options

    def _call(self, method: str, content: Mapping[str, Any]) -> Mapping[str, Any]:
        self.may_go_on()
        return self.site.reader.admin.call_shadow_links(method, content)

    def _find_link(self, name: str) -> ShadowLink | None:
        return next((link for link in self.site.reader.list_links() if link.name == name), None)

    def _require_link(self, name: str) -> ShadowLink:
        link = self._find_link(name)
        if link is None:
            message = f"cluster {self.site.cluster} has no shadow link {name}"
            raise NotFoundError(message, hint="It was deleted after the plan read it: plan again.")
        return link

    def _create_link(self, link: MirrorLink, *, is_source_half: bool) -> str:  # noqa: ARG002 - shadow links have one half
        name, configurations = link.metadata.name, self._options.build(link.spec)
        if (existing := self._find_link(name)) is None:
            try:
                made = self._call("CreateShadowLink", {"shadowLink": {"name": name, "configurations": configurations}})
                return str((made.get("shadowLink") or {}).get("uid", ""))
            except UnansweredError:
                if (existing := self._find_link(name)) is None:
                    raise
        declared = to_declared_link(name, self.site.cluster, self.site.reader.build_entry(existing))
        if self._options.build(declared.spec) != configurations:
            message = f"link {name} exists, and differs from what was to be created"
            raise UserError(message, hint="It was created after the plan: plan again.")
        return existing.uid

    def _update_link(self, name: str, changes: Sequence[Change]) -> str:
        link = self._require_link(name)
        entry = self.site.reader.build_entry(link)
        after = replace(entry, declared=apply_declared_changes(entry.declared, changes))
        spec = to_declared_link(name, self.site.cluster, after).spec
        wanted = self._options.build_syncs(spec, entries=self._options.select_entries(link.configurations))
        self._update(name, self._options.change(link.configurations, wanted, changes))
        return link.uid

    def _update(self, name: str, groups: Mapping[str, Mapping[str, Any]]) -> None:
        """Write these groups only, by a field mask."""
        mask = ",".join(f"configurations.{group}" for group in sorted(groups))
        self._call("UpdateShadowLink", {"shadowLink": {"name": name, "configurations": groups}, "updateMask": mask})

    def _delete_link(self, name: str, link_id: str | None) -> None:
        link = self._find_link(name)
        if link is None:
            return
        if link_id not in {None, link.uid}:
            message = f"link {name} was deleted and created again since the plan"
            raise UserError(message, hint="Plan again.")
        try:
            self._call("DeleteShadowLink", {"name": name})
        except UnansweredError:
            if self._find_link(name) is not None:
                raise

    def _set_filters(self, link: ShadowLink, filters: Sequence[Mapping[str, Any]]) -> None:
        self._update(link.name, {TOPICS: {**(link.configurations.get(TOPICS) or {}), FILTERS: filters}})

    def _drop_filters(self, names: Collection[str]) -> None:
        """Remove the filters of single topics, which would create them again."""
        own = [build_literal_filter(name) for name in names]
        for link in self.site.reader.list_links() if own else ():
            filters = self._options.read_filters(link.configurations)
            if any(row in own for row in filters):
                self._set_filters(link, [row for row in filters if row not in own])

    def _delete_mirrors(self, actions: Mapping[str, Delete]) -> None:
        self._drop_filters(actions)
        topics = self._select_existing(actions)
        existing = {name: actions[name] for name in topics}
        stopped = self._fail_over_topics(existing)
        errors = {
            key: result
            for key, result in stopped.items()
            if isinstance(result, ReconcilerError) and not isinstance(result, NotFoundError)  # an ordinary topic
        }
        self.results |= errors
        left = {full_name_of(action.address): name for name, action in existing.items() if action.id not in errors}
        deleted = self.site.delete_topics({full: topics[name].id for full, name in left.items()}, self.may_go_on)
        for full_name, name in left.items():
            outcome = deleted[full_name]
            self.results[existing[name].id] = outcome if isinstance(outcome, ReconcilerError) else None

    def _create_mirrors(self, link_name: str, actions: Mapping[str, Create]) -> None:
        """Add topics to their link's filters, and wait for it to create them."""
        missing, link = dict(actions), self._require_link(link_name)
        filters = self._options.read_filters(link.configurations)
        if added := [own for name in missing if (own := build_literal_filter(name)) not in filters]:
            self._set_filters(link, [*added, *filters])
        tries = Tries(POLLS, within_s=_CREATION_ROUNDS * self._options.read_interval_s(link.configurations))
        while missing:
            link = self._require_link(link_name)
            topics = self.site.read_topics([topic.name for topic in link.topics if topic.name in missing])
            self.results |= {missing.pop(name).id: seen.id for name, seen in topics.items()}
            if missing and tries.has_ended:
                message = f"link {link_name} has not created it after {tries.elapsed_s:.0f} s{link.explain_tasks()}"
                raise IncompleteError(message, hint=self._suggest_errors(link_name))
            if missing:
                self.may_go_on()
                tries.wait()

    def _request_verb(self, verb: str, actions: Mapping[str, Transition]) -> None:
        """Make topics ordinary; a shadow link has no other verb."""
        if verb != FAILOVER:
            self.results |= {action.id: unsupported_error(action) for action in actions.values()}
            return
        self._drop_filters(actions)
        stopped = self._fail_over_topics(actions)
        ids = self._find_ids(actions)
        for name, action in actions.items():
            result = stopped[action.id]
            self.results[action.id] = ids.get(name, result) if isinstance(result, str) else result

    def _fail_over_topics(self, actions: Mapping[str, ControlAction]) -> dict[str, str | ReconcilerError]:
        """Wait until topics are ordinary or have failed; return names or errors by action id. `actions`: by name."""
        waiting, requested = dict(actions), set[str]()
        results: dict[str, str | ReconcilerError] = {}
        tries, left = Tries(POLLS, within_s=_FAILOVER_LIMIT_S), len(waiting)
        while waiting:
            try:
                links = self.site.reader.list_links()
            except ReconcilerError as error:
                return results | {action.id: error for action in waiting.values()}
            shadows = {topic.name: (link, topic) for link in links for topic in link.topics}
            for name in [*waiting]:
                result = self._advance(name, shadows.get(name), requested)
                if result is not None:
                    results[waiting.pop(name).id] = result
            if len(waiting) < left:
                tries, left = Tries(POLLS, within_s=_FAILOVER_LIMIT_S), len(waiting)
            elif tries.has_ended:
                late = IncompleteError(
                    f"it is still being failed over after {tries.elapsed_s:.0f} s", hint="Run the same command again."
                )
                return results | {action.id: late for action in waiting.values()}
            if waiting:
                tries.wait()
        return results

    def _advance(
        self, name: str, shadow: tuple[ShadowLink, ShadowTopic] | None, requested: set[str]
    ) -> str | ReconcilerError | None:
        """Request a failover once; return the topic's name if it is over, or the error."""
        if shadow is None:
            message = f"topic {self._naming.to_full_name(name)} is not a shadow topic"
            return NotFoundError(message, hint="See the mirrors with: reconciler mirror list")
        link, topic = shadow
        if topic.state in _PROMOTED:
            return name
        if name not in requested:
            if topic.state == "FAULTED":
                message = f"Redpanda fails over only topics that are ACTIVE, and it is FAULTED{link.explain_tasks()}"
                hint = f"To end its link and make all of its topics ordinary: rpk shadow delete {link.name} --force"
                return UserError(message, hint=hint)
            try:
                if topic.state not in _ENDING:
                    self._call("FailOver", {"name": link.name, "shadowTopicName": name})
            except UnansweredError:
                return None  # The next list shows whether it began.
            except ReconcilerError as error:
                return error
            requested.add(name)
        elif topic.state == "FAULTED":
            message = f"its failover ended in FAULTED{link.explain_tasks()}"
            return UserError(message, hint=self._suggest_errors(link.name))
        return None
