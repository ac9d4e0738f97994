"""Builds and parses all object keys of an embedded cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import quote, unquote

from reconciler.errors import UserError
from reconciler.objectstore.base import create_nonce
from reconciler.resources.address import split_name

CATALOG: Final = "catalog/head.json"
HEADS: Final = "heads/"
GROUPS: Final = "groups/"
TRANSACTIONS: Final = "transactions/"
PAGES: Final = "pages/"
PARTS: Final = "topics/"


_PIECES_OF_PAGE: Final = 4
_SHORT_NONCE: Final = 8
_LONG_NONCE: Final = 16
_LONGEST_ENCODED: Final = 249
"""Maximum file name length of an encoded group or transactional id."""


def catalog_key(serial: int) -> str:
    """Return a new key for a catalog snapshot or large commit."""
    return f"catalog/{serial:012}-{create_nonce()[:_SHORT_NONCE]}.json.gz"


def parse_catalog_serial(key: str) -> int | None:
    """Return the serial in a catalog object's key; `None` for other keys."""
    digits = key.removeprefix("catalog/").partition("-")[0]
    return int(digits) if digits.isdecimal() else None


def heads_prefix(topic_id: str) -> str:
    """Return the prefix of a topic's head keys."""
    return f"{HEADS}{topic_id}/"


def head_key(topic_id: str, partition: int) -> str:
    """Return the key of a partition's head."""
    return f"{heads_prefix(topic_id)}{partition:05}.json"


def parse_head_key(key: str) -> tuple[str, int]:
    """Return the topic id and partition in a head's key."""
    _, topic_id, name = key.split("/")
    return topic_id, int(name.removesuffix(".json"))


def is_head_key(key: str) -> bool:
    """Return whether a key is a head's; the folder may hold foreign files."""
    try:
        return key == head_key(*parse_head_key(key))
    except ValueError:
        return False


def parse_head_topic_id(key: str) -> str:
    """Return the topic id in a head's key."""
    return key.removeprefix(HEADS).partition("/")[0]


def page_key(topic_id: str, partition: int) -> str:
    """Return a new key for a page."""
    return f"{PAGES}{topic_id}/{partition:05}/{create_nonce()}.json"


def parse_page_key(key: str) -> tuple[str, int] | None:
    """Return the topic id and partition in a page's key; `None` for other keys."""
    pieces = key.split("/")
    is_page = key.startswith(PAGES) and len(pieces) == _PIECES_OF_PAGE and pieces[2].isdecimal()
    return (pieces[1], int(pieces[2])) if is_page else None


def part_key(full_name: str, partition: int) -> str:
    """Return a new key for a part; namespaces become folders (KIP-37)."""
    namespace, name = split_name(full_name)
    folders = "".join(f"{tier}/" for tier in namespace.split(":")) if namespace else ""
    return f"{PARTS}{folders}{name}_{partition}/{create_nonce()[:_LONG_NONCE]}.parquet"


def parse_part_key(key: str) -> tuple[str, int] | None:
    """Return the full topic name and partition in a part's key; `None` for other keys."""
    *tiers, folder, _ = ["", *key.removeprefix(PARTS).split("/")]
    name, _, number = folder.rpartition("_")
    if not key.startswith(PARTS) or not name or not number.isdecimal():
        return None
    return ":".join([*tiers[1:], name]), int(number)


def group_key(group: str) -> str:
    """Return the key of a group's register."""
    return f"{GROUPS}{_encode_name('group', group)}.json"


def parse_group_key(key: str) -> str | None:
    """Return the group in its register's key; `None` for other keys."""
    return _decode_name(key, GROUPS, group_key)


def transaction_key(transactional_id: str) -> str:
    """Return the key of a transactional id's register."""
    return f"{TRANSACTIONS}{_encode_name('transactional id', transactional_id)}.json"


def parse_transaction_key(key: str) -> str | None:
    """Return the transactional id in its register's key; `None` for other keys."""
    return _decode_name(key, TRANSACTIONS, transaction_key)


def check_producer_id(producer_id: str) -> None:
    """Reject an invalid producer id."""
    _encode_name("producer id", producer_id)


def _encode_name(kind: str, name: str) -> str:
    try:
        encoded = quote(name, safe=":")
    except UnicodeEncodeError as error:
        raise UserError(f"{kind} {name!r} is not text", hint="Example: shop:eu:checkout.") from error
    if not 0 < len(encoded) <= _LONGEST_ENCODED:
        message = f"{kind} {name!r}: a name of {len(encoded)} bytes, percent-encoded"
        raise UserError(message, hint=f"It has 1 to {_LONGEST_ENCODED}. Example: shop:eu:checkout.")
    return encoded


def job_results_key(job: str) -> str:
    """Return the key of a maintenance job's stored results."""
    return f"runner/{job}.json.gz"


def _decode_name(key: str, prefix: str, key_of: Callable[[str], str]) -> str | None:
    try:
        name = unquote(key.removeprefix(prefix).removesuffix(".json"), errors="strict")
        return name if key_of(name) == key else None
    except (UnicodeDecodeError, UserError):
        return None


def fresh_producer_id() -> str:
    """Return a unique producer id."""
    return create_nonce()[:_LONG_NONCE]
