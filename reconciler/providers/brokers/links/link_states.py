"""States of links and mirrors, in the ledger and as an inventory.

Mirrors are stored with the topic's id, so a recreated topic is not a mirror. A mirror in state `CREATING` may lack its
topic, and is neither shown nor copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import NotFoundError
from reconciler.lifecycles import MirrorStatus
from reconciler.providers.brokers.client import UNAUTHORIZED
from reconciler.providers.brokers.faults import hidden_topic_error
from reconciler.providers.brokers.ledger import (
    LINK_ENTRY,
    MIRROR_ENTRY,
    Changes,
    Entries,
    foreign_entry_error,
    link_key,
    mirror_key,
)
from reconciler.providers.models import to_declared_link, to_declared_mirror
from reconciler.resources.acls import AccessBinding, build_denial
from reconciler.resources.address import Address, address_of, kind_of
from reconciler.resources.base import LONG_MAX
from reconciler.resources.configs import STORAGE_MODE, fit_value
from reconciler.resources.inventory import Capabilities, FollowedSource, LiveMirror, Observed, Resource, TopicShown
from reconciler.resources.kafka_configs import TRANSIENT_CONFIGS, ConfigKey
from reconciler.resources.mirrors import (
    LinkEntry,
    MirrorEntry,
    NamedObjects,
    Operation,
    SourceTopic,
    compute_link_status,
    compute_mirror_status,
    list_synced_configs,
)
from reconciler.resources.redpanda_configs import LONGEST_MS
from reconciler.runtime.dataclass import dataclass, replace

if TYPE_CHECKING:
    from reconciler.providers.brokers.translate import TopicMetadata
    from reconciler.resources.mirror_link import MirrorTopic


CREATING: Final = "CREATING"


@dataclass(frozen=True, slots=True)
class RecordedMirror:
    """Mirror's entry with fields that only the ledger stores.

    `opening` is the operation that ended mirroring, until copiers are fenced.
    """

    name: str
    """Full name at the mirror's creation."""
    link: str
    topic_id: str | None
    entry: MirrorEntry
    opening: Operation | None = None
    denied: tuple[str, ...] = ()
    """Principals that the link denies WRITE, recorded before the rules exist and until they are deleted."""

    @property
    def is_mirroring(self) -> bool:
        """Whether copiers may run: the mirror is not stopped, or its copiers are not fenced yet."""
        return not self.entry.is_stopped or self.opening is not None

    @property
    def operation(self) -> Operation | None:
        """Operation in progress; `None` for a manual failover, which the user repeats after a crash."""
        ended = self.opening if self.opening is not None and self.opening.id else None
        return self.entry.operation or ended

    def to_document(self) -> dict[str, Any]:
        """Return the mirror's ledger document."""
        document = {**self.entry.to_json(), "name": self.name, "link": self.link, "topic_id": self.topic_id}
        if self.denied:
            document["denied"] = list(self.denied)
        return document if self.opening is None else {**document, "opening": self.opening.to_json()}


def parse_mirror(document: Mapping[str, Any]) -> RecordedMirror:
    """Parse a mirror's ledger document."""
    opening = document.get("opening")
    return RecordedMirror(
        document["name"],
        document["link"],
        document["topic_id"],
        MirrorEntry.from_json(dict(document)),
        None if opening is None else Operation.from_json(opening),
        tuple(document.get("denied", ())),
    )


@dataclass(frozen=True, slots=True)
class LinkStates:
    """All links and mirrors of a cluster. Mirrors are keyed by flat name (`shop.eu.orders`)."""

    links: Mapping[str, LinkEntry]
    mirrors: Mapping[str, RecordedMirror]

    def find_link(self, mirror: RecordedMirror) -> NamedObjects | None:
        """Return the name and entry of a mirror's link; `None` if deleted."""
        link = self.links.get(mirror.link)
        return (mirror.link, link) if link is not None and link.id == mirror.entry.link_id else None

    def compute_status(self, mirror: RecordedMirror) -> MirrorStatus:
        """Return the displayed status of a mirror."""
        if mirror.opening is not None:
            return MirrorStatus.PENDING_STOPPED
        named = self.find_link(mirror)
        return compute_mirror_status(mirror.entry, None if named is None else named[1])

    def require_link(self, name: str) -> LinkEntry:
        """Return a link; raise if missing."""
        if name not in self.links:
            raise NotFoundError(f"link {name} does not exist", hint="Create it first.")
        return self.links[name]

    def require_mirror(self, topic: str, full_name: str, topic_id: str | None) -> RecordedMirror:
        """Return an active or stopped mirror; raise if the topic with id `topic_id` is not a mirror."""
        mirror = self.mirrors.get(topic)
        if mirror is None or mirror.topic_id is None or mirror.topic_id != topic_id:
            raise NotFoundError(
                f"topic {full_name} is not mirrored", hint="See the mirrors with: reconciler mirror list"
            )
        return mirror

    def list_mirrors(self, link: str) -> Iterator[tuple[str, RecordedMirror]]:
        """Yield a link's mirrors by flat name."""
        current = self.links.get(link)
        for topic, mirror in sorted(self.mirrors.items()):
            if current is not None and mirror.entry.link_id == current.id:
                yield topic, mirror

    def select_live(self, ids: Mapping[str, str]) -> LinkStates:
        """Return the states without mirrors of missing topics; `ids` are topic ids by name."""
        existing = {
            name: mirror
            for name, mirror in self.mirrors.items()
            if mirror.topic_id and ids.get(name) == mirror.topic_id
        }
        return replace(self, mirrors=existing)

    def list_creating_topics(self, link: str) -> frozenset[str]:
        """Return flat names of mirrors in creation, even by a crashed process."""
        return frozenset(
            name for name, mirror in self.mirrors.items() if mirror.link == link and mirror.entry.state == CREATING
        )


