"""Check the catalog, groups and transactions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from reconciler.archives.objects import MALFORMED
from reconciler.embedded.catalog.commits import find_new_commits, read_commit
from reconciler.embedded.catalog.tables import Catalog, Draft
from reconciler.embedded.check.check_owners import find_migration_problems, find_mirror_problems
from reconciler.embedded.check.damage import CheckFinding, FindingPlace, Kind
from reconciler.embedded.clients.transactions import DECIDED, Transaction, TransactionState, read_transaction
from reconciler.embedded.keys import CATALOG, head_key, parse_group_key, parse_transaction_key
from reconciler.embedded.segments.groups import Group, read_group, read_partition_bounds
from reconciler.embedded.segments.head import read_head
from reconciler.errors import UserError
from reconciler.objectstore.base import ObjectStore
from reconciler.resources.address import check_full_name, check_namespace, list_levels, split_name
from reconciler.runtime.dataclass import dataclass, field

if TYPE_CHECKING:
    from reconciler.embedded.check.check_partitions import TopicIndex
    from reconciler.objectstore.register import RegisterSnapshot


Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CatalogReading:
    """A catalog (`None` if unreadable) and the keys of its objects."""

    catalog: Catalog | None
    keys: tuple[str, ...] = ()
    findings: tuple[CheckFinding, ...] = ()


def read_catalog(store: ObjectStore, held: RegisterSnapshot | None) -> CatalogReading:
    """Build the catalog from its objects, and verify their sha256."""
    if held is None:
        return CatalogReading(Catalog())
    catalog, key = Catalog(), CATALOG
    keys: list[str] = []
    findings: list[CheckFinding] = []
    try:
        for commit in find_new_commits(catalog, held.value)[1]:
            key = commit.get("key", CATALOG)
            keys += [key] if "key" in commit else []
            whole = read_commit(store, commit)
            if whole["serial"] <= catalog.serial and catalog.id:
                what = f"commit {whole['serial']} follows commit {catalog.serial}"
                findings.append(CheckFinding(Kind.CATALOG_CONTRADICTION, what, FindingPlace(key)))
            catalog = catalog.apply_commit(whole)
        findings += _check_catalog_head(held.value, catalog)
    except (UserError, *MALFORMED) as error:
        what = error.message if isinstance(error, UserError) else f"it cannot be read: {type(error).__name__}: {error}"
        return CatalogReading(None, tuple(keys), (CheckFinding(Kind.CATALOG_DAMAGED, what, FindingPlace(key)),))
    return CatalogReading(catalog, tuple(keys), (*findings, *find_catalog_problems(catalog)))


def _check_catalog_head(value: Json, catalog: Catalog) -> Iterator[CheckFinding]:
    for name, expected in (("serial", catalog.serial), ("id", catalog.id), ("revision", catalog.revision)):
        if value[name] != expected:
            what = f"its head has {name} {value[name]!r}, its last commit {expected!r}"
            yield CheckFinding(Kind.CATALOG_CONTRADICTION, what, FindingPlace(CATALOG))


def find_catalog_problems(catalog: Catalog) -> Iterator[CheckFinding]:
    """Yield contradictions and unfinished work in a catalog."""
    yield from _check_names(catalog)
    yield from _check_namespaces(catalog)
    yield from _check_topics(catalog)
    live = {entry.id: name for name, entry in catalog.topics.items()}
    for topic_id, deletion in catalog.deletions.items():
        place = FindingPlace(CATALOG, deletion.name)
        if topic_id in live:
            what = f"topic {live[topic_id]} exists, but is marked for deletion"
            yield CheckFinding(Kind.CATALOG_CONTRADICTION, what, place)
        else:
            yield CheckFinding(
                Kind.DELETION_UNFINISHED, f"topic {deletion.name} is marked for deletion and not yet deleted", place
            )
    for topic_id, rewrite in catalog.rewrites.items():
        what = f"topic {rewrite.name} is not yet rewritten under its key"
        name = live.get(topic_id, rewrite.name)
        yield CheckFinding(Kind.REWRITE_UNFINISHED, what, FindingPlace(CATALOG, name))
    yield from find_mirror_problems(catalog)
    yield from find_migration_problems(catalog)


def _check_names(catalog: Catalog) -> Iterator[CheckFinding]:
    for names, check in ((catalog.namespaces, check_namespace), (catalog.topics, check_full_name)):
        for name in names:
            try:
                check(name)
            except ValueError as error:
                yield CheckFinding(Kind.CATALOG_CONTRADICTION, f"{name!r} is {error}", FindingPlace(CATALOG, name))


def find_missing_namespaces(catalog: Catalog | Draft) -> dict[str, str]:
    """Return missing namespaces, each with the name of a topic or namespace inside."""
    missing: dict[str, str] = {}
    homes = [(name, name) for name in catalog.namespaces]
    homes += [(name, split_name(name)[0]) for name in catalog.topics]
    for name, home in homes:
        for tier in list_levels(home):
            if tier not in catalog.namespaces:
                missing.setdefault(tier, name)
    return missing


def _check_namespaces(catalog: Catalog) -> Iterator[CheckFinding]:
    for namespace, below in sorted(find_missing_namespaces(catalog).items()):
        what = f"namespace {namespace} is missing, and {below} is in it"
        yield CheckFinding(Kind.NAMESPACE_MISSING, what, FindingPlace(CATALOG, below))


def _check_topics(catalog: Catalog) -> Iterator[CheckFinding]:
    ids = Counter(entry.id for entry in catalog.topics.values())
    revisions = Counter(entry.revision for entry in catalog.topics.values() if entry.origin is None)
    for name, entry in catalog.topics.items():
        place = FindingPlace(CATALOG, name)
        wrong = [
            (ids[entry.id] > 1, f"another topic has its id {entry.id}"),
            (revisions[entry.revision] > 1 and entry.origin is None, f"another topic has revision {entry.revision}"),
            (
                entry.origin is None and entry.revision > catalog.revision,
                f"revision {entry.revision} was never assigned",
            ),
            (entry.partitions < 1, f"it has {entry.partitions} partitions"),
        ]
        for is_wrong, what in wrong:
            if is_wrong:
                yield CheckFinding(Kind.CATALOG_CONTRADICTION, f"topic {name}: {what}", place)


PartitionId: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class GroupCheck:
    """Checks consumer groups, from any thread. `ends` are partitions' end offsets."""

    store: ObjectStore
    topics: Callable[[], TopicIndex | None]
    ends: Mapping[PartitionId, int]
    headless: set[PartitionId] = field(default_factory=set)

    def check_group(self, key: str) -> list[CheckFinding]:
        """Check the group of a register key."""
        name = parse_group_key(key)
        if name is None:
            return [CheckFinding(Kind.FOREIGN, f"{key} belongs to no group", FindingPlace(key))]
        try:
            group = read_group(self.store, name)
        except UserError as error:
            return [CheckFinding(Kind.GROUP_DAMAGED, error.message, FindingPlace(key))]
        if group is not None:
            self.headless.update(place for place, at in group.own.items() if at.offset > 0 and place not in self.ends)
        # The catalog is read after the group, to include the topics of new offsets.
        known = self.topics() if group is not None and group.topic_ids else None
        return (
            []
            if group is None or known is None
            else list(find_group_problems(name, group, FindingPlace(key), known, self._read_end))
        )

    def _read_end(self, place: PartitionId, offset: int) -> int:
        seen = self.ends.get(place, 0)
        try:
            return seen if offset <= seen else read_partition_bounds(self.store, place).end
        except UserError:
            return offset


