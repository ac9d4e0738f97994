"""The file of `drift --known`: whole or as it was, whatever happens to who writes it."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from reconciler.errors import UserError
from reconciler.operations.drift import DriftItem, Known, Whose
from reconciler.planning.diff.field_differences import drifted
from reconciler.planning.plan_rows import fingerprint
from reconciler.resources.address import Address

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ORDERS, CLICKS = Address("topic/west/orders"), Address("topic/west/clicks")
SHOP = Whose("shop")


def found(address: Address, observed: object, *, ignored: str | None = None) -> DriftItem:
    mark = fingerprint([address, "configs.retention.ms", observed])
    return DriftItem("drift", address, "moved", mark, "configs.retention.ms", None, None, ignored)


def told(
    path: Path, findings: Sequence[DriftItem], *, looked_at: Sequence[Address] = (ORDERS, CLICKS), whose: Whose = SHOP
) -> list[DriftItem]:
    """Look once: return what is new, and remember it."""
    known = Known.read(path, whose, findings, lambda address: address in looked_at)
    known.remember()
    return list(known.unknown)


def test_a_finding_is_told_once_and_again_when_it_changed_or_came_back(tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    first, second = found(ORDERS, "1"), found(ORDERS, "2")
    assert told(path, [first]) == [first]
    assert told(path, [first]) == []
    assert told(path, [second]) == [second]
    assert told(path, []) == []
    assert told(path, [second]) == [second]


def test_what_was_not_looked_at_stays_known(tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    orders, clicks = found(ORDERS, "1"), found(CLICKS, "1")
    told(path, [orders, clicks])
    assert told(path, [orders], looked_at=[ORDERS]) == []
    assert told(path, [orders, clicks]) == []


def test_what_is_no_longer_ignored_is_told_anew(tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    left, failing = found(ORDERS, "1", ignored="OPS-1, until 2030-01-01"), found(ORDERS, "1")
    assert told(path, [left]) == [left]
    assert told(path, [left]) == []
    assert told(path, [failing]) == [failing]


def test_what_was_not_shown_is_not_remembered(tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    Known.read(path, SHOP, [found(ORDERS, "1")], lambda _address: True)
    assert not path.exists()


OLD = "reconciler.known-drift/1"


def test_an_old_file_that_says_no_more_than_fingerprints_is_read(tmp_path: Path) -> None:
    path, one = tmp_path / "known.json", found(ORDERS, "1")
    path.write_text(json.dumps({"format": OLD, "fingerprints": [one.fingerprint]}))
    assert told(path, [one]) == []
    assert told(path, [one]) == []


def test_an_old_file_hides_nothing_of_an_environment_for_it_may_be_anothers(tmp_path: Path) -> None:
    path, one = tmp_path / "known.json", found(ORDERS, "1")
    prod = Whose("shop", "prod", "line")
    path.write_text(json.dumps({"format": OLD, "fingerprints": [one.fingerprint], "addresses": {}}))
    assert told(path, [one], whose=prod) == [one]
    assert told(path, [one], whose=prod) == []
    assert told(path, [one]) == []


def test_one_file_keeps_workspaces_environments_and_states_apart(tmp_path: Path) -> None:
    path, one = tmp_path / "known.json", found(ORDERS, "1")
    all_of_them = [
        Whose("shop"),
        Whose("shop", "dev", "a"),
        Whose("shop", "prod", "a"),
        Whose("shop", "prod", "b"),
        Whose("bank", "prod", "b"),
    ]
    assert [told(path, [one], whose=whose) for whose in all_of_them] == [[one]] * 5
    assert [told(path, [one], whose=whose) for whose in all_of_them] == [[]] * 5
    told(path, [], whose=all_of_them[1])
    assert [told(path, [one], whose=whose) for whose in all_of_them] == [[], [one], [], [], []]


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        '{"format": "reconciler.known-drift/3"}',
        '{"format": "reconciler.known-drift/2", "told": [1]}',
        '{"format": "reconciler.known-drift/1", "fingerprints": 3}',
        '{"format": "reconciler.known-drift/2", "told": [{"workspace": "s", "environment": [], "fingerprints": []}]}',
    ],
)
def test_what_is_no_such_file_is_said(tmp_path: Path, text: str) -> None:
    path = tmp_path / "known.json"
    path.write_text(text)
    with pytest.raises(UserError, match="is not a file of"):
        told(path, [])


def test_the_same_content_gives_the_same_bytes_and_the_rights_of_the_file_stay(tmp_path: Path) -> None:
    path, other = tmp_path / "known.json", tmp_path / "other.json"
    findings = [found(ORDERS, "1"), found(CLICKS, "2")]
    told(path, findings)
    path.chmod(0o640)
    told(path, findings)
    told(other, list(reversed(findings)))
    assert path.read_bytes() == other.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o640
    assert {child.name for child in tmp_path.iterdir()} == {"known.json", "other.json"}


def test_through_a_link_the_file_it_names_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "known.json"
    link.symlink_to(tmp_path / "there/real.json")
    told(link, [found(ORDERS, "1")])
    assert link.is_symlink()
    assert told(tmp_path / "there/real.json", [found(ORDERS, "1")]) == []


def test_two_at_once_corrupt_nothing_and_neither_forgets_what_the_other_told(tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    findings = [found(Address(f"topic/west/t{number}"), "1") for number in range(40)]
    before = [Known.read(path, SHOP, [one], lambda _address: True) for one in findings]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(Known.remember, before))
    assert Known.read(path, SHOP, findings, lambda _address: True).unknown == ()


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path, first = tmp_path / "known.json", found(ORDERS, "1")
    told(path, [first])
    before = path.read_bytes()
    many = [found(Address(f"topic/west/t{number}"), "1") for number in range(1000)]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(UserError, match=r"cannot write .*it is as it was"):
            told(path, many)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before
    assert [child.name for child in tmp_path.iterdir()] == ["known.json"]


KILLED = """
import os, signal, sys
from pathlib import Path
from reconciler.operations import drift as known
real = os.fsync
def die(descriptor):
    real(descriptor)
    os.kill(os.getpid(), signal.SIGKILL)
