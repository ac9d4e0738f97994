"""Snapshots: immutable states, each named by its serial and digest."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, cast

import orjson

from reconciler.errors import NewerFormatError, UserError
from reconciler.resources.address import Address, build_sort_key
from reconciler.resources.base import KEPT
from reconciler.resources.inventory import Ownership, Record, Recorded, Resource, read_resource
from reconciler.resources.mirror_link import MirrorTopic
from reconciler.runtime.dataclass import dataclass, field, replace
from reconciler.state.lockfile import STATE_PREFIX, Lockfile, Owner, StatePointer, read_lockfile

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore


FORMAT: Final = "reconciler.state/1"
_NAME: Final = re.compile(r"state/(\d{12})-([0-9a-f]{12})\.json\.gz")
_RUN: Final = re.compile(rb'"run":"([^"\\]*)","serial":\d+(?:,"settles":"([^"\\]*)")?}\Z')
"""End of a snapshot. Sorted keys put the run there, so the resources need no parsing."""
_TAIL: Final = 512
_LEVEL: Final = 6
_RESTORE: Final = (
    "Restore the file from a backup or the bucket's versions, or continue with what the journals have: "
    "reconciler state repair"
)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A stored state. Serial 0 is the empty state, without object and `sha256`."""

    lineage: str
    serial: int
    sha256: str = ""
    record: Record = field(default_factory=dict)
    run: str = ""
    key: str = ""
    previous: str | None = None
    """Key of the previous snapshot, which tells committed from uncommitted snapshots of the same serial."""
    bytes: int = 0
    lockfile: Lockfile | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class SnapshotRow:
    """A stored snapshot. If a run died before its commit, two have the same serial."""

    serial: int
    key: str
    bytes: int


def read_snapshot(store: ObjectStore, *, owner: Owner | None = None) -> Snapshot | None:
    """Read the current state without a lock; `None` before the first apply."""
    lockfile = read_lockfile(store, owner=owner)
    return None if lockfile is None else read_snapshot_of(store, lockfile.lockfile)


def read_snapshot_of(store: ObjectStore, lockfile: Lockfile) -> Snapshot:
    """Read a lockfile's snapshot."""
    pointer = lockfile.state
    if pointer is None:
        return Snapshot(lockfile.lineage, 0, lockfile=lockfile)
    body = _fetch_body(store, pointer.key)
    digest = sha256(body).hexdigest()
    if digest != pointer.sha256:
        message = f"{store.url}/{pointer.key} is damaged: its sha256 is {digest}, the lockfile has {pointer.sha256}"
        raise UserError(message, hint=f"Nothing was changed. {_RESTORE}")
    snapshot = _decode(body, f"{store.url}/{pointer.key}", pointer.key, digest)
    if (snapshot.lineage, snapshot.serial) != (lockfile.lineage, lockfile.serial):
        message = f"{store.url}/{pointer.key} belongs to lineage {snapshot.lineage}, the lockfile to {lockfile.lineage}"
        raise UserError(message, hint="Files of two states were mixed: restore all files of one of them from a backup.")
    return replace(snapshot, lockfile=lockfile)


def read_snapshot_at(store: ObjectStore, serial: int, *, current: Snapshot | None = None) -> Snapshot:
    """Read the state committed as `serial`. `current` saves the read of its own serial."""
    current = current or read_snapshot(store)
    if current is not None and current.serial == serial:
        return current
    rows = list_snapshots(store)
    keys = [row.key for row in rows if row.serial == serial]
    if current is None or serial > current.serial or not keys:
        message = f"{store.url} has no state #{serial}"
        raise UserError(message, hint="List the states with: reconciler state history")
    if len(keys) > 1:
        later = [_read_previous(store, row) for row in rows if row.serial == serial + 1]
        keys = [key for key in keys if key in later] or keys
    return read_row_snapshot(store, SnapshotRow(serial, keys[0], 0), lineage=current.lineage)


