"""Links and mirrors of one cluster: state changes, synced configs, access rules and start offsets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final

from reconciler.embedded.acl import ALLOW, Kind, Operation, Permissions, merge_rules, to_namespace_acls
from reconciler.embedded.catalog.mirror_moves import (
    change_mirror,
    find_running_operation,
    mirror_own_mirror,
    start_mirror_operation,
)
from reconciler.embedded.catalog.mirror_tables import MirrorShape, create_mirror, describe_source_topic, update_mirror
from reconciler.embedded.catalog.tables import Catalog, Draft, get_link, get_topic
from reconciler.embedded.catalog.topic_configs import syncs_start_offsets
from reconciler.embedded.clients.transactions import abort_transaction, finish_transaction
from reconciler.embedded.link_groups import mark_offsets_synced
from reconciler.embedded.segments.gate import find_writer
from reconciler.embedded.segments.groups import clamp_groups
from reconciler.embedded.segments.head import (
    NOBODY,
    PRODUCERS,
    Head,
    Partition,
    read_bounds,
    read_heads,
    replace_writer,
    swap_head,
)
from reconciler.embedded.trim import raise_starts
from reconciler.errors import ReconcilerError
from reconciler.lifecycles import MirrorStatus
from reconciler.resources import mirrors
from reconciler.resources.acls import to_rule_fields
from reconciler.resources.mirrors import (
    FAILOVER,
    AccessRules,
    MirrorEntry,
    OfferedTopic,
    Peer,
    RuleFields,
    SourceTopic,
    TransitionRequest,
    Trouble,
    TruncatedPartition,
    match_auto_created,
    plan_access_rule_changes,
)
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.threads import map_in_parallel, run_in_parallel

if TYPE_CHECKING:
    from reconciler.embedded.admin import Admin
    from reconciler.embedded.catalog.model import AclEntry, TopicEntry
    from reconciler.records.log import Bounds


@dataclass(frozen=True)
class ClusterLinks:
    """The cluster's links, used as the super user. Thread-safe."""

    cluster: Admin
    may_go_on: Callable[[], None] = lambda: None
    """Called before every write, from any thread; may raise."""

    def start_operation(self, full_name: str, verb: str, *, operation: str = "") -> MirrorEntry:
        """Start the operation `verb` on a mirror; complete a failover at once."""
        request = self._make_request(operation)
        after = self._commit(
            lambda draft: start_mirror_operation(draft, full_name, verb, request), f"{verb} mirror {full_name}"
        )
        if verb == FAILOVER:
            self.open_heads(full_name)
        return after

    def mirror_own_mirror(self, full_name: str, peer: Peer, begun: mirrors.Operation) -> MirrorEntry:
        """Make a topic the mirror of its own mirror, and close it to producers.

        The link may then overwrite its group offsets.
        """
        now_ms = self._make_request(begun.id).now_ms
        after = self._commit(
            lambda draft: mirror_own_mirror(draft, full_name, peer, begun, now_ms), f"mirror over {full_name}"
        )
        self._close_to_producers(full_name)
        self.may_go_on()
        mark_offsets_synced(self.cluster.store, get_topic(self.cluster.catalog.read(), full_name).id)
        return after

    def change_mirror_entry(self, full_name: str, decide: Callable[[MirrorEntry], MirrorEntry]) -> MirrorEntry:
        """Replace a mirror's entry in one commit; return the new entry."""
        return self._commit(lambda draft: change_mirror(draft, full_name, decide), f"change mirror {full_name}")

    def change_link(self, name: str, decide: Callable[[mirrors.LinkEntry], mirrors.LinkEntry]) -> None:
        """Replace a link's entry in one commit."""
        self._commit(lambda draft: draft.put_link(name, decide(get_link(draft, name))), f"change link {name}")

    def advance_operation(
        self, full_name: str, to: MirrorStatus, *, operation: str, is_given_up: bool = False
    ) -> MirrorEntry:
        """Move a mirror's operation to its next state; once mirroring stops, let producers append."""
        request = replace(self._make_request(operation), is_given_up=is_given_up)
        after = self.change_mirror_entry(full_name, lambda entry: mirrors.advance_mirror(full_name, entry, to, request))
        if after.is_stopped:
            self.open_heads(full_name)
        return after

    def open_heads(self, full_name: str) -> None:
        """Clamp groups' offsets to a stopped mirror's ends, then let producers append."""
        topic = get_topic(self.cluster.catalog.read(), full_name)
        if topic.active_mirror is not None:
            return
        heads = read_heads(self.cluster.store, topic.id)
        held = {number: heads.get(number, _UNWRITTEN) for number in range(topic.partitions)}
        self.may_go_on()
        ends = {number: head.end for number, head in held.items() if head.writer != PRODUCERS}
        clamp_groups(self.cluster.store, topic.id, ends)
        self._hand_over_heads(topic)

    def truncate_mirror(self, full_name: str, *, operation: str) -> Mapping[int, TruncatedPartition]:
        """Truncate partitions for a restore; return each one's new end and number of removed records."""
        from reconciler.embedded.restore_cut import truncate_topic  # noqa: PLC0415 - brings Arrow

        catalog = self.cluster.catalog.read()
        topic, (_, restore) = get_topic(catalog, full_name), find_running_operation(catalog, full_name, operation)
        cuts = restore.ends or {}
        truncated = truncate_topic(self.cluster, full_name, cuts, operation, may_go_on=self.may_go_on)
        clamp_groups(self.cluster.store, topic.id, self.read_ends(full_name))
        return truncated

    def read_ends(self, full_name: str) -> dict[int, int]:
        """Return the end offset of each partition."""
        topic = get_topic(self.cluster.catalog.read(), full_name)
        bounds = read_bounds(self.cluster.store, topic.id, topic.partitions)
        return {number: span.end for number, span in bounds.items()}

    def record_source_match(
        self, full_name: str, source_topic_id: str, bounds: Mapping[int, Bounds], *, operation: str
    ) -> None:
        """Record in every head that its records equal the source's."""
        topic = get_topic(self.cluster.catalog.read(), full_name)

        def record_partition(number: int) -> None:
            self.may_go_on()
            epochs = [list(epoch) for epoch in bounds[number].epochs]

            def record_source(head: Head) -> Head | None:
                # After the operation's end, producers may append, so the head must not change.
                find_running_operation(self.cluster.catalog.read(), full_name, operation)
                source = {"topic_id": source_topic_id, "epochs": epochs, "fetched": head.end}
                return None if head.source == source else replace(head, source=source)

            swap_head(self.cluster.store, Partition(full_name, topic.id, number), record_source)

        run_in_parallel(record_partition, sorted(bounds), name="stand")

    def record_start_offsets(self, full_name: str, offsets: Mapping[int, int]) -> MirrorEntry:
        """Store the start offsets of a new mirror, and apply them to empty partitions."""
        after = self.change_mirror_entry(full_name, lambda entry: mirrors.set_first_offsets(entry, offsets))
        topic = get_topic(self.cluster.catalog.read(), full_name)
        begins = {number: offset for number, offset in (after.begins or {}).items() if offset}

        def start(number: int) -> None:
            self.may_go_on()
            place = (topic.id, number)
            replace_writer(self.cluster.store, place, find_writer(topic), makes=True)
            swap_head(
                self.cluster.store, Partition(full_name, *place), lambda head: _set_empty_start(head, begins[number])
            )

        run_in_parallel(start, sorted(begins), name="begin")
        return after

    def read_written_heads(self, full_name: str) -> dict[int, Head]:
        """Return the heads of all written partitions."""
        return read_heads(self.cluster.store, get_topic(self.cluster.catalog.read(), full_name).id)

    def _make_request(self, operation: str) -> TransitionRequest:
        return TransitionRequest(self.cluster.now_ms(), operation)

    def _commit(self, decide: Callable[[Draft], MirrorEntry | None], what: str) -> MirrorEntry:
        self.cluster.permissions.check_super_user(what)
        results: list[MirrorEntry | None] = []

        def decide_again(draft: Draft) -> None:
            results[:] = [decide(draft)]

        self.cluster.catalog.commit(decide_again, may_go_on=self.may_go_on)
        return results[0]  # type: ignore[return-value]  # It is `None` only if the caller ignores it.

    def _close_to_producers(self, full_name: str) -> None:
        topic = get_topic(self.cluster.catalog.read(), full_name)
        heads = self._hand_over_heads(topic)
        opened = {
            (name, transaction["epoch"]) for head in heads.values() for name, transaction in head.transactions.items()
        }
        for transactional_id, epoch in sorted(opened):
            self.may_go_on()
            abort_transaction(self.cluster.store, transactional_id, epoch)
            finish_transaction(self.cluster.store, self.cluster.catalog, transactional_id, now_ms=self.cluster.now_ms())

    def _hand_over_heads(self, topic: TopicEntry) -> dict[int, Head]:
        def hand_over_partition(number: int) -> Head | None:
            self.may_go_on()
            return replace_writer(self.cluster.store, (topic.id, number), find_writer(topic), makes=True)

        heads = map_in_parallel(hand_over_partition, range(topic.partitions), name="hand")
        return {number: head for number, head in enumerate(heads) if head is not None}


