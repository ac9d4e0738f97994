"""Files of a state that were lost, cut, edited or written by a newer version: said clearly, nothing is changed."""

from __future__ import annotations

import gzip
from dataclasses import replace
from hashlib import sha256
from typing import Any

import orjson
import pytest

from reconciler.errors import UserError
from reconciler.objectstore.memory import MemoryStore
from reconciler.planning.actions import Adopt
from reconciler.planning.saved_plan import encode_action, read_action
from reconciler.resources.acls import NamespaceAcl
from reconciler.resources.base import OfNamespace
from reconciler.resources.inventory import Recorded
from reconciler.resources.namespace import Namespace, NamespaceSpec
from reconciler.state.journal import read_run, run_key
from reconciler.state.lease import acquire
from reconciler.state.lockfile import KEY, read_lockfile
from reconciler.state.snapshots import list_snapshots, read_snapshot
from tests.state.leftovers import body, edit
from tests.state.samples import SHOP, claim, record, run_file
from tests.state.simulation import Simulation, simulate, simulated


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()

    async def fill() -> None:
        for number in (1, 2):
            lease = await acquire(store, Simulation(), claim(f"run-{number}"))
            await lease.open_run(run_file(f"run-{number}"))
            await lease.close(record("a", "b", partitions=number))

    simulate(fill())
    return store


def refused(store: MemoryStore, match: str) -> None:
    before = {listed.key: listed.hint for listed in store.list("")}
    with pytest.raises(UserError, match=match) as caught:
        read_snapshot(store, owner=SHOP)
    assert caught.value.hint
    assert {listed.key: listed.hint for listed in store.list("")} == before


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "there is nothing in it"),
        (b"[]", "it is not an object"),
        (b"null", "it is not an object"),
        (b'"x"', "it is not an object"),
        (b"\xff\xfe\x00", "it is not text"),
        (b"{}", "lineage is missing"),
        (b"<html>", r"it is not JSON \(unexpected character"),
        (b'{"format": ', "it ends in the middle"),
    ],
)
def test_what_is_no_lockfile_is_said_so_plainly(store: MemoryStore, content: bytes, why: str) -> None:
    store.put(KEY, content)
    refused(store, f"lockfile\\.json cannot be read: {why}")


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"serial": 7}, r"cannot be read: serial is 7, but the state it names is 2"),
        ({"serial": "2"}, r"serial is not a whole number"),
        ({"lineage": ""}, r"lineage is empty"),
        ({"surprise": 1}, r"surprise is not one of its fields"),
        ({"state": {"key": "../../etc/passwd", "sha256": "0" * 64, "bytes": 1}}, r"state\.key is malformed"),
        ({"lease": {"epoch": 0, "status": "free", "beat": 0, "lease_s": 90}}, r"lease\.epoch is less than 1"),
        (
            {"lease": {"epoch": 3, "status": "held", "beat": 0, "lease_s": 90}},
            r"cannot be read: lease: a held lease names its run and holder",
        ),
        ({"lease": None}, r"lease is not an object"),
        (
            {"lease": {"epoch": 3, "status": "lent", "beat": 0, "lease_s": 90.0}},
            r"lease\.status is not 'free' or 'held'",
        ),
        ({"format": "reconciler.lockfile/9"}, r"newer version of reconciler \(reconciler\.lockfile/9\).*pip install"),
        ({"format": "something"}, r"format"),
        ({"lineage": "another"}, r"belongs to lineage lineage-1, the lockfile to another"),
    ],
)
def test_a_lockfile_edited_by_hand_is_refused_naming_the_field(
    store: MemoryStore, fields: dict[str, object], match: str
) -> None:
    edit(store, **fields)
    refused(store, match)


def test_a_state_without_its_lockfile_is_lost_not_new(store: MemoryStore) -> None:
    store.delete([KEY])
    refused(store, r"the state is lost, not new.*Restore lockfile\.json")
    with pytest.raises(UserError, match="the state is lost"):
        simulate(acquire(store, Simulation(), claim("three")))
    assert store.get(KEY) is None


def test_runs_without_a_lockfile_are_a_lost_state_too(store: MemoryStore) -> None:
    store.delete([KEY, *(row.key for row in list_snapshots(store))])
    refused(store, "the state is lost, not new")


def test_a_snapshot_that_is_gone_is_named(store: MemoryStore) -> None:
    store.delete([list_snapshots(store)[0].key])
    refused(store, r"state/000000000002-.*\.json\.gz is missing")


def test_a_snapshot_that_was_changed_is_named(store: MemoryStore) -> None:
    key = list_snapshots(store)[0].key
    store.put(key, body(store, key)[:-1] + b"\1")
    refused(store, r"is damaged: its sha256 is")


