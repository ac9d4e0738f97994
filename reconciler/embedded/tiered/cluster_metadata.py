"""Store a cluster's metadata in object storage, to restore a lost cluster.

A process reads the register, then the cluster, writes changed parts under new keys, and swaps the register.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from reconciler.archives.cluster_metadata import (
    GROUPS_PART,
    PART_FORMAT,
    StoredMetadata,
    StoredPart,
    build_location_key,
    open_metadata_register,
    parse_parts,
    read_metadata,
    read_part,
)
from reconciler.archives.keys import build_metadata_key, build_metadata_prefix, create_metadata_part_key
from reconciler.archives.objects import MALFORMED, damaged_error, gzip_value
from reconciler.archives.topic_manifest import CommittedOffset
from reconciler.embedded.catalog.model import COMMIT, TopicEntry
from reconciler.embedded.catalog.tables import Catalog
from reconciler.embedded.catalog.tiering_state import get_topic_location
from reconciler.embedded.keys import GROUPS, parse_group_key
from reconciler.embedded.segments.groups import Place, read_group
from reconciler.errors import LostRaceError, NewerFormatError, ReconcilerError, UserError
from reconciler.objectstore.base import ListedObject, ObjectStore
from reconciler.objectstore.register import Register, RegisterSnapshot, create_mark
from reconciler.resources.configs import SECRET_REFERENCE
from reconciler.resources.mirrors import ACTIVE
from reconciler.runtime.dataclass import dataclass, field, replace
from reconciler.runtime.threads import map_in_parallel

if TYPE_CHECKING:
    from reconciler.embedded.catalog.commits import CatalogRegister


Json = dict[str, Any]

TABLES: Final[Mapping[str, str]] = {
    "cluster": "clusters",
    "namespaces": "namespaces",
    "topics": "topics",
    "links": "links",
}
PARTS: Final = (*TABLES, GROUPS_PART)

_SECRETS: Final = ("secret_key", "shared_key", "access_key")
_MARK: Final = 16
_TABLES: Final[Any] = COMMIT["tables?"]
_SHAPES: Final[Mapping[str, Any]] = {part: _TABLES[f"{table}?"] for part, table in TABLES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedMetadata(StoredMetadata):
    """Stored metadata, with a catalog of its undamaged tables."""

    catalog: Catalog


def read_cluster_metadata(storage: ObjectStore, cluster_id: str) -> EmbeddedMetadata | None:
    """Return a cluster's stored metadata, or `None`."""
    stored = read_metadata(storage, cluster_id, _SHAPES)
    if stored is None:
        return None
    catalog, lost = Catalog(serial=stored.serial, revision=stored.revision), dict(stored.lost)
    for name, table in stored.tables.items():
        commit = {"serial": catalog.serial, "id": "", "revision": catalog.revision}
        try:
            catalog = catalog.apply_commit({**commit, "tables": {TABLES[name]: table}})
        except MALFORMED as error:
            lost[name] = damaged_error(storage, stored.parts[name].key, f"{type(error).__name__}: {error}")
        except UserError as error:
            lost[name] = error
    rest = stored.cluster_id, stored.serial, stored.revision, stored.parts, stored.tables, stored.groups
    return EmbeddedMetadata(*rest, lost, catalog=catalog)


@dataclass(slots=True)
class MetadataUpdate:
    """Result of one metadata update."""

    written: dict[str, int] = field(default_factory=dict)
    """Bytes of each written part."""
    errors: list[ReconcilerError] = field(default_factory=list)
    """Errors of unreadable groups, whose stored offsets stay."""