_UNWRITTEN: Final = Head(NOBODY)


def _set_empty_start(head: Head, offset: int) -> Head | None:
    is_empty = head.end == 0 and not head.entries and not head.pages
    return replace(head, start=offset, local_start=offset, end=offset) if is_empty else None


def create_matching_mirrors(
    draft: Draft, link_name: str, sources: Mapping[str, SourceTopic], *, new_id: Callable[[], str], now_ms: int
) -> dict[str, ReconcilerError | None]:
    """Create the mirrors that match a link's filters; return each mirror's error, or `None`."""
    link = get_link(draft, link_name)
    outcomes: dict[str, ReconcilerError | None] = {}
    for name, source in match_auto_created(link, sources).items():
        if name in draft.topics:
            continue
        shape = MirrorShape(link=link_name, source=source, is_automatic=True)
        try:
            create_mirror(draft, name, shape, sources[source], topic_id=new_id(), now_ms=now_ms)
        except ReconcilerError as error:
            outcomes[name] = error
        else:
            outcomes[name] = None
    return outcomes


def update_mirrors(draft: Draft, sources: Mapping[str, SourceTopic]) -> dict[str, ReconcilerError]:
    """Update mirrors (by full name) from their sources; return errors by full name."""
    failed: dict[str, ReconcilerError] = {}
    for name, source in sources.items():
        entry = draft.topics.get(name)
        if entry is None or entry.active_mirror is None:
            continue  # The mirror was deleted or stopped since.
        try:
            update_mirror(draft, name, source)
        except ReconcilerError as error:
            failed[name] = error
    return failed


