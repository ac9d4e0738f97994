"""States as runs leave them: made by real leases and journals, and then cut, lost or edited by hand."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from reconciler.objectstore.memory import MemoryStore
from reconciler.planning.actions import Create
from reconciler.planning.document.stored import stored_action
from reconciler.resources.topic import Topic
from reconciler.state.acquiring import acquire
from reconciler.state.entries import ActionEnded, Closed, Detached, Entry, Intent
from reconciler.state.folding import fold_run
from reconciler.state.journal import Journal, Written, read_journal
from reconciler.state.lockfile import KEY
from reconciler.state.runs import RunFile
from reconciler.state.snapshots import history
from tests.state.samples import claim
from tests.state.simulation import Simulation, simulate


def create(name: str) -> Create:
    raw = {"metadata": {"name": name, "cluster": "west"}, "spec": {"partitions": 1, "configs": {}}}
    topic = Topic.model_validate(raw)
    return Create(address=topic.address, after=topic)


def left(store: MemoryStore, run: str, *names: str, done: Sequence[str] | None = None, commits: bool = True) -> None:
    """Let a run create topics; with `done` only these, and it stays open. Without `commits` it changes no state."""
    simulate(_run(store, run, names, done, commits=commits))


async def _run(
    store: MemoryStore, run: str, names: Sequence[str], done: Sequence[str] | None, *, commits: bool
) -> None:
    effects = Simulation()
    lease = await acquire(store, effects, claim(run))
    before = await lease.snapshot()
    actions = [create(name) for name in names]
    file = RunFile(
        run=run,
        command="apply",
        plan_digest="d" * 64,
        actions=tuple(stored_action(action) for action in actions),
        workspace="shop",
        environment=None,
        base_serial=before.serial,
        base_sha256=before.sha256,
        epoch=lease.lockfile.lease.epoch,
        who="anna@build-7",
    )
    await lease.begin(file)
    journal = Journal(lease, effects, run)
    await journal.append([Intent(id=action.id) for action in actions])
    ended = [action for action in actions if done is None or action.after.metadata.name in done]  # type: ignore[union-attr]  # a topic
    entries: list[Entry] = [ActionEnded(id=action.id, incarnation=f"id-{action.address}") for action in ended]
    await journal.append([*entries, Closed(status="done") if done is None else Detached(left=())])
    written: Written = read_journal(store, run)
    record = fold_run(before.record, actions, written).record
    await lease.close(record if commits else None, keeps_run=done is not None)


def body(store: MemoryStore, key: str) -> bytes:
    stored = store.get(key)
    assert stored is not None
    return stored.body


def edit(store: MemoryStore, **fields: object) -> None:
    """Write other values into the lockfile."""
    store.put(KEY, orjson.dumps({**orjson.loads(body(store, KEY)), **fields}))


def newest(store: MemoryStore, back: int = 0) -> str:
    """Return the key of a snapshot, counted from the newest."""
    return history(store)[back].key


def flip(store: MemoryStore, key: str) -> None:
    """Change one byte of an object."""
    content = body(store, key)
    store.put(key, content[:-1] + bytes([content[-1] ^ 1]))


def everything(store: MemoryStore) -> dict[str, str]:
    return {listed.key: listed.hint for listed in store.list("")}
