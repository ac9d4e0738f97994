"""Any log cut anywhere, again and again, against a list: transactions, compaction, two tiers, dying in between."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.embedded.check.check import check_cluster
from reconciler.embedded.check.damage import Severity
from reconciler.resources.mirrors import Truncated
from tests.embedded.test_tiered_crashes import Ticking
from tests.embedded.tiered import tiered
from tests.embedded.transacting import writer
from tests.embedded.truncated import cut, is_sound, joined, mirror_more, rows, truncate
from tests.embedded.upkeeping import TOPIC, append, head_of
from tests.embedded.watched import DiedError

STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 4)),
    st.tuples(st.just("abort"), st.integers(1, 3)),
    st.tuples(st.just("commit"), st.integers(1, 3)),
    st.tuples(st.sampled_from(["roll", "upload", "compact", "retain"]), st.just(0)),
)
CUTS = st.lists(
    st.tuples(st.floats(0, 1.1), st.integers(0, 3), st.one_of(st.none(), st.integers(0, 12))), min_size=1, max_size=3
)


@settings(max_examples=60)
@given(steps=st.lists(STEPS, max_size=14), cuts=CUTS, compacts=st.booleans(), evicts=st.booleans())
def test_a_log_that_is_cut_holds_what_it_held_below(
    *, steps: list[tuple[str, int]], cuts: list[tuple[float, int, int | None]], compacts: bool, evicts: bool
) -> None:
    configs: dict[str, Any] = {"segment_bytes": "3000", "min_cleanable_dirty_ratio": "0"}
    configs |= {"cleanup_policy": "compact"} if compacts else {"retention_bytes": "9000"}
    configs |= {"retention_local_strict": "true", "retention_local_target_bytes": "1"} if evicts else {}
    it = tiered(**configs)
    it.switch_on(spillover_manifest_size="1024")
    for number, (what, count) in enumerate(steps):
        values = [(f"k{each}", f"{number}-{each}") for each in range(count)]
        match what:
            case "append":
                append(it.cluster, *values)
            case "abort" | "commit":
                producer = writer(it.cluster)
                producer.begin()
                for key, value in values:
                    producer.send(TOPIC, value, key=key, partition=0)
                producer.commit() if what == "commit" else producer.abort()
            case _:
                assert not getattr(it.cluster.upkeep(), what)().errors
    if not any(what in {"append", "commit"} for what, _ in steps):
        append(it.cluster, ("k", "v"))
    for turn, (share, mirrored, death) in enumerate(cuts):
        operation = f"operation-{turn}"
        if turn:
            it.cluster.linking.ask(TOPIC, "failover")
        joined(it, operation)
        before, head = rows(it), head_of(it.opened())
        asked = int(share * head.end)
        at = min(asked, head.end)
        at = min(at, head.start) if head.compacted_to > at else at
        if death is not None:
            tick = Ticking(death)
            try:
                opened = it.opened(tick.watch(it.store, done=False), tick.watch(it.storage, done=False))
                truncate(opened, {0: asked}, operation)
            except DiedError:
                pass
        below = [row for row in before if row[0] < at]
        assert rows(it) in (before, below)
        assert cut(it, asked, operation=operation) == Truncated(at, len(before) - len(below))
        assert rows(it) == below
        assert head_of(it.opened()).end == at
        if mirrored:
            mirror_more(it, mirrored)
        after = rows(it)
        assert after[: len(below)] == below
        assert len(after) == len(below) + mirrored
        assert cut(it, asked, operation=operation) == Truncated(at, len(before) - len(below))
        upkeep = it.opened().upkeep()
        for job in (upkeep.roll, upkeep.upload, upkeep.retain):
            assert not job().errors
        assert rows(it) == after
        findings = check_cluster(it.store, deep=True, storage=it.storage).findings
        assert not [finding for finding in findings if finding.severity is Severity.ERROR]
        is_sound(it)
