"""Object keys of an embedded cluster. No other module builds one."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Final
from urllib.parse import quote, unquote

from reconciler.errors import UserError
from reconciler.objectstore.base import nonce
from reconciler.resources.address import split_name

CLUSTER: Final = "cluster.json"
CATALOG: Final = "catalog/head.json"
HEADS: Final = "heads/"
GROUPS: Final = "groups/"
TRANSACTIONS: Final = "transactions/"
PAGES: Final = "pages/"
PARTS: Final = "topics/"
STORAGE: Final = "storage.json"
"""In object storage: which storage it is."""
REMOTE_TOPICS: Final = "topics/"
"""In object storage: the remote tier of every topic of every cluster that shares it."""

TOPIC_MANIFEST: Final = "topic.json"

MOUNTABLE: Final = "mountable/"
"""In object storage: who owns each topic that was ever detached."""

CLUSTER_METADATA: Final = "metadata/"
"""In object storage: what clusters have beside segments, by cluster id."""

_PIECES_OF_PAGE: Final = 4
_PIECES_OF_REMOTE: Final = 5
_PIECES_OF_LOCATION: Final = 4
_PIECES_OF_MOUNTABLE: Final = 4
"""Below `mountable/`: one tier at least, or `_`, the topic, the cluster, the revision."""
_PIECES_OF_METADATA: Final = 3
_SHORT: Final = 8
_LONG: Final = 16
_LONGEST_ENCODED: Final = 249
"""What fits, with `.json`, into the name of a file; a name of 249 legal characters does."""


def catalog_key(serial: int) -> str:
    """Return a fresh name for a snapshot, or for a commit too large for the head."""
    return f"catalog/{serial:012}-{nonce()[:_SHORT]}.json.gz"


def serial_of_catalog_key(key: str) -> int | None:
    """Return the serial of a snapshot or commit by its key; `None`: it is neither."""
    digits = key.removeprefix("catalog/").partition("-")[0]
    return int(digits) if digits.isdecimal() else None


def heads_prefix(topic_id: str) -> str:
    """Return what the keys of a topic's heads begin with."""
    return f"{HEADS}{topic_id}/"


def head_key(topic_id: str, partition: int) -> str:
    """Return the key of a partition's register."""
    return f"{heads_prefix(topic_id)}{partition:05}.json"


def partition_of_head(key: str) -> tuple[str, int]:
    """Return topic id and partition of a head's key."""
    _, topic_id, name = key.split("/")
    return topic_id, int(name.removesuffix(".json"))


def is_head_key(key: str) -> bool:
    """Tell whether a key is that of a partition's register; people and tools leave other things beside them."""
    try:
        return key == head_key(*partition_of_head(key))
    except ValueError:
        return False


def topic_of_head(key: str) -> str:
    """Return the id of the topic below whose prefix a key lies, whatever it is called there."""
    return key.removeprefix(HEADS).partition("/")[0]


def page_key(topic_id: str, partition: int) -> str:
    """Return a fresh name for a head's older entries."""
    return f"{PAGES}{topic_id}/{partition:05}/{nonce()}.json"


def partition_of_page(key: str) -> tuple[str, int] | None:
    """Return topic id and partition of a page's key; `None`: it is no page's."""
    pieces = key.split("/")
    is_page = key.startswith(PAGES) and len(pieces) == _PIECES_OF_PAGE and pieces[2].isdecimal()
    return (pieces[1], int(pieces[2])) if is_page else None


def part_key(full_name: str, partition: int) -> str:
    """Return a fresh name for what one append writes: tiers are folders (KIP-37)."""
    namespace, name = split_name(full_name)
    folders = "".join(f"{tier}/" for tier in namespace.split(":")) if namespace else ""
    return f"{PARTS}{folders}{name}_{partition}/{nonce()[:_LONG]}.parquet"


def partition_of_part(key: str) -> tuple[str, int] | None:
    """Return the full name and partition that a part was written under; `None`: it lies in no partition's folder."""
    *tiers, folder, _ = ["", *key.removeprefix(PARTS).split("/")]
    name, _, number = folder.rpartition("_")
    if not key.startswith(PARTS) or not name or not number.isdecimal():
        return None
    return ":".join([*tiers[1:], name]), int(number)


