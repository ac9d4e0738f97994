"""Sync of a link's group offsets and access rules, and protection of its mirrors.

A synced offset and the group's previous one are recorded before the commit. A group keeps any other offset, because it
has committed that offset itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import NotAuthorizedError, ReconcilerError, UserError
from reconciler.providers.brokers.client import ABSENT, create_bindings, delete_bindings, read_bindings
from reconciler.providers.brokers.faults import translate_code
from reconciler.providers.brokers.groups import read_committed_offsets, read_describable_offsets, read_group_states
from reconciler.providers.brokers.ledger import COPIES, Changes, Entries, Key, build_writer_id
from reconciler.providers.brokers.links.link_states import (
    LinkStates,
    RecordedMirror,
    build_link_changes,
    build_mirror_changes,
    list_denials,
    parse_states,
)
from reconciler.providers.brokers.records.copy_progress import parse_offset_map
from reconciler.providers.brokers.translate import TopicMetadata, assign_bindings, expand_topic_rules
from reconciler.resources.acls import (
    EVERYONE,
    OPERATIONS,
    AccessBinding,
    build_denial,
    build_denial_path,
    expand_namespace_rules,
    find_denied_writers,
    parse_rule,
    split_namespace_rules,
    to_rule_fields,
)
from reconciler.resources.mirrors import (
    AccessRules,
    GroupOffsets,
    GroupOffsetsResult,
    GroupPosition,
    RuleFields,
    plan_access_rule_changes,
)
from reconciler.runtime.dataclass import dataclass, field, replace
from reconciler.runtime.text import list_first

if TYPE_CHECKING:
    from reconciler.providers.brokers.links.link_site import LinkSite
    from reconciler.records.offset_map import OffsetMap


SYNCED_OFFSETS: Final = "brought"
"""Kind of a group's entry: synced and previous offset by topic and partition."""
_HAS_MEMBERS: Final = frozenset({25, 68, 82})
"""Error codes for groups with members: NON_EMPTY_GROUP, UNKNOWN_MEMBER_ID and similar."""

_Committed = dict[tuple[str, int], GroupPosition]


def compute_group_versions(site: LinkSite, is_wanted: Callable[[str], bool]) -> dict[str, str | ReconcilerError]:
    """Return a digest of each group's commits, or an error if they may not be read."""
    readable, refused = _read_positions(site, [group for group in read_group_states(site.client) if is_wanted(group)])
    versions = {group: blake2b(repr(sorted(of.items())).encode(), digest_size=8) for group, of in readable.items()}
    return {**{group: version.hexdigest() for group, version in versions.items()}, **refused}


def read_group_offsets(site: LinkSite, groups: Collection[str]) -> dict[str, GroupOffsets]:
    """Return groups' committed offsets, by full names of existing topics."""
    existing = site.read_topics()
    return {
        group: {
            (site.naming.to_full_name(topic), number): at for (topic, number), at in of.items() if topic in existing
        }
        for group, of in _read_committed(site, groups).items()
    }


def sync_group_offsets(
    site: LinkSite, groups: Mapping[str, GroupOffsets]
) -> dict[str, GroupOffsetsResult | ReconcilerError]:
    """Record synced offsets in the ledger, then commit them to the groups."""
    return _OffsetSync(site, groups).sync() if groups else {}


def mark_offsets_synced(site: LinkSite, link: str, topic: str) -> None:
    """Record groups' offsets in a topic as synced, so later syncs may overwrite them."""
    # Groups that may not be read are skipped: they were not synced.
    current, _ = _read_positions(site, read_group_states(site.client))
    read = {group: {place: at for place, at in of.items() if place[0] == topic} for group, of in current.items()}
    read = {group: of for group, of in read.items() if of}

    def decide(entries: Entries) -> Changes:
        changes: dict[Key, Any] = {}
        for group, of in read.items():
            key = (SYNCED_OFFSETS, link, group)
            known = _parse_offsets(entries.get(key, {}))
            own = {place: at for place, at in of.items() if not _was_synced(at, known.get(place, ()))}
            if own:
                changes[key] = _format_offsets(
                    {**known, **{place: (at.offset, at.offset) for place, at in own.items()}}
                )
        return changes

    site.ledger.change(build_writer_id(link), decide, SYNCED_OFFSETS)


