"""Group offsets and access rules that a link syncs, and rules that keep writers out of its mirrors.

Brokers do not tell who committed an offset. What a link brings is in the ledger before it is committed, with what stood
there: whatever else a group has here, it committed itself, and that wins.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import NotAuthorizedError, ReconcilerError, UserError
from reconciler.providers.kafka.client import ABSENT, create_bindings, delete_bindings, read_bindings
from reconciler.providers.kafka.faults import of_code
from reconciler.providers.kafka.groups import committed_by, group_states, readable_by
from reconciler.providers.kafka.ledger import COPIES, Changes, Entries, Key, writer_of
from reconciler.providers.kafka.links.link_states import (
    KeptMirror,
    States,
    denials_in,
    link_changes,
    mirror_changes,
    states_of,
)
from reconciler.providers.kafka.records.copy_progress import map_of
from reconciler.providers.kafka.translate import TopicSeen, bindings_of_topic, placed
from reconciler.resources.acls import (
    EVERYONE,
    OPERATIONS,
    Binding,
    bindings_of_namespace,
    denial,
    denial_path,
    namespace_rules_apart,
    rule_at,
    rule_fields,
    writers,
)
from reconciler.resources.mirrors import (
    AccessRules,
    GroupOffsets,
    GroupOffsetsResult,
    GroupPosition,
    RuleFields,
    brought,
)
from reconciler.runtime.text import first_few

if TYPE_CHECKING:
    from reconciler.providers.kafka.links.link_site import Site
    from reconciler.records.offset_map import OffsetMap


BROUGHT: Final = "brought"
"""Kind of the entries of groups: by topic and partition, what is committed for it, and what was before."""
_MEMBERS: Final = frozenset({25, 68, 82})
"""The group has members: UNKNOWN_MEMBER_ID, NON_EMPTY_GROUP, and their like."""

_Committed = dict[tuple[str, int], GroupPosition]


def group_versions(site: Site, is_wanted: Callable[[str], bool]) -> dict[str, str | ReconcilerError]:
    """Return what changes whenever a group commits, by its name, or why it may not be read."""
    found, refused = _readable(site, [group for group in group_states(site.client) if is_wanted(group)])
    versions = {group: blake2b(repr(sorted(of.items())).encode(), digest_size=8) for group, of in found.items()}
    return {**{group: version.hexdigest() for group, version in versions.items()}, **refused}


def group_offsets(site: Site, groups: Collection[str]) -> dict[str, GroupOffsets]:
    """Return where groups go on reading, by full names of topics that are there."""
    there = site.seen()
    return {
        group: {(site.naming.full_name(topic), number): at for (topic, number), at in of.items() if topic in there}
        for group, of in _committed(site, groups).items()
    }


def bring_offsets(site: Site, groups: Mapping[str, GroupOffsets]) -> dict[str, GroupOffsetsResult | ReconcilerError]:
    """Set where groups go on reading mirrors; what is brought of all is noted at once."""
    return _Bringing(site, groups).brought() if groups else {}


def release(site: Site, link: str, topic: str) -> None:
    """Note that where groups had got to in a topic is as if brought: from here on its source has the last word."""
    there, _ = _readable(site, group_states(site.client))  # What may not be read here was not brought either.
    read = {group: {place: at for place, at in of.items() if place[0] == topic} for group, of in there.items()}
    read = {group: of for group, of in read.items() if of}

    def decide(entries: Entries) -> Changes:
        changes: dict[Key, Any] = {}
        for group, of in read.items():
            key = (BROUGHT, link, group)
            known = _noted(entries.get(key, {}))
            own = {place: at for place, at in of.items() if not _is_ours(at, known.get(place, ()))}
            if own:
                changes[key] = _document({**known, **{place: (at.offset, at.offset) for place, at in own.items()}})
        return changes

    site.ledger.change(writer_of(link), decide, BROUGHT)


@dataclass
class _Bringing:
    """One look at the ledger and at the groups; each map is read once."""

    site: Site
    groups: Mapping[str, GroupOffsets]
    _maps: dict[tuple[str, int], OffsetMap] = field(default_factory=dict)
    _news: dict[str, _Committed] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Look."""
        names = {name for offsets in self.groups.values() for name, _ in offsets}
        self.topics: dict[str, TopicSeen] = self.site.seen({self.site.naming.physical(name) for name in names})
        self.entries: Entries = self.site.ledger.read(*COPIES)
        ids = {name: seen.id for name, seen in self.topics.items()}
        self.states: States = states_of(self.entries).live(ids)
        self.members = {name for name, seen in group_states(self.site.client).items() if seen.has_members}
        self.there, self.refused = _readable(self.site, self.groups)
        self.own: dict[str, set[tuple[str, int]]] = defaultdict(set)

    def brought(self) -> dict[str, GroupOffsetsResult | ReconcilerError]:
        """Note what is to be committed, then commit it."""
        found: dict[str, GroupOffsetsResult | ReconcilerError] = {**self.refused}
        by_link: dict[str, dict[str, _Committed]] = defaultdict(dict)
        clamped: set[str] = set()
        for group, offsets in self.groups.items():
            if group in self.refused:
                continue
            wanted, is_clamped = self._wanted(offsets)
            if is_clamped:
                clamped.add(group)
            if group in self.members and wanted:
                found[group] = GroupOffsetsResult(reading=self._names(wanted))
                continue
            for place, at in wanted.items():
                by_link[self.states.mirrors[place[0]].link].setdefault(group, {})[place] = at
        for link, of in sorted(by_link.items()):
            self._note(link, of)
        for group in self.groups:
            if group not in found:
                found[group] = self._settled(group, is_clamped=group in clamped)
        return found

    def _note(self, link: str, wanted: Mapping[str, _Committed]) -> None:
        """Write down what is brought over one link, and what stood there; keep what is to be committed."""

        def decide(entries: Entries) -> Changes:
            changes: dict[Key, Any] = {}
            for group, of in wanted.items():
                key, there = (BROUGHT, link, group), self.there.get(group, {})
                known = _noted(entries.get(key, {}))
                own = {place for place, at in of.items() if _is_own(there.get(place), at, known.get(place, ()))}
                self.own[group] = (self.own[group] - of.keys()) | own
                news = {
                    place: at
                    for place, at in of.items()
                    if there.get(place) != at and _is_ours(there.get(place), known.get(place, ()))
                }
                self._news[group] = {**self._news.get(group, {}), **news}
                after = {**known, **{place: (at.offset, _offset(there.get(place))) for place, at in news.items()}}
                if after != known:
                    changes[key] = _document(after)
            return changes

        self.site.ledger.change(writer_of(link), decide, BROUGHT)

    def _settled(self, group: str, *, is_clamped: bool) -> GroupOffsetsResult | ReconcilerError:
        news = self._news.get(group, {})
        try:
            if news and not self._commit(group, news):
                return GroupOffsetsResult(reading=self._names(news))
        except ReconcilerError as error:
            return error
        return GroupOffsetsResult(
            is_changed=bool(news), is_clamped=is_clamped, own=self._names(self.own.get(group, ()))
        )

    def _wanted(self, offsets: GroupOffsets) -> tuple[_Committed, bool]:
        """Return where a group goes on in mirrors, and whether some partition has not come that far."""
        found: _Committed = {}
        is_clamped = False
        for (name, number), position in offsets.items():
            topic = self.site.naming.physical(name)
            kept = self.states.mirrors.get(topic)
            if kept is None or not kept.follows:
                continue  # It was deleted or stopped meanwhile.
            if number >= len(self.topics[topic].replicas):
                is_clamped = True
                continue
            known = self._map(topic, number)
            at = known.target_of(position.offset)
            if at is None:
                at = max((piece.target_end for piece in known), default=0)
                is_clamped = is_clamped or position.offset > known.through
            found[topic, number] = GroupPosition(at, position.metadata)
        return found, is_clamped

    def _map(self, topic: str, number: int) -> OffsetMap:
        if (topic, number) not in self._maps:
            self._maps[topic, number] = map_of(self.entries, topic, number)
        return self._maps[topic, number]

    def _commit(self, group: str, offsets: _Committed) -> bool:
        """Commit for a group that has no members; tell whether it was possible."""
        from kafka.structs import OffsetAndMetadata, TopicPartition  # noqa: PLC0415 - only who drives links pays

        asked = {TopicPartition(*place): OffsetAndMetadata(at.offset, at.metadata, -1) for place, at in offsets.items()}
        admin = self.site.client.admin
        answers = self.site.client.asked_of_group("committing offsets", admin.alter_group_offsets, group, asked)
        for place, answer in answers.items():
            code = getattr(answer, "errno", 0)
            if code in _MEMBERS:
                return False
            if code:
                raise of_code(code, "", what=f"group {group}: {place.topic}, partition {place.partition}")
        return True

    def _names(self, places: Iterable[tuple[str, int]]) -> tuple[str, ...]:
        return tuple(sorted({self.site.naming.full_name(topic) for topic, _ in places}))


