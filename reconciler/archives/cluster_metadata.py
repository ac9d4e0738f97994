"""What a cluster has besides segments, as object storage keeps it.

`metadata/<cluster id>/metadata.json` is a register that names one object for each part: the cluster's properties,
namespaces (with access rules and quotas), topics (with ids, configs and access rules), links, and the committed offsets
of groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from reconciler.archives.keys import CLUSTER_METADATA, cluster_metadata_key, cluster_of_metadata
from reconciler.archives.objects import MALFORMED, damaged, get_gzipped
from reconciler.archives.topic_manifest import Committed
from reconciler.errors import MissingObjectError, UserError
from reconciler.objectstore.base import ObjectStore, check_shape
from reconciler.objectstore.register import ReadRegister, Register

Json = dict[str, Any]

GROUPS_PART: Final = "groups"
PART_FORMAT: Final = "reconciler.cluster-metadata-part/1"
_FORMAT: Final = "reconciler.cluster-metadata/1"
_SHAPE: Final = {
    "cluster_id": str,
    "serial": int,
    "revision": int,
    "parts": {str: {"key": str, "sha256": str, "bytes": int, "entries": int, "written_ms": int, "mark": str}},
}
_COMMITTED: Final = {"offset": int, "metadata": str, "at_ms": (None, int)}
_GROUPS: Final = {str: {"hint": str, "offsets": {str: {str: _COMMITTED}}}}
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
class StoredMetadata:
    """What object storage has of a cluster beside segments, as far as it is whole."""

    cluster_id: str
    serial: int
    """Of the catalog it was taken from."""
    revision: int
    parts: Mapping[str, KeptPart]
    tables: Mapping[str, Json] = field(default_factory=dict)
    """Content of the parts that are whole, without groups."""
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


def read_metadata(storage: ObjectStore, cluster_id: str, shapes: Mapping[str, Any]) -> StoredMetadata | None:
    """Return what is kept of a cluster: its groups, and the parts of which shapes are given. A GET, and one for each.

    `None`: nothing is kept. Parts that are lost, cut off or damaged are returned as such, with the others.

    Raises:
        UserError: The register that names the parts is damaged, or of a newer format.
    """
    register = metadata_register(storage, cluster_id)
    for look in range(1, _LOOKS + 1):
        held = register.read()
        if held is None:
            return None
        found = _read(storage, register, held, shapes)
        if look == _LOOKS or not any(isinstance(error, MissingObjectError) for error in found.lost.values()):
            return found
    raise AssertionError


def kept_groups(storage: ObjectStore, cluster_id: str) -> tuple[StoredMetadata | None, UserError | None]:
    """Return what is kept of the groups of a cluster, `None` where nothing is; or why that is no use."""
    try:
        found = read_metadata(storage, cluster_id, {})
    except UserError as error:
        return None, error
    return found, None if found is None else found.lost.get(GROUPS_PART)


_REST: Final = "The other parts are used. Restore it from a version or copy of the bucket, or write this part by hand."


def metadata_register(storage: ObjectStore, cluster_id: str) -> Register:
    """Return the register that names the parts of a cluster's metadata."""
    return Register(storage, cluster_metadata_key(cluster_id), format=_FORMAT, shape=_SHAPE)


def parts_of(held: ReadRegister) -> dict[str, KeptPart]:
    """Return the parts that the register names."""
    return {
        name: KeptPart(
            each["key"], each["sha256"], each["bytes"], each["entries"], each["written_ms"], each.get("mark", "")
        )
        for name, each in held.value.get("parts", {}).items()
    }


def read_part(storage: ObjectStore, name: str, part: KeptPart, shapes: Mapping[str, Any]) -> Json:
    """Return what a part holds, of its shape.

    Raises:
        UserError: It is not there, not what was written, or of a newer format.
    """
    value = get_gzipped(storage, part.key, part.sha256, f"the part {name} of the cluster's metadata")
    if value.get("format") != PART_FORMAT:
        raise damaged(storage, part.key, f"its format is {value.get('format')!r}, not {PART_FORMAT!r}")
    content = value["content"]
    check_shape(content, _GROUPS if name == GROUPS_PART else shapes[name])
    found: Json = content
    return found


def _read(storage: ObjectStore, register: Register, held: ReadRegister, shapes: Mapping[str, Any]) -> StoredMetadata:
    kept = parts_of(held)
    tables: dict[str, Json] = {}
    groups: Mapping[str, GroupOffsets] = {}
    lost: dict[str, UserError] = {}
    for name in (*shapes, GROUPS_PART):
        if name not in kept:
            lost[name] = UserError(f"{storage.url}: {register.key} names no part {name}", hint=_REST)
            continue
        try:
            content = read_part(storage, name, kept[name], shapes)
            if name == GROUPS_PART:
                groups = _groups_in(content)
            else:
                tables[name] = content
        except UserError as error:
            lost[name] = error
        except MALFORMED as error:
            lost[name] = damaged(storage, kept[name].key, f"{type(error).__name__}: {error}")
    value = held.value
    return StoredMetadata(value["cluster_id"], value["serial"], value["revision"], kept, tables, groups, lost)


def _groups_in(content: Json) -> dict[str, GroupOffsets]:
    return {
        group: {
            place: {int(number): Committed.from_json(each) for number, each in offsets.items()}
            for place, offsets in kept["offsets"].items()
        }
        for group, kept in content.items()
    }