@dataclass
class _OffsetSync:
    site: LinkSite
    groups: Mapping[str, GroupOffsets]
    _maps: dict[tuple[str, int], OffsetMap] = field(default_factory=dict)
    _new_offsets: dict[str, _Committed] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = {name for offsets in self.groups.values() for name, _ in offsets}
        self.topics: dict[str, TopicMetadata] = self.site.read_topics(
            {self.site.naming.to_physical(name) for name in names}
        )
        self.entries: Entries = self.site.ledger.read(*COPIES)
        ids = {name: seen.id for name, seen in self.topics.items()}
        self.states: LinkStates = parse_states(self.entries).select_live(ids)
        self.members = {name for name, seen in read_group_states(self.site.client).items() if seen.has_members}
        self.committed, self.refused = _read_positions(self.site, self.groups)
        self.own: dict[str, set[tuple[str, int]]] = defaultdict(set)

    def sync(self) -> dict[str, GroupOffsetsResult | ReconcilerError]:
        results: dict[str, GroupOffsetsResult | ReconcilerError] = {**self.refused}
        by_link: dict[str, dict[str, _Committed]] = defaultdict(dict)
        clamped: set[str] = set()
        for group, offsets in self.groups.items():
            if group in self.refused:
                continue
            wanted, is_clamped = self._translate(offsets)
            if is_clamped:
                clamped.add(group)
            if group in self.members and wanted:
                results[group] = GroupOffsetsResult(reading=self._to_full_names(wanted))
                continue
            for place, at in wanted.items():
                by_link[self.states.mirrors[place[0]].link].setdefault(group, {})[place] = at
        for link, of in sorted(by_link.items()):
            self._record_synced_offsets(link, of)
        for group in self.groups:
            if group not in results:
                results[group] = self._commit_group(group, is_clamped=group in clamped)
        return results

    def _record_synced_offsets(self, link: str, wanted: Mapping[str, _Committed]) -> None:
        def decide(entries: Entries) -> Changes:
            changes: dict[Key, Any] = {}
            for group, of in wanted.items():
                key, current = (SYNCED_OFFSETS, link, group), self.committed.get(group, {})
                known = _parse_offsets(entries.get(key, {}))
                own = {
                    place for place, at in of.items() if _has_own_commit(current.get(place), at, known.get(place, ()))
                }
                self.own[group] = (self.own[group] - of.keys()) | own
                news = {
                    place: at
                    for place, at in of.items()
                    if current.get(place) != at and _was_synced(current.get(place), known.get(place, ()))
                }
                self._new_offsets[group] = {**self._new_offsets.get(group, {}), **news}
                after = {
                    **known,
                    **{place: (at.offset, _get_offset(current.get(place))) for place, at in news.items()},
                }
                if after != known:
                    changes[key] = _format_offsets(after)
            return changes

        self.site.ledger.change(build_writer_id(link), decide, SYNCED_OFFSETS)

    def _commit_group(self, group: str, *, is_clamped: bool) -> GroupOffsetsResult | ReconcilerError:
        news = self._new_offsets.get(group, {})
        try:
            if news and not self._commit(group, news):
                return GroupOffsetsResult(reading=self._to_full_names(news))
        except ReconcilerError as error:
            return error
        return GroupOffsetsResult(
            is_changed=bool(news), is_clamped=is_clamped, own=self._to_full_names(self.own.get(group, ()))
        )

    def _translate(self, offsets: GroupOffsets) -> tuple[_Committed, bool]:
        """Return a group's offsets in mirrors, and whether any was limited to a mirror's end."""
        positions: _Committed = {}
        is_clamped = False
        for (name, number), position in offsets.items():
            topic = self.site.naming.to_physical(name)
            mirror = self.states.mirrors.get(topic)
            if mirror is None or not mirror.is_mirroring:
                continue  # Deleted and stopped mirrors get no offsets.
            if number >= len(self.topics[topic].replicas):
                is_clamped = True
                continue
            known = self._read_map(topic, number)
            at = known.find_target(position.offset)
            if at is None:
                at = max((piece.target_end for piece in known), default=0)
                is_clamped = is_clamped or position.offset > known.through
            positions[topic, number] = GroupPosition(at, position.metadata)
        return positions, is_clamped

    def _read_map(self, topic: str, number: int) -> OffsetMap:
        if (topic, number) not in self._maps:
            self._maps[topic, number] = parse_offset_map(self.entries, topic, number)
        return self._maps[topic, number]

    def _commit(self, group: str, offsets: _Committed) -> bool:
        from kafka.structs import OffsetAndMetadata, TopicPartition  # noqa: PLC0415 - lazy import

        offsets_by_partition = {
            TopicPartition(*place): OffsetAndMetadata(at.offset, at.metadata, -1) for place, at in offsets.items()
        }
        admin = self.site.client.admin
        answers = self.site.client.call_coordinator(
            "committing offsets", admin.alter_group_offsets, group, offsets_by_partition
        )
        for place, answer in answers.items():
            code = getattr(answer, "errno", 0)
            if code in _HAS_MEMBERS:
                return False
            if code:
                raise translate_code(code, "", what=f"group {group}: {place.topic}, partition {place.partition}")
        return True

    def _to_full_names(self, places: Iterable[tuple[str, int]]) -> tuple[str, ...]:
        return tuple(sorted({self.site.naming.to_full_name(topic) for topic, _ in places}))