def _is_ours(there: GroupPosition | None, brought: tuple[int, ...]) -> bool:
    """Tell whether what a group has here was brought, or is what was there before that was: then it was not yet."""
    return there is None or there.offset in brought


def _is_own(there: GroupPosition | None, wanted: GroupPosition, brought: tuple[int, ...]) -> bool:
    """Tell whether a group goes on elsewhere here than a link would bring it, because it said so itself."""
    return not _is_ours(there, brought) and _offset(there) != wanted.offset


def _offset(position: GroupPosition | None) -> int:
    return -1 if position is None else position.offset


def _noted(document: Mapping[str, Any]) -> dict[tuple[str, int], tuple[int, ...]]:
    return {(topic, int(number)): tuple(pair) for topic, of in document.items() for number, pair in of.items()}


def _document(brought: Mapping[tuple[str, int], tuple[int, ...]]) -> dict[str, Any]:
    found: dict[str, dict[str, list[int]]] = defaultdict(dict)
    for (topic, number), pair in brought.items():
        found[topic][str(number)] = list(pair)
    return dict(found)


def _committed(site: Site, groups: Iterable[str]) -> dict[str, _Committed]:
    """Return what groups have committed, by the names brokers give topics; those that are gone are absent."""
    return _positions(committed_by(site.client, groups))


