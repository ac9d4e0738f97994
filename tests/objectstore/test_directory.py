"""What a directory store owes to its being files: kills, other processes, rights, full disks."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconciler.embedded.check.stored import list_store
from reconciler.embedded.objects import create_cluster
from reconciler.errors import LostRaceError, ReconcilerError, RetryableError, UnansweredError, UserError
from reconciler.objectstore import directory
from reconciler.objectstore.directory import (
    DirectoryStore,
    copy_contents,
    error_from_os_error,
    exclusive_lock,
    supports_exclusive_locks,
    sync_folder,
    translate_file_errors,
)
from reconciler.objectstore.memory import MemoryStore
from reconciler.objectstore.register import Register
from reconciler.state.lockfile import LeaseTerms

NOBODY = 65_534

PRELUDE = """
import sys, json
from pathlib import Path
from reconciler.errors import LostRaceError, ReconcilerError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.register import Register
store = DirectoryStore(Path(sys.argv[1]))
"""


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + script, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@contextmanager
def as_plain_user() -> Iterator[None]:
    """Root may do anything; a test of rights has to be somebody else."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder a plain user can reach and owns, which pytest's own are not when root runs them."""
    with tempfile.TemporaryDirectory() as folder:
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        yield Path(folder)


# -- other processes


COUNT = """
register = Register(store, "a/r", format="reconciler.test/1")
sys.stdin.readline()
for turn in range(25):
    register.update(lambda held: {"count": (held.value["count"] if held else 0) + 1}, mark=f"{sys.argv[2]}-{turn}",
                    patience_s=300)
"""


def test_updates_of_several_processes_all_happen(tmp_path: Path) -> None:
    counting = [start(COUNT, str(tmp_path), str(number)) for number in range(4)]
    for process in counting:
        process.communicate("go\n", timeout=60)
        assert process.returncode == 0
    held = Register(DirectoryStore(tmp_path), "a/r", format="reconciler.test/1").read()
    assert held is not None
    assert held.value == {"count": 100}


CREATE = """
sys.stdin.readline()
won = []
for turn in range(60):
    try:
        store.swap(f"k/{turn}", sys.argv[2].encode(), expected=None)
    except LostRaceError:
        continue
    won.append(turn)
print(json.dumps(won))
"""


def test_of_processes_that_create_at_once_one_wins_each_key(tmp_path: Path) -> None:
    creating = [start(CREATE, str(tmp_path), str(number)) for number in range(4)]
    for process in creating:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    won = [json.loads(process.communicate(timeout=60)[0]) for process in creating]
    assert sorted(turn for turns in won for turn in turns) == list(range(60))
    store = DirectoryStore(tmp_path)
    for number, turns in enumerate(won):
        for turn in turns:
            found = store.get(f"k/{turn}")
            assert found is not None
            assert found.body == str(number).encode()


# -- kills


WRITE = """
print("ready", flush=True)
found = store.get("register")
version = found.version if found else None
number = 0
while True:
    number += 1
    letter = b"abcdefgh"[number % 8 : number % 8 + 1]
    version = store.swap("register", letter * 1_000_000, expected=version)
    store.put(f"parts/{sys.argv[2]}/{number}", letter * 1_000_000)
"""


@pytest.mark.thorough
def test_a_killed_writer_leaves_nothing_half_written(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    for turn in range(6):
        process = start(WRITE, str(tmp_path), str(turn))
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        # Wait for this writer's first part, then kill it wherever it happens to be.
        while not any(store.list(f"parts/{turn}/")):
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.communicate()
    bodies = [stored.body for listed in store.list("") if (stored := store.get(listed.key))]
    assert len(bodies) > 6
    assert all(len(body) == 1_000_000 and len(set(body)) == 1 for body in bodies)
    found = store.get("register")
    assert found is not None
    store.swap("register", b"and it goes on", expected=found.version)


def test_what_a_killed_writer_left_unfinished_is_never_listed_and_removed_after_a_day(tmp_path: Path) -> None:
    DirectoryStore(tmp_path).put("a", b"1")
    left = tmp_path / ".store" / "unfinished"
    old, young = left / "old", left / "young"
    old.write_bytes(b"half")
    young.write_bytes(b"half")
    yesterday = young.stat().st_mtime - 90_000
    os.utime(old, (yesterday, yesterday))
    store = DirectoryStore(tmp_path)
    assert [listed.key for listed in store.list("")] == ["a"]
    store.put("b", b"2")
    assert (old.exists(), young.exists()) == (False, True)


def test_a_store_inside_a_store_shows_its_objects_and_none_of_its_own_files(tmp_path: Path) -> None:
    outer, inner = DirectoryStore(tmp_path), DirectoryStore(tmp_path / "env" / "prod")
    outer.put("a", b"1")
    held = inner.swap("b", b"2", expected=None)
    inner.swap("b", b"3", expected=held)
    assert [listed.key for listed in outer.list("")] == ["a", "env/prod/b"]


def test_a_file_whose_name_is_not_utf_8_is_no_object(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    store.put("topics/a", b"1")
    for name in (b"caf\xe9.txt", b"topics/caf\xe9.txt"):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).touch()
    assert [listed.key for listed in store.list("")] == ["topics/a"]
    list_store(store)


def test_what_the_kernel_cannot_copy_is_copied_here() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"from a pipe")
    os.close(writing)
    with tempfile.TemporaryFile() as sink, os.fdopen(reading, "rb", buffering=0) as source:
        copy_contents(source, sink)
        sink.seek(0)
        assert sink.read() == b"from a pipe"


