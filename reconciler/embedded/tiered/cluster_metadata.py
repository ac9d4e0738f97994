"""What a cluster has beside segments, kept in object storage: a lost cluster comes back whole.

`metadata/<cluster id>/metadata.json` is a register that names one object for each part: the cluster's properties,
namespaces (with access rules and quotas), topics (with ids, configs and access rules), links, and the committed offsets
of groups. A part lies under a name of its own and never changes. Whoever keeps them reads the register first, then the
cluster, writes the parts that changed, and swaps the register as it was read: a process that dies leaves the older
parts named, and one that comes late loses the swap.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from reconciler.archives.keys import (
    CLUSTER_METADATA,
    cluster_metadata_key,
    cluster_metadata_prefix,
    cluster_of_metadata,
    metadata_part_key,
)
from reconciler.archives.objects import damaged, get_gzipped, gzipped
from reconciler.archives.topic_manifest import Committed
from reconciler.embedded.catalog.model import COMMIT, TopicEntry
from reconciler.embedded.catalog.tables import Catalog
from reconciler.embedded.catalog.tiering_state import location_of
from reconciler.embedded.keys import GROUPS, group_of_key
from reconciler.embedded.segments.groups import Place, read_group
from reconciler.errors import LostRaceError, MissingObjectError, NewerFormatError, ReconcilerError, UserError
from reconciler.objectstore.base import Listed, ObjectStore, check_shape
from reconciler.objectstore.register import ReadRegister, Register, fresh_mark
from reconciler.resources.configs import SECRET_REFERENCE
from reconciler.resources.mirrors import ACTIVE
from reconciler.runtime.threads import side_by_side

if TYPE_CHECKING:
    from reconciler.embedded.catalog.commits import CatalogRegister


Json = dict[str, Any]

GROUPS_PART: Final = "groups"
TABLES: Final[Mapping[str, str]] = {
    "cluster": "clusters",
    "namespaces": "namespaces",
    "topics": "topics",
    "links": "links",
}
"""Part → the table of the catalog that it holds."""
PARTS: Final = (*TABLES, GROUPS_PART)

_FORMAT: Final = "reconciler.cluster-metadata/1"
_PART_FORMAT: Final = "reconciler.cluster-metadata-part/1"
_SHAPE: Final = {
    "cluster_id": str,
    "serial": int,
    "revision": int,
    "parts": {str: {"key": str, "sha256": str, "bytes": int, "entries": int, "written_ms": int, "mark": str}},
}
_COMMITTED: Final = {"offset": int, "metadata": str, "at_ms": (None, int)}
_GROUPS: Final = {str: {"hint": str, "offsets": {str: {str: _COMMITTED}}}}
_SECRETS: Final = ("secret_key", "shared_key", "access_key")
_MARK: Final = 16
_LOOKS: Final = 3
"""How often the register is read again that names a part which is not there, before that is believed."""


@dataclass(frozen=True, slots=True)
class KeptPart:
    """One part as the register names it."""

    key: str
    sha256: str
    bytes: int
    entries: int
    written_ms: int
    """By the clock of records. A part that does not change is not written again."""
    mark: str = ""
    """Of the groups: what the listing looked like that they were read from."""

    def to_json(self) -> Json:
        """Return what the register keeps."""
        return asdict(self)


GroupOffsets = dict[str, dict[int, Committed]]
"""What a group committed: by `<cluster id>/<initial revision>` of a topic's location, and partition."""


@dataclass(frozen=True, slots=True)
class KeptMetadata:
    """What object storage has of a cluster beside segments, as far as it is whole."""

    cluster_id: str
    serial: int
    """Of the catalog it was taken from."""
    revision: int
    parts: Mapping[str, KeptPart]
    catalog: Catalog
    """With the tables that are whole; what was going on in it is left out."""
    groups: Mapping[str, GroupOffsets] = field(default_factory=dict)
    lost: Mapping[str, UserError] = field(default_factory=dict)
    """By part: why it is no use."""

    def offsets_of(self, place: str) -> dict[str, dict[int, Committed]]:
        """Return what groups had committed of the topic at a place, as `place_of` names it."""
        return {group: found[place] for group, found in sorted(self.groups.items()) if place in found}


def place_of(cluster_id: str, revision: int) -> str:
    """Return what tells the topic at a location from every other, whatever it is called."""
    return f"{cluster_id}/{revision}"