def read_row_snapshot(store: ObjectStore, row: SnapshotRow, *, lineage: str | None = None) -> Snapshot:
    """Read the snapshot of a row; reject another `lineage`."""
    snapshot = _read_parsed(store, row.key)
    if snapshot.serial != row.serial or lineage not in {None, snapshot.lineage}:
        actual = f"state #{snapshot.serial} of lineage {snapshot.lineage}"
        message = f"{store.url}/{row.key} holds {actual}, but its file name has another one"
        raise UserError(message, hint="Files of two states were mixed: restore all files of one of them from a backup.")
    return snapshot


def read_base_record(store: ObjectStore, serial: int, sha256_: str) -> Record:
    """Read the record with this serial and digest; empty for serial 0."""
    if serial == 0:
        return {}
    key = f"{STATE_PREFIX}{serial:012}-{sha256_[:12]}.json.gz"
    snapshot = _read_parsed(store, key)
    if snapshot.sha256 != sha256_:
        message = f"{store.url}/{key} is damaged: its sha256 is {snapshot.sha256}, and was {sha256_}"
        raise UserError(message, hint=f"Nothing was changed. {_RESTORE}")
    return snapshot.record


def list_snapshots(store: ObjectStore) -> tuple[SnapshotRow, ...]:
    """Return all stored snapshots, newest first."""
    rows = [
        SnapshotRow(int(parts[1]), listed.key, listed.size)
        for listed in store.list(STATE_PREFIX)
        if (parts := _NAME.fullmatch(listed.key))
    ]
    return tuple(reversed(rows))


@dataclass(frozen=True, slots=True)
class SnapshotRuns:
    """The run that wrote a snapshot, and the earlier run whose results it includes, if any."""

    run: str
    settles: str | None = None


def read_snapshot_runs(store: ObjectStore, row: SnapshotRow) -> SnapshotRuns | None:
    """Read a snapshot's runs without parsing resources; `None` if unreadable."""
    try:
        plain = gzip.decompress(_fetch_body(store, row.key))
        match = _RUN.search(plain[-_TAIL:])
        if match is None:
            whole = orjson.loads(plain)
            return SnapshotRuns(str(whole["run"]), whole.get("settles"))
        return SnapshotRuns(match[1].decode(), match[2].decode() if match[2] else None)
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError):
        return None


def read_run_id(store: ObjectStore, row: SnapshotRow) -> str | None:
    """Read the id of the run that wrote a snapshot; `None` if unreadable."""
    runs = read_snapshot_runs(store, row)
    return None if runs is None else runs.run


def encode_snapshot(
    lockfile: Lockfile, run: str, record: Record, *, settles: str | None = None
) -> tuple[StatePointer, bytes]:
    """Return pointer and body of the snapshot after a lockfile's. Equal records give equal bytes.

    `settles` is the earlier run whose results `record` includes.
    """
    previous = "" if lockfile.state is None else lockfile.state.key
    return encode_next_snapshot(Snapshot(lockfile.lineage, lockfile.serial, key=previous), run, record, settles=settles)


def encode_next_snapshot(
    before: Snapshot, run: str, record: Record, *, settles: str | None = None
) -> tuple[StatePointer, bytes]:
    """Return pointer and body of the snapshot after `before`."""
    serial = before.serial + 1
    head = {"format": FORMAT, "lineage": before.lineage, "serial": serial, "previous": before.key or None, "run": run}
    if settles is not None:
        head["settles"] = settles
    resources = [_encode_entry(address, record[address]) for address in sorted(record, key=build_sort_key)]
    plain = orjson.dumps({**head, "resources": resources}, option=orjson.OPT_SORT_KEYS)
    body = gzip.compress(plain, _LEVEL, mtime=0)
    digest = sha256(body).hexdigest()
    pointer = StatePointer(key=f"{STATE_PREFIX}{serial:012}-{digest[:12]}.json.gz", sha256=digest, bytes=len(body))
    return pointer, body


