"""States of links and mirrors in the ledger, and as an inventory. Pure.

A mirror is kept by the name its broker gives it, with the id of its topic: one that was deleted and created again under
that name is no mirror. `CREATING` is one whose topic may not be there yet; nobody sees it, and no process copies to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import NotFoundError
from reconciler.lifecycles import MirrorStatus
from reconciler.providers.kafka.client import UNAUTHORIZED
from reconciler.providers.kafka.faults import hidden_topic
from reconciler.providers.kafka.ledger import LINK_ENTRY, MIRROR_ENTRY, Changes, Entries, foreign, link_key, mirror_key
from reconciler.providers.models import link_in, mirror_in
from reconciler.resources.acls import AccessBinding, denial
from reconciler.resources.address import Address, address_of, kind_of
from reconciler.resources.inventory import Capabilities, FollowedSource, LiveMirror, Observed, Resource, TopicShown
from reconciler.resources.kafka_configs import PASSING
from reconciler.resources.mirrors import (
    LinkEntry,
    MirrorEntry,
    NamedObjects,
    Operation,
    SourceTopic,
    link_status,
    status_of,
    synced_configs,
)

if TYPE_CHECKING:
    from reconciler.providers.kafka.translate import TopicSeen
    from reconciler.resources.mirror_link import MirrorTopic


CREATING: Final = "CREATING"


@dataclass(frozen=True, slots=True)
class KeptMirror:
    """A mirror: what is kept of it everywhere, and what a ledger needs beside that.

    `opening`: it was decided that its mirroring is over, and copiers may not be shut out yet; the operation is the one
    that ended so. The next process shuts them out.
    """

    name: str
    """Its full name, as it was when it was made."""
    link: str
    topic_id: str | None
    entry: MirrorEntry
    opening: Operation | None = None
    denied: tuple[str, ...] = ()
    """Principals that its link denies writing to it; said before the rules are made, until they are gone."""

    @property
    def follows(self) -> bool:
        """Tell whether it is a mirror, not an ordinary topic that was one."""
        return not self.entry.is_stopped or self.opening is not None

    @property
    def operation(self) -> Operation | None:
        """What it goes through; a failover is over for the process that drives operations, and is asked for again."""
        ended = self.opening if self.opening is not None and self.opening.id else None
        return self.entry.operation or ended

    def document(self) -> dict[str, Any]:
        """Return what the ledger keeps."""
        kept = {**self.entry.to_json(), "name": self.name, "link": self.link, "topic_id": self.topic_id}
        if self.denied:
            kept["denied"] = list(self.denied)
        return kept if self.opening is None else {**kept, "opening": self.opening.to_json()}


def kept_in(document: Mapping[str, Any]) -> KeptMirror:
    """Read a mirror back."""
    opening = document.get("opening")
    return KeptMirror(
        document["name"],
        document["link"],
        document["topic_id"],
        MirrorEntry.from_json(dict(document)),
        None if opening is None else Operation.from_json(opening),
        tuple(document.get("denied", ())),
    )


@dataclass(frozen=True, slots=True)
class States:
    """All links and mirrors of a cluster, mirrors by the names their broker gives them."""

    links: Mapping[str, LinkEntry]
    mirrors: Mapping[str, KeptMirror]

    def found(self, kept: KeptMirror) -> NamedObjects | None:
        """Return the link of a mirror with its name; `None`: it is gone."""
        link = self.links.get(kept.link)
        return (kept.link, link) if link is not None and link.id == kept.entry.link_id else None

    def status(self, kept: KeptMirror) -> MirrorStatus:
        """Return what is shown of a mirror."""
        if kept.opening is not None:
            return MirrorStatus.PENDING_STOPPED
        found = self.found(kept)
        return status_of(kept.entry, None if found is None else found[1])

    def link(self, name: str) -> LinkEntry:
        """Return a link.

        Raises:
            UserError: There is none.
        """
        if name not in self.links:
            raise NotFoundError(f"link {name} does not exist", hint="Create it first.")
        return self.links[name]

    def mirror(self, topic: str, full_name: str, topic_id: str | None) -> KeptMirror:
        """Return a mirror, stopped ones too; `topic_id`: of the topic that is there now.

        Raises:
            UserError: It is none.
        """
        kept = self.mirrors.get(topic)
        if kept is None or kept.topic_id is None or kept.topic_id != topic_id:
            raise NotFoundError(
                f"topic {full_name} is not mirrored", hint="See the mirrors with: reconciler mirror list"
            )
        return kept

    def of(self, link: str) -> Iterator[tuple[str, KeptMirror]]:
        """Yield the mirrors of a link."""
        found = self.links.get(link)
        for topic, kept in sorted(self.mirrors.items()):
            if found is not None and kept.entry.link_id == found.id:
                yield topic, kept

    def live(self, ids: Mapping[str, str]) -> States:
        """Return it with the mirrors whose topics are there, by the ids that topics have now."""
        there = {name: kept for name, kept in self.mirrors.items() if kept.topic_id and ids.get(name) == kept.topic_id}
        return replace(self, mirrors=there)

    def announced(self, link: str) -> frozenset[str]:
        """Return what is to become a mirror of a link, by the names of topics: their maker may have been killed."""
        return frozenset(
            name for name, kept in self.mirrors.items() if kept.link == link and kept.entry.state == CREATING
        )


def states_of(entries: Entries) -> States:
    """Return what a ledger says of links and mirrors.

    Raises:
        UserError: Somebody else wrote into it.
    """
    links: dict[str, LinkEntry] = {}
    mirrors: dict[str, KeptMirror] = {}
    for key, value in entries.items():
        try:
            if key[0] == LINK_ENTRY:
                links[str(key[1])] = LinkEntry.from_json(dict(value))
            elif key[0] == MIRROR_ENTRY:
                mirrors[str(key[1])] = kept_in(value)
        except (KeyError, TypeError, AttributeError) as error:
            raise foreign(key, error) from error
    return States(links, mirrors)


def link_changes(name: str, link: LinkEntry | None) -> Changes:
    """Return what the ledger is to have of a link."""
    return {link_key(name): None if link is None else link.to_json()}


def mirror_changes(topic: str, kept: KeptMirror | None) -> Changes:
    """Return what the ledger is to have of a mirror."""
    return {mirror_key(topic): None if kept is None else kept.document()}


# Which configs a mirror takes from its source on a Kafka cluster. Pure.
#
# Timestamps of a mirror are those of its source's records, whatever the source does with those of its own producers: a
# broker that stamped them anew would lose them, and one that finds them too far from now would refuse them for ever.
# Retention goes with them: what is old must not expire on arrival.


KEPT: Final[Mapping[str, str]] = {"message.timestamp.type": "CreateTime"}
_NO_LIMIT: Final = str(2**63 - 2)
"""As good as none, and one less than what people write for none: so what is ours is told from what they declare."""
PINNED: Final[Mapping[str, str]] = {
    "message.timestamp.after.max.ms": _NO_LIMIT,
    "message.timestamp.before.max.ms": _NO_LIMIT,
}
"""What a mirror has unless somebody says otherwise: it takes every time its source took, whatever brokers here take by
themselves. Where brokers know `message.timestamp.difference.max.ms` too, these go before it.
"""


def synced_keys(link: LinkEntry) -> frozenset[str]:
    """Return the configs that are not a mirror's own."""
    return frozenset(synced_configs(link)) | KEPT.keys()