def location_prefix(cluster_id: str, revision: int) -> str:
    """Return what the keys of a topic's remote objects begin with, in object storage."""
    return f"{REMOTE_TOPICS}{cluster_id}/{revision}/"


def topic_manifest_key(cluster_id: str, revision: int) -> str:
    """Return the key of a topic's register in object storage."""
    return f"{location_prefix(cluster_id, revision)}{TOPIC_MANIFEST}"


def manifest_key(cluster_id: str, revision: int, partition: int) -> str:
    """Return the key of a partition's register in object storage."""
    return f"{location_prefix(cluster_id, revision)}{partition:05}/manifest.json"


def remote_place_of(key: str) -> tuple[str, int, int, str] | None:
    """Return cluster id, revision and partition of a key in object storage, and what it is called there.

    `None`: it lies in no partition's folder.
    """
    pieces = key.split("/", 4)
    if not key.startswith(REMOTE_TOPICS) or len(pieces) < _PIECES_OF_REMOTE:
        return None
    _, cluster_id, revision, partition, name = pieces
    if not (revision.isdecimal() and partition.isdecimal() and cluster_id):
        return None
    return cluster_id, int(revision), int(partition), name


def partition_of_manifest(key: str) -> int | None:
    """Return the partition whose register in object storage has a key; `None`: it is none's."""
    place = remote_place_of(key)
    return None if place is None or key != manifest_key(*place[:3]) else place[2]


def manifest_page_key(cluster_id: str, revision: int, partition: int) -> str:
    """Return a fresh name for what a manifest spills."""
    return f"{location_prefix(cluster_id, revision)}{partition:05}/pages/{nonce()}.json"


def segment_key(place: str, offsets: tuple[int, int], stored_bytes: int, epoch: int) -> str:
    """Return a fresh name for a remote segment; `place` is what its manifest's key begins with, up to the `/`."""
    first, last = offsets
    return f"{place}/{first}-{last}-{stored_bytes}-{epoch}-v1-{nonce()[:_SHORT]}.parquet"


def copied_segment_key(place: str, offsets: tuple[int, int], stored_bytes: int, epoch: int, *, of: str) -> str:
    """Return the name of the copy of the segment `of`: always the same, so whoever copies it again finds it there."""
    first, last = offsets
    mark = sha256(of.encode()).hexdigest()[:_SHORT]
    return f"{place}/{first}-{last}-{stored_bytes}-{epoch}-v1-{mark}.parquet"


def offsets_of_segment(key: str) -> tuple[int, int] | None:
    """Return the first and last offset of a remote segment by its name; `None`: it is none."""
    first, _, rest = key.rpartition("/")[2].partition("-")
    last, _, _ = rest.partition("-")
    is_one = key.endswith(".parquet") and first.isdecimal() and last.isdecimal()
    return (int(first), int(last)) if is_one else None


def location_of_topic_manifest(key: str) -> tuple[str, int] | None:
    """Return cluster id and initial revision of the topic whose register has a key; `None`: it is none's."""
    pieces = key.split("/")
    is_one = key.startswith(REMOTE_TOPICS) and len(pieces) == _PIECES_OF_LOCATION and pieces[-1] == TOPIC_MANIFEST
    return (pieces[1], int(pieces[2])) if is_one and pieces[2].isdecimal() else None


def cluster_metadata_prefix(cluster_id: str) -> str:
    """Return what the keys of a cluster's kept metadata begin with, in object storage."""
    return f"{CLUSTER_METADATA}{cluster_id}/"


def cluster_metadata_key(cluster_id: str) -> str:
    """Return the key of the register that names the parts of a cluster's kept metadata."""
    return f"{cluster_metadata_prefix(cluster_id)}metadata.json"


def metadata_part_key(cluster_id: str, part: str) -> str:
    """Return a fresh name for one part of a cluster's kept metadata."""
    return f"{cluster_metadata_prefix(cluster_id)}{part}-{nonce()[:_LONG]}.json.gz"


