"""Snapshots: immutable states, each named by its serial and digest."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, cast

import orjson

from reconciler.errors import NewerFormatError, UserError
from reconciler.resources.address import Address, rank
from reconciler.resources.base import KEPT
from reconciler.resources.inventory import RESOURCE, Ownership, Record, Recorded, Resource
from reconciler.resources.mirror_link import MirrorTopic
from reconciler.state.lockfile import STATE_PREFIX, Lockfile, Owner, StatePointer, read_lockfile

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore


FORMAT: Final = "reconciler.state/1"
_NAME: Final = re.compile(r"state/(\d{12})-([0-9a-f]{12})\.json\.gz")
_RUN: Final = re.compile(rb'"run":"([^"\\]*)","serial":\d+(?:,"settles":"([^"\\]*)")?}\Z')
"""How a snapshot ends: its keys are sorted, so who wrote it is found without reading ten thousand resources."""
_TAIL: Final = 512
_LEVEL: Final = 6
_RESTORE: Final = (
    "Restore the file from a backup or the bucket's versions, or continue with what the journals say: "
    "reconciler state repair"
)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One state. Serial 0 is the empty one, before anything was applied; it is no object and has no `sha256`."""

    lineage: str
    serial: int
    sha256: str = ""
    """Of the stored object's bytes."""
    record: Record = field(default_factory=dict)
    run: str = ""
    """The run that committed it."""
    key: str = ""
    previous: str | None = None
    """The snapshot it was made from: of two with one serial, the next one names which was committed."""
    bytes: int = 0
    lockfile: Lockfile | None = field(default=None, compare=False)
    """The lockfile that named it, where it was read through one: who holds the lease, and which run is open."""


@dataclass(frozen=True, slots=True)
class SnapshotRow:
    """One line of the history. A serial stands twice where a run was stopped between writing and committing."""

    serial: int
    key: str
    bytes: int


def read_snapshot(store: ObjectStore, *, owner: Owner | None = None) -> Snapshot | None:
    """Return the state as it is now; `None` where nothing was ever applied. Takes no lock.

    Raises:
        UserError: The state is another's, lost, damaged, or written by a newer version.
    """
    found = read_lockfile(store, owner=owner)
    return None if found is None else snapshot_of(store, found.lockfile)


def snapshot_of(store: ObjectStore, lockfile: Lockfile) -> Snapshot:
    """Return the snapshot a lockfile names.

    Raises:
        UserError: It is missing, is not what the lockfile says, or was written by a newer version.
    """
    pointer = lockfile.state
    if pointer is None:
        return Snapshot(lockfile.lineage, 0, lockfile=lockfile)
    body = _fetch(store, pointer.key)
    digest = sha256(body).hexdigest()
    if digest != pointer.sha256:
        message = f"{store.url}/{pointer.key} is damaged: its sha256 is {digest}, the lockfile says {pointer.sha256}"
        raise UserError(message, hint=f"Nothing was changed. {_RESTORE}")
    found = _decode(body, f"{store.url}/{pointer.key}", pointer.key, digest)
    if (found.lineage, found.serial) != (lockfile.lineage, lockfile.serial):
        message = f"{store.url}/{pointer.key} belongs to lineage {found.lineage}, the lockfile to {lockfile.lineage}"
        raise UserError(message, hint="Files of two states were mixed: restore all files of one of them from a backup.")
    return replace(found, lockfile=lockfile)


def read_serial(store: ObjectStore, serial: int, *, current: Snapshot | None = None) -> Snapshot:
    """Return the state as it was committed under `serial`; `current` is the state as it is, where that was read.

    Raises:
        UserError: It is not kept, or damaged.
    """
    current = current or read_snapshot(store)
    if current is not None and current.serial == serial:
        return current
    rows = history(store)
    keys = [row.key for row in rows if row.serial == serial]
    if current is None or serial > current.serial or not keys:
        message = f"{store.url} has no state #{serial}"
        raise UserError(message, hint="List what there is with: reconciler state history")
    if len(keys) > 1:
        later = [_previous_of(store, row) for row in rows if row.serial == serial + 1]
        keys = [key for key in keys if key in later] or keys
    return read_row(store, SnapshotRow(serial, keys[0], 0), lineage=current.lineage)