def _readable(site: Site, groups: Collection[str]) -> tuple[dict[str, _Committed], dict[str, NotAuthorizedError]]:
    """Return the same of the groups that may be read, and why others may not."""
    found, refused = readable_by(site.client, groups)
    return _positions(found), refused


def _positions(committed: Mapping[str, Mapping[tuple[str, int], Any]]) -> dict[str, _Committed]:
    return {
        group: {place: GroupPosition(at.offset, at.metadata or "") for place, at in of.items()}
        for group, of in committed.items()
    }


# Access rules that a link brings to a Kafka cluster.
#
# What is the link's is in the ledger before it is bound, and as long as it may be: no rule is left that nobody knows.


_NONE: Final[RuleFields] = {}
_FEW: Final = 3


def rules(site: Site) -> AccessRules:
    """Return the access rules of topics and of known namespaces, in two requests.

    Raises:
        NotAuthorizedError: The principal may not see them.
    """
    return _rules(site, site.seen())


def _rules(site: Site, topics: Mapping[str, TopicSeen]) -> AccessRules:
    bindings, ours = _bindings(site), denials_in(site.ledger.read())
    found = placed([each for each in bindings if each not in ours], site.naming, topics.keys())
    return AccessRules(
        {name: rule_fields(acls) for name, acls in found.topics.items()},
        {name: rule_fields(acls) for name, acls in found.namespaces.items()},
    )


def _bindings(site: Site) -> list[Binding]:
    bindings, code = read_bindings(site.client)
    if code:
        raise of_code(code, "access rules cannot be read", what=f"cluster {site.cluster}")
    return bindings


@dataclass(frozen=True, slots=True)
class _Place:
    """A mirror, by the name its broker gives it, or a namespace: what changes there, and what is the link's then."""

    name: str
    is_namespace: bool
    changes: Mapping[str, tuple[str, ...] | None]
    there: RuleFields
    before: RuleFields
    own: Mapping[str, tuple[str, ...]]


def bring_rules(site: Site, link: str, wanted: AccessRules) -> int:
    """Give the mirrors of a link, and namespaces that are known here, the rules of a source; return how many changed.

    Raises:
        UserError: There is no such link.
    """
    topics = site.seen()
    states = site.states().live({name: seen.id for name, seen in topics.items()})
    places = _places(site, states, link, wanted, _rules(site, topics))
    if not any(each.changes or each.own != each.before for each in places):
        return 0
    site.ledger.change(writer_of(link), lambda entries: _kept(entries, link, places, is_done=False))
    binds, unbinds = (_bound(site, places, is_new=is_new) for is_new in (True, False))
    _check(create_bindings(site.client, sorted(binds - unbinds)) if binds - unbinds else [], site)
    _check(delete_bindings(site.client, sorted(unbinds - binds)) if unbinds - binds else [], site)
    site.ledger.change(writer_of(link), lambda entries: _kept(entries, link, places, is_done=True))
    return sum(bool(each.changes) for each in places)


