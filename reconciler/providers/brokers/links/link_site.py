"""Operations of links on their destination and source."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import NotFoundError, ReconcilerError, RetryableError, UserError
from reconciler.planning.actions import Change
from reconciler.planning.fields import CONFIGS
from reconciler.providers.brokers.ledger import CONFIGS as LEDGER_CONFIGS
from reconciler.providers.brokers.ledger import REPLICAS, TOPIC, Ledger
from reconciler.providers.brokers.links.link_states import LinkStates, parse_states
from reconciler.providers.brokers.mount_ledger import CONFIGS as SEAL
from reconciler.providers.brokers.mount_ledger import SEALED, is_sealed, parse_seals
from reconciler.providers.brokers.offsets import EARLIEST, LATEST, read_offsets
from reconciler.providers.brokers.translate import ClusterNaming, ConfigState, TopicMetadata, is_internal
from reconciler.providers.protocol import FailedAction
from reconciler.providers.protocol_links import TopicMark
from reconciler.resources.address import address_of
from reconciler.resources.kafka_configs import TRANSIENT_CONFIGS
from reconciler.resources.mirrors import OfferedTopic, SourceTopic
from reconciler.resources.topic import TopicSpec
from reconciler.runtime.dataclass import dataclass

if TYPE_CHECKING:
    from reconciler.providers.brokers.admin_requests import PendingChange
    from reconciler.providers.brokers.client import KafkaClient
    from reconciler.resources.inventory import Capabilities

# ruff: noqa: PLC0415 - only a pass needs these


@dataclass(frozen=True)
class LinkSite:
    """Destination of links, with its ledger. Thread-safe."""

    client: KafkaClient
    naming: ClusterNaming
    ledger: Ledger
    now_ms: Callable[[], int]
    new_id: Callable[[], str]
    capabilities: Callable[[], Capabilities]

    @property
    def cluster(self) -> str:
        """Name of the cluster in manifests."""
        return self.client.name

    def read_states(self) -> LinkStates:
        """Return links and mirrors, including mirrors without topics."""
        return parse_states(self.ledger.read())

    def check_no_mirror(self, full_name: str, seen: TopicMetadata) -> None:
        """Reject an active mirror, because brokers would accept its producers."""
        states = self.read_states().select_live({seen.name: seen.id})
        mirror = states.mirrors.get(seen.name)
        if mirror is None or not mirror.is_mirroring:
            return
        link = states.find_link(mirror)
        of = mirror.entry.source if link is None else f"topic/{link[1].source_cluster}/{mirror.entry.source}"
        message = f"mirror/{self.cluster}/{full_name} is a mirror of {of}: only its link writes to it"
        raise UserError(message, hint="Produce to the source, or promote the mirror first.")

    def read_topic(self, full_name: str) -> tuple[str, TopicMetadata | None]:
        """Return a topic's flat name, and its metadata; `None` if missing."""
        name = self.naming.to_physical(full_name)
        return name, self.client.read_topic(name)

    def read_topics(self, names: Iterable[str] | None = None) -> dict[str, TopicMetadata]:
        """Return existing topics by flat name."""
        return {name: topic for name, topic in self.client.read_topics(names).items() if not topic.error}

    def find_unshown_topics(self, names: Collection[str]) -> dict[str, RetryableError]:
        """Return errors of topics that brokers do not show but that the controller refuses to create."""
        from reconciler.providers.brokers.admin_requests import EXISTS, build_creation_request

        if not names:
            return {}
        request = build_creation_request(
            self.client.dialect, [(name, None, None, {}) for name in sorted(names)], is_trial=True
        )
        answer = self.client.send(request, doing="looking whether topics are there")
        return {
            result.name: self._lagging_error(result.name) for result in answer.topics if result.error_code == EXISTS
        }

    def _lagging_error(self, name: str) -> RetryableError:
        message = f"cluster {self.cluster}: the broker that answered does not show topic {name}, which exists"
        return RetryableError(message, hint="It lags behind its controller: run the same command again.")

    def create_topics(
        self, topics: Mapping[str, tuple[int, Mapping[str, str]]], may_go_on: Callable[[], None]
    ) -> dict[str, str | ReconcilerError]:
        """Create topics from (partitions, configs) by full name; return ids or errors.

        Existing topics with equal partitions and configs count as created.
        """
        specs = {
            name: TopicSpec(partitions=partitions).model_copy(update={"configs": dict(configs)})
            for name, (partitions, configs) in topics.items()
        }
        return self._apply(
            {name: self._build_pending_change(name, is_creation=True, new_spec=spec) for name, spec in specs.items()},
            may_go_on,
        )

    def change_topic(
        self,
        full_name: str,
        before: tuple[int, Mapping[str, str]],
        after: tuple[int, Mapping[str, str | None]],
        may_go_on: Callable[[], None],
    ) -> None:
        """Change partitions and configs of a topic; `None` resets a config."""
        keys = [key for key, value in sorted(after[1].items()) if before[1].get(key) != value]
        changes = [Change(f"{CONFIGS}{key}", before[1].get(key), after[1][key]) for key in keys]
        if after[0] != before[0]:
            changes.append(Change("partitions", before[0], after[0]))
        if not changes:
            return
        change = self._build_pending_change(
            full_name,
            configs={key: after[1][key] for key in keys},
            partitions=after[0] if after[0] != before[0] else None,
            changes=changes,
        )
        outcome = self._apply({full_name: change}, may_go_on)[full_name]
        if isinstance(outcome, ReconcilerError):
            raise outcome

    def delete_topics(
        self, topics: Mapping[str, str], may_go_on: Callable[[], None]
    ) -> dict[str, str | ReconcilerError]:
        """Delete topics, given as ids by full name; return ids or errors."""
        gone = {
            name: self._build_pending_change(name, is_deletion=True, incarnation=topic_id)
            for name, topic_id in topics.items()
        }
        return self._apply(gone, may_go_on)

    def _apply(
        self, changes: Mapping[str, PendingChange], may_go_on: Callable[[], None]
    ) -> dict[str, str | ReconcilerError]:
        from reconciler.providers.brokers.admin import TopicBatch

        outcomes = TopicBatch(self.client, self.naming, changes.values(), may_go_on).apply_changes()
        return {
            name: outcome.error if isinstance(outcome, FailedAction) else outcome.incarnation or ""
            for name, outcome in zip(changes, outcomes, strict=True)
        }

    def _build_pending_change(self, full_name: str, **fields: Any) -> PendingChange:
        from reconciler.providers.brokers.admin_requests import PendingChange

        address = address_of("mirror", self.cluster, full_name)
        return PendingChange(full_name, address, self.naming.to_physical(full_name), **fields)


