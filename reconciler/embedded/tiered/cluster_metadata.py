"""Keep what a cluster has besides segments in object storage, so that a lost cluster comes back whole.

A part never changes under its name. A process reads the register, then the cluster, writes the parts that changed, and
swaps the register as it was read: if it dies the older parts stay named, and if it is late it loses the swap.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from reconciler.archives.cluster_metadata import (
    GROUPS_PART,
    PART_FORMAT,
    KeptPart,
    StoredMetadata,
    metadata_register,
    parts_of,
    place_of,
    read_metadata,
    read_part,
)
from reconciler.archives.keys import (
    cluster_metadata_key,
    cluster_metadata_prefix,
    metadata_part_key,
)
from reconciler.archives.objects import MALFORMED, damaged, gzipped
from reconciler.archives.topic_manifest import Committed
from reconciler.embedded.catalog.model import COMMIT, TopicEntry
from reconciler.embedded.catalog.tables import Catalog
from reconciler.embedded.catalog.tiering_state import location_of
from reconciler.embedded.keys import GROUPS, group_of_key
from reconciler.embedded.segments.groups import Place, read_group
from reconciler.errors import LostRaceError, NewerFormatError, ReconcilerError, UserError
from reconciler.objectstore.base import Listed, ObjectStore
from reconciler.objectstore.register import ReadRegister, Register, fresh_mark
from reconciler.resources.configs import SECRET_REFERENCE
from reconciler.resources.mirrors import ACTIVE
from reconciler.runtime.threads import side_by_side

if TYPE_CHECKING:
    from reconciler.embedded.catalog.commits import CatalogRegister


Json = dict[str, Any]

TABLES: Final[Mapping[str, str]] = {
    "cluster": "clusters",
    "namespaces": "namespaces",
    "topics": "topics",
    "links": "links",
}
"""Part → the table of the catalog that it holds."""
PARTS: Final = (*TABLES, GROUPS_PART)

_SECRETS: Final = ("secret_key", "shared_key", "access_key")
_MARK: Final = 16
_TABLES: Final[Any] = COMMIT["tables?"]
_SHAPES: Final[Mapping[str, Any]] = {part: _TABLES[f"{table}?"] for part, table in TABLES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptMetadata(StoredMetadata):
    """What object storage has of an embedded cluster, with its catalog as of the tables that are whole."""

    catalog: Catalog


def read_cluster_metadata(storage: ObjectStore, cluster_id: str) -> KeptMetadata | None:
    """Return what is kept of a cluster: see `read_metadata`.

    Raises:
        UserError: The register that names the parts is damaged, or of a newer format.
    """
    stored = read_metadata(storage, cluster_id, _SHAPES)
    if stored is None:
        return None
    catalog, lost = Catalog(serial=stored.serial, revision=stored.revision), dict(stored.lost)
    for name, table in stored.tables.items():
        commit = {"serial": catalog.serial, "id": "", "revision": catalog.revision}
        try:
            catalog = catalog.after({**commit, "tables": {TABLES[name]: table}})
        except MALFORMED as error:
            lost[name] = damaged(storage, stored.parts[name].key, f"{type(error).__name__}: {error}")
        except UserError as error:
            lost[name] = error
    rest = stored.cluster_id, stored.serial, stored.revision, stored.parts, stored.tables, stored.groups
    return KeptMetadata(*rest, lost, catalog=catalog)


@dataclass(slots=True)
class MetadataKept:
    """What one look came to."""

    written: dict[str, int] = field(default_factory=dict)
    """Part → bytes; nothing where nothing changed, or another process was faster."""
    errors: list[ReconcilerError] = field(default_factory=list)
    """Of groups whose register cannot be read: what was kept of them before stays."""


@dataclass(frozen=True, slots=True)
class _GroupNow:
    """A group as it is to be kept: as it was read, or as it was kept before."""

    hint: str
    read: Mapping[Place, Committed] = field(default_factory=dict)
    """By topic id and partition."""
    kept: Mapping[str, Json] = field(default_factory=dict)
    """By the place of a topic, as the part has it."""


@dataclass(frozen=True, slots=True)
class MetadataKeeper:
    """Keeps what one cluster has beside segments. Several processes may do so at once."""

    store: ObjectStore
    storage: ObjectStore
    catalog: CatalogRegister
    cluster_id: str
    now_ms: Callable[[], int]
    may_go_on: Callable[[], None] = lambda: None
    """Asked before each write; may raise."""

    def keep(self, *, checks: bool = False) -> MetadataKept:
        """Bring what is kept to what the cluster has; where nothing changed: a GET, two listings, the catalog.

        `checks`: also read the parts that are kept, and write those again that are damaged.

        Raises:
            UserError: A cluster with this id has kept a newer catalog; or a newer version wrote the register.
            RetryableError: A store does not answer.
        """
        register = metadata_register(self.storage, self.cluster_id)
        held = self._held(register)  # Before the cluster is read: whoever reads it later is newer, and wins.
        listed = {each.key: each.size for each in self.storage.list(cluster_metadata_prefix(self.cluster_id))}
        before = {} if held is None else self._whole(parts_of(held), listed, checks=checks)
        done = MetadataKept()
        groups = {each.key: each for each in self.store.list(GROUPS)}
        mark = _mark_of(groups)
        known = before.get(GROUPS_PART)
        read = None if known is not None and known.mark == mark else self._groups(groups, known, done)
        # After the groups: what is in them was committed on topics that an older catalog may not have yet.
        catalog = self.catalog.read()
        serial = 0 if held is None else int(held.value.get("serial", 0))
        if catalog.serial < serial:
            raise self._older(catalog.serial, serial)
        contents = {name: _entries_of(catalog, name) for name in TABLES} if self._differs(before, catalog, held) else {}
        if read is not None:
            contents[GROUPS_PART] = self._placed(read, catalog)
        parts = before | self._written(contents, before)
        done.written = {name: part.bytes for name, part in parts.items() if part is not before.get(name)}
        if GROUPS_PART in parts:
            # Of a group that could not be read, the next look asks again though no group has changed by then.
            parts[GROUPS_PART] = replace(parts[GROUPS_PART], mark="" if done.errors else mark)
        if done.written:
            self._name(register, held, catalog, parts, set(listed), done)
        return done

    def _written(self, contents: Mapping[str, Json], before: Mapping[str, KeptPart]) -> dict[str, KeptPart]:
        """Write the parts that differ from those before, each under a new name, and return them."""
        written: dict[str, KeptPart] = {}
        for name, content in contents.items():
            body, sha256 = gzipped({"format": PART_FORMAT, "part": name, "content": content})
            if name not in before or before[name].sha256 != sha256:
                self.may_go_on()
                key = metadata_part_key(self.cluster_id, name)
                self.storage.put(key, body)
                written[name] = KeptPart(key, sha256, len(body), len(content), self.now_ms())
        return written

    def _held(self, register: Register) -> ReadRegister | None:
        """Return the register; one that is damaged counts as empty, and is replaced.

        Raises:
            NewerFormatError: A newer version wrote it.
        """
        stored = self.storage.get(register.key)
        try:
            return register.read()
        except NewerFormatError:
            raise
        except UserError:
            if stored is None:
                raise
            return ReadRegister({}, 0, (), stored.version)

    def _whole(self, parts: Mapping[str, KeptPart], listed: Mapping[str, int], *, checks: bool) -> dict[str, KeptPart]:
        """Return the parts that lie there as they were written: the others are written again."""
        whole = {name: part for name, part in parts.items() if name in PARTS and listed.get(part.key) == part.bytes}
        for name, part in list(whole.items()) if checks else ():
            try:
                read_part(self.storage, name, part, _SHAPES)
            except (UserError, KeyError, TypeError):
                del whole[name]
        return whole

    def _differs(self, before: Mapping[str, KeptPart], catalog: Catalog, held: ReadRegister | None) -> bool:
        return held is None or held.value.get("serial") != catalog.serial or not before.keys() >= TABLES.keys()

    def _groups(self, listed: Mapping[str, Listed], known: KeptPart | None, done: MetadataKept) -> dict[str, _GroupNow]:
        """Return each group as it is now; one that has not changed, or cannot be read, as it was kept."""
        kept: Json = {}
        if known is not None:
            try:
                kept = read_part(self.storage, GROUPS_PART, known, _SHAPES)
            except (UserError, KeyError, TypeError):
                kept = {}  # All groups are read.

        def as_kept(group: str) -> _GroupNow:
            return _GroupNow(kept[group]["hint"], kept=kept[group]["offsets"])

        def read(group: str, hint: str) -> _GroupNow | ReconcilerError | None:
            if group in kept and kept[group]["hint"] == hint:
                return as_kept(group)
            try:
                found = read_group(self.store, group)
            except ReconcilerError as error:
                return error
            return None if found is None else _GroupNow(hint, read=found.offsets)

        named = {group: each.hint for each in listed.values() if (group := group_of_key(each.key)) is not None}
        answers = side_by_side(lambda one: read(*one), sorted(named.items()), name="groups")
        groups: dict[str, _GroupNow] = {}
        for group, answer in zip(sorted(named), answers, strict=True):
            if isinstance(answer, ReconcilerError):
                done.errors.append(answer)
                if group in kept:
                    groups[group] = as_kept(group)
            elif answer is not None:
                groups[group] = answer
        return groups

    def _placed(self, groups: Mapping[str, _GroupNow], catalog: Catalog) -> Json:
        """Return groups by the locations of topics, which stay for life; offsets of topics that are gone go."""
        places = {
            topic.id: place_of(location.cluster_id, location.revision)
            for name, topic in catalog.topics.items()
            for location in (location_of(name, topic, self.cluster_id),)
        }
        living = set(places.values())
        placed: Json = {}
        for group, found in groups.items():
            offsets = {place: each for place, each in found.kept.items() if place in living}
            for (topic_id, number), each in sorted(found.read.items()):
                if topic_id in places:
                    offsets.setdefault(places[topic_id], {})[str(number)] = each.to_json()
            placed[group] = {"hint": found.hint, "offsets": dict(sorted(offsets.items()))}
        return placed

    def _name(
        self,
        register: Register,
        held: ReadRegister | None,
        catalog: Catalog,
        parts: Mapping[str, KeptPart],
        listed: set[str],
        done: MetadataKept,
    ) -> None:
        """Swap the register as it was read, then delete what nothing names any more.

        What was listed before the swap and is not named is of a process whose swap has failed, or will.
        """
        value = {
            "cluster_id": self.cluster_id,
            "serial": catalog.serial,
            "revision": catalog.revision,
            "parts": {name: part.to_json() for name, part in sorted(parts.items())},
        }
        named = {part.key for part in parts.values()}
        written, mark = [parts[name].key for name in done.written], fresh_mark()
        self.may_go_on()
        try:
            register.swap(held, value, mark=mark)
        except LostRaceError:
            now = self._held(register)
            if now is None or mark not in now.marks:  # Else it is ours, whatever came later: nothing is deleted.
                self.storage.delete(written)
                done.written.clear()
            return
        self.storage.delete(sorted(listed - named - {register.key}))

    def _older(self, serial: int, kept: int) -> UserError:
        key = cluster_metadata_key(self.cluster_id)
        message = (
            f"{self.storage.url}: {key} was taken from commit {kept:,} of the catalog, and this cluster is at "
            f"{serial:,}: its root is older than what is kept of it"
        )
        hint = (
            "Nothing was overwritten. Export what is kept first: reconciler export CLUSTER --from-object-storage "
            f"--cluster-id {self.cluster_id}. Where this root is the right one, delete {key}: it is written again."
        )
        return UserError(message, hint=hint)


def _mark_of(groups: Mapping[str, Listed]) -> str:
    """Return what tells whether any group was made, changed or deleted."""
    rows = sorted(f"{each.key} {each.hint}" for each in groups.values())
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:_MARK]


def _entries_of(catalog: Catalog, part: str) -> Json:
    """Return the entries of a table that last: what goes on, or is wrong for a while, is left out."""
    return dict(sorted(_lasting(catalog, part)))


def _lasting(catalog: Catalog, part: str) -> Iterator[tuple[str, Json]]:
    match part:
        case "cluster":
            for name, cluster in catalog.clusters.items():
                properties = {key: value for key, value in cluster.properties.items() if _may_be_kept(key, value)}
                yield name, replace(cluster, properties=properties).to_json()
        case "namespaces":
            for name, namespace in catalog.namespaces.items():
                yield name, namespace.to_json()
        case "topics":
            for name, topic in catalog.topics.items():
                yield name, _settled(topic).to_json()
        case _:
            for name, link in catalog.links.items():
                yield name, replace(link, status=ACTIVE, trouble=None, tasks={}).to_json()


def _settled(topic: TopicEntry) -> TopicEntry:
    mirror = None if topic.mirror is None else replace(topic.mirror, trouble=None, operation=None)
    return replace(topic, mirror=mirror, hold=None)


def _may_be_kept(key: str, value: str) -> bool:
    """Tell a secret that is written out: it never leaves the cluster. A reference to one does."""
    return not key.endswith(_SECRETS) or SECRET_REFERENCE.fullmatch(value) is not None
