"""Cluster links and mirror topics, read from Confluent's REST API (confluent.md, 5 and 6)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import NotFoundError, ReconcilerError, UserError
from reconciler.lifecycles import LinkStatus, MirrorStatus
from reconciler.providers.brokers.ledger import Entries, link_key, mirror_key
from reconciler.providers.brokers.links.link_states import RecordedMirror
from reconciler.providers.brokers.links.native_links import NativeLinks, NativeSite
from reconciler.providers.brokers.offsets import Place, read_bounds
from reconciler.providers.confluent.client import Json, RestClient
from reconciler.providers.confluent.link_options import LinkOptions, select_set_configs
from reconciler.providers.models import to_declared_link
from reconciler.resources.address import Address, address_of
from reconciler.resources.mirrors import (
    NEVER_FETCHED,
    UNTOLD_VERB,
    LinkEntry,
    MirrorEntry,
    OffsetStretch,
    Position,
    Trouble,
)
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.text import to_one_line

if TYPE_CHECKING:
    from reconciler.providers.brokers.translate import TopicMetadata
    from reconciler.providers.confluent.kafka_over_rest import RestKafkaClient

_LINK_STATES: Final = {
    "ACTIVE": LinkStatus.ACTIVE,
    "AVAILABLE": LinkStatus.ACTIVE,
    "PAUSED": LinkStatus.PAUSED,
    "UNAVAILABLE": LinkStatus.UNAVAILABLE,
    "FAILED": LinkStatus.FAILED,
}
_NO_ERRORS: Final = frozenset({"", "None", "NO_ERROR", "NOT_SET", "UNKNOWN"})
_IDLE_TASKS: Final = frozenset({"ACTIVE", "NOT_CONFIGURED", "UNKNOWN", "LINK_PAUSED", ""})
_SYNONYMS: Final = {"PENDING_RESTORE_MIRROR": MirrorStatus.PENDING_RESTORE}
_BY_LINK: Final = frozenset(
    {MirrorStatus.LINK_PAUSED, MirrorStatus.LINK_FAILED, MirrorStatus.SOURCE_UNAVAILABLE, MirrorStatus.ACTIVE}
)
"""States that the entry of a mirror does not store, because its link or a problem determines them."""
STOPPED: Final = "STOPPED"
NAMES_AT_ONCE: Final = 100
"""Mirrors per verb; no limit is documented (confluent.md, 12)."""


@dataclass(frozen=True, slots=True)
class ClusterLink:
    """A link, or this cluster's half of it, as the API lists it."""

    name: str
    id: str
    state: str
    """Known and unknown states, as the platform says them."""
    source_cluster_id: str | None
    remote_cluster_id: str | None
    """Id of the other cluster of a bidirectional link, or of the destination of a source's half."""
    trouble: Trouble | None
    tasks: Mapping[str, Trouble]
    """Tasks that report errors, by name."""
    configs: Mapping[str, str | None]
    """Configs set on it, without defaults; secrets are `None`."""

    @classmethod
    def from_json(cls, row: Json, configs: Iterable[Json]) -> ClusterLink:
        """Parse a link with its configs."""
        error = str(row.get("link_error") or "")
        message = to_one_line(str(row.get("link_error_message") or "no reason is reported"))
        return cls(
            str(row.get("link_name", "")),
            str(row.get("cluster_link_id") or ""),
            str(row.get("link_state") or "ACTIVE"),
            row.get("source_cluster_id") or None,
            row.get("remote_cluster_id") or row.get("destination_cluster_id") or None,
            None if error in _NO_ERRORS else Trouble(error, message),
            dict(_parse_tasks(row.get("tasks") or ())),
            select_set_configs(configs),
        )

    def explain_tasks(self) -> str:
        """Return a sentence's end with what tasks report; empty without errors."""
        reasons = "; ".join(f"{name}: {trouble.message}" for name, trouble in self.tasks.items())
        return f": {reasons}" if reasons else ""


def _parse_tasks(rows: Iterable[Json]) -> Iterator[tuple[str, Trouble]]:
    for row in rows:
        name, state, errors = str(row.get("task_name", "")), str(row.get("state") or ""), row.get("errors") or ()
        if state not in _IDLE_TASKS or errors:
            texts = [f"{error.get('error_code')}: {error.get('error_message')}" for error in errors]
            yield name, Trouble(state, to_one_line("; ".join(texts) or "no reason is reported"))