def parse_states(entries: Entries) -> LinkStates:
    """Parse links and mirrors of a ledger."""
    links: dict[str, LinkEntry] = {}
    mirrors: dict[str, RecordedMirror] = {}
    for key, value in entries.items():
        try:
            if key[0] == LINK_ENTRY:
                links[str(key[1])] = LinkEntry.from_json(dict(value))
            elif key[0] == MIRROR_ENTRY:
                mirrors[str(key[1])] = parse_mirror(value)
        except (KeyError, TypeError, AttributeError) as error:
            raise foreign_entry_error(key, error) from error
    return LinkStates(links, mirrors)


def build_link_changes(name: str, link: LinkEntry | None) -> Changes:
    """Return the change that writes a link to the ledger; `None` removes it."""
    return {link_key(name): None if link is None else link.to_json()}


def build_mirror_changes(topic: str, mirror: RecordedMirror | None) -> Changes:
    """Return the change that writes a mirror to the ledger; `None` removes it."""
    return {mirror_key(topic): None if mirror is None else mirror.to_document()}


# With the pinned configs, brokers keep the source's timestamps, and old records do not expire on arrival.


KEPT: Final[Mapping[str, str]] = {"message.timestamp.type": "CreateTime"}
_PINNED: Final = ("message.timestamp.after.max.ms", "message.timestamp.before.max.ms")
"""Configs of every mirror unless declared otherwise. All timestamps are accepted, despite
`message.timestamp.difference.max.ms`.
"""
_NO_LIMITS: Final = frozenset(str(longest - 1) for longest in (LONG_MAX, LONGEST_MS))
"""Values of pinned configs, effectively unlimited. They differ by one from the largest, which users may declare."""


def list_synced_keys(link: LinkEntry) -> frozenset[str]:
    """Return the configs that a link syncs and its mirrors cannot set."""
    return frozenset(list_synced_configs(link)) | KEPT.keys()


def is_declared_config(key: str, value: str) -> bool:
    """Return whether a config of a mirror is user-declared: its value is not the pinned one."""
    return key not in KEPT and not is_pinned(key, value)


def is_pinned(key: str, value: str | None) -> bool:
    """Return whether a config has the value that every mirror gets."""
    return key in _PINNED and value in _NO_LIMITS


def _list_pinned_configs(known: Mapping[str, ConfigKey]) -> dict[str, str]:
    return {key: str(int(known[key].maximum or LONG_MAX) - 1) for key in _PINNED if key in known}


def resolve_synced_configs(
    source: SourceTopic, link: LinkEntry, destination: Capabilities, own: Mapping[str, str]
) -> dict[str, str | None]:
    """Return a mirror's synced configs; `None` resets a config.

    A source's default is set if the destination's differs. Configs unknown to the destination, or refused on tiered
    topics, are omitted. Configs in `own` that users declared stay.
    """
    pinned = _list_pinned_configs(destination.configs)
    taken: dict[str, str | None] = {key: value for key, value in pinned.items() if own.get(key, value) == value}
    configs = {**destination.defaults, **own}
    mode, switches = configs.get(STORAGE_MODE, "unset"), {configs.get("remote.read"), configs.get("remote.write")}
    is_tiered = mode == "tiered" or (mode == "unset" and "true" in switches)
    for key in sorted(list_synced_keys(link)):
        known = destination.configs.get(key)
        if known is None or (known.is_untiered and is_tiered):
            continue
        default = None if known.default is None else fit_value(known, known.default)
        if destination.defaults.get(key, default) == default:
            default = None
        value = source.configs.get(key, pinned.get(key, default))
        taken[key] = KEPT.get(key) or (None if value is None else fit_value(known, value))
    return taken