def kept_clusters(storage: ObjectStore) -> list[str]:
    """Return the ids of the clusters whose metadata is kept: one listing."""
    found = {cluster_of_metadata(listed.key) for listed in storage.list(CLUSTER_METADATA)}
    return sorted(cluster_id for cluster_id in found if cluster_id is not None)


# Reading it back: parts that are lost, cut off or damaged are told one by one, and the others are used.


def read_cluster_metadata(storage: ObjectStore, cluster_id: str, parts: tuple[str, ...] = PARTS) -> KeptMetadata | None:
    """Return what is kept of a cluster, of some parts or all; `None`: nothing is. A GET, and one for each part.

    Raises:
        UserError: The register that names the parts is damaged, or of a newer format.
    """
    register = _register(storage, cluster_id)
    for look in range(1, _LOOKS + 1):
        held = register.read()
        if held is None:
            return None
        found = _read(storage, register, held, parts)
        if look == _LOOKS or not any(isinstance(error, MissingObjectError) for error in found.lost.values()):
            return found
    raise AssertionError


def kept_groups(storage: ObjectStore, cluster_id: str) -> tuple[KeptMetadata | None, UserError | None]:
    """Return what is kept of the groups of a cluster, `None` where nothing is; or why that is no use."""
    try:
        found = read_cluster_metadata(storage, cluster_id, (GROUPS_PART,))
    except UserError as error:
        return None, error
    return found, None if found is None else found.lost.get(GROUPS_PART)


def _read(storage: ObjectStore, register: Register, held: ReadRegister, parts: tuple[str, ...]) -> KeptMetadata:
    kept = _parts_of(held)
    catalog = Catalog(serial=held.value["serial"], revision=held.value["revision"])
    groups: Mapping[str, GroupOffsets] = {}
    lost: dict[str, UserError] = {}
    for name in parts:
        if name not in kept:
            lost[name] = UserError(f"{storage.url}: {register.key} names no part {name}", hint=_REST)
            continue
        try:
            content = _content(storage, name, kept[name])
            if name == GROUPS_PART:
                groups = _groups_in(content)
            else:
                commit = {"serial": catalog.serial, "id": "", "revision": catalog.revision}
                catalog = catalog.after({**commit, "tables": {TABLES[name]: content}})
        except UserError as error:
            lost[name] = error
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            lost[name] = damaged(storage, kept[name].key, f"{type(error).__name__}: {error}")
    return KeptMetadata(held.value["cluster_id"], catalog.serial, catalog.revision, kept, catalog, groups, lost)


_REST: Final = "The other parts are used. Restore it from a version or copy of the bucket, or write this part by hand."


def _content(storage: ObjectStore, name: str, part: KeptPart) -> Json:
    """Return what a part holds, of the shape that its table has.

    Raises:
        UserError: It is not there, not what was written, or of a newer format.
    """
    value = get_gzipped(storage, part.key, part.sha256, f"the part {name} of the cluster's metadata")
    if value.get("format") != _PART_FORMAT:
        raise damaged(storage, part.key, f"its format is {value.get('format')!r}, not {_PART_FORMAT!r}")
    content = value["content"]
    tables: Any = COMMIT["tables?"]
    check_shape(content, _GROUPS if name == GROUPS_PART else tables[f"{TABLES[name]}?"])
    found: Json = content
    return found


def _groups_in(content: Json) -> dict[str, GroupOffsets]:
    return {
        group: {
            place: {int(number): Committed.from_json(each) for number, each in offsets.items()}
            for place, offsets in kept["offsets"].items()
        }
        for group, kept in content.items()
    }


# Keeping it: what changed is written under new names, then named by one swap.


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
        register = _register(self.storage, self.cluster_id)
        held = self._held(register)  # Before the cluster is read: whoever reads it later is newer, and wins.
        listed = {each.key: each.size for each in self.storage.list(cluster_metadata_prefix(self.cluster_id))}
        before = {} if held is None else self._whole(_parts_of(held), listed, checks=checks)
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
            body, sha256 = gzipped({"format": _PART_FORMAT, "part": name, "content": content})
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
                _content(self.storage, name, part)
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
                kept = _content(self.storage, GROUPS_PART, known)
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


def _register(storage: ObjectStore, cluster_id: str) -> Register:
    return Register(storage, cluster_metadata_key(cluster_id), format=_FORMAT, shape=_SHAPE)


def _parts_of(held: ReadRegister) -> dict[str, KeptPart]:
    return {
        name: KeptPart(
            each["key"], each["sha256"], each["bytes"], each["entries"], each["written_ms"], each.get("mark", "")
        )
        for name, each in held.value.get("parts", {}).items()
    }


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