@dataclass(frozen=True, slots=True)
class _GroupOffsets:
    hint: str
    read: Mapping[Place, CommittedOffset] = field(default_factory=dict)
    stored: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MetadataWriter:
    """Stores a cluster's metadata. Several processes may run at once."""

    store: ObjectStore
    storage: ObjectStore
    catalog: CatalogRegister
    cluster_id: str
    now_ms: Callable[[], int]
    may_go_on: Callable[[], None] = lambda: None
    """Called before each write; may raise."""

    def update_stored(self, *, checks: bool = False) -> MetadataUpdate:
        """Update the stored metadata.

        Without changes this takes one GET, two listings and a read of the catalog. `checks` also reads stored parts and
        replaces damaged ones.
        """
        register = open_metadata_register(self.storage, self.cluster_id)
        # If another process stores newer contents after this read, the swap fails.
        held = self._read_register(register)
        listed = {listing.key: listing.size for listing in self.storage.list(build_metadata_prefix(self.cluster_id))}
        before = {} if held is None else self._find_intact_parts(parse_parts(held), listed, checks=checks)
        done = MetadataUpdate()
        groups = {listing.key: listing for listing in self.store.list(GROUPS)}
        mark = _compute_mark(groups)
        known = before.get(GROUPS_PART)
        read = None if known is not None and known.mark == mark else self._read_groups(groups, known, done)
        # The catalog is read after the groups, to include the topics of new offsets.
        catalog = self.catalog.read()
        serial = 0 if held is None else int(held.value.get("serial", 0))
        if catalog.serial < serial:
            raise self._older_catalog_error(catalog.serial, serial)
        contents = (
            {name: _build_entries(catalog, name) for name in TABLES} if self._has_changed(before, catalog, held) else {}
        )
        if read is not None:
            contents[GROUPS_PART] = self._key_by_location(read, catalog)
        parts = before | self._write_changed(contents, before)
        done.written = {name: part.bytes for name, part in parts.items() if part is not before.get(name)}
        if GROUPS_PART in parts:
            # If a group was unreadable, the empty mark makes the next update read changed groups again.
            parts[GROUPS_PART] = replace(parts[GROUPS_PART], mark="" if done.errors else mark)
        if done.written:
            self._publish(register, held, catalog, parts, set(listed), done)
        return done

    def _write_changed(self, contents: Mapping[str, Json], before: Mapping[str, StoredPart]) -> dict[str, StoredPart]:
        written: dict[str, StoredPart] = {}
        for name, content in contents.items():
            body, sha256 = gzip_value({"format": PART_FORMAT, "part": name, "content": content})
            if name not in before or before[name].sha256 != sha256:
                self.may_go_on()
                key = create_metadata_part_key(self.cluster_id, name)
                self.storage.put(key, body)
                written[name] = StoredPart(key, sha256, len(body), len(content), self.now_ms())
        return written

    def _read_register(self, register: Register) -> RegisterSnapshot | None:
        stored = self.storage.get(register.key)
        try:
            return register.read()
        except NewerFormatError:
            raise
        except UserError:
            if stored is None:
                raise
            return RegisterSnapshot({}, 0, (), stored.version)

    def _find_intact_parts(
        self, parts: Mapping[str, StoredPart], listed: Mapping[str, int], *, checks: bool
    ) -> dict[str, StoredPart]:
        whole = {name: part for name, part in parts.items() if name in PARTS and listed.get(part.key) == part.bytes}
        for name, part in list(whole.items()) if checks else ():
            try:
                read_part(self.storage, name, part, _SHAPES)
            except (UserError, KeyError, TypeError):
                del whole[name]
        return whole

    def _has_changed(self, before: Mapping[str, StoredPart], catalog: Catalog, held: RegisterSnapshot | None) -> bool:
        return held is None or held.value.get("serial") != catalog.serial or not before.keys() >= TABLES.keys()

    def _read_groups(
        self, listed: Mapping[str, ListedObject], known: StoredPart | None, done: MetadataUpdate
    ) -> dict[str, _GroupOffsets]:
        stored_groups: Json = {}
        if known is not None:
            try:
                stored_groups = read_part(self.storage, GROUPS_PART, known, _SHAPES)
            except (UserError, KeyError, TypeError):
                stored_groups = {}

        def as_stored(group: str) -> _GroupOffsets:
            return _GroupOffsets(stored_groups[group]["hint"], stored=stored_groups[group]["offsets"])

        def read(group: str, hint: str) -> _GroupOffsets | ReconcilerError | None:
            if group in stored_groups and stored_groups[group]["hint"] == hint:
                return as_stored(group)
            try:
                existing = read_group(self.store, group)
            except ReconcilerError as error:
                return error
            return None if existing is None else _GroupOffsets(hint, read=existing.offsets)

        named = {
            group: listing.hint for listing in listed.values() if (group := parse_group_key(listing.key)) is not None
        }
        answers = map_in_parallel(lambda one: read(*one), sorted(named.items()), name="groups")
        groups: dict[str, _GroupOffsets] = {}
        for group, answer in zip(sorted(named), answers, strict=True):
            if isinstance(answer, ReconcilerError):
                done.errors.append(answer)
                if group in stored_groups:
                    groups[group] = as_stored(group)
            elif answer is not None:
                groups[group] = answer
        return groups

    def _key_by_location(self, groups: Mapping[str, _GroupOffsets], catalog: Catalog) -> Json:
        places = {
            topic.id: build_location_key(location.cluster_id, location.revision)
            for name, topic in catalog.topics.items()
            for location in (get_topic_location(name, topic, self.cluster_id),)
        }
        living = set(places.values())
        placed: Json = {}
        for group, current in groups.items():
            offsets = {place: value for place, value in current.stored.items() if place in living}
            for (topic_id, number), value in sorted(current.read.items()):
                if topic_id in places:
                    offsets.setdefault(places[topic_id], {})[str(number)] = value.to_json()
            placed[group] = {"hint": current.hint, "offsets": dict(sorted(offsets.items()))}
        return placed

    def _publish(
        self,
        register: Register,
        held: RegisterSnapshot | None,
        catalog: Catalog,
        parts: Mapping[str, StoredPart],
        listed: set[str],
        done: MetadataUpdate,
    ) -> None:
        value = {
            "cluster_id": self.cluster_id,
            "serial": catalog.serial,
            "revision": catalog.revision,
            "parts": {name: part.to_json() for name, part in sorted(parts.items())},
        }
        named = {part.key for part in parts.values()}
        written, mark = [parts[name].key for name in done.written], create_mark()
        self.may_go_on()
        try:
            register.swap(held, value, mark=mark)
        except LostRaceError:
            now = self._read_register(register)
            if now is None or mark not in now.marks:  # If the swap succeeded, the register has its mark.
                self.storage.delete(written)
                done.written.clear()
            return
        self.storage.delete(sorted(listed - named - {register.key}))

    def _older_catalog_error(self, serial: int, stored_serial: int) -> UserError:
        key = build_metadata_key(self.cluster_id)
        message = (
            f"{self.storage.url}: {key} was taken from commit {stored_serial:,} of the catalog, and this cluster is at "
            f"{serial:,}: its root is older than the stored metadata"
        )
        hint = (
            "Nothing was overwritten. Export the stored metadata first: reconciler export CLUSTER "
            f"--from-object-storage --cluster-id {self.cluster_id}. Where this root is the right one, delete {key}: "
            "it is written again."
        )
        return UserError(message, hint=hint)