def find_group_problems(
    name: str, group: Group, place: FindingPlace, topics: TopicIndex, end_of: Callable[[PartitionId, int], int]
) -> Iterator[CheckFinding]:
    """Yield a group's offsets in deleted topics, and offsets beyond a partition's end."""
    gone = sorted(group.topic_ids - topics.by_id.keys())
    if gone:
        what = f"group {name} has offsets of {len(gone)} topics that were deleted, the first of id {gone[0]}"
        yield CheckFinding(Kind.GROUP_LEFT_OVER, what, place, objects=len(gone))
    for (topic_id, partition), committed in sorted(group.own.items()):
        if topic_id not in topics.by_id:
            continue
        topic, entry = topics.by_id[topic_id]
        at = FindingPlace(place.key, topic, partition)
        end = end_of((topic_id, partition), committed.offset)
        if partition >= entry.partitions:
            what = f"group {name} has an offset of partition {partition}, the topic has {entry.partitions}"
            yield CheckFinding(Kind.GROUP_BEYOND, what, at)
        elif committed.offset > end:
            yield CheckFinding(
                Kind.GROUP_BEYOND, f"group {name} is at offset {committed.offset}, the log ends at {end}", at
            )


class OpenTransaction(NamedTuple):
    """A transaction open in a partition, and its producer's epoch."""

    transactional_id: str
    epoch: int
    topic_id: str
    partition: int


@dataclass(frozen=True, slots=True)
class TransactionCheck:
    """Checks transactional ids, from any thread. `now_ms` is the store's time."""

    store: ObjectStore
    now_ms: int

    def check_transaction(self, key: str) -> list[CheckFinding]:
        """Check the transactional id of a register key."""
        name = parse_transaction_key(key)
        if name is None:
            return [CheckFinding(Kind.FOREIGN, f"{key} belongs to no transactional id", FindingPlace(key))]
        try:
            stored = read_transaction(self.store, name)
            if stored is not None and stored[0].state in DECIDED:
                stored = read_transaction(self.store, name)  # The producer may have completed it since.
        except UserError as error:
            return [CheckFinding(Kind.TRANSACTION_DAMAGED, error.message, FindingPlace(key))]
        if stored is None:
            return []
        if stored[0].state in DECIDED:
            what = (
                f"{name} is {stored[0].state} in {len(stored[0].partitions):,} partitions, and no process is "
                "finishing it"
            )
            return [CheckFinding(Kind.TRANSACTION_UNFINISHED, what, FindingPlace(key))]
        if stored[0].is_overdue(self.now_ms):
            age_ms = self.now_ms - stored[0].began_ms
            what = f"{name} has been open for {age_ms // 1000:,} s, longer than its {stored[0].timeout_ms // 1000:,} s"
            return [CheckFinding(Kind.TRANSACTION_OVERDUE, what, FindingPlace(key), age_ms=age_ms)]
        return []

    def check_open_transaction(self, opened: OpenTransaction) -> list[CheckFinding]:
        """Check that a partition's open transaction is also open in its register."""
        try:
            stored = read_transaction(self.store, opened.transactional_id)
            if _may_complete(stored, opened.epoch):
                return []
            head = read_head(self.store, opened.topic_id, opened.partition)
        except UserError:
            return []
        still = {} if head is None else head.transactions.get(opened.transactional_id, {})
        if still.get("epoch") != opened.epoch:
            return []
        what = f"transaction {opened.transactional_id} of epoch {opened.epoch} is open here, and not by its register"
        key = head_key(opened.topic_id, opened.partition)
        return [CheckFinding(Kind.TRANSACTION_UNKNOWN, what, FindingPlace(key, None, opened.partition))]


def _may_complete(stored: tuple[Transaction, int] | None, epoch: int) -> bool:
    if stored is None:
        return False
    transaction, now = stored
    return (
        now == epoch if transaction.state is TransactionState.ONGOING else transaction.state in DECIDED and now > epoch
    )