os.fsync = die
known.Known.read(Path(sys.argv[1]), known.Whose("shop"), [], lambda _address: True).remember()
"""


def test_a_kill_while_it_is_written_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    told(path, [found(ORDERS, "1")])
    before = path.read_bytes()
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False, env=dict(os.environ))
    assert done.returncode == -9
    assert path.read_bytes() == before
    assert told(path, [found(ORDERS, "1")]) == []


def test_a_folder_that_is_not_there_is_said_before_anything_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no folder"):
        Known.read(tmp_path / "no/known.json", SHOP, [], lambda _address: True)


def test_a_fingerprint_means_the_same_in_every_version() -> None:
    # Files of --known outlive an upgrade: these values are part of their format.
    moved = drifted(ORDERS, "configs.retention.ms", "604800000", "1000")
    assert moved.fingerprint == "sha256:7736d41010a1aecfb7ff6685cbc733f75d55db7148b99605dc388a703bb4ae00"
    gone = drifted(ORDERS, "", {"kind": "Topic"}, None)
    assert gone.fingerprint == "sha256:ba655b349f0b0444828c34073e9ffa493f169530236b1d48fe763c989168fce3"


def test_a_fingerprint_depends_on_no_order_of_keys_and_no_way_of_writing() -> None:
    one = drifted(ORDERS, "autoCreate", None, {"a": ("x", "y"), "b": 1})
    same = drifted(ORDERS, "autoCreate", {"b": 2}, {"b": 1, "a": ["x", "y"]})
    assert one.fingerprint == same.fingerprint
    raw = drifted(ORDERS, "configs.cleanup.policy", None, "delete,compact", meaning="compact,delete")
    assert raw.fingerprint == drifted(ORDERS, "configs.cleanup.policy", None, "compact,delete").fingerprint