def _was_synced(current: GroupPosition | None, synced: tuple[int, ...]) -> bool:
    """Return whether a group has no offset, the synced one, or the one before an uncommitted sync."""
    return current is None or current.offset in synced


def _has_own_commit(current: GroupPosition | None, wanted: GroupPosition, synced: tuple[int, ...]) -> bool:
    return not _was_synced(current, synced) and _get_offset(current) != wanted.offset


def _get_offset(position: GroupPosition | None) -> int:
    return -1 if position is None else position.offset


def _parse_offsets(document: Mapping[str, Any]) -> dict[tuple[str, int], tuple[int, ...]]:
    return {(topic, int(number)): tuple(pair) for topic, of in document.items() for number, pair in of.items()}


def _format_offsets(synced: Mapping[tuple[str, int], tuple[int, ...]]) -> dict[str, Any]:
    by_topic: dict[str, dict[str, list[int]]] = defaultdict(dict)
    for (topic, number), pair in synced.items():
        by_topic[topic][str(number)] = list(pair)
    return dict(by_topic)


def _read_committed(site: LinkSite, groups: Iterable[str]) -> dict[str, _Committed]:
    return _to_positions(read_committed_offsets(site.client, groups))


def _read_positions(
    site: LinkSite, groups: Collection[str]
) -> tuple[dict[str, _Committed], dict[str, NotAuthorizedError]]:
    committed, refused = read_describable_offsets(site.client, groups)
    return _to_positions(committed), refused


def _to_positions(committed: Mapping[str, Mapping[tuple[str, int], Any]]) -> dict[str, _Committed]:
    return {
        group: {place: GroupPosition(at.offset, at.metadata or "") for place, at in of.items()}
        for group, of in committed.items()
    }


# The rules that a link creates are in the ledger before they exist and until they are deleted.


_NO_RULES: Final[RuleFields] = {}
_FEW: Final = 3


def read_rules(site: LinkSite) -> AccessRules:
    """Return the access rules of topics and known namespaces."""
    return _read_rules(site, site.read_topics())


def _read_rules(site: LinkSite, topics: Mapping[str, TopicMetadata]) -> AccessRules:
    bindings, ours = _read_bindings(site), list_denials(site.ledger.read())
    by_carrier = assign_bindings([binding for binding in bindings if binding not in ours], site.naming, topics.keys())
    return AccessRules(
        {name: to_rule_fields(acls) for name, acls in by_carrier.topics.items()},
        {name: to_rule_fields(acls) for name, acls in by_carrier.namespaces.items()},
    )


def _read_bindings(site: LinkSite) -> list[AccessBinding]:
    bindings, code = read_bindings(site.client)
    if code:
        raise translate_code(code, "access rules cannot be read", what=f"cluster {site.cluster}")
    return bindings


@dataclass(frozen=True, slots=True)
class _RuleChange:
    name: str
    is_namespace: bool
    changes: Mapping[str, tuple[str, ...] | None]
    current: RuleFields
    before: RuleFields
    own: Mapping[str, tuple[str, ...]]


def sync_rules(site: LinkSite, link: str, wanted: AccessRules) -> int:
    """Sync a source's access rules to mirrors and known namespaces; return how many changed."""
    topics = site.read_topics()
    states = site.read_states().select_live({name: seen.id for name, seen in topics.items()})
    places = _plan_rule_changes(site, states, link, wanted, _read_rules(site, topics))
    if not any(place.changes or place.own != place.before for place in places):
        return 0
    site.ledger.change(build_writer_id(link), lambda entries: _build_rule_changes(entries, link, places, is_done=False))
    binds, unbinds = (_list_bindings(site, places, is_new=is_new) for is_new in (True, False))
    _raise_errors(create_bindings(site.client, sorted(binds - unbinds)) if binds - unbinds else [], site)
    _raise_errors(delete_bindings(site.client, sorted(unbinds - binds)) if unbinds - binds else [], site)
    site.ledger.change(build_writer_id(link), lambda entries: _build_rule_changes(entries, link, places, is_done=True))
    return sum(bool(place.changes) for place in places)