def test_what_the_kernel_ends_before_the_end_is_copied_to_its_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    copies = iter([4, 0])

    def copied(source: int, sink: int, _count: int) -> int:
        return os.write(sink, os.read(source, next(copies)))

    monkeypatch.setattr(os, "copy_file_range", copied)
    here, there = DirectoryStore(tmp_path / "here"), DirectoryStore(tmp_path / "there")
    here.put("a", b"all of it")
    there.copy_from("b", here, "a")
    assert there.get_range("b", 0, 100) == b"all of it"


class FewAtOnce(io.FileIO):
    """What some network mounts read: less than is asked for."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(size or 4, 4))


def test_what_is_read_a_little_at_a_time_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    store, other = DirectoryStore(tmp_path / "here"), MemoryStore()
    store.put("a", b"all of it")
    monkeypatch.setattr(directory, "open", lambda path, *_mode, **_options: FewAtOnce(path), raising=False)
    assert store.get_range("a", 4, 100) == b"of it"
    other.copy_from("b", store, "a")
    assert other.get_range("b", 0, 100) == b"all of it"


def test_a_lock_keeps_a_second_holder_out_and_is_free_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "locks" / "one"
    assert supports_exclusive_locks(path)
    with exclusive_lock(path):
        pass
    assert supports_exclusive_locks(path)


# -- what can be wrong with a folder


HOLDING = """
from reconciler.objectstore.directory import exclusive_lock
with exclusive_lock(store._build_lock_path("a")):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_a_writer_stopped_in_the_middle_of_a_swap_is_waited_for_and_no_longer_than_a_lease_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DirectoryStore(tmp_path)
    first = store.swap("a", b"1", expected=None)
    with start(HOLDING, str(tmp_path)) as stopped:
        assert stopped.stdin is not None
        assert stopped.stdout is not None
        assert stopped.stdout.readline() == "held\n"
        stopped.send_signal(signal.SIGSTOP)
        monkeypatch.setattr(directory, "LOCK_SECONDS", 0.2)
        with pytest.raises(UnansweredError, match="has been locked by another process for more than") as caught:
            store.swap("a", b"2", expected=first)
        assert "continue or end it" in caught.value.hint
        found = store.get("a")
        assert found is not None
        assert found.body == b"1"
        monkeypatch.undo()
        stopped.send_signal(signal.SIGCONT)
        stopped.stdin.write("\n")
        stopped.stdin.flush()
        store.swap("a", b"2", expected=first)
        assert stopped.wait(30) == 0


def test_a_lock_is_waited_for_less_long_than_a_lease_allows() -> None:
    assert LeaseTerms().lease_s - LeaseTerms().give_up_s > directory.LOCK_SECONDS


def test_a_folder_that_may_not_be_written_is_said_so(shared: Path) -> None:
    DirectoryStore(shared).put("a", b"1")
    subprocess.run(["chmod", "-R", "a-w", shared], check=True)
    with as_plain_user():
        store = DirectoryStore(shared)
        found = store.get("a")
        assert found is not None
        assert [listed.key for listed in store.list("")] == ["a"]
        for call in (
            lambda: store.put("b", b"2"),
            lambda: store.swap("a", b"2", expected=found.version),
            lambda: store.delete(["a"]),
            lambda: list(store.find_violated_conditions()),
        ):
            with pytest.raises(UserError, match=r"permission denied.*right to it"):
                call()
    subprocess.run(["chmod", "-R", "u+w", shared], check=True)