def create_ledger_topic(client: KafkaClient, *, is_trial: bool = False) -> None:
    """Create the ledger's topic, with up to three replicas, if missing; a trial only finds out whether it can be."""
    from reconciler.providers.brokers import admin

    seen = client.read_topics([TOPIC]).get(TOPIC)
    if seen is None or seen.error:
        replicas, configs = (
            min(REPLICAS, len(client.describe_cluster().brokers)),
            {**LEDGER_CONFIGS, **client.dialect.ledger_configs},
        )
        if client.dialect.has_odd_replicas and replicas % 2 == 0:
            replicas -= 1
        admin.create_topic(
            client, TOPIC, (1, replicas), {key: value for key, value in configs.items() if value}, is_trial=is_trial
        )


_DEFAULT_SOURCE: Final = 5
_UNAUTHORIZED: Final = 29
_MARK_BYTES: Final = 8
_LEADERLESS: Final = "no leader"


def read_source_topics(
    client: KafkaClient, topics: Mapping[str, TopicMetadata], ledger: Ledger
) -> dict[str, SourceTopic]:
    """Return the properties that mirrors follow, by flat name, with configs set on topics or brokers.

    Brokers that do not tell which values were set give all values. Topics with hidden configs are omitted. A sealed
    topic has the configs before the seal.
    """
    sources: dict[str, SourceTopic] = {}
    for name, configs in client.read_configs(sorted(topics)):
        if not isinstance(configs, int):
            seen, values = topics[name], _select_set_configs(configs, tells_own=client.dialect.tells_own)
            if is_sealed(values) and (seal := parse_seals(ledger.read(SEALED)).get(seen.id)) is not None:
                values = {key: value for key, value in values.items() if key not in SEAL} | dict(seal.effective)
            sources[name] = SourceTopic(partitions=len(seen.replicas), incarnation=seen.id, configs=values)
    return sources


