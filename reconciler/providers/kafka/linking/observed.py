"""Links and mirrors as an inventory has them, from the ledger and what was seen of topics. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.providers.kafka.linking.configuring import is_declared
from reconciler.providers.kafka.linking.states import CREATING, states_of
from reconciler.providers.linkmodels import link_in, mirror_in
from reconciler.resources.address import address_of, kind_of
from reconciler.resources.inventory import Observed
from reconciler.resources.kafkaconfigs import PASSING
from reconciler.resources.overviews import Following, TopicShown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reconciler.providers.kafka.ledger import Entries
    from reconciler.providers.kafka.metadata import TopicSeen
    from reconciler.resources.address import Address
    from reconciler.resources.kinds import Resource


def laid_over(
    inventory: Mapping[Address, Observed],
    found: tuple[Entries, Mapping[str, TopicSeen], Mapping[str, Mapping[str, str]]],
    cluster: str,
    is_wanted: Callable[[str], bool] | None,
) -> dict[Address, Observed]:
    """Return an inventory of topics with links and mirrors; what is a mirror is no topic in it.

    `found` are the ledger's entries, and topics with what they set themselves.
    """
    entries, topics, configs = found
    names = {each.physical_name: address for address, each in inventory.items() if kind_of(address) == "topic"}

    def becomes(topic: str) -> Resource | None:
        return inventory[names[topic]].resource if topic in names else None

    no_topics = following(entries, topics) | announced(entries)
    followers = {names[topic] for topic in no_topics if topic in names}
    links = observed_links(entries, topics, cluster, configs, becomes)
    kept = {address: each for address, each in inventory.items() if address not in followers}
    return kept | {address: each for address, each in links.items() if is_wanted is None or is_wanted(address)}


def shown_mirrors(entries: Entries, topics: Mapping[str, TopicSeen], cluster: str) -> dict[str, TopicShown]:
    """Return what a listing says of topics that are mirrors, by the names their broker gives them."""
    states = states_of(entries).live({name: seen.id for name, seen in topics.items()})
    found = {}
    for topic, kept in states.mirrors.items():
        of = states.found(kept)
        if kept.follows and of is not None:
            follows = Following(states.status(kept), of[0], f"{of[1].source_cluster}/{kept.entry.source}")
            address = address_of("mirror", cluster, kept.name)
            found[topic] = TopicShown(address, len(topics[topic].replicas), None, following=follows)
    return found


def following(entries: Entries, topics: Mapping[str, TopicSeen]) -> frozenset[str]:
    """Return the topics that are mirrors, by the names their broker gives them: those are no ordinary topics."""
    live = states_of(entries).live({name: seen.id for name, seen in topics.items()})
    return frozenset(topic for topic, kept in live.mirrors.items() if kept.follows)


def announced(entries: Entries) -> frozenset[str]:
    """Return what is to become a mirror: a topic whose maker was killed is nobody's but its link's."""
    states = states_of(entries)
    return frozenset(
        topic
        for topic, kept in states.mirrors.items()
        if kept.entry.state == CREATING and states.found(kept) is not None
    )


def observed_links(
    entries: Entries,
    topics: Mapping[str, TopicSeen],
    cluster: str,
    configs: Mapping[str, Mapping[str, str]],
    becomes: Callable[[str], Resource | None] = lambda _topic: None,
) -> dict[Address, Observed]:
    """Return links and mirrors by their addresses, stopped ones too.

    `configs` is what topics set themselves. `becomes` gives the ordinary topic that a mirror would be, by the name its
    broker gives it.
    """
    states = states_of(entries).live({name: seen.id for name, seen in topics.items()})
    found = {
        address_of("link", cluster, name): Observed(link_in(name, cluster, link), link.id)
        for name, link in sorted(states.links.items())
    }
    for topic, kept in sorted(states.mirrors.items()):
        of, seen = states.found(kept), topics[topic]
        if of is None:
            continue
        sets = configs.get(topic, {}).items()
        own = {key: value for key, value in sets if is_declared(key, value) and key not in PASSING}
        resource = mirror_in(cluster, kept.name, kept.entry, of, own, len(seen.replicas))
        found[resource.address] = Observed(
            resource,
            seen.id,
            topic,
            state=states.status(kept),
            first_copy_done=kept.entry.first_copy_done,
            is_automatic=kept.entry.is_automatic,
            since_ms=kept.entry.since_ms,
            stopped_by=kept.entry.stopped_by,
            becomes=becomes(topic) if kept.follows else None,
        )
    return found
