"""The catalog looked at object by object, and what it says judged against itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from reconciler.embedded.catalog.shapes import COMMIT
from reconciler.embedded.catalog.tables import Catalog
from reconciler.embedded.checking.findings import Finding, Kind, Place
from reconciler.embedded.checking.migrations import judge_migrations
from reconciler.embedded.checking.mirrors import judge_mirrors
from reconciler.embedded.jsonobjects import get_gzipped
from reconciler.embedded.keys import CATALOG
from reconciler.errors import ReconcilerError
from reconciler.objectstore.shapes import check_shape
from reconciler.resources.address import split_name, tiers_of
from reconciler.resources.names import check_full_name, check_namespace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.embedded.catalog.tables import Draft
    from reconciler.objectstore.base import ObjectStore
    from reconciler.objectstore.register import Held

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ReadCatalog:
    """A catalog as it was read; `None` where some of it could not be. `keys` are the objects its head names."""

    catalog: Catalog | None
    keys: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


@dataclass(slots=True)
class _Fold:
    """A catalog that is put together from its objects, and what stood in the way."""

    store: ObjectStore
    catalog: Catalog = field(default_factory=Catalog)
    keys: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def take(self, commit: Json) -> None:
        """Fold one commit, from an object of its own where it has one."""
        key = commit.get("key")
        if key is not None:
            self.keys.append(key)
        whole = commit if key is None else get_gzipped(self.store, key, commit["sha256"])
        if whole["serial"] <= self.catalog.serial and self.catalog.id:
            what = f"commit {whole['serial']} follows commit {self.catalog.serial}"
            self.findings.append(Finding(Kind.CATALOG_CONTRADICTION, what, Place(key or CATALOG)))
        self.catalog = self.catalog.after(whole)


def read_catalog(store: ObjectStore, held: Held | None) -> ReadCatalog:
    """Put the catalog together from every object its head names, checking each one's sha256."""
    if held is None:
        return ReadCatalog(Catalog())
    fold = _Fold(store)
    try:
        snapshot = held.value["snapshot"]
        check_shape(held.value["tail"], [COMMIT])
        for commit in ([] if snapshot is None else [snapshot]) + held.value["tail"]:
            fold.take(commit)
        fold.findings += _of_frame(held.value, fold.catalog)
    except ReconcilerError as error:
        key = fold.keys[-1] if fold.keys else CATALOG
        return ReadCatalog(None, tuple(fold.keys), (Finding(Kind.CATALOG_DAMAGED, error.message, Place(key)),))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        what = f"it cannot be read: {type(error).__name__}: {error}"
        key = fold.keys[-1] if fold.keys else CATALOG
        return ReadCatalog(None, tuple(fold.keys), (Finding(Kind.CATALOG_DAMAGED, what, Place(key)),))
    return ReadCatalog(fold.catalog, tuple(fold.keys), (*fold.findings, *judge_catalog(fold.catalog)))


def _of_frame(value: Json, catalog: Catalog) -> Iterator[Finding]:
    for name, kept in (("serial", catalog.serial), ("id", catalog.id), ("revision", catalog.revision)):
        if value[name] != kept:
            what = f"its head says {name} {value[name]!r}, its last commit {kept!r}"
            yield Finding(Kind.CATALOG_CONTRADICTION, what, Place(CATALOG))


def judge_catalog(catalog: Catalog) -> Iterator[Finding]:
    """Yield what a catalog says that cannot be, or that was left half-way. Pure."""
    yield from _of_names(catalog)
    yield from _of_namespaces(catalog)
    yield from _of_topics(catalog)
    live = {entry.id: name for name, entry in catalog.topics.items()}
    for topic_id, deletion in catalog.deletions.items():
        place = Place(CATALOG, deletion.name)
        if topic_id in live:
            what = f"topic {live[topic_id]} is there and marked for deletion"
            yield Finding(Kind.CATALOG_CONTRADICTION, what, place)
        else:
            yield Finding(Kind.DELETION_UNFINISHED, f"topic {deletion.name} is marked and not yet deleted", place)
    for topic_id, rewrite in catalog.rewrites.items():
        what = f"topic {rewrite.name} is not yet written anew under its key"
        name = live.get(topic_id, rewrite.name)
        yield Finding(Kind.REWRITE_UNFINISHED, what, Place(CATALOG, name))
    yield from judge_mirrors(catalog)
    yield from judge_migrations(catalog)


def _of_names(catalog: Catalog) -> Iterator[Finding]:
    for names, check in ((catalog.namespaces, check_namespace), (catalog.topics, check_full_name)):
        for name in names:
            try:
                check(name)
            except ValueError as error:
                yield Finding(Kind.CATALOG_CONTRADICTION, f"{name!r} is {error}", Place(CATALOG, name))


def missing_namespaces(catalog: Catalog | Draft) -> dict[str, str]:
    """Return every namespace that is not there though something lies in it, and one name below it. Pure."""
    found: dict[str, str] = {}
    homes = [(name, name) for name in catalog.namespaces]
    homes += [(name, split_name(name)[0]) for name in catalog.topics]
    for name, home in homes:
        for tier in tiers_of(home):
            if tier not in catalog.namespaces:
                found.setdefault(tier, name)
    return found


def _of_namespaces(catalog: Catalog) -> Iterator[Finding]:
    for namespace, below in sorted(missing_namespaces(catalog).items()):
        what = f"namespace {namespace} is not there, and {below} lies in it"
        yield Finding(Kind.NAMESPACE_MISSING, what, Place(CATALOG, below))


def _of_topics(catalog: Catalog) -> Iterator[Finding]:
    ids = Counter(entry.id for entry in catalog.topics.values())
    revisions = Counter(entry.revision for entry in catalog.topics.values() if entry.origin is None)
    for name, entry in catalog.topics.items():
        place = Place(CATALOG, name)
        wrong = [
            (ids[entry.id] > 1, f"another topic has its id {entry.id}"),
            (revisions[entry.revision] > 1 and entry.origin is None, f"another topic has revision {entry.revision}"),
            (entry.origin is None and entry.revision > catalog.revision, f"revision {entry.revision} was never given"),
            (entry.partitions < 1, f"it has {entry.partitions} partitions"),
        ]
        for is_wrong, what in wrong:
            if is_wrong:
                yield Finding(Kind.CATALOG_CONTRADICTION, f"topic {name}: {what}", place)
