"""Object keys of an embedded cluster. No other module builds one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import quote, unquote

from reconciler.errors import UserError
from reconciler.objectstore.base import nonce
from reconciler.resources.address import split_name

CATALOG: Final = "catalog/head.json"
HEADS: Final = "heads/"
GROUPS: Final = "groups/"
TRANSACTIONS: Final = "transactions/"
PAGES: Final = "pages/"
PARTS: Final = "topics/"


_PIECES_OF_PAGE: Final = 4
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


def fresh_producer_id() -> str:
    """Return the id of a new producer: what was appended under it is never appended twice, so it must never repeat."""
    return nonce()[:_LONG]
