"""Parts whose bytes are not those that were written: whoever reads them learns what is lost, and where it lay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.errors import UserError
from reconciler.objectstore.memory import MemoryStore
from reconciler.records.log import OffsetRange
from tests.embedded.crashing import opened
from tests.embedded.samples import cluster_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.embedded.clients.topic_log import EmbeddedLog

PAYLOAD = b"".join(b"%d," % number for number in range(4000))


def flipped(body: bytes, at: int, count: int = 8) -> bytes:
    return body[:at] + bytes(byte ^ 0xFF for byte in body[at : at + count]) + body[at + count :]


@pytest.mark.parametrize("damage", ["a page", "the footer", "all of it", "cut short"])
@pytest.mark.parametrize(
    "ask",
    [lambda log: list(log.read(1, OffsetRange(0, 3))), lambda log: log.offset_for_time(1, 0)],
    ids=["read", "search by time"],
)
def test_a_damaged_part_is_told_with_topic_partition_offsets_and_object(
    damage: str, ask: Callable[[EmbeddedLog], object]
) -> None:
    store = MemoryStore()
    cluster = cluster_in(store)
    cluster.create_topic("shop.orders", partitions=2)
    with cluster.producer() as producer:
        for _ in range(3):
            producer.send("shop.orders", PAYLOAD, partition=1)
    (key,) = [listed.key for listed in store.list("topics/")]
    body = (store.get(key) or pytest.fail("it is there")).body
    harmed = {
        "a page": flipped(body, 4, 40),
        "the footer": flipped(body, len(body) - 60, 40),
        "all of it": flipped(body, 0, len(body)),
        "cut short": body[: len(body) // 2],
    }[damage]
    store.delete([key])
    store.put(key, harmed)
    log = opened(store).log("shop.orders")
    with pytest.raises(UserError) as raised:
        ask(log)
    message = raised.value.message
    assert message.startswith("shop.orders, partition 1: what lies at offsets 0 to 2 cannot be read: memory://"), (
        message
    )
    assert f"object {key} is damaged: " in message
    assert "\n" not in message
    assert "Restore" in raised.value.hint