def _split_rules(fields: RuleFields) -> RuleFields:
    """Split rules as brokers store them: one resource type, name and supported operation set each."""
    return to_rule_fields(split_namespace_rules((parse_rule(*rule) for rule in fields.items()), OPERATIONS))


def _plan_rule_changes(
    site: LinkSite, states: LinkStates, link: str, wanted: AccessRules, current: AccessRules
) -> list[_RuleChange]:
    places = []
    for topic, mirror in states.list_mirrors(link):
        if mirror.is_mirroring:
            rules_now, before = current.topics.get(mirror.name, _NO_RULES), mirror.entry.rules
            changes, own = plan_access_rule_changes(
                rules_now, before, _split_rules(wanted.topics.get(mirror.entry.source, _NO_RULES))
            )
            places.append(_RuleChange(topic, False, changes, rules_now, before, own))  # noqa: FBT003 - the field has a name
    known, of_link = set(site.naming.prefixes.values()), states.require_link(link).rules
    for name in sorted({*wanted.namespaces, *of_link} & known):
        rules_now, before = current.namespaces.get(name, _NO_RULES), of_link.get(name, _NO_RULES)
        changes, own = plan_access_rule_changes(rules_now, before, _split_rules(wanted.namespaces.get(name, _NO_RULES)))
        places.append(_RuleChange(name, True, changes, rules_now, before, own))  # noqa: FBT003 - as above
    return places


def _list_bindings(site: LinkSite, places: list[_RuleChange], *, is_new: bool) -> set[AccessBinding]:
    bindings: set[AccessBinding] = set()
    for place in places:
        for path, after in place.changes.items():
            operations = after if is_new else place.current.get(path)
            if operations and place.is_namespace:
                bindings.update(
                    expand_namespace_rules(site.naming.to_prefix(place.name), [parse_rule(path, operations)])
                )
            elif operations:
                bindings.update(expand_topic_rules(place.name, [parse_rule(path, operations)]))
    return bindings


def _build_rule_changes(entries: Entries, link: str, places: list[_RuleChange], *, is_done: bool) -> Changes:
    states = parse_states(entries)
    changes: dict[Key, Mapping[str, object] | None] = {}
    of_link = dict(states.require_link(link).rules)
    for place in places:
        own = dict(place.own) if is_done else _merge_rules(place.before, place.own)
        mirror = states.mirrors.get(place.name)
        if place.is_namespace:
            of_link.pop(place.name, None)
            if own:
                of_link[place.name] = own
        elif mirror is not None and mirror.entry.rules != own:
            changes |= build_mirror_changes(place.name, replace(mirror, entry=replace(mirror.entry, rules=own)))
    if of_link != states.require_link(link).rules:
        changes |= build_link_changes(link, replace(states.require_link(link), rules=of_link))
    return changes


def _merge_rules(before: RuleFields, own: RuleFields) -> dict[str, tuple[str, ...]]:
    paths = sorted({*before, *own})
    return {path: tuple(sorted({*before.get(path, ()), *own.get(path, ())})) for path in paths}


def _raise_errors(answers: list[tuple[int, str]], site: LinkSite) -> None:
    for code, message in answers:
        if code:
            raise translate_code(code, message, what=f"access rules of cluster {site.cluster}")


# Rules that deny WRITE to all principals that other rules allow, except the link's, protect mirrors.


def protect_mirrors(site: LinkSite, link: str) -> int:
    """Deny WRITE on a link's mirrors to all principals that access rules allow; return how many mirrors changed."""
    states = site.read_states()
    mirrors = dict(states.list_mirrors(link))
    is_on = states.require_link(link).declared.get("protect") == "acl"
    if not any(mirror.denied or (is_on and mirror.is_mirroring) for mirror in mirrors.values()):
        return 0
    topics = site.client.read_topics(mirrors)
    silent = _find_uncertain_mirrors(site, mirrors, topics)
    bindings = frozenset(_read_bindings(site))
    wanted: dict[str, tuple[str, ...]] = {}
    for topic, mirror in mirrors.items():
        if topic in silent:
            continue  # The topic may still exist, so its denials stay.
        is_mirror = mirror.is_mirroring and topic in topics and topics[topic].id == mirror.topic_id
        wanted[topic] = _find_writers(site, topic, mirror.denied, bindings) if is_on and is_mirror else ()
    open_to_all = sorted(mirrors[topic].name for topic, principals in wanted.items() if EVERYONE in principals)
    changed = deny_writes(
        site, link, {topic: principals for topic, principals in wanted.items() if EVERYONE not in principals}, bindings
    )
    if open_to_all:
        message = f"an access rule lets {EVERYONE} write to {list_first(open_to_all, _FEW, grouping='')}"
        hint = "Name principals in that rule: a rule that denies everyone would keep the link out, too."
        raise UserError(f"mirrors cannot be protected: {message}", hint=hint)
    return changed