def _encode_entry(address: Address, recorded: Recorded) -> dict[str, object]:
    return {
        "address": address,
        "resource": recorded.resource.to_json(),
        "incarnation": recorded.incarnation,
        "physical_name": recorded.physical_name,
        "ownership": recorded.ownership,
        "protect": recorded.protect,
        "run": recorded.run,
        "origins": dict(recorded.origins),
    }


def _fetch_body(store: ObjectStore, key: str) -> bytes:
    stored = store.get(key)
    if stored is None:
        message = f"{store.url}/{key} is missing, and the lockfile names it"
        raise UserError(message, hint=_RESTORE)
    return stored.body


def _read_parsed(store: ObjectStore, key: str) -> Snapshot:
    body = _fetch_body(store, key)
    digest, named = sha256(body).hexdigest(), _NAME.fullmatch(key)
    if named is None or not digest.startswith(named[2]):
        message = f"{store.url}/{key} is damaged: its sha256 is {digest}, which differs from its name"
        raise UserError(message, hint=f"Nothing was changed. {_RESTORE}")
    return _decode(body, f"{store.url}/{key}", key, digest)


def _read_previous(store: ObjectStore, row: SnapshotRow) -> str | None:
    try:
        return _read_parsed(store, row.key).previous
    except UserError:
        return None  # A damaged or uncommitted snapshot does not prove what it follows.


def _decode(body: bytes, where: str, key: str, digest: str) -> Snapshot:
    try:
        parsed = orjson.loads(gzip.decompress(body))
        name, _, version = str(parsed["format"]).rpartition("/")
        if name == "reconciler.state" and version.isdecimal() and int(version) > 1:
            message = f"{where} was written by a newer version of reconciler (reconciler.state/{version})"
            raise NewerFormatError(message, hint="Upgrade this one: pip install --upgrade stream-reconciler.")
        record = dict(_decode_entries(parsed["resources"]))
        lineage, serial, previous = parsed["lineage"], parsed["serial"], parsed["previous"]
        return Snapshot(lineage, serial, digest, record, parsed["run"], key, previous, len(body))
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, AttributeError) as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{where} cannot be read: {why}", hint=f"Nothing was changed. {_RESTORE}") from error


def _decode_entries(resources: list[dict[str, Any]]) -> Iterator[tuple[Address, Recorded]]:
    specs: dict[tuple[str, bytes], object] = {}
    for entry in resources:
        yield (
            Address(entry["address"]),
            Recorded(
                _decode_resource(entry["resource"], specs),
                entry["incarnation"],
                entry["physical_name"],
                cast("Ownership", entry["ownership"]),
                entry["protect"],
                entry["run"],
                cast("Mapping[str, str]", entry["origins"]),
            ),
        )


def _decode_resource(raw: dict[str, Any], specs: dict[tuple[str, bytes], object]) -> Resource:
    known = (raw["kind"], orjson.dumps(raw.get("spec")))
    if known in specs:
        return read_resource({**raw, "spec": specs[known]})
    resource = read_resource(raw, context=KEPT)
    if not isinstance(resource, MirrorTopic):
        specs[known] = resource.spec
    return resource


def read_incarnations(store: ObjectStore, *, owner: Owner | None, kind: str) -> Mapping[Address, str | None]:
    """Read the incarnations of recorded resources of a kind, without parsing resources."""
    lockfile = read_lockfile(store, owner=owner)
    if lockfile is None or lockfile.lockfile.state is None:
        return {}
    pointer = lockfile.lockfile.state
    stored = store.get(pointer.key)
    if stored is not None and sha256(stored.body).hexdigest() == pointer.sha256:
        try:
            resources = orjson.loads(gzip.decompress(stored.body))["resources"]
            return {
                Address(entry["address"]): entry["incarnation"]
                for entry in resources
                if entry["address"].startswith(f"{kind}/")
            }
        except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, AttributeError):
            pass  # Reading the whole snapshot below raises the error.
    record = read_snapshot_of(store, lockfile.lockfile).record
    return {address: recorded.incarnation for address, recorded in record.items() if address.startswith(f"{kind}/")}