def record_troubles(draft: Draft, troubles: Mapping[str, Trouble | None], failed: Collection[str]) -> None:
    """Record the problems of mirrors that still exist."""
    for name, trouble in troubles.items():
        entry = draft.topics.get(name)
        if entry is not None and entry.active_mirror is not None:
            change_mirror(draft, name, partial(mirrors.set_mirror_trouble, trouble=trouble, fails=name in failed))


def record_source_cluster(draft: Draft, link_name: str, source_cluster_id: str) -> None:
    """Store the id of a link's source cluster unless one is stored."""
    link = get_link(draft, link_name)
    if link.source_cluster_id is None:
        draft.put_link(link_name, replace(link, source_cluster_id=source_cluster_id))


def list_offered_topics(
    catalog: Catalog, principal: str, only: Collection[str] | None = None
) -> dict[str, OfferedTopic]:
    """Return all topics except read replicas, and whether `principal` may mirror each."""
    who = Permissions.of(principal) if _has_denials(catalog) else None
    chosen = catalog.topics if only is None else [name for name in only if name in catalog.topics]
    names = [name for name in chosen if catalog.topics[name].replica is None]
    return {
        name: OfferedTopic(
            describe_source_topic(catalog, name),
            is_mirror=catalog.topics[name].active_mirror is not None,
            is_readable=who is None or _may_mirror(who, catalog, name),
        )
        for name in names
    }