@dataclass(frozen=True, slots=True)
class MirrorRow:
    """A mirror topic, as the API lists it."""

    name: str
    link: str
    source: str
    state: str
    """Known and unknown states, as the platform says them."""
    error: str
    since_ms: int
    lags: Mapping[int, tuple[int, int]]
    """Lag, and last fetched offset of the source (-1 for none), by partition."""
    transition_errors: Sequence[str] = ()

    @classmethod
    def from_json(cls, row: Json) -> MirrorRow:
        """Parse a mirror topic. Unknown fields are ignored."""
        lags = {
            int(lag["partition"]): (int(lag.get("lag") or 0), int(lag.get("last_source_fetch_offset", NEVER_FETCHED)))
            for lag in row.get("mirror_lags") or ()
        }
        errors = [
            to_one_line(f"{error.get('error_code')}: {error.get('error_message')}")
            for error in row.get("mirror_state_transition_errors") or ()
        ]
        return cls(
            str(row.get("mirror_topic_name", "")),
            str(row.get("link_name", "")),
            str(row.get("source_topic_name") or row.get("mirror_topic_name", "")),
            str(row.get("mirror_status") or ""),
            str(row.get("mirror_topic_error") or ""),
            int(row.get("state_time_ms") or 0),
            lags,
            errors,
        )

    @property
    def status(self) -> MirrorStatus | None:
        """The state; `None` if it is unknown."""
        if self.state in _SYNONYMS:
            return _SYNONYMS[self.state]
        return MirrorStatus(self.state) if self.state in MirrorStatus.__members__ else None

    @property
    def lag(self) -> int:
        """Lag in records of all partitions, as the link reports it."""
        return sum(lag for lag, _ in self.lags.values())


def parse_truncation(answer: Json) -> Sequence[OffsetStretch]:
    """Return the offsets that a restore truncates, from its answer for one mirror."""
    rows = answer.get("partition_level_truncation_data") or ()
    cuts = [(int(row["partition_id"]), int(row["offset_truncated_to"]), int(row["messages_truncated"])) for row in rows]
    return [OffsetStretch(number, start, start + count) for number, start, count in cuts if count]