def is_declared(key: str, value: str) -> bool:
    """Tell whether a config that a mirror sets may be somebody's wish, and is not what every mirror has."""
    return key not in KEPT and PINNED.get(key) != value


def taken_configs(
    source: SourceTopic, link: LinkEntry, here: Capabilities, own: Mapping[str, str]
) -> dict[str, str | None]:
    """Return what a mirror sets so that synced configs are its source's; `None`: nothing.

    Where its source has a default and the brokers here say something else, the default is set. What this version does
    not know is left out. `own` is what it sets, or is to be made with: what somebody declared stays.
    """
    taken: dict[str, str | None] = {
        key: value for key, value in PINNED.items() if key in here.configs and own.get(key, value) == value
    }
    for key in sorted(synced_keys(link)):
        known = here.configs.get(key)
        if known is None:
            continue
        default = known.default
        pinned = default if default is not None and here.defaults.get(key, default) != default else None
        taken[key] = KEPT.get(key) or source.configs.get(key, PINNED.get(key, pinned))
    return taken


# Links and mirrors as an inventory has them, from the ledger and what was seen of topics. Pure.


def laid_over(
    inventory: Mapping[Address, Observed],
    found: tuple[Entries, Mapping[str, TopicSeen], Mapping[str, Mapping[str, str]]],
    cluster: str,
    is_wanted: Callable[[str], bool] | None,
    bindings: frozenset[AccessBinding] = frozenset(),
) -> dict[Address, Observed]:
    """Return an inventory of topics with links and mirrors; what is a mirror is no topic in it.

    `found` are the ledger's entries, and topics with what they set themselves. `bindings` are all access rules.
    """
    entries, topics, configs = found
    names = {each.physical_name: address for address, each in inventory.items() if kind_of(address) == "topic"}

    def becomes(topic: str) -> Resource | None:
        return inventory[names[topic]].resource if topic in names else None

    no_topics = following(entries, topics) | announced(entries)
    followers = {names[topic] for topic in no_topics if topic in names}
    links = observed_links(entries, topics, cluster, configs, becomes, bindings=bindings)
    kept = {address: each for address, each in inventory.items() if address not in followers}
    return kept | {address: each for address, each in links.items() if is_wanted is None or is_wanted(address)}