def _has_denials(catalog: Catalog) -> bool:
    namespaces = (rule for entry in catalog.namespaces.values() for rule in entry.acls)
    topics = (rule for entry in catalog.topics.values() for rule in entry.acls)
    return any(rule.permission != ALLOW for rule in chain(namespaces, topics))


def _may_mirror(who: Permissions, catalog: Catalog, full_name: str) -> bool:
    verdict = who.find_verdict(catalog, Operation.READ, Kind.TOPIC, full_name)
    return verdict.is_allowed or verdict.rule is None


_NO_RULES: Final[RuleFields] = {}


def list_access_rules(catalog: Catalog) -> AccessRules:
    """Return all access rules in a catalog."""
    return AccessRules(
        {name: to_rule_fields(to_namespace_acls(entry.acls)) for name, entry in catalog.topics.items() if entry.acls},
        {
            name: to_rule_fields(to_namespace_acls(entry.acls))
            for name, entry in catalog.namespaces.items()
            if entry.acls
        },
    )


def copy_rules(draft: Draft, link_name: str, rules: AccessRules) -> int:
    """Copy a source's access rules to a link's mirrors and namespaces; return how many changed."""
    link = get_link(draft, link_name)
    changed = 0
    for name, topic in list(draft.topics.items()):
        mirror = topic.active_mirror
        if mirror is None or mirror.link_id != link.id:
            continue
        acls, own = _merge_source_rules(topic.acls, mirror.rules, rules.topics.get(mirror.source, _NO_RULES))
        if (acls, own) != (topic.acls, dict(mirror.rules)):
            changed += acls != topic.acls
            draft.put_topic(name, replace(topic, acls=acls, mirror=replace(mirror, rules=own)))
    link_rules: dict[str, Mapping[str, tuple[str, ...]]] = {}
    for name in sorted({*rules.namespaces, *link.rules} & draft.namespaces.keys()):
        namespace = draft.namespaces[name]
        acls, own = _merge_source_rules(
            namespace.acls, link.rules.get(name, _NO_RULES), rules.namespaces.get(name, _NO_RULES)
        )
        if acls != namespace.acls:
            changed += 1
            draft.put_namespace(name, replace(namespace, acls=acls))
        if own:
            link_rules[name] = own
    draft.put_link(link_name, replace(link, rules=link_rules))
    return changed


def _merge_source_rules(
    entries: tuple[AclEntry, ...], before: RuleFields, wanted: RuleFields
) -> tuple[tuple[AclEntry, ...], dict[str, tuple[str, ...]]]:
    changes, own = plan_access_rule_changes(to_rule_fields(to_namespace_acls(entries)), before, wanted)
    return (merge_rules(entries, changes) if changes else entries), own


# If a link syncs retention, its mirrors copy start offsets and expire no records.


def raise_mirror_starts(cluster: Admin, full_name: str, starts: Mapping[int, int]) -> None:
    """Raise a mirror's start offsets to its source's, but not above the last stable offset.

    Does nothing unless mirroring is active and the link syncs retention.
    """
    catalog = cluster.catalog.read()
    topic = get_topic(catalog, full_name)
    if not syncs_start_offsets(catalog, topic):
        return
    later = {number: start for number, start in starts.items() if start}
    raise_starts(cluster, catalog, full_name, later)