def _select_set_configs(configs: Mapping[str, ConfigState], *, tells_own: bool) -> dict[str, str]:
    return {
        key: config.value
        for key, config in sorted(configs.items())
        if not (tells_own and config.source == _DEFAULT_SOURCE)
        and config.value is not None
        and key not in TRANSIENT_CONFIGS
    }


def list_offered_topics(site: LinkSite, only: Collection[str] | None = None) -> dict[str, OfferedTopic]:
    """Return the topics offered to a link, by full name."""
    names = None if only is None else {site.naming.to_physical(name) for name in only}
    seen = site.client.read_topics(names)
    visible = {name: entry for name, entry in seen.items() if not entry.error and not is_internal(entry)}
    live = site.read_states().select_live({name: entry.id for name, entry in visible.items()})
    topics = read_source_topics(site.client, visible, site.ledger)
    offers = {
        site.naming.to_full_name(name): OfferedTopic(
            topic, is_mirror=name in live.mirrors and live.mirrors[name].is_mirroring
        )
        for name, topic in topics.items()
    }
    hidden = {name for name, entry in seen.items() if entry.error == _UNAUTHORIZED} | visible.keys() - topics.keys()
    unreadable = OfferedTopic(SourceTopic(partitions=0), is_readable=False)
    return offers | {site.naming.to_full_name(name): unreadable for name in sorted(hidden)}


def read_topic_marks(site: LinkSite) -> dict[str, TopicMark]:
    """Return all topics by full name, with an opaque mark per partition that changes with its records."""
    try:
        return _read_topic_marks_once(site)
    except NotFoundError:  # A request fails if one topic was deleted meanwhile, so it is repeated.
        return _read_topic_marks_once(site)


def _read_topic_marks_once(site: LinkSite) -> dict[str, TopicMark]:
    visible = {name: entry for name, entry in site.read_topics().items() if not is_internal(entry)}
    places = [
        (name, number) for name, entry in visible.items() for number, leader in enumerate(entry.leaders) if leader >= 0
    ]
    starts, ends = (read_offsets(site.client, places, spec) for spec in (EARLIEST, LATEST))
    by_topic: dict[str, dict[int, str]] = {
        name: {number: _LEADERLESS for number, leader in enumerate(entry.leaders) if leader < 0}
        for name, entry in visible.items()
    }
    for name, number in places:
        if ends[name, number]:
            by_topic[name][number] = f"{starts[name, number]}-{ends[name, number]}"
    shapes = {
        name: SourceTopic(partitions=len(entry.replicas), incarnation=entry.id) for name, entry in visible.items()
    }
    topics = shapes | read_source_topics(site.client, visible, site.ledger)
    return {site.naming.to_full_name(name): TopicMark(topic, by_topic[name]) for name, topic in topics.items()}


def compute_version(site: LinkSite) -> str:
    """Return a digest that changes with topics, configs, access rules and links."""
    from reconciler.providers.brokers.client import read_bindings

    topics = site.read_topics()
    shapes = sorted((name, topic.id, len(topic.replicas)) for name, topic in topics.items())
    configs = sorted(
        (name, sorted(topic.configs.items()))
        for name, topic in read_source_topics(site.client, topics, site.ledger).items()
    )
    bindings, _ = read_bindings(site.client)
    entries = sorted((str(key), str(value)) for key, value in site.ledger.read().items())
    everything = repr((shapes, configs, sorted(map(repr, bindings)), entries))
    return blake2b(everything.encode(), digest_size=_MARK_BYTES).hexdigest()