@dataclass(frozen=True)
class LinkReader:
    """Reads cluster links as links and mirrors."""

    rest: RestClient
    options: LinkOptions
    known: Collection[Address]
    """Declared or recorded addresses of all clusters."""

    def list_links(self) -> list[ClusterLink]:
        """Return the links. Sends one request, and two for each link."""
        links = []
        for row in self.rest.list_rows("links"):
            link = self.find_link(str(row.get("link_name", "")))
            links += [] if link is None else [link]
        return links

    def find_link(self, name: str) -> ClusterLink | None:
        """Return a link; `None` if it does not exist."""
        try:
            # The list has no tasks.
            row = self.rest.read("links", name, include_tasks=True)
            return ClusterLink.from_json(row, self.rest.list_rows("links", name, "configs"))
        except NotFoundError:
            return None

    def list_mirrors(self) -> list[MirrorRow]:
        """Return the mirrors of all links. Sends one request."""
        return [MirrorRow.from_json(row) for row in self.rest.list_rows("links", "-", "mirrors")]

    def open_other(self, cluster: str) -> LinkReader:
        """Return a reader of the other cluster of a link."""
        declared = self.options.edge.clusters.get(cluster)
        if declared is None or declared.spec.confluent is None:
            message = f"cluster {cluster}, the other one of a link, is not declared as a Confluent cluster"
            raise UserError(message, hint="Declare it: both clusters of a link are needed to swap roles.")
        return replace(self, rest=RestClient(declared, self.options.edge))

    def preview_verb(
        self, verb: str, link: str, names: Collection[str]
    ) -> Mapping[str, Sequence[OffsetStretch] | ReconcilerError]:
        """Return the offsets that a verb would truncate, or why it is refused, by flat name."""
        previews: dict[str, Sequence[OffsetStretch] | ReconcilerError] = {}
        ordered = sorted(names)
        for begin in range(0, len(ordered), NAMES_AT_ONCE):
            some = ordered[begin:][:NAMES_AT_ONCE]
            try:
                answers = self.rest.request_verb(link, verb, some, is_trial=True)
            except ReconcilerError as error:
                return dict.fromkeys(names, error)
            previews |= {
                name: answer if isinstance(answer, ReconcilerError) else parse_truncation(answer)
                for name, answer in answers.items()
            }
        return previews

    def read_entries(self, topics: Mapping[str, TopicMetadata]) -> Entries:
        """Return links and mirrors as the ledger stores them. `topics`: those of the cluster, by name."""
        links = {link.name: link for link in self.list_links()}
        entries: dict[tuple[str | int, ...], Mapping[str, Any]] = {}
        sources: dict[str, str] = {}
        for name, link in links.items():
            entry = self.build_entry(link)
            sources[name], entries[link_key(name)] = entry.source_cluster, entry.to_json()
        for row in self.list_mirrors() if links else ():
            if row.name in topics and row.link in links:
                mirror = self._build_mirror(links[row.link], sources[row.link], row, topics[row.name].id)
                entries[mirror_key(row.name)] = mirror.to_document()
        return entries

    def build_entry(self, link: ClusterLink) -> LinkEntry:
        """Return a link's entry; raise `UserError` if no MirrorLink can say it."""
        try:
            spec = self.options.to_declared(link.configs, link.source_cluster_id, link.remote_cluster_id)
            to_declared_link(link.name, self.options.cluster, LinkEntry(link.id, spec["source"], spec))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            what = f"cluster {self.options.cluster}: link {link.name} has configs that are not understood"
            raise UserError(
                f"{what}: {to_one_line(str(error))}",
                hint="See them with: confluent kafka link configuration list. Leave the cluster out with --exclude.",
            ) from error
        status, trouble = _LINK_STATES.get(link.state, LinkStatus.ACTIVE), link.trouble
        if link.state not in _LINK_STATES and trouble is None:
            trouble = Trouble(link.state, "Confluent reports a state of the link that is unknown here")
        is_away = status is LinkStatus.ACTIVE and link.trouble is not None
        return LinkEntry(
            link.id,
            spec["source"],
            spec,
            LinkStatus.UNAVAILABLE if is_away else LinkStatus.ACTIVE if status is LinkStatus.PAUSED else status,
            trouble,
            link.tasks,
            link.source_cluster_id or link.remote_cluster_id,
        )

    def _build_mirror(self, link: ClusterLink, source_cluster: str, row: MirrorRow, topic_id: str) -> RecordedMirror:
        status, naming = row.status, self.options.naming
        trouble = None if row.error in _NO_ERRORS else Trouble(row.error, "Confluent reports it of the mirror")
        if status is None:
            trouble = Trouble(row.state or "UNKNOWN", "Confluent reports a state of the mirror that is unknown here")
        elif status is MirrorStatus.SOURCE_UNAVAILABLE and trouble is None:
            trouble = Trouble(row.state, f"the link does not reach its source{link.explain_tasks()}", row.since_ms)
        elif row.transition_errors:
            trouble = Trouble(row.transition_errors[0].partition(":")[0], "; ".join(row.transition_errors))
        full_name, source = naming.to_full_name(row.name), naming.to_full_name(row.source)
        # With swapped roles, files have the mirror on the other cluster.
        both = {
            address_of("mirror", self.options.cluster, full_name),
            address_of("mirror", source_cluster, source),
        }
        entry = MirrorEntry(
            link.id,
            source,
            None,
            MirrorStatus.ACTIVE if status is None or status in _BY_LINK else status,
            first_copy_done=True,
            since_ms=row.since_ms,
            trouble=trouble,
            stopped_by=UNTOLD_VERB if status is MirrorStatus.STOPPED else None,
            is_automatic=both.isdisjoint(self.known),
        )
        return RecordedMirror(full_name, link.name, topic_id, entry)


@dataclass(frozen=True)
class ConfluentSite(NativeSite):
    """Cluster whose links are cluster links."""

    client: RestKafkaClient
    reader: LinkReader


@dataclass(frozen=True, slots=True)
class ConfluentLinks(NativeLinks):
    """Links that one Confluent cluster copies itself."""

    site: ConfluentSite

    def preview_verb(
        self, verb: str, link: str, full_names: Collection[str]
    ) -> Mapping[str, Sequence[OffsetStretch] | ReconcilerError]:
        """Ask the cluster what a verb would do."""
        names = {self.site.naming.to_physical(full_name): full_name for full_name in full_names}
        previews = self.site.reader.preview_verb(verb, link, names)
        return {names[name]: preview for name, preview in previews.items() if name in names}

    def _read_positions(self, places: Sequence[Place]) -> Mapping[Place, Position]:
        """Return ends by lags and, if brokers are declared, by their offsets."""
        rows = {row.name: row for row in self.site.reader.list_mirrors()}
        bounds = read_bounds(self.site.client, places) if self.site.client.has_brokers else {}
        positions = {}
        for topic, number in places:
            row, at = rows.get(topic), bounds.get((topic, number))
            lag, fetched = (0, NEVER_FETCHED) if row is None else row.lags.get(number, (0, NEVER_FETCHED))
            start, end = (0, fetched + 1) if at is None else (at.start, at.end)
            source_end = None if row is None or row.state == STOPPED else max(end, fetched + 1) + lag
            positions[topic, number] = Position(start, end, fetched=fetched + 1, source_end=source_end)
        return positions