def read_row(store: ObjectStore, row: SnapshotRow, *, lineage: str | None = None) -> Snapshot:
    """Return what one line of the history holds.

    Raises:
        UserError: It is missing, is not what its name says, of another lineage, or was written by a newer version.
    """
    found = _read(store, row.key)
    if found.serial != row.serial or lineage not in {None, found.lineage}:
        held = f"state #{found.serial} of lineage {found.lineage}"
        message = f"{store.url}/{row.key} holds {held}, but its file name says another one"
        raise UserError(message, hint="Files of two states were mixed: restore all files of one of them from a backup.")
    return found


def read_base(store: ObjectStore, serial: int, sha256_: str) -> Record:
    """Return what was recorded in the snapshot of a serial and digest; nothing for serial 0.

    Raises:
        UserError: It is missing or damaged.
    """
    if serial == 0:
        return {}
    key = f"{STATE_PREFIX}{serial:012}-{sha256_[:12]}.json.gz"
    found = _read(store, key)
    if found.sha256 != sha256_:
        message = f"{store.url}/{key} is damaged: its sha256 is {found.sha256}, and was {sha256_}"
        raise UserError(message, hint=f"Nothing was changed. {_RESTORE}")
    return found.record


def history(store: ObjectStore) -> tuple[SnapshotRow, ...]:
    """Return every snapshot kept, newest first."""
    rows = [
        SnapshotRow(int(parts[1]), listed.key, listed.size)
        for listed in store.list(STATE_PREFIX)
        if (parts := _NAME.fullmatch(listed.key))
    ]
    return tuple(reversed(rows))


@dataclass(frozen=True, slots=True)
class SnapshotRuns:
    """Who made a snapshot: the run that wrote it, and the run left open whose work it records, if it settled one."""

    run: str
    settles: str | None = None


def runs_of(store: ObjectStore, row: SnapshotRow) -> SnapshotRuns | None:
    """Return who made a snapshot, without reading what it holds; `None` where it cannot be read."""
    try:
        plain = gzip.decompress(_fetch(store, row.key))
        found = _RUN.search(plain[-_TAIL:])
        if found is None:
            whole = orjson.loads(plain)
            return SnapshotRuns(str(whole["run"]), whole.get("settles"))
        return SnapshotRuns(found[1].decode(), found[2].decode() if found[2] else None)
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError):
        return None


def run_of(store: ObjectStore, row: SnapshotRow) -> str | None:
    """Return the run that wrote a snapshot; `None` where it cannot be read."""
    found = runs_of(store, row)
    return None if found is None else found.run


def encode(lockfile: Lockfile, run: str, record: Record, *, settles: str | None = None) -> tuple[StatePointer, bytes]:
    """Return the body of the snapshot that follows what `lockfile` names, and its pointer. Same record, same bytes.

    `settles`: the run left open whose work it records.
    """
    previous = "" if lockfile.state is None else lockfile.state.key
    return encode_after(Snapshot(lockfile.lineage, lockfile.serial, key=previous), run, record, settles=settles)


def encode_after(
    before: Snapshot, run: str, record: Record, *, settles: str | None = None
) -> tuple[StatePointer, bytes]:
    """Return the body of the snapshot that follows another one, and its pointer."""
    serial = before.serial + 1
    head = {"format": FORMAT, "lineage": before.lineage, "serial": serial, "previous": before.key or None, "run": run}
    if settles is not None:
        head["settles"] = settles
    resources = [_entry(address, record[address]) for address in sorted(record, key=rank)]
    plain = orjson.dumps({**head, "resources": resources}, option=orjson.OPT_SORT_KEYS)
    body = gzip.compress(plain, _LEVEL, mtime=0)
    digest = sha256(body).hexdigest()
    pointer = StatePointer(key=f"{STATE_PREFIX}{serial:012}-{digest[:12]}.json.gz", sha256=digest, bytes=len(body))
    return pointer, body