def replace_snapshot(store: MemoryStore, content: bytes) -> None:
    """Put another snapshot in place, with a lockfile that agrees: only the content is wrong."""
    digest = sha256(content).hexdigest()
    key = f"state/000000000002-{digest[:12]}.json.gz"
    store.put(key, content)
    edit(store, state={"key": key, "sha256": digest, "bytes": len(content)})


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"not gzip", id="not gzip"),
        pytest.param(gzip.compress(b"not json"), id="not JSON"),
        pytest.param(gzip.compress(b"[]"), id="a list"),
        pytest.param(gzip.compress(b"{}"), id="nothing in it"),
        pytest.param(
            gzip.compress(b'{"format": "reconciler.state/1", "resources": [{}]}'), id="a resource without an address"
        ),
        pytest.param(gzip.compress(b'{"format": "reconciler.state/1", "resources": [null]}'), id="no resource"),
        pytest.param(gzip.compress(b'{"format": "reconciler.state/1"}')[:-9], id="cut short"),
    ],
)
def test_a_snapshot_that_makes_no_sense_is_said_so(store: MemoryStore, content: bytes) -> None:
    replace_snapshot(store, content)
    refused(store, "cannot be read")


def test_a_snapshot_with_a_resource_that_makes_no_sense_is_said_so(store: MemoryStore) -> None:
    good = orjson.loads(gzip.decompress(body(store, list_snapshots(store)[0].key)))
    good["resources"][0]["resource"]["spec"]["partitions"] = "many"
    replace_snapshot(store, gzip.compress(orjson.dumps(good)))
    refused(store, "cannot be read")


def test_a_snapshot_of_a_newer_version_asks_for_an_upgrade(store: MemoryStore) -> None:
    replace_snapshot(store, gzip.compress(b'{"format": "reconciler.state/2"}'))
    refused(store, r"newer version of reconciler \(reconciler\.state/2\)")


@simulated
async def test_an_old_copy_of_the_lockfile_is_refused_before_anything_is_written() -> None:
    store = MemoryStore()
    copies = []
    for number in range(3):
        lease = await acquire(store, Simulation(), claim(f"run-{number}"))
        await lease.close(record(f"t{number}"))
        copies.append(body(store, KEY))
    store.put(KEY, copies[0])
    with pytest.raises(UserError, match=r"says state #1, but state/000000000003-.* was written: it is an old copy"):
        await acquire(store, Simulation(), claim("next"))
    found = read_lockfile(store)
    assert found is not None
    assert found.lockfile.lease.status == "free"


@simulated
async def test_a_snapshot_written_and_never_committed_does_no_harm(store: MemoryStore) -> None:
    stray = "state/000000000003-0123456789ab.json.gz"
    store.put(stray, b"a run was killed here")
    assert await (await acquire(store, Simulation(), claim("next"))).close(record("c")) == 3
    snapshot = read_snapshot(store)
    assert snapshot is not None
    assert sorted(snapshot.record) == ["topic/west/c"]
    assert [row.serial for row in list_snapshots(store)] == [3, 3, 2, 1]


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"run": "x"}', b'{"actions": 3}'])
def test_a_run_that_cannot_be_told_is_not_told(content: bytes) -> None:
    store = MemoryStore()
    store.put(run_key("x"), content)
    assert read_run(store, "x") is None


@simulated
async def test_configs_that_brokers_take_and_no_file_may_declare_are_read_as_they_were_recorded() -> None:
    store, (recorded,) = MemoryStore(), record("a").values()
    spec = recorded.resource.spec.model_copy(update={"configs": {"retention.bytes": "-2"}})
    owned = replace(recorded, resource=recorded.resource.model_copy(update={"spec": spec}))
    lease = await acquire(store, Simulation(), claim("run-1"))
    await lease.open_run(run_file("run-1"))
    await lease.close({owned.resource.address: owned})
    found = read_snapshot(store, owner=SHOP)
    assert found is not None
    assert found.record == {owned.resource.address: owned}


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@simulated
async def test_access_rules_that_earlier_versions_took_over_from_brokers_are_read_without_what_no_file_declares() -> (
    None
):
    def rule(*operations: Any) -> NamespaceAcl:
        who = {"principal": "User:flink", "permission": "allow", "host": "*"}
        return NamespaceAcl.model_construct(**who, operations=operations, resources=("topics",), names=("*",))

    def namespace(*rules: NamespaceAcl) -> Namespace:
        spec = NamespaceSpec.model_construct(acls=rules)
        return Namespace(metadata=OfNamespace(name="pay", cluster="west"), spec=NamespaceSpec()).model_copy(
            update={"spec": spec}
        )

    stored = namespace(rule("two-phase-commit", "write"), rule("two-phase-commit"))
    store, adoption = MemoryStore(), Adopt(address=stored.address, observed=stored, after=stored)
    read = read_action(encode_action(adoption))
    assert isinstance(read, Adopt)
    lease = await acquire(store, Simulation(), claim("run-1"))
    await lease.open_run(run_file("run-1"))
    await lease.close({stored.address: Recorded(stored, run="run-1")})
    found = read_snapshot(store, owner=SHOP)
    assert found is not None
    assert [read.observed, read.after, found.record[stored.address].resource] == [namespace(rule("write"))] * 3
