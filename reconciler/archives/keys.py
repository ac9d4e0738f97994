"""Build and parse all keys in object storage."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from reconciler.objectstore.base import create_nonce
from reconciler.resources.address import split_name

CLUSTER: Final = "cluster.json"
STORAGE: Final = "storage.json"
REMOTE_TOPICS: Final = "topics/"
TOPIC_MANIFEST: Final = "topic.json"
MOUNTABLE: Final = "mountable/"
CLUSTER_METADATA: Final = "metadata/"
_PIECES_OF_REMOTE: Final = 5
_PIECES_OF_LOCATION: Final = 4
_PIECES_OF_MOUNTABLE: Final = 4
_PIECES_OF_METADATA: Final = 3
_SHORT: Final = 8
_LONG: Final = 16


def build_location_prefix(cluster_id: str, revision: int) -> str:
    """Return the key prefix of a topic's remote objects."""
    return f"{REMOTE_TOPICS}{cluster_id}/{revision}/"


def build_topic_manifest_key(cluster_id: str, revision: int) -> str:
    """Return the key of a topic's register."""
    return f"{build_location_prefix(cluster_id, revision)}{TOPIC_MANIFEST}"


def build_manifest_key(cluster_id: str, revision: int, partition: int) -> str:
    """Return the key of a partition's register."""
    return f"{build_location_prefix(cluster_id, revision)}{partition:05}/manifest.json"


def parse_remote_key(key: str) -> tuple[str, int, int, str] | None:
    """Return cluster id, revision, partition and rest of a partition object's key, or `None`."""
    pieces = key.split("/", 4)
    if not key.startswith(REMOTE_TOPICS) or len(pieces) < _PIECES_OF_REMOTE:
        return None
    _, cluster_id, revision, partition, name = pieces
    if not (revision.isdecimal() and partition.isdecimal() and cluster_id):
        return None
    return cluster_id, int(revision), int(partition), name


def parse_manifest_partition(key: str) -> int | None:
    """Return the partition in a manifest's key, or `None`."""
    place = parse_remote_key(key)
    return None if place is None or key != build_manifest_key(*place[:3]) else place[2]


def create_manifest_page_key(cluster_id: str, revision: int, partition: int) -> str:
    """Return a new key for a page of a manifest."""
    return f"{build_location_prefix(cluster_id, revision)}{partition:05}/pages/{create_nonce()}.json"


def create_segment_key(place: str, offsets: tuple[int, int], stored_bytes: int, epoch: int) -> str:
    """Return a new key for a segment; `place` is the partition's prefix, `offsets` are (first, last)."""
    first, last = offsets
    return f"{place}/{first}-{last}-{stored_bytes}-{epoch}-v1-{create_nonce()[:_SHORT]}.parquet"


def build_copied_segment_key(place: str, offsets: tuple[int, int], stored_bytes: int, epoch: int, *, of: str) -> str:
    """Return the key for a copy of the segment `of`, the same for every retry."""
    first, last = offsets
    mark = sha256(of.encode()).hexdigest()[:_SHORT]
    return f"{place}/{first}-{last}-{stored_bytes}-{epoch}-v1-{mark}.parquet"


def parse_segment_offsets(key: str) -> tuple[int, int] | None:
    """Return the offsets (first, last) in a remote segment's key, or `None`."""
    first, _, rest = key.rpartition("/")[2].partition("-")
    last, _, _ = rest.partition("-")
    is_one = key.endswith(".parquet") and first.isdecimal() and last.isdecimal()
    return (int(first), int(last)) if is_one else None


def parse_topic_manifest_key(key: str) -> tuple[str, int] | None:
    """Return cluster id and initial revision in a topic register's key, or `None`."""
    pieces = key.split("/")
    is_one = key.startswith(REMOTE_TOPICS) and len(pieces) == _PIECES_OF_LOCATION and pieces[-1] == TOPIC_MANIFEST
    return (pieces[1], int(pieces[2])) if is_one and pieces[2].isdecimal() else None


def build_metadata_prefix(cluster_id: str) -> str:
    """Return the key prefix of a cluster's metadata."""
    return f"{CLUSTER_METADATA}{cluster_id}/"


def build_metadata_key(cluster_id: str) -> str:
    """Return the register key of a cluster's metadata."""
    return f"{build_metadata_prefix(cluster_id)}metadata.json"


def create_metadata_part_key(cluster_id: str, part: str) -> str:
    """Return a new key for a part of a cluster's metadata."""
    return f"{build_metadata_prefix(cluster_id)}{part}-{create_nonce()[:_LONG]}.json.gz"


def parse_metadata_cluster(key: str) -> str | None:
    """Return the cluster id in a metadata key, or `None`."""
    pieces = key.split("/")
    is_one = key.startswith(CLUSTER_METADATA) and len(pieces) == _PIECES_OF_METADATA and pieces[1]
    return pieces[1] if is_one else None


def build_mountable_key(full_name: str, cluster_id: str, revision: int) -> str:
    """Return the key of a topic's ownership register."""
    namespace, name = split_name(full_name)
    folders = namespace.replace(":", "/") or "_"
    return f"{MOUNTABLE}{folders}/{name}/{cluster_id}/{revision}.json"


def is_mountable_key(key: str) -> bool:
    """Return whether a key belongs to an ownership register."""
    return parse_mountable_key(key) is not None


def parse_mountable_key(key: str) -> tuple[str, int] | None:
    """Return cluster id and initial revision in an ownership register's key, or `None`."""
    pieces = key.removeprefix(MOUNTABLE).split("/")
    revision = pieces[-1].removesuffix(".json")
    is_one = key.startswith(MOUNTABLE) and key.endswith(".json") and len(pieces) >= _PIECES_OF_MOUNTABLE
    return (pieces[-2], int(revision)) if is_one and revision.isascii() and revision.isdecimal() else None


def build_index_key(key: str) -> str:
    """Return the key of a remote segment's index (a Parquet footer)."""
    return f"{key.removesuffix('.parquet')}.index"