def _find_uncertain_mirrors(
    site: LinkSite, mirrors: Mapping[str, RecordedMirror], topics: Mapping[str, TopicMetadata]
) -> set[str]:
    errors = {topic: topics[topic].error for topic, mirror in mirrors.items() if mirror.is_mirroring and mirror.denied}
    absent = [topic for topic, error in errors.items() if error in ABSENT and mirrors[topic].topic_id is not None]
    return {topic for topic, error in errors.items() if error and error not in ABSENT} | site.find_unshown_topics(
        absent
    ).keys()


def _find_writers(
    site: LinkSite, topic: str, denied: tuple[str, ...], bindings: frozenset[AccessBinding]
) -> tuple[str, ...]:
    own = site.capabilities().access.principal
    if own is None:
        message = f"cluster {site.cluster}: the principal of the link is unknown to reconciler"
        raise UserError(message, hint="Set it as security.principal of the Cluster.")
    return find_denied_writers(bindings, topic, own=own, denied=denied)


def deny_writes(
    site: LinkSite, link: str, wanted: Mapping[str, tuple[str, ...]], bindings: frozenset[AccessBinding] | None = None
) -> int:
    """Deny WRITE to exactly these principals, by flat mirror name; return how many mirrors changed."""
    mirrors = {topic: mirror for topic, mirror in site.read_states().mirrors.items() if topic in wanted}
    if not any(mirror.denied or wanted[topic] for topic, mirror in mirrors.items()):
        return 0
    existing = frozenset(_read_bindings(site)) if bindings is None else bindings
    due = {
        topic: mirror
        for topic, mirror in mirrors.items()
        if set(mirror.denied) != set(wanted[topic])
        or any(build_denial(topic, who) not in existing for who in wanted[topic])
    }
    if not due:
        return 0
    site.ledger.change(build_writer_id(link), lambda entries: _change_denials(entries, wanted, due, is_done=False))
    binds = {build_denial(topic, who) for topic in due for who in wanted[topic]} - existing
    unbinds = {
        binding for topic in due for binding in _list_removed_denials(topic, mirrors[topic], wanted[topic])
    } & existing
    _raise_errors(create_bindings(site.client, sorted(binds)) if binds else [], site)
    _raise_errors(delete_bindings(site.client, sorted(unbinds)) if unbinds else [], site)
    entries = site.ledger.change(
        build_writer_id(link), lambda entries: _change_denials(entries, wanted, due, is_done=True)
    )
    current = parse_states(entries).mirrors
    late = [binding for binding in binds if binding.name not in current or not current[binding.name].is_mirroring]
    _raise_errors(delete_bindings(site.client, sorted(late)) if late else [], site)
    return len(due)


def remove_denials(site: LinkSite, mirrors: Mapping[str, RecordedMirror]) -> None:
    """Remove the denials of mirrors, given by flat name. The caller updates the ledger."""
    gone = sorted(binding for topic, mirror in mirrors.items() for binding in _list_removed_denials(topic, mirror, ()))
    _raise_errors(delete_bindings(site.client, gone) if gone else [], site)


def _list_removed_denials(topic: str, mirror: RecordedMirror, wanted: tuple[str, ...]) -> Iterator[AccessBinding]:
    for who in mirror.denied:
        if who not in wanted and "write" not in mirror.entry.rules.get(build_denial_path(who), ()):
            yield build_denial(topic, who)


def _change_denials(
    entries: Entries, wanted: Mapping[str, tuple[str, ...]], due: Collection[str], *, is_done: bool
) -> Changes:
    changes: dict[Key, Mapping[str, object] | None] = {}
    for topic, mirror in parse_states(entries).mirrors.items():
        if topic not in due:
            continue
        after = wanted[topic] if mirror.is_mirroring else ()
        denied = after if is_done else tuple(sorted({*mirror.denied, *after}))
        if denied != mirror.denied:
            changes |= build_mirror_changes(topic, replace(mirror, denied=denied))
    return changes
