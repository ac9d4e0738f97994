"""What links need of their destination and source."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import NotFoundError, ReconcilerError, RetryableError, UserError
from reconciler.planning.actions import Change
from reconciler.planning.fields import CONFIGS
from reconciler.providers.kafka.ledger import CONFIGS as LEDGER_CONFIGS
from reconciler.providers.kafka.ledger import REPLICAS, TOPIC, Ledger
from reconciler.providers.kafka.links.link_states import States, states_of
from reconciler.providers.kafka.mount_ledger import CONFIGS as SEAL
from reconciler.providers.kafka.mount_ledger import SEALED, is_sealed, seals_in
from reconciler.providers.kafka.offsets import EARLIEST, LATEST, offsets_at
from reconciler.providers.kafka.translate import ConfigSeen, Naming, TopicSeen, is_internal
from reconciler.providers.protocol import Failed
from reconciler.providers.protocol_links import Marked
from reconciler.resources.address import address_of
from reconciler.resources.kafka_configs import PASSING
from reconciler.resources.mirrors import Offered, SourceTopic
from reconciler.resources.topic import TopicSpec

if TYPE_CHECKING:
    from reconciler.providers.kafka.admin_requests import PendingChange
    from reconciler.providers.kafka.client import KafkaClient
    from reconciler.resources.inventory import Capabilities


@dataclass(frozen=True)
class Site:
    """One destination. Safe to share between threads."""

    client: KafkaClient
    naming: Naming
    ledger: Ledger
    now_ms: Callable[[], int]
    new_id: Callable[[], str]
    capabilities: Callable[[], Capabilities]

    @property
    def cluster(self) -> str:
        """What manifests call it."""
        return self.client.name

    def states(self) -> States:
        """Return its links and mirrors, also those whose topics are gone."""
        return states_of(self.ledger.read())

    def check_no_mirror(self, full_name: str, seen: TopicSeen) -> None:
        """Refuse what producers want of a mirror: its brokers would let them in, and it would be no copy any more.

        Raises:
            UserError: It follows a source.
        """
        states = self.states().live({seen.name: seen.id})
        kept = states.mirrors.get(seen.name)
        if kept is None or not kept.follows:
            return
        link = states.found(kept)
        of = kept.entry.source if link is None else f"topic/{link[1].source_cluster}/{kept.entry.source}"
        message = f"mirror/{self.cluster}/{full_name} is a mirror of {of}: only its link writes to it"
        raise UserError(message, hint="Produce to the source, or promote the mirror first.")

    def topic(self, full_name: str) -> tuple[str, TopicSeen | None]:
        """Return what its brokers call a topic, and the topic where it is there.

        Raises:
            NotAuthorizedError: The principal may not describe it.
        """
        name = self.naming.physical(full_name)
        return name, self.client.topic(name)

    def seen(self, names: Iterable[str] | None = None) -> dict[str, TopicSeen]:
        """Return topics that are there, by the names their brokers give them."""
        return {name: each for name, each in self.client.topics(names).items() if not each.error}

    def unshown(self, names: Collection[str]) -> dict[str, RetryableError]:
        """Return which topics are there of those that a broker did not show, and what to say of each.

        Brokers lag behind their controller, which refuses to make what is there.
        """
        from reconciler.providers.kafka.admin_requests import EXISTS, creation  # noqa: PLC0415 - who looks needs none

        if not names:
            return {}
        request = creation([(name, None, None, {}) for name in sorted(names)], is_trial=True)
        answer = self.client.send(request, doing="looking whether topics are there")
        return {each.name: self._lagging(each.name) for each in answer.topics if each.error_code == EXISTS}

    def _lagging(self, name: str) -> RetryableError:
        message = f"cluster {self.cluster}: the broker that answered does not show topic {name}, which exists"
        return RetryableError(message, hint="It lags behind its controller: run the same command again.")

    def make(
        self, topics: Mapping[str, tuple[int, Mapping[str, str]]], may_go_on: Callable[[], None]
    ) -> dict[str, str | ReconcilerError]:
        """Make topics, by full name with partitions and configs, and return the id of each, or why there is none.

        One that is there already and is like that is left alone.
        """
        specs = {
            name: TopicSpec(partitions=partitions).model_copy(update={"configs": dict(configs)})
            for name, (partitions, configs) in topics.items()
        }
        return self._done(
            {name: self._pending(name, is_creation=True, new=spec) for name, spec in specs.items()}, may_go_on
        )

    def shape(
        self,
        full_name: str,
        before: tuple[int, Mapping[str, str]],
        after: tuple[int, Mapping[str, str | None]],
        may_go_on: Callable[[], None],
    ) -> None:
        """Change partitions and configs of a topic; `None` resets one.

        Raises:
            ReconcilerError: The brokers refuse it.
        """
        keys = [key for key, value in sorted(after[1].items()) if before[1].get(key) != value]
        changes = [Change(f"{CONFIGS}{key}", before[1].get(key), after[1][key]) for key in keys]
        if after[0] != before[0]:
            changes.append(Change("partitions", before[0], after[0]))
        if not changes:
            return
        change = self._pending(
            full_name,
            configs={key: after[1][key] for key in keys},
            partitions=after[0] if after[0] != before[0] else None,
            changes=changes,
        )
        outcome = self._done({full_name: change}, may_go_on)[full_name]
        if isinstance(outcome, ReconcilerError):
            raise outcome

    def remove(self, topics: Mapping[str, str], may_go_on: Callable[[], None]) -> dict[str, str | ReconcilerError]:
        """Delete topics, by full name with their ids, and return why some could not be."""
        gone = {name: self._pending(name, is_gone=True, incarnation=topic_id) for name, topic_id in topics.items()}
        return self._done(gone, may_go_on)

    def _done(
        self, changes: Mapping[str, PendingChange], may_go_on: Callable[[], None]
    ) -> dict[str, str | ReconcilerError]:
        from reconciler.providers.kafka.admin import Batch  # noqa: PLC0415 - who looks needs none of it

        outcomes = Batch(self.client, self.naming, changes.values(), may_go_on).outcomes()
        return {
            name: outcome.error if isinstance(outcome, Failed) else outcome.incarnation or ""
            for name, outcome in zip(changes, outcomes, strict=True)
        }

    def _pending(self, full_name: str, **asked: Any) -> PendingChange:
        from reconciler.providers.kafka.admin_requests import PendingChange  # noqa: PLC0415 - as above

        address = address_of("mirror", self.cluster, full_name)
        return PendingChange(full_name, address, self.naming.physical(full_name), **asked)


def make_ledger(client: KafkaClient) -> None:
    """Make the topic of the ledger, on as many brokers as hold three replicas; one that is there stays.

    Raises:
        ReconcilerError: The brokers refuse it.
    """
    from reconciler.providers.kafka import admin  # noqa: PLC0415 - only who changes links pays

    seen = client.topics([TOPIC]).get(TOPIC)
    if seen is None or seen.error:
        shape = 1, min(REPLICAS, len(client.cluster().brokers))
        admin.create(client, TOPIC, shape, LEDGER_CONFIGS)


# What mirrors of topics of a Kafka cluster follow, and what changes whenever anything of that does.


_DEFAULT: Final = 5
"""Source of a config that nobody has set (6.1)."""
_UNAUTHORIZED: Final = 29
_MARK_BYTES: Final = 8
_LEADERLESS: Final = "no leader"


def source_topics(client: KafkaClient, topics: Mapping[str, TopicSeen], ledger: Ledger) -> dict[str, SourceTopic]:
    """Return what mirrors of topics follow, by the names their broker gives them: what they set or their brokers do.

    A topic whose configs may not be described is left out.

    What seals a topic while roles are swapped is no wish of anybody, and nothing that a mirror takes over.
    """
    found: dict[str, SourceTopic] = {}
    for name, configs in client.configs(sorted(topics)):
        if not isinstance(configs, int):
            seen, values = topics[name], _set(configs)
            if is_sealed(values) and (seal := seals_in(ledger.read(SEALED)).get(seen.id)) is not None:
                values = {key: value for key, value in values.items() if key not in SEAL} | dict(seal.said)
            found[name] = SourceTopic(partitions=len(seen.replicas), incarnation=seen.id, configs=values)
    return found


def _set(configs: Mapping[str, ConfigSeen]) -> dict[str, str]:
    return {
        key: each.value
        for key, each in sorted(configs.items())
        if each.source != _DEFAULT and each.value is not None and key not in PASSING
    }


def offered(site: Site, only: Collection[str] | None = None) -> dict[str, Offered]:
    """Return topics as a link sees them, by full name: two requests, and the ledger."""
    names = None if only is None else {site.naming.physical(name) for name in only}
    seen = site.client.topics(names)
    there = {name: each for name, each in seen.items() if not each.error and not is_internal(each)}
    live = site.states().live({name: each.id for name, each in there.items()})
    topics = source_topics(site.client, there, site.ledger)
    found = {
        site.naming.full_name(name): Offered(topic, is_mirror=name in live.mirrors and live.mirrors[name].follows)
        for name, topic in topics.items()
    }
    hidden = {name for name, each in seen.items() if each.error == _UNAUTHORIZED} | there.keys() - topics.keys()
    unreadable = Offered(SourceTopic(partitions=0), is_readable=False)
    return found | {site.naming.full_name(name): unreadable for name in sorted(hidden)}


def marks(site: Site) -> dict[str, Marked]:
    """Return every topic by full name, and what changes whenever one of its partitions does: four requests.

    Of a partition without a leader nobody tells offsets. Its mark is never that of a copy, so whoever follows it looks,
    and fails alone.

    Raises:
        ReconcilerError: The cluster does not answer, or may not be asked for offsets.
    """
    try:
        return _marks(site)
    except NotFoundError:  # A topic that is deleted meanwhile makes a request about all of them fail.
        return _marks(site)


def _marks(site: Site) -> dict[str, Marked]:
    there = {name: each for name, each in site.seen().items() if not is_internal(each)}
    places = [
        (name, number) for name, each in there.items() for number, leader in enumerate(each.leaders) if leader >= 0
    ]
    starts, ends = (offsets_at(site.client, places, spec) for spec in (EARLIEST, LATEST))
    found: dict[str, dict[int, str]] = {
        name: {number: _LEADERLESS for number, leader in enumerate(each.leaders) if leader < 0}
        for name, each in there.items()
    }
    for name, number in places:
        if ends[name, number]:
            found[name][number] = f"{starts[name, number]}-{ends[name, number]}"
    shapes = {name: SourceTopic(partitions=len(each.replicas), incarnation=each.id) for name, each in there.items()}
    topics = shapes | source_topics(site.client, there, site.ledger)
    return {site.naming.full_name(name): Marked(topic, found[name]) for name, topic in topics.items()}


def version(site: Site) -> str:
    """Return a word that changes whenever topics, their configs, access rules or links do."""
    from reconciler.providers.kafka.client import read_bindings  # noqa: PLC0415 - only who drives links pays

    topics = site.seen()
    shapes = sorted((name, each.id, len(each.replicas)) for name, each in topics.items())
    configs = sorted(
        (name, sorted(each.configs.items())) for name, each in source_topics(site.client, topics, site.ledger).items()
    )
    bindings, _ = read_bindings(site.client)
    entries = sorted((str(key), str(value)) for key, value in site.ledger.read().items())
    everything = repr((shapes, configs, sorted(map(repr, bindings)), entries))
    return blake2b(everything.encode(), digest_size=_MARK_BYTES).hexdigest()