def _as_kept(fields: RuleFields) -> RuleFields:
    """Return rules as brokers keep them: each about one kind and one name, with what there is to do with that kind."""
    return rule_fields(namespace_rules_apart((rule_at(*each) for each in fields.items()), OPERATIONS))


def _places(site: Site, states: States, link: str, wanted: AccessRules, here: AccessRules) -> list[_Place]:
    found = []
    for topic, kept in states.of(link):
        if kept.follows:
            there, before = here.topics.get(kept.name, _NONE), kept.entry.rules
            changes, own = brought(there, before, _as_kept(wanted.topics.get(kept.entry.source, _NONE)))
            found.append(_Place(topic, False, changes, there, before, own))  # noqa: FBT003 - it has a name there
    known, of_link = set(site.naming.prefixes.values()), states.link(link).rules
    for name in sorted({*wanted.namespaces, *of_link} & known):
        there, before = here.namespaces.get(name, _NONE), of_link.get(name, _NONE)
        changes, own = brought(there, before, _as_kept(wanted.namespaces.get(name, _NONE)))
        found.append(_Place(name, True, changes, there, before, own))  # noqa: FBT003 - as above
    return found


def _bound(site: Site, places: list[_Place], *, is_new: bool) -> set[Binding]:
    """Return the bindings of what changes, as they are to be, or as they are."""
    found: set[Binding] = set()
    for each in places:
        for path, after in each.changes.items():
            operations = after if is_new else each.there.get(path)
            if operations and each.is_namespace:
                found.update(bindings_of_namespace(site.naming.prefix(each.name), [rule_at(path, operations)]))
            elif operations:
                found.update(bindings_of_topic(each.name, [rule_at(path, operations)]))
    return found


def _kept(entries: Entries, link: str, places: list[_Place], *, is_done: bool) -> Changes:
    """Return what is noted of places: what is the link's; until it is bound, what was the link's, too."""
    states = states_of(entries)
    changes: dict[Key, Mapping[str, object] | None] = {}
    of_link = dict(states.link(link).rules)
    for each in places:
        own = dict(each.own) if is_done else _both(each.before, each.own)
        kept = states.mirrors.get(each.name)
        if each.is_namespace:
            of_link.pop(each.name, None)
            if own:
                of_link[each.name] = own
        elif kept is not None and kept.entry.rules != own:
            changes |= mirror_changes(each.name, replace(kept, entry=replace(kept.entry, rules=own)))
    if of_link != states.link(link).rules:
        changes |= link_changes(link, replace(states.link(link), rules=of_link))
    return changes


def _both(before: RuleFields, own: RuleFields) -> dict[str, tuple[str, ...]]:
    paths = sorted({*before, *own})
    return {path: tuple(sorted({*before.get(path, ()), *own.get(path, ())})) for path in paths}


def _check(answers: list[tuple[int, str]], site: Site) -> None:
    for code, message in answers:
        if code:
            raise of_code(code, message, what=f"access rules of cluster {site.cluster}")


# Writers kept out of mirrors: WRITE is denied to everyone whom a rule lets write, but to the link itself.
#
# Whom a mirror is protected from is in the ledger before it is denied, and until that is taken back. Who ends mirroring
# takes it back; who denied it meanwhile sees that afterwards, and takes it back again.


def protect(site: Site, link: str) -> int:
    """Bring the protection of the mirrors of a link to what access rules are now; return how many mirrors changed.

    Raises:
        NotAuthorizedError: The principal may not see or change access rules.
        UserError: Brokers have no authorizer, a rule lets everyone write, or who copies is not known.
    """
    states = site.states()
    kept = dict(states.of(link))
    is_on = states.link(link).declared.get("protect") == "acl"
    if not any(each.denied or (is_on and each.follows) for each in kept.values()):
        return 0
    topics = site.client.topics(kept)
    silent = _silent(site, kept, topics)
    bindings = frozenset(_bindings(site))
    wanted: dict[str, tuple[str, ...]] = {}
    for topic, each in kept.items():
        if topic in silent:
            continue  # No broker says that the mirror is gone: its rules stay.
        is_mirror = each.follows and topic in topics and topics[topic].id == each.topic_id
        wanted[topic] = _writers(site, topic, each.denied, bindings) if is_on and is_mirror else ()
    open_to_all = sorted(kept[topic].name for topic, found in wanted.items() if EVERYONE in found)
    changed = deny(site, link, {topic: found for topic, found in wanted.items() if EVERYONE not in found}, bindings)
    if open_to_all:
        message = f"an access rule lets {EVERYONE} write to {first_few(open_to_all, _FEW, grouping='')}"
        hint = "Name principals in that rule: a rule that denies everyone would keep the link out, too."
        raise UserError(f"mirrors cannot be protected: {message}", hint=hint)
    return changed