def test_an_object_that_may_not_be_read_is_said_so(shared: Path) -> None:
    store = DirectoryStore(shared)
    store.put("folder/a", b"1")
    (shared / "folder" / "a").chmod(0)
    (shared / "folder").chmod(0)
    with as_plain_user():
        with pytest.raises(UserError, match=r"cannot read .*permission denied"):
            store.get("folder/a")
        for prefix in ("", "folder/"):
            with pytest.raises(UserError, match=r"cannot list .*/folder/: permission denied"):
                list(store.list(prefix))
    (shared / "folder").chmod(0o700)


def test_a_root_that_is_a_whole_volume_is_listed_without_what_its_file_system_keeps(shared: Path) -> None:
    (shared / "lost+found").mkdir(mode=0o700)
    if os.geteuid() != 0:
        (shared / "lost+found").chmod(0)
    with as_plain_user():
        store = DirectoryStore(shared)
        assert create_cluster(store, "west") == "west"
        assert [listed.key for listed in store.list("")] == ["cluster.json"]
    (shared / "lost+found").chmod(0o700)


def test_a_file_where_a_folder_should_be_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "root").write_text("I am a file")
    store = DirectoryStore(tmp_path / "root")
    assert store.get("a") is None
    with pytest.raises(UserError, match="a file is where a folder should be"):
        store.put("a", b"1")
    beside = DirectoryStore(tmp_path)
    with pytest.raises(UserError, match="a file is where a folder should be"):
        beside.put("root/a", b"1")
    with pytest.raises(UserError, match="a file is where a folder should be"):
        beside.swap("root/a", b"1", expected=None)


def test_a_folder_where_a_file_should_be_is_said_so(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    store.put("a/b", b"1")
    with pytest.raises(UserError, match="a folder where a file should be"):
        store.put("a", b"1")
    with pytest.raises(LostRaceError):
        store.swap("a", b"1", expected=None)


def test_a_name_too_long_for_the_disk_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="too long"):
        DirectoryStore(tmp_path).put("a" * 300, b"1")


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK])
def test_a_file_system_without_hard_links_is_said_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int
) -> None:
    def refuse(_finished: str, _target: str) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(UserError, match=r"cannot lock or link files \(.*\)\. .*Use a local disk"):
        DirectoryStore(tmp_path).find_violated_conditions()


def test_a_file_system_that_cannot_make_names_durable_is_said_so() -> None:
    with (
        pytest.raises(UserError, match=r"cannot lock or link files \(it cannot sync folders to disk\)\. .*local disk"),
        translate_file_errors("write", "/proc/self"),
    ):
        sync_folder("/proc/self")


def test_a_root_of_several_file_systems_is_said_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(_finished: str, _target: str) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(UserError, match=r"on different file systems\. .*Mount one file system at the root"):
        DirectoryStore(tmp_path).put("topics/a", b"1")


LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    store.put("a", b"x" * 1_000_000)
except ReconcilerError as error:
    print(type(error).__name__, error)
print([listed.key for listed in store.list("")])
"""


def test_a_write_the_disk_refuses_half_way_leaves_nothing(tmp_path: Path) -> None:
    answer, _ = start(LIMITED, str(tmp_path)).communicate(timeout=60)
    assert "MendFirstError" in answer
    assert "Free some space" in answer
    assert answer.endswith("[]\n")
    assert list((tmp_path / ".store" / "unfinished").iterdir()) == []


def test_a_full_disk_is_said_so() -> None:
    with (
        pytest.raises(RetryableError, match=r"cannot write x: the disk is full\. .*Free some space"),
        translate_file_errors("write", "x"),
        Path("/dev/full").open("wb", buffering=0) as full,
    ):
        full.write(b"x")


@pytest.mark.parametrize("code", [1, 2, 5, 11, 13, 20, 24, 28, 30, 36, 37, 40, 95, 110, 116, 122, None])
def test_every_fault_of_the_system_names_the_place_and_what_to_do(code: int | None) -> None:
    fault = OSError() if code is None else OSError(code, os.strerror(code))
    error = error_from_os_error(fault, "write", "/the/place")
    assert isinstance(error, ReconcilerError)
    assert error.message.startswith("cannot write /the/place: ")
    assert error.hint


def test_a_relative_root_is_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    store = DirectoryStore(Path("here"))
    monkeypatch.chdir("/")
    store.put("a", b"1")
    assert (tmp_path / "here" / "a").exists()
