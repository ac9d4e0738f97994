"""What mirrors of topics of a Kafka cluster follow, and what changes whenever anything of that does."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from reconciler.providers.base import Marked
from reconciler.providers.kafka.offsets import EARLIEST, LATEST, offsets_at
from reconciler.providers.kafka.translate import is_internal
from reconciler.resources.kafkaconfigs import PASSING
from reconciler.resources.sourcetopic import SourceTopic
from reconciler.resources.syncs import Offered

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from reconciler.providers.kafka.client import KafkaClient
    from reconciler.providers.kafka.linking.site import Site
    from reconciler.providers.kafka.metadata import ConfigSeen, TopicSeen

_DEFAULT: Final = 5
"""Source of a config that nobody has set (6.1)."""
_UNAUTHORIZED: Final = 29
_MARK_BYTES: Final = 8


def source_topics(client: KafkaClient, topics: Mapping[str, TopicSeen]) -> dict[str, SourceTopic]:
    """Return what mirrors of topics follow, by the names their broker gives them: what they set or their brokers do."""
    found: dict[str, SourceTopic] = {}
    for name, configs in client.configs(sorted(topics)):
        if not isinstance(configs, int):
            seen = topics[name]
            found[name] = SourceTopic(partitions=len(seen.replicas), incarnation=seen.id, configs=_set(configs))
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
    found = {
        site.naming.full_name(name): Offered(topic, is_mirror=name in live.mirrors and live.mirrors[name].follows)
        for name, topic in source_topics(site.client, there).items()
    }
    hidden = Offered(SourceTopic(partitions=0), is_readable=False)
    return found | {site.naming.full_name(name): hidden for name, each in seen.items() if each.error == _UNAUTHORIZED}


def marks(site: Site) -> dict[str, Marked]:
    """Return every topic by full name, and what changes whenever one of its partitions does: four requests."""
    there = {name: each for name, each in site.seen().items() if not is_internal(each)}
    places = [(name, number) for name, each in there.items() for number in range(len(each.replicas))]
    starts, ends = (offsets_at(site.client, places, spec) for spec in (EARLIEST, LATEST))
    found: dict[str, dict[int, str]] = {name: {} for name in there}
    for name, number in places:
        if ends[name, number]:
            found[name][number] = f"{starts[name, number]}-{ends[name, number]}"
    return {
        site.naming.full_name(name): Marked(topic, found[name])
        for name, topic in source_topics(site.client, there).items()
    }


def version(site: Site) -> str:
    """Return a word that changes whenever topics, their configs, access rules or links do."""
    from reconciler.providers.kafka.acls import read_bindings  # noqa: PLC0415 - only who drives links pays

    topics = site.seen()
    shapes = sorted((name, each.id, len(each.replicas)) for name, each in topics.items())
    configs = sorted((name, sorted(each.configs.items())) for name, each in source_topics(site.client, topics).items())
    bindings, _ = read_bindings(site.client)
    entries = sorted((str(key), str(value)) for key, value in site.ledger.read().items())
    everything = repr((shapes, configs, sorted(map(repr, bindings)), entries))
    return blake2b(everything.encode(), digest_size=_MARK_BYTES).hexdigest()