def _entry(address: Address, recorded: Recorded) -> dict[str, object]:
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


def _fetch(store: ObjectStore, key: str) -> bytes:
    stored = store.get(key)
    if stored is None:
        message = f"{store.url}/{key} is missing, and the lockfile names it"
        raise UserError(message, hint=_RESTORE)
    return stored.body


def _read(store: ObjectStore, key: str) -> Snapshot:
    body = _fetch(store, key)
    digest, named = sha256(body).hexdigest(), _NAME.fullmatch(key)
    if named is None or not digest.startswith(named[2]):
        message = f"{store.url}/{key} is damaged: its sha256 is {digest}, which is not what its name says"
        raise UserError(message, hint=f"Nothing was changed. {_RESTORE}")
    return _decode(body, f"{store.url}/{key}", key, digest)


def _previous_of(store: ObjectStore, row: SnapshotRow) -> str | None:
    try:
        return _read(store, row.key).previous
    except UserError:
        return None  # a snapshot that nobody committed, or that is damaged, says nothing of another


def _decode(body: bytes, where: str, key: str, digest: str) -> Snapshot:
    try:
        parsed = orjson.loads(gzip.decompress(body))
        name, _, version = str(parsed["format"]).rpartition("/")
        if name == "reconciler.state" and version.isdecimal() and int(version) > 1:
            message = f"{where} was written by a newer version of reconciler (reconciler.state/{version})"
            raise NewerFormatError(message, hint="Upgrade this one: pip install --upgrade stream-reconciler.")
        record = dict(_entries(parsed["resources"]))
        lineage, serial, previous = parsed["lineage"], parsed["serial"], parsed["previous"]
        return Snapshot(lineage, serial, digest, record, parsed["run"], key, previous, len(body))
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, AttributeError) as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"{where} cannot be read: {why}",
            hint=f"Nothing was changed. {_RESTORE}",
        ) from error


def _entries(resources: list[dict[str, Any]]) -> Iterator[tuple[Address, Recorded]]:
    specs: dict[tuple[str, bytes], object] = {}
    for entry in resources:
        yield (
            Address(entry["address"]),
            Recorded(
                _resource(entry["resource"], specs),
                entry["incarnation"],
                entry["physical_name"],
                cast("Ownership", entry["ownership"]),
                entry["protect"],
                entry["run"],
                cast("Mapping[str, str]", entry["origins"]),
            ),
        )


def _resource(raw: dict[str, Any], specs: dict[tuple[str, bytes], object]) -> Resource:
    """Read a resource. Thousands of topics share a few specs: each is read once, and the frozen model shared."""
    known = (raw["kind"], orjson.dumps(raw.get("spec")))
    if known in specs:
        return RESOURCE.validate_python({**raw, "spec": specs[known]})
    resource = RESOURCE.validate_python(raw, context=KEPT)
    if not isinstance(resource, MirrorTopic):
        specs[known] = resource.spec
    return resource


# Which live things the state is about, read without reading what they are: a fraction of the time.


def read_incarnations(store: ObjectStore, *, owner: Owner | None, kind: str) -> Mapping[Address, str | None]:
    """Return the incarnation of every recorded resource of a kind; empty where nothing was ever applied.

    Raises:
        UserError: The state is another's, lost, damaged, or written by a newer version.
    """
    found = read_lockfile(store, owner=owner)
    if found is None or found.lockfile.state is None:
        return {}
    pointer = found.lockfile.state
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
            pass  # read in full below, which says what is wrong with it
    record = snapshot_of(store, found.lockfile).record
    return {address: each.incarnation for address, each in record.items() if address.startswith(f"{kind}/")}