def shown_mirrors(entries: Entries, topics: Mapping[str, TopicSeen], cluster: str) -> dict[str, TopicShown]:
    """Return what a listing says of topics that are mirrors, by the names their broker gives them."""
    states = states_of(entries).live({name: seen.id for name, seen in topics.items()})
    found = {}
    for topic, kept in states.mirrors.items():
        of = states.found(kept)
        if kept.follows and of is not None:
            follows = FollowedSource(states.status(kept), of[0], f"{of[1].source_cluster}/{kept.entry.source}")
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


def kept_mirrors(entries: Entries, cluster: str, names: Iterable[str]) -> dict[str, MirrorTopic]:
    """Return those of some topics that are kept as mirrors, by the names their broker gives them.

    Of what may not be described brokers tell no id: the ledger alone says that it is a mirror.
    """
    states = states_of(entries)
    found: dict[str, MirrorTopic] = {}
    for topic in names:
        kept = states.mirrors.get(topic)
        of = None if kept is None else states.found(kept)
        if kept is not None and of is not None and kept.follows:
            found[topic] = mirror_in(cluster, kept.name, kept.entry, of, {}, 1)
    return found


def denials_in(entries: Entries) -> frozenset[AccessBinding]:
    """Return the access rules by which links keep writers out of mirrors; some may not be made yet, or be gone."""
    mirrors = states_of(entries).mirrors
    return frozenset(denial(topic, each) for topic, kept in mirrors.items() for each in kept.denied)


def observed_links(
    entries: Entries,
    topics: Mapping[str, TopicSeen],
    cluster: str,
    configs: Mapping[str, Mapping[str, str]],
    becomes: Callable[[str], Resource | None] = lambda _topic: None,
    *,
    bindings: frozenset[AccessBinding] = frozenset(),
) -> dict[Address, Observed]:
    """Return links and mirrors by their addresses, stopped ones too.

    `configs` is what topics set themselves. `becomes` gives the ordinary topic that a mirror would be, by the name its
    broker gives it.
    """
    states = states_of(entries).live({name: seen.id for name, seen in topics.items()})
    found = {
        address_of("link", cluster, name): Observed(link_in(name, cluster, link), link.id, state=link_status(link))
        for name, link in sorted(states.links.items())
    }
    for topic, kept in sorted(states.mirrors.items()):
        of, seen = states.found(kept), topics[topic]
        if of is None:
            continue
        sets = configs.get(topic, {}).items()
        own = {key: value for key, value in sets if is_declared(key, value) and key not in PASSING}
        resource = mirror_in(cluster, kept.name, kept.entry, of, own, len(seen.replicas))
        denied = tuple(each for each in kept.denied if denial(topic, each) in bindings)
        resource = resource.model_copy(update={"denied": denied}) if denied else resource
        found[resource.address] = Observed(
            resource,
            seen.id,
            topic,
            state=states.status(kept),
            mirror=LiveMirror.of(kept.entry, becomes(topic) if kept.follows else None),
            hidden=hidden_topic(cluster, topic) if seen.error == UNAUTHORIZED else None,
        )
    return found
