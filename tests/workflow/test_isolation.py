"""`topic consume --isolation`: what is not committed yet is left out, or shown; what is aborted is never shown."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.clusters.consume import ConsumeOptions, consume
from reconciler.operations.steps.invocation import Select

if TYPE_CHECKING:
    from conftest import Bench

    from reconciler.records.log import Isolation


def test_open_transactions_are_shown_to_those_who_ask_for_them(applied: Bench) -> None:
    invocation = applied.invocation
    cluster = EmbeddedCluster.open(
        DirectoryStore(applied.folder / ".clusters/west"), now_ms=invocation.now_ms, new_id=invocation.new_id
    )
    aborted, undecided = cluster.producer("shop:aborted"), cluster.producer("shop:undecided")
    for producer in (aborted, undecided):
        producer.init_transactions()
        producer.begin()
    with cluster.producer() as plain:
        plain.send("shop:orders", "before", partition=0)
    aborted.send("shop:orders", "aborted", partition=0)
    aborted.flush()
    undecided.send("shop:orders", "undecided", partition=0)
    undecided.flush()
    with cluster.producer() as plain:
        plain.send("shop:orders", "after", partition=0)
    aborted.abort()
    assert read(applied, "read_committed") == ["before"]
    assert read(applied, "read_uncommitted") == ["before", "undecided", "after"]
    undecided.commit()
    assert read(applied, "read_committed") == read(applied, "read_uncommitted") == ["before", "undecided", "after"]


def read(bench: Bench, isolation: Isolation) -> list[str]:
    out = io.BytesIO()
    options = ConsumeOptions(output_format="values", isolation=isolation)
    consume(bench.invocation, Select(), "topic/west/shop:orders", options, stdout=out, stop=bench.stop)
    return out.getvalue().decode().split()
