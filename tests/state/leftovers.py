"""States as runs leave them: made by real leases and journals, and then cut, lost or edited by hand."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from reconciler.objectstore.base import ObjectStore
from reconciler.planning.actions import Create
from reconciler.planning.saved_plan import encode_action
from reconciler.resources.topic import Topic
from reconciler.state.journal import (
    ActionEnded,
    Entry,
    Intent,
    Journal,
    ResultFile,
    RunClosed,
    RunDetached,
    RunFile,
    compute_run_progress,
    read_journal,
    result_key,
    write_result,
)
from reconciler.state.lease import Lease, acquire
from reconciler.state.lockfile import KEY
from reconciler.state.snapshots import list_snapshots
from tests.state.samples import claim
from tests.state.simulation import Simulation, simulate


def create(name: str) -> Create:
    raw = {"metadata": {"name": name, "cluster": "west"}, "spec": {"partitions": 1, "configs": {}}}
    topic = Topic.model_validate(raw)
    return Create(address=topic.address, after=topic)


def left(store: ObjectStore, run: str, *names: str, done: Sequence[str] | None = None, commits: bool = True) -> None:
    """Let a run create topics; with `done` only these, and it stays open. Without `commits` it changes no state."""
    simulate(_run(store, run, names, done, commits=commits))


async def running(store: ObjectStore, run: str, *names: str) -> tuple[Lease, Journal]:
    """Let a run begin to create topics, and nothing more."""
    effects = Simulation()
    lease = await acquire(store, effects, claim(run))
    before = await lease.read_snapshot()
    file = RunFile(
        run=run,
        command="apply",
        plan_digest="d" * 64,
        actions=tuple(encode_action(create(name)) for name in names),
        workspace="shop",
        environment=None,
        base_serial=before.serial,
        base_sha256=before.sha256,
        epoch=lease.lockfile.lease.epoch,
        who="anna@build-7",
    )
    await lease.open_run(file)
    return lease, Journal(lease, effects, run)


async def _run(
    store: ObjectStore, run: str, names: Sequence[str], done: Sequence[str] | None, *, commits: bool
) -> None:
    lease, journal = await running(store, run, *names)
    await journal.append([Intent(id=create(name).id) for name in names])
    ended = [create(name) for name in names if done is None or name in done]
    entries: list[Entry] = [ActionEnded(id=action.id, incarnation=f"id-{action.address}") for action in ended]
    await journal.append([*entries, RunClosed(status="done") if done is None else RunDetached(left=())])
    before = await lease.read_snapshot()
    record = compute_run_progress(before.record, [create(name) for name in names], read_journal(store, run)).record
    await lease.close(record if commits else None, keeps_run=done is not None)


def told(store: ObjectStore, run: str, serial: int, *names: str, status: str = "done") -> None:
    """Let a run say how it ended: with which state, and what it had created."""
    result = ResultFile(
        run=run,
        status=status,
        serial=serial,
        done=tuple(create(name).id for name in names),
        failed=(),
        skipped=(),
        not_started=(),
        ended="2026-01-01T00:00:00Z",
    )
    write_result(store, result)


def erase(store: ObjectStore, run: str, *, keeps_result: bool = False) -> None:
    store.delete(
        [listed.key for listed in store.list(f"runs/{run}/") if not keeps_result or listed.key != result_key(run)]
    )


def body(store: ObjectStore, key: str) -> bytes:
    stored = store.get(key)
    assert stored is not None
    return stored.body


def edit(store: ObjectStore, **fields: object) -> None:
    store.put(KEY, orjson.dumps({**orjson.loads(body(store, KEY)), **fields}))


def newest(store: ObjectStore, back: int = 0) -> str:
    """Return the key of a snapshot, counted from the newest."""
    return list_snapshots(store)[back].key


def flip(store: ObjectStore, key: str) -> None:
    content = body(store, key)
    store.put(key, content[:-1] + bytes([content[-1] ^ 1]))


def everything(store: ObjectStore) -> dict[str, str]:
    return {listed.key: listed.hint for listed in store.list("")}