def _silent(site: Site, kept: Mapping[str, KeptMirror], topics: Mapping[str, TopicSeen]) -> set[str]:
    """Return protected mirrors of which brokers do not say whether they are there, or that they do not show yet."""
    asked = {topic: topics[topic].error for topic, each in kept.items() if each.follows and each.denied}
    absent = [topic for topic, error in asked.items() if error in ABSENT and kept[topic].topic_id is not None]
    return {topic for topic, error in asked.items() if error and error not in ABSENT} | site.unshown(absent).keys()


def _writers(site: Site, topic: str, denied: tuple[str, ...], bindings: frozenset[Binding]) -> tuple[str, ...]:
    own = site.capabilities().access.principal
    if own is None:
        message = f"cluster {site.cluster}: as whom its brokers know the link cannot be told"
        raise UserError(message, hint="Say it in spec.kafka.security.principal of the Cluster.")
    return writers(bindings, topic, own=own, denied=denied)


def deny(
    site: Site, link: str, wanted: Mapping[str, tuple[str, ...]], bindings: frozenset[Binding] | None = None
) -> int:
    """Deny writing to mirrors of a link, by their flat names, to exactly these; return how many mirrors changed."""
    kept = {topic: each for topic, each in site.states().mirrors.items() if topic in wanted}
    if not any(each.denied or wanted[topic] for topic, each in kept.items()):
        return 0
    there = frozenset(_bindings(site)) if bindings is None else bindings
    due = {
        topic: each
        for topic, each in kept.items()
        if set(each.denied) != set(wanted[topic]) or any(denial(topic, who) not in there for who in wanted[topic])
    }
    if not due:
        return 0
    site.ledger.change(writer_of(link), lambda entries: _noted_denials(entries, wanted, due, is_done=False))
    binds = {denial(topic, who) for topic in due for who in wanted[topic]} - there
    unbinds = {each for topic in due for each in _lifted(topic, kept[topic], wanted[topic])} & there
    _check(create_bindings(site.client, sorted(binds)) if binds else [], site)
    _check(delete_bindings(site.client, sorted(unbinds)) if unbinds else [], site)
    entries = site.ledger.change(writer_of(link), lambda entries: _noted_denials(entries, wanted, due, is_done=True))
    over = states_of(entries).mirrors
    late = [each for each in binds if each.name not in over or not over[each.name].follows]
    _check(delete_bindings(site.client, sorted(late)) if late else [], site)
    return len(due)


def lift(site: Site, mirrors: Mapping[str, KeptMirror]) -> None:
    """Take back what keeps writers out of mirrors, by their flat names; the ledger is left to the caller."""
    gone = sorted(each for topic, kept in mirrors.items() for each in _lifted(topic, kept, ()))
    _check(delete_bindings(site.client, gone) if gone else [], site)


def _lifted(topic: str, kept: KeptMirror, wanted: tuple[str, ...]) -> Iterator[Binding]:
    """Yield the rules that go; one that the source of a mirror has, too, stays: the link brought it."""
    for who in kept.denied:
        if who not in wanted and "write" not in kept.entry.rules.get(denial_path(who), ()):
            yield denial(topic, who)


def _noted_denials(
    entries: Entries, wanted: Mapping[str, tuple[str, ...]], due: Collection[str], *, is_done: bool
) -> Changes:
    changes: dict[Key, Mapping[str, object] | None] = {}
    for topic, kept in states_of(entries).mirrors.items():
        if topic not in due:
            continue
        after = wanted[topic] if kept.follows else ()
        denied = after if is_done else tuple(sorted({*kept.denied, *after}))
        if denied != kept.denied:
            changes |= mirror_changes(topic, replace(kept, denied=denied))
    return changes
