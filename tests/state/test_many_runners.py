"""Dozens of processes that want the lease of one state in a bucket: one at a time, and all of them finish."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.objectstore.open import open_store
from reconciler.state.lockfile import read_lockfile
from reconciler.state.snapshots import list_snapshots, read_snapshot
from tests.state.samples import SHOP

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore
    from tests.servers.weed import S3Server

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).resolve().parents[2]
RUNNERS = 24


def compete(
    store: ObjectStore, *, runners: int = RUNNERS, turns: int, lease_s: float, deaths: int = 0
) -> tuple[int, int]:
    """Let them run; return how many commits there were and how many died. All who did not die finished."""
    arguments = [str(each) for each in (runners, turns, lease_s, deaths)]
    ran = subprocess.run(
        [sys.executable, "-m", "tests.state.runners", *arguments],
        cwd=ROOT,
        input=pickle.dumps(store),
        capture_output=True,
        check=False,
    )
    told = ran.stdout.decode()
    assert ran.returncode == 0, told + ran.stderr.decode()
    assert f"ended [0] of {runners}" in told
    return told.count("committed "), int(told.split()[-2])


def check_nothing_lost(store: ObjectStore, commits: int, died: int) -> None:
    found, snapshot = read_lockfile(store), read_snapshot(store, owner=SHOP)
    assert found is not None
    assert snapshot is not None
    assert (found.lockfile.lease.status, found.lockfile.lease.epoch) == ("free", commits + died)
    assert snapshot.serial == commits == len(snapshot.record) == len(list_snapshots(store))


@pytest.mark.parametrize("runners", [8, pytest.param(RUNNERS, marks=pytest.mark.soak)])
def test_many_processes_hold_one_lease_one_at_a_time_and_all_finish(s3_server: S3Server, runners: int) -> None:
    store = open_store(s3_server.settings("runners"))
    assert compete(store, runners=runners, turns=1, lease_s=20) == (runners, 0)
    check_nothing_lost(store, runners, 0)


@pytest.mark.soak
def test_two_dozen_processes_of_which_some_die_hold_one_lease_one_at_a_time_and_all_others_finish(
    s3_server: S3Server,
) -> None:
    store = open_store(s3_server.settings("runners"))
    commits, died = compete(store, turns=6, lease_s=10, deaths=8)
    assert died
    assert commits >= 3 * RUNNERS
    check_nothing_lost(store, commits, died)
