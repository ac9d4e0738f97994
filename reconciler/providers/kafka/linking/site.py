"""What links need of their destination: how it is asked, how its names are read, and its ledger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.errors import ReconcilerError, UserError
from reconciler.planning.actions import Change, Create, Delete, Update
from reconciler.planning.fields import CONFIGS
from reconciler.providers.base import Failed
from reconciler.providers.kafka.ledger import CONFIGS as LEDGER_CONFIGS
from reconciler.providers.kafka.ledger import REPLICAS, TOPIC
from reconciler.providers.kafka.linking.states import states_of
from reconciler.resources.address import address_of, split_name
from reconciler.resources.metadata import InNamespace
from reconciler.resources.topic import Topic, TopicSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from reconciler.planning.actions import ControlAction
    from reconciler.providers.base import Outcome
    from reconciler.providers.kafka.client import KafkaClient
    from reconciler.providers.kafka.ledger import Ledger
    from reconciler.providers.kafka.linking.states import States
    from reconciler.providers.kafka.metadata import TopicSeen
    from reconciler.providers.kafka.naming import Naming
    from reconciler.resources.address import Address
    from reconciler.resources.capabilities import Capabilities


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
        """Return what its brokers call a topic, and the topic where it is there."""
        name = self.naming.physical(full_name)
        seen = self.client.topics([name]).get(name)
        return name, None if seen is None or seen.error else seen

    def seen(self, names: Iterable[str] | None = None) -> dict[str, TopicSeen]:
        """Return topics that are there, by the names their brokers give them."""
        return {name: each for name, each in self.client.topics(names).items() if not each.error}

    def make(
        self, topics: Mapping[str, tuple[int, Mapping[str, str]]], may_go_on: Callable[[], None]
    ) -> dict[str, str | ReconcilerError]:
        """Make topics, by full name with partitions and configs, and return the id of each, or why there is none.

        One that is there already and is like that is left alone.
        """
        actions = [
            Create(address=self._address(name), after=self._topic(name, partitions, configs))
            for name, (partitions, configs) in topics.items()
        ]
        return self._done(dict(zip(topics, actions, strict=True)), may_go_on)

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
        topic = self._topic(full_name, after[0], {})
        action = Update(address=self._address(full_name), before=topic, after=topic, changes=tuple(changes))
        found = self._done({full_name: action}, may_go_on)[full_name]
        if isinstance(found, ReconcilerError):
            raise found

    def remove(self, topics: Mapping[str, str], may_go_on: Callable[[], None]) -> dict[str, str | ReconcilerError]:
        """Delete topics, by full name with their ids, and return why some could not be."""
        actions = {
            name: Delete(address=self._address(name), before=self._topic(name, 1, {}), incarnation=topic_id)
            for name, topic_id in topics.items()
        }
        return self._done(actions, may_go_on)

    def _done(
        self, actions: Mapping[str, ControlAction], may_go_on: Callable[[], None]
    ) -> dict[str, str | ReconcilerError]:
        from reconciler.providers.kafka.changing.batch import Batch  # noqa: PLC0415 - who looks needs none of it

        asked: Sequence[ControlAction] = list(actions.values())
        outcomes: Iterable[Outcome] = Batch(self.client, self.naming, asked, may_go_on).outcomes()
        return {
            name: found.error if isinstance(found, Failed) else found.incarnation or ""
            for name, found in zip(actions, outcomes, strict=True)
        }

    def _address(self, full_name: str) -> Address:
        return address_of("mirror", self.cluster, full_name)

    def _topic(self, full_name: str, partitions: int, configs: Mapping[str, str]) -> Topic:
        namespace, name = split_name(full_name)
        spec = TopicSpec(partitions=partitions).model_copy(update={"configs": dict(configs)})
        return Topic(metadata=InNamespace(name=name, namespace=namespace, cluster=self.cluster), spec=spec)


def make_ledger(client: KafkaClient) -> None:
    """Make the topic of the ledger, on as many brokers as hold three replicas; one that is there stays.

    Raises:
        ReconcilerError: The brokers refuse it.
    """
    from reconciler.providers.kafka.changing import onetopic  # noqa: PLC0415 - only who changes links pays

    seen = onetopic.seen(client, TOPIC)
    if seen is None or seen.error:
        shape = 1, min(REPLICAS, len(client.cluster().brokers))
        onetopic.create(client, TOPIC, shape, LEDGER_CONFIGS)