def cluster_of_metadata(key: str) -> str | None:
    """Return the id of the cluster whose kept metadata an object is of; `None`: it is none."""
    pieces = key.split("/")
    is_one = key.startswith(CLUSTER_METADATA) and len(pieces) == _PIECES_OF_METADATA and pieces[1]
    return pieces[1] if is_one else None


def mountable_key(full_name: str, cluster_id: str, revision: int) -> str:
    """Return the key of the register that says who owns a topic that was ever detached."""
    namespace, name = split_name(full_name)
    folders = namespace.replace(":", "/") or "_"
    return f"{MOUNTABLE}{folders}/{name}/{cluster_id}/{revision}.json"


def is_mountable_key(key: str) -> bool:
    """Tell whether a key is one of those registers'."""
    return location_of_mountable(key) is not None


def location_of_mountable(key: str) -> tuple[str, int] | None:
    """Return cluster id and initial revision of the topic whose ownership a key is of; `None`: it is no such key."""
    pieces = key.removeprefix(MOUNTABLE).split("/")
    revision = pieces[-1].removesuffix(".json")
    is_one = key.startswith(MOUNTABLE) and key.endswith(".json") and len(pieces) >= _PIECES_OF_MOUNTABLE
    return (pieces[-2], int(revision)) if is_one and revision.isascii() and revision.isdecimal() else None


def index_key(key: str) -> str:
    """Return the key of a remote segment's index: the footer of its Parquet file."""
    return f"{key.removesuffix('.parquet')}.index"


def group_key(group: str) -> str:
    """Return the key of a group's register.

    Raises:
        UserError: No group can have that name.
    """
    return f"{GROUPS}{_encoded('group', group)}.json"


def group_of_key(key: str) -> str | None:
    """Return the group whose register has a key; `None`: it belongs to no group."""
    return _decoded(key, GROUPS, group_key)


def transaction_key(transactional_id: str) -> str:
    """Return the key of a transactional id's register.

    Raises:
        UserError: No transactional id can have that name.
    """
    return f"{TRANSACTIONS}{_encoded('transactional id', transactional_id)}.json"


def transactional_id_of_key(key: str) -> str | None:
    """Return the transactional id whose register has a key; `None`: it is none's."""
    return _decoded(key, TRANSACTIONS, transaction_key)


def check_producer_id(producer_id: str) -> None:
    """Refuse what cannot be a producer's id: it stands in every part's entry.

    Raises:
        UserError: It is empty, too long, or not text.
    """
    _encoded("producer id", producer_id)


def _encoded(kind: str, name: str) -> str:
    """Return a name as it stands in a key: any characters, `:` as it is."""
    try:
        encoded = quote(name, safe=":")
    except UnicodeEncodeError as error:
        raise UserError(f"{kind} {name!r} is not text", hint="Example: shop:eu:checkout.") from error
    if not 0 < len(encoded) <= _LONGEST_ENCODED:
        message = f"{kind} {name!r}: a name of {len(encoded)} bytes, percent-encoded"
        raise UserError(message, hint=f"It has 1 to {_LONGEST_ENCODED}. Example: shop:eu:checkout.")
    return encoded


def runner_key(job: str) -> str:
    """Return where upkeep keeps what it remembers of a job's last pass; it may be lost."""
    return f"runner/{job}.json.gz"


def _decoded(key: str, prefix: str, key_of: Callable[[str], str]) -> str | None:
    """Return the name that has a key, where it is written as we write it."""
    try:
        name = unquote(key.removeprefix(prefix).removesuffix(".json"), errors="strict")
        return name if key_of(name) == key else None
    except (UnicodeDecodeError, UserError):
        return None


def fresh_mark() -> str:
    """Return a mark by which a register's writer knows its swap again; short, since 256 of them are kept."""
    return nonce()[:_LONG]


def fresh_producer_id() -> str:
    """Return the id of a new producer: what was appended under it is never appended twice, so it must never repeat."""
    return nonce()[:_LONG]