def _compute_mark(groups: Mapping[str, ListedObject]) -> str:
    rows = sorted(f"{listing.key} {listing.hint}" for listing in groups.values())
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:_MARK]


def _build_entries(catalog: Catalog, part: str) -> Json:
    return dict(sorted(_iter_entries(catalog, part)))


def _iter_entries(catalog: Catalog, part: str) -> Iterator[tuple[str, Json]]:
    match part:
        case "cluster":
            for name, cluster in catalog.clusters.items():
                properties = {
                    key: value for key, value in cluster.properties.items() if _may_store_property(key, value)
                }
                yield name, replace(cluster, properties=properties).to_json()
        case "namespaces":
            for name, namespace in catalog.namespaces.items():
                yield name, namespace.to_json()
        case "topics":
            for name, topic in catalog.topics.items():
                yield name, _drop_operation(topic).to_json()
        case _:
            for name, link in catalog.links.items():
                yield name, replace(link, status=ACTIVE, trouble=None, tasks={}).to_json()


def _drop_operation(topic: TopicEntry) -> TopicEntry:
    mirror = None if topic.mirror is None else replace(topic.mirror, trouble=None, operation=None)
    return replace(topic, mirror=mirror, hold=None)


def _may_store_property(key: str, value: str) -> bool:
    return not key.endswith(_SECRETS) or SECRET_REFERENCE.fullmatch(value) is not None