def overlay_links(
    inventory: Mapping[Address, Observed],
    observation: tuple[Entries, Mapping[str, TopicMetadata], Mapping[str, Mapping[str, str]]],
    cluster: str,
    is_wanted: Callable[[str], bool] | None,
    bindings: frozenset[AccessBinding] = frozenset(),
) -> dict[Address, Observed]:
    """Return an inventory with links and mirrors instead of the mirrors' topics.

    `observation` is the ledger's entries, the topics, and the topics' own configs.
    """
    entries, topics, configs = observation
    names = {observed.physical_name: address for address, observed in inventory.items() if kind_of(address) == "topic"}

    def find_ordinary_topic(topic: str) -> Resource | None:
        return inventory[names[topic]].resource if topic in names else None

    no_topics = list_mirror_topics(entries, topics) | find_creating_topics(entries)
    followers = {names[topic] for topic in no_topics if topic in names}
    links = observe_links(entries, topics, cluster, configs, find_ordinary_topic, bindings=bindings)
    resources = {address: observed for address, observed in inventory.items() if address not in followers}
    return resources | {
        address: observed for address, observed in links.items() if is_wanted is None or is_wanted(address)
    }


def list_shown_mirrors(entries: Entries, topics: Mapping[str, TopicMetadata], cluster: str) -> dict[str, TopicShown]:
    """Return mirrors for listing, by flat name."""
    states = parse_states(entries).select_live({name: seen.id for name, seen in topics.items()})
    shown = {}
    for topic, mirror in states.mirrors.items():
        of = states.find_link(mirror)
        if mirror.is_mirroring and of is not None:
            follows = FollowedSource(
                states.compute_status(mirror), of[0], f"{of[1].source_cluster}/{mirror.entry.source}"
            )
            address = address_of("mirror", cluster, mirror.name)
            shown[topic] = TopicShown(address, len(topics[topic].replicas), None, following=follows)
    return shown


def list_mirror_topics(entries: Entries, topics: Mapping[str, TopicMetadata]) -> frozenset[str]:
    """Return flat names of mirrors' topics."""
    live = parse_states(entries).select_live({name: seen.id for name, seen in topics.items()})
    return frozenset(topic for topic, mirror in live.mirrors.items() if mirror.is_mirroring)


def find_creating_topics(entries: Entries) -> frozenset[str]:
    """Return flat names of mirrors being created."""
    states = parse_states(entries)
    return frozenset(
        topic
        for topic, mirror in states.mirrors.items()
        if mirror.entry.state == CREATING and states.find_link(mirror) is not None
    )


def find_recorded_mirrors(entries: Entries, cluster: str, names: Iterable[str]) -> dict[str, MirrorTopic]:
    """Return the ledger's mirrors with these names, for topics whose ids brokers hide."""
    states = parse_states(entries)
    mirrors: dict[str, MirrorTopic] = {}
    for topic in names:
        mirror = states.mirrors.get(topic)
        of = None if mirror is None else states.find_link(mirror)
        if mirror is not None and of is not None and mirror.is_mirroring:
            mirrors[topic] = to_declared_mirror(cluster, mirror.name, mirror.entry, of, {}, 1)
    return mirrors


def list_denials(entries: Entries) -> frozenset[AccessBinding]:
    """Return the recorded access rules that protect mirrors. Some may not exist."""
    mirrors = parse_states(entries).mirrors
    return frozenset(build_denial(topic, principal) for topic, mirror in mirrors.items() for principal in mirror.denied)


def observe_links(
    entries: Entries,
    topics: Mapping[str, TopicMetadata],
    cluster: str,
    configs: Mapping[str, Mapping[str, str]],
    find_ordinary_topic: Callable[[str], Resource | None] = lambda _topic: None,
    *,
    bindings: frozenset[AccessBinding] = frozenset(),
) -> dict[Address, Observed]:
    """Return links, and active and stopped mirrors, by address.

    `configs` are the topics' own configs.
    """
    states = parse_states(entries).select_live({name: seen.id for name, seen in topics.items()})
    observed = {
        address_of("link", cluster, name): Observed(
            to_declared_link(name, cluster, link), link.id, state=compute_link_status(link)
        )
        for name, link in sorted(states.links.items())
    }
    for topic, mirror in sorted(states.mirrors.items()):
        of, seen = states.find_link(mirror), topics[topic]
        if of is None:
            continue
        sets = configs.get(topic, {}).items()
        own = {key: value for key, value in sets if is_declared_config(key, value) and key not in TRANSIENT_CONFIGS}
        resource = to_declared_mirror(cluster, mirror.name, mirror.entry, of, own, len(seen.replicas))
        denied = tuple(principal for principal in mirror.denied if build_denial(topic, principal) in bindings)
        resource = resource.model_copy(update={"denied": denied}) if denied else resource
        observed[resource.address] = Observed(
            resource,
            seen.id,
            topic,
            state=states.compute_status(mirror),
            mirror=LiveMirror.from_entry(mirror.entry, find_ordinary_topic(topic) if mirror.is_mirroring else None),
            hidden=hidden_topic_error(cluster, topic) if seen.error == UNAUTHORIZED else None,
        )
    return observed
