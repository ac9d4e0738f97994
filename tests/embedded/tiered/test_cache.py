"""The cache on disk: what it keeps, what it lets go, and that no fault of it is a fault of a read."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.archives.keys import build_index_key
from reconciler.archives.manifest import read_manifest
from reconciler.embedded.tiered.cache import (
    get_machine_cache,
    list_cache_files,
    measure_cache_levels,
    parse_stored_bytes,
    pop_cache_counts,
)
from reconciler.embedded.tiered.cache_files import (
    ByteSpan,
    CacheUsage,
    EvictionRule,
    HydratedChunk,
    check_directory,
    divide_into_chunks,
    find_cache_folder,
    find_overlapping_chunks,
    is_held,
    read_cache_limits,
)
from reconciler.errors import DamagedObjectError, UserError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.memory import MemoryStore
from reconciler.records.log import OffsetRange
from reconciler.resources.base import parse_size
from tests.embedded.samples import read, rows_of
from tests.embedded.stores import WatchedStore
from tests.embedded.tiered.tiered_cluster import cached_in, in_segments, place_of, tiered_cluster

if TYPE_CHECKING:
    from reconciler.embedded.clients.topic_log import EmbeddedLog
    from reconciler.embedded.cluster import EmbeddedCluster


TOPIC = "orders"
CHUNK = 16384
CHUNKS = 10
"""Of one of the segments: each row group is one."""
AGE_NS = 1_000_000_000


class Ranges(WatchedStore):
    """Remembers which bytes of which objects were asked for."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.ranges: list[tuple[str, int, int]] = []

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self.ranges.append((key, start, length))
        return super().get_range(key, start, length)


class Case:
    """A topic that lies in object storage alone, and the cache it is read through."""

    def __init__(self, folder: Path, segments: int = 1, **properties: str) -> None:
        self.folder = folder
        self.storage = Ranges()
        chunk = properties.pop("cache_chunk_size", str(CHUNK))
        self.properties = cached_in(folder, chunk=chunk, **properties)
        self.cluster: EmbeddedCluster = tiered_cluster(storage=self.storage, properties=self.properties)
        first = in_segments(self.cluster, TOPIC, segments)
        self.rows = [{**row, "offset": row["offset"] + n * len(first)} for n in range(segments) for row in first]

    @property
    def log(self) -> EmbeddedLog:
        return self.cluster.log(TOPIC)

    def is_right(self) -> bool:
        """Read everything, forgetting what was asked for before."""
        self.storage.ranges.clear()
        return read(self.log) == self.rows

    def segments(self) -> list[str]:
        manifest = read_manifest(self.storage, place_of(self.cluster, TOPIC))
        assert manifest is not None
        return [entry.key for entry in manifest.entries]

    def files(self, ending: str = "") -> list[Path]:
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return sorted(path for path in found if "drafts" not in path.parts and str(path).endswith(ending))

    def chunk_files(self, segment: str = "") -> dict[int, Path]:
        return {
            int(path.name): path
            for path in self.files()
            if path.parent.name.endswith("_chunks") and segment in str(path)
        }

    def stored_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.files())

    def cached(self) -> dict[str, str]:
        return dict(self.cluster.catalog.read().cluster.properties)


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path / "cache")


# -- what is fetched, and where it lies


@pytest.mark.fact("F-R-041")
def test_a_read_of_part_of_a_segment_fetches_only_the_chunks_it_needs(case: Case) -> None:
    assert read(case.log, start=250, stop=420) == case.rows[250:420]
    starts = sorted(start for _, start, _ in case.storage.ranges)
    assert len(starts) == 3
    assert all(length <= CHUNK for *_, length in case.storage.ranges)
    assert sorted(case.chunk_files()) == starts


@pytest.mark.fact("F-R-041")
def test_chunks_are_of_16_mib_unless_told_otherwise() -> None:
    assert get_machine_cache({}, None).cache.chunk_bytes == 16 * 1024 * 1024


@pytest.mark.fact("F-R-042")
def test_with_chunks_off_a_whole_segment_is_fetched_for_any_of_it(tmp_path: Path) -> None:
    case = Case(tmp_path / "cache", disable_chunk_reads="true")
    (segment,) = case.segments()
    size = len((case.storage.get(segment) or pytest.fail("it is there")).body)
    assert read(case.log, start=500, stop=501) == case.rows[500:501]
    assert sum(length for *_, length in case.storage.ranges) == size
    assert [path.name for path in case.files(".parquet")] == [segment.rpartition("/")[2]]
    assert case.is_right()
    assert case.storage.ranges == []
    assert case.chunk_files() == {}


@pytest.mark.fact("F-R-043")
def test_chunks_lie_beside_each_other_under_the_segments_name_and_their_first_byte(case: Case) -> None:
    assert case.is_right()
    (segment,) = case.segments()
    folders = {path.parent for path in case.chunk_files().values()}
    assert [str(folder).endswith(f"/{segment}_chunks") for folder in folders] == [True]
    assert sorted(case.chunk_files()) == sorted(start for _, start, _ in case.storage.ranges)
    assert [str(path).endswith(build_index_key(segment)) for path in case.files(".index")] == [True]


def test_what_was_read_once_is_read_from_the_disk(case: Case) -> None:
    assert case.is_right()
    assert len(case.storage.ranges) == CHUNKS
    assert case.is_right()
    assert case.storage.ranges == []


@pytest.mark.parametrize("chunk", ["4096", "5000", "16384", "60000", "16777216"])
def test_chunks_of_any_size_give_the_same_records(tmp_path: Path, chunk: str) -> None:
    case = Case(tmp_path / "cache", segments=3, cache_chunk_size=chunk)
    assert case.is_right()
    assert read(case.log, start=999, stop=1002) == case.rows[999:1002]
    assert case.log.find_offset_at(0, case.rows[777]["timestamp_ms"]) == 777


def test_a_search_by_time_fetches_the_chunk_that_has_it(case: Case) -> None:
    assert case.log.find_offset_at(0, case.rows[777]["timestamp_ms"]) == 777
    assert len(case.storage.ranges) == 1


def test_several_storages_share_one_folder_and_keep_apart(tmp_path: Path) -> None:
    one, two = Case(tmp_path / "cache"), Case(tmp_path / "cache")
    (theirs,) = two.segments()
    damaged = (one.storage.get(one.segments()[0]) or pytest.fail("it is there")).body
    one.storage.inner.put(theirs, bytes(reversed(damaged)))
    assert one.is_right()
    assert two.is_right()
    assert len(two.storage.ranges) == CHUNKS


# -- limits


@pytest.mark.fact("F-R-046")
def test_the_cache_stays_within_its_size_and_what_is_read_is_right(tmp_path: Path) -> None:
    limit = 30 * CHUNK
    case = Case(tmp_path / "cache", segments=8, cache_size=str(limit))
    for _ in range(2):
        assert case.is_right()
        assert 0 < case.stored_bytes() <= limit


@pytest.mark.fact("F-R-045")
def test_the_cache_stays_within_its_number_of_files(tmp_path: Path) -> None:
    case = Case(tmp_path / "cache", segments=4, cache_max_objects="15")
    assert case.is_right()
    assert 0 < len(case.files()) <= 15


@pytest.mark.fact("F-R-047")
@pytest.mark.parametrize(
    ("properties", "most"),
    [
        ({}, CacheUsage(30 * CHUNK, 100_000)),
        ({"cache_trim_threshold_percent_size": "80"}, CacheUsage(24 * CHUNK, 100_000)),
        ({"cache_max_objects": "20"}, CacheUsage(30 * CHUNK, 20)),
        ({"cache_max_objects": "20", "cache_trim_threshold_percent_objects": "60"}, CacheUsage(30 * CHUNK, 12)),
        ({"cache_max_objects": "20", "cache_trim_threshold_percent_size": "50"}, CacheUsage(15 * CHUNK, 20)),
    ],
)
def test_a_cache_that_is_read_through_is_trimmed_from_its_threshold_on_and_no_sooner(
    tmp_path: Path, properties: dict[str, str], most: CacheUsage
) -> None:
    case = Case(tmp_path / "cache", segments=5, cache_size=str(30 * CHUNK), **properties)
    seen = []
    for start in range(0, len(case.rows), 100):  # Chunk by chunk, which lies in the cache then, sometimes an index too.
        assert read(case.log, start=start, stop=start + 100) == case.rows[start : start + 100]
        seen.append(CacheUsage(case.stored_bytes(), len(case.files())))
    peak = CacheUsage(max(each.bytes for each in seen), max(each.objects for each in seen))
    assert peak.bytes <= most.bytes
    assert peak.objects <= most.objects
    assert peak.bytes > most.bytes - 2 * CHUNK or peak.objects > most.objects - 2, "it grew up to its threshold"
    assert min(each.bytes for each in seen[len(seen) // 2 :]) < peak.bytes, "and was trimmed there"


@pytest.mark.fact("F-R-046")
def test_what_was_used_least_recently_goes_first_and_its_index_with_it(tmp_path: Path) -> None:
    case = Case(tmp_path / "cache", segments=4, cache_max_objects="36")
    one, two, three, four = case.segments()
    assert read(case.log, stop=3000) == case.rows[:3000]
    for age, segment in enumerate([one, three, two]):  # `two` was read last, `one` long ago
        for path in case.files():
            if segment.removesuffix(".parquet") in str(path):
                os.utime(path, ns=(age * AGE_NS, age * AGE_NS))
    assert read(case.log, start=3000) == case.rows[3000:]
    assert [len(case.chunk_files(segment)) for segment in (one, two, four)] == [0, CHUNKS, CHUNKS]
    assert len(case.chunk_files(three)) in {0, CHUNKS}
    assert not any(build_index_key(one) in str(path) for path in case.files())


def test_a_trim_takes_what_an_earlier_one_listed_and_lists_anew_where_that_is_not_enough(tmp_path: Path) -> None:
    counts = {}
    for carried in ("0", "1MiB"):
        properties = {"cache_max_objects": "15", "cache_trim_carryover_bytes": str(parse_size(carried))}
        case = Case(tmp_path / carried, segments=4, **properties)
        pop_cache_counts()
        assert case.is_right()
        assert 0 < len(case.files()) <= 15
        counts[carried] = pop_cache_counts()
    anew, carried_over = counts.values()
    assert "cache_trim_carryover_trims" not in anew
    assert carried_over["cache_trim_carryover_trims"] > 0
    # How many trims there are is up to how fast what is read comes: those that are asked for meanwhile are one.
    assert carried_over["cache_trim_exhaustive_trims"] > 0
    assert anew["cache_trim_exhaustive_trims"] > 0


def test_what_was_read_since_it_was_listed_is_not_taken_for_old(tmp_path: Path) -> None:
    properties = {"cache_max_objects": "36", "cache_trim_carryover_bytes": str(1 << 20)}
    case = Case(tmp_path / "cache", segments=8, **properties)
    one = case.segments()[0]
    assert read(case.log, stop=4000) == case.rows[:4000]
    again = len(case.chunk_files(one))
    for start in range(4000, 8000, 100):
        assert read(case.log, stop=100) == case.rows[:100]
        assert read(case.log, start=start, stop=start + 100) == case.rows[start : start + 100]
    assert again == 0, "it was trimmed once, and read again"
    assert list(case.chunk_files(one)) == [0]


def test_folders_of_a_cache_are_listed_side_by_side_where_that_is_asked_for(tmp_path: Path) -> None:
    for number in range(8):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}" / "file").write_bytes(b"x")
    scanning: set[int] = set()
    meeting: list[threading.Barrier] = [threading.Barrier(2, timeout=60)]

    def listen(event: str, given: tuple[object, ...]) -> None:
        if event == "os.scandir" and str(given[0]).startswith(f"{tmp_path}/") and threading.get_ident() not in scanning:
            scanning.add(threading.get_ident())
            for barrier in meeting:
                barrier.wait()

    sys.addaudithook(listen)
    assert len(list_cache_files(str(tmp_path), 2)) == 8
    assert len(scanning) == 2
    meeting.clear()
    scanning.clear()
    assert len(list_cache_files(str(tmp_path))) == 8
    assert scanning == {threading.get_ident()}


def test_files_of_what_is_gone_long_ago_are_let_go_as_all_others(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    first = Case(folder, cache_max_objects="15")
    assert first.is_right()
    for path in first.files():
        os.utime(path, ns=(AGE_NS, AGE_NS))
    second = Case(folder, cache_max_objects="15")
    assert second.is_right()
    (theirs,) = first.segments()
    assert first.chunk_files(theirs) == {}
    assert len(second.chunk_files()) == CHUNKS


@pytest.mark.fact("F-R-048", "F-R-051")
def test_eager_evicts_every_chunk_of_a_segment_but_those_that_are_read(tmp_path: Path) -> None:
    case = Case(tmp_path / "cache", segments=2, chunk_eviction_strategy="eager", cache_max_objects="15")
    first, second = case.segments()
    assert read(case.log, stop=1000) == case.rows[:1000]
    assert len(case.chunk_files(first)) == CHUNKS
    reader = case.log.read(0, OffsetRange(0, 1000))
    found = [next(reader)]
    for path in case.chunk_files(first).values():
        os.utime(path, ns=(AGE_NS, AGE_NS))
    assert read(case.log, start=1000) == case.rows[1000:]
    left = case.chunk_files(first)
    assert 0 < len(left) < CHUNKS
    assert all(is_held(str(path)) for path in left.values())
    assert len(case.chunk_files(second)) == CHUNKS
    assert rows_of([*found, *reader]) == case.rows[:1000]


@pytest.mark.fact("F-R-049", "F-R-051")
def test_capped_leaves_the_share_of_a_segment_that_may_be_there_and_what_is_read(tmp_path: Path) -> None:
    case = Case(tmp_path / "cache", chunk_eviction_strategy="capped")
    assert case.is_right()
    assert len(case.chunk_files()) == 7
    reader = case.log.read(0, OffsetRange(0, 1000))
    found = [next(reader)]
    held = {start for start, path in case.chunk_files().items() if is_held(str(path))}
    assert read(case.log, start=100) == case.rows[100:]
    assert set() < held <= case.chunk_files().keys()
    assert len(case.chunk_files()) == 7
    assert rows_of([*found, *reader]) == case.rows


@pytest.mark.fact("F-R-050")
@pytest.mark.parametrize("readers", [0, 2])
def test_predictive_keeps_what_more_readers_will_come_to(tmp_path: Path, readers: int) -> None:
    case = Case(tmp_path / "cache", chunk_eviction_strategy="predictive")
    assert read(case.log, start=800) == case.rows[800:]
    late = set(case.chunk_files())
    waiting = [case.log.read(0, OffsetRange(700, 1000)) for _ in range(readers)]
    found = [next(each) for each in waiting]
    for path in case.chunk_files().values():
        os.utime(path, ns=(AGE_NS, AGE_NS))
    for start in range(0, 600, 100):
        assert read(case.log, start=start, stop=start + 50) == case.rows[start : start + 50]
    assert len(case.chunk_files()) == 7
    assert (late <= set(case.chunk_files())) is (readers > 0)  # Else they go first: nobody has used them for longer.
    for first, rest in zip(found, waiting, strict=True):
        assert rows_of([first, *rest]) == case.rows[700:]


@pytest.mark.fact("F-R-052")
def test_a_segment_of_few_chunks_stays_whole_under_any_strategy(tmp_path: Path) -> None:
    case = Case(tmp_path / "cache", cache_chunk_size="40000", chunk_eviction_strategy="capped")
    assert case.is_right()
    assert len(case.chunk_files()) == 4


# -- readers and whoever trims


EVICT = """
import sys
from reconciler.embedded.tiered.cache_files import evict_file
print([evict_file(path) for path in sys.argv[1:]])
"""


def evicted_elsewhere(*paths: Path) -> str:
    """Let another process evict files; return what came of it."""
    return subprocess.run(
        [sys.executable, "-c", EVICT, *map(str, paths)], check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.mark.thorough
@pytest.mark.fact("F-R-051")
def test_a_chunk_that_is_read_is_evicted_by_no_process(case: Case) -> None:
    assert case.is_right()
    first, *_, last = (case.chunk_files()[start] for start in sorted(case.chunk_files()))
    reader = case.log.read(0, OffsetRange(0, 1000))
    found = [next(reader)]
    assert evicted_elsewhere(first, last) == "[False, True]"
    assert first.exists()
    assert rows_of([*found, *reader]) == case.rows
    assert evicted_elsewhere(first) == "[True]"


def test_threads_that_want_one_chunk_fetch_it_once(case: Case) -> None:
    start = threading.Barrier(8)

    def whole(_number: int) -> list[Any]:
        start.wait()
        return read(case.log)

    with ThreadPoolExecutor(8) as threads:
        assert all(rows == case.rows for rows in threads.map(whole, range(8)))
    assert len(case.storage.ranges) == CHUNKS


READ = """
import sys
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.objectstore.directory import DirectoryStore
from pathlib import Path
from tests.embedded.samples import read
cluster = EmbeddedCluster.open(
    DirectoryStore(Path(sys.argv[1])), now_ms=lambda: 0, new_id=str, storage=DirectoryStore(Path(sys.argv[2]))
)
if len(sys.argv) > 3:
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))
for _ in range(3):
    rows = read(cluster.log("orders"))
    print(len(rows), hash(tuple(row["value"] for row in rows)))
"""


def reading_elsewhere(tmp_path: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", READ, str(tmp_path / "west"), str(tmp_path / "bucket"), *more]
    environ = {**os.environ, "PYTHONHASHSEED": "0"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ)


def on_disk(tmp_path: Path, **properties: str) -> int:
    """Make the topic in folders that other processes can open; return how many records it has."""
    west, bucket = DirectoryStore(tmp_path / "west"), DirectoryStore(tmp_path / "bucket")
    cluster = tiered_cluster(west, bucket, cached_in(tmp_path / "cache", chunk=str(CHUNK), **properties))
    return len(in_segments(cluster, TOPIC, 4)) * 4


@pytest.mark.thorough
def test_processes_share_a_cache_that_is_too_small_for_them(tmp_path: Path) -> None:
    count = on_disk(tmp_path, cache_size=str(12 * CHUNK), cache_check_interval_ms="1")
    processes = [reading_elsewhere(tmp_path) for _ in range(2)]
    said = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    lines = {line for out, _ in said for line in out.splitlines()}
    assert len(lines) == 1
    assert lines.pop().startswith(f"{count} ")


def test_a_disk_that_refuses_what_is_written_only_costs_time(tmp_path: Path) -> None:
    count = on_disk(tmp_path)
    process = reading_elsewhere(tmp_path, "1000")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert {line.split()[0] for line in out.splitlines()} == {str(count)}
    left = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert left == []


def test_a_cache_has_its_place_also_where_nothing_temporary_can_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/nowhere"])
    assert find_cache_folder({}, str(tmp_path)) is not None
    assert find_cache_folder({}, None) is None


def test_instruments_tell_what_readers_hold_and_what_no_trim_could_make_room_for(tmp_path: Path) -> None:
    case = Case(tmp_path / "cache", segments=2, cache_max_objects="4")
    reader = case.log.read(0, OffsetRange(0, 1000))
    pop_cache_counts()
    next(iter(reader))
    assert measure_cache_levels(case.cached(), None)["readers"] >= 1
    _close(reader)
    until = monotonic() + 30
    while measure_cache_levels(case.cached(), None)["readers"]:  # A trim holds for a moment what it takes.
        assert monotonic() < until


# -- faults of the disk


def flip(path: Path) -> None:
    body = bytearray(path.read_bytes())
    body[len(body) // 2] ^= 0xFF
    path.write_bytes(bytes(body))


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "a flipped byte": flip,
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "emptied": lambda path: path.write_bytes(b""),
    "grown": lambda path: path.write_bytes(path.read_bytes() + b"more"),
    "deleted": lambda path: path.unlink(),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a link": lambda path: (path.unlink(), path.symlink_to("/etc/passwd")),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("mode", ["false", "true"], ids=["chunks", "whole segments"])
def test_whatever_becomes_of_cached_files_the_records_are_right(
    tmp_path: Path, damage: Callable[[Path], Any], mode: str
) -> None:
    case = Case(tmp_path / "cache", disable_chunk_reads=mode)
    assert case.is_right()
    for path in case.files():
        damage(path)
    assert case.is_right()
    assert case.storage.ranges
    assert case.is_right()


@pytest.mark.parametrize("mode", ["false", "true"], ids=["chunks", "whole segments"])
def test_a_segment_that_was_cached_while_it_was_damaged_is_read_right_once_it_is_restored(
    tmp_path: Path, mode: str
) -> None:
    case = Case(tmp_path / "cache", segments=2, disable_chunk_reads=mode)
    key = case.segments()[0]
    body = (case.storage.get(key) or pytest.fail("it is there")).body
    case.storage.put(key, bytes(len(body)))
    with pytest.raises(DamagedObjectError, match="cannot be read"):
        case.is_right()
    since_ms = case.rows[500]["timestamp_ms"]
    with pytest.raises(DamagedObjectError, match="cannot be read"):
        case.log.find_offset_at(0, since_ms)
    case.storage.put(key, body)
    assert case.log.find_offset_at(0, since_ms) == 500
    assert case.is_right()
    assert case.is_right()
    assert case.storage.ranges == []


@pytest.mark.parametrize("what", ["all of it", "what is being written", "what is kept"])
def test_a_folder_that_is_deleted_is_made_anew(case: Case, what: str) -> None:
    reader = case.log.read(0, OffsetRange(0, 1000))
    found = [next(reader)]
    (place,) = case.folder.iterdir()
    gone = {"all of it": case.folder, "what is being written": place / "drafts"}.get(what, place / "files")
    while gone.exists():  # The reader may be writing into it.
        shutil.rmtree(gone, ignore_errors=True)
    assert rows_of([*found, *reader]) == case.rows
    assert case.is_right()
    assert case.chunk_files()
    assert case.is_right()
    assert case.storage.ranges == []


@pytest.mark.parametrize("what", ["a file", "within a file", "a dangling link"])
def test_a_folder_that_cannot_be_only_costs_time(tmp_path: Path, what: str) -> None:
    place = tmp_path / "taken"
    if what == "a dangling link":
        place.symlink_to("/nonexistent/place")
    else:
        place.write_bytes(b"taken")
    case = Case(place / "below" if what == "within a file" else place)
    assert case.is_right()
    assert case.is_right()
    assert len(case.storage.ranges) == CHUNKS


@pytest.mark.fact("F-R-053")
def test_a_directory_that_is_declared_and_no_full_path_is_an_error(tmp_path: Path) -> None:
    case = Case(tmp_path / "cache")
    case.cluster.catalog.commit(
        lambda draft: draft.put_cluster(
            type(draft.cluster)(
                {**draft.cluster.properties, "cloud_storage_cache_directory": "here"}, draft.cluster.storage_id
            )
        )
    )
    with pytest.raises(UserError, match="cloud_storage_cache_directory is 'here', which is not a full path"):
        read(case.log)


# -- how much memory


def test_readers_give_back_what_they_had_ahead_also_when_they_are_abandoned(case: Case) -> None:
    assert case.is_right()
    ahead = get_machine_cache(case.cached(), None).ahead
    full = ahead.left
    readers = [case.log.read(0, OffsetRange(0, 1000)) for _ in range(3)]
    for reader in readers:
        next(reader)
        next(reader)
    assert full - 3 * 4 * CHUNK <= ahead.left < full
    for reader in readers:
        _close(reader)
    assert ahead.left == full


def _close(reader: Iterator[Any]) -> None:
    reader.close()  # type: ignore[attr-defined]  # it is a generator


# The rules of the cache as tables: how segments are cut, how much may lie there, and what goes first.


MIB = 1 << 20
DISK = 1000 * MIB


# -- chunks


@pytest.mark.parametrize(
    ("borders", "size", "expected"),
    [
        ([90], 100, [0]),
        ([40, 90], 100, [0]),
        ([40, 90, 140], 150, [0, 90]),
        ([60, 120, 180], 190, [0, 60, 120]),
        ([250], 260, [0, 100, 200]),
        ([30, 250, 280], 290, [0, 30, 130, 230]),
        ([100, 200], 210, [0, 100, 200]),
    ],
    ids=[
        "one chunk",
        "row groups that fit into one",
        "as many as fit",
        "one each",
        "a row group larger than a chunk is cut",
        "what is left of it takes the next along",
        "row groups of exactly a chunk, and the footer",
    ],
)
def test_chunks_begin_at_row_groups_as_far_as_they_fit(borders: list[int], size: int, expected: list[int]) -> None:
    assert [chunk.start for chunk in divide_into_chunks(borders, size, 100)] == expected


@given(st.lists(st.integers(1, 400), min_size=1, max_size=20), st.integers(1, 60), st.integers(10, 300))
def test_chunks_lie_side_by_side_cover_a_segment_and_none_is_too_large(
    groups: list[int], footer: int, limit: int
) -> None:
    borders = [sum(groups[: count + 1]) for count in range(len(groups))]
    size = borders[-1] + footer
    chunks = divide_into_chunks(borders, size, limit)
    assert [chunk.start for chunk in chunks] == [0, *(chunk.stop for chunk in chunks[:-1])]
    assert chunks[-1].stop == size
    assert all(0 < chunk.length <= limit for chunk in chunks)
    for start, stop in zip([0, *borders], borders, strict=False):
        if stop - start <= limit:
            assert len(find_overlapping_chunks(chunks, ByteSpan(start, stop))) == 1


@given(st.integers(1, 500), st.integers(1, 100), st.integers(0, 499), st.integers(0, 100))
def test_the_chunks_touched_are_those_that_hold_a_byte_of_it(size: int, limit: int, start: int, length: int) -> None:
    chunks = divide_into_chunks([], size, limit)
    wanted = ByteSpan(start, min(start + length, size))
    expected = [chunk for chunk in chunks if chunk.start < wanted.stop and wanted.start < chunk.stop]
    assert list(find_overlapping_chunks(chunks, wanted)) == (expected if wanted.length > 0 else [])


# -- limits


@pytest.mark.fact("F-R-044")
@pytest.mark.parametrize(
    ("properties", "most_mib"),
    [
        ({}, 160),
        ({"cloud_storage_cache_size": str(50 * MIB)}, 50),
        ({"cloud_storage_cache_size": str(500 * MIB)}, 160),
        ({"cloud_storage_cache_size": str(500 * MIB), "cloud_storage_cache_size_percent": "0"}, 500),
        ({"cloud_storage_cache_size": str(5000 * MIB), "cloud_storage_cache_size_percent": "100"}, 800),
        ({"cloud_storage_cache_size_percent": "50", "disk_reservation_percent": "40"}, 300),
        ({"cloud_storage_cache_size_percent": "100", "disk_reservation_percent": "0"}, 1000),
    ],
)
def test_of_bytes_and_percent_of_what_the_disk_leaves_the_smaller_holds(
    properties: dict[str, str], most_mib: int
) -> None:
    assert read_cache_limits(properties, DISK).most == CacheUsage(most_mib * MIB, 100_000)


def test_a_cache_without_any_limit_of_size_is_refused() -> None:
    with pytest.raises(UserError, match="cache_size and cloud_storage_cache_size_percent are both 0"):
        read_cache_limits({"cloud_storage_cache_size_percent": "0"}, DISK)


@pytest.mark.fact("F-R-045")
@pytest.mark.fact("F-R-047")
@pytest.mark.parametrize(
    ("by_size", "by_objects", "used", "target"),
    [
        (None, None, (100, 10), None),
        (None, None, (101, 10), (80, 10)),
        (None, None, (100, 11), (100, 8)),
        (None, None, (150, 15), (80, 8)),
        ("80", None, (80, 10), None),
        ("80", None, (81, 10), (64, 10)),
        ("80", None, (81, 11), (64, 8)),
        (None, "50", (100, 5), None),
        (None, "50", (100, 6), (100, 4)),
        ("50", "50", (51, 6), (40, 4)),
    ],
)
def test_each_dimension_is_trimmed_from_its_own_threshold_to_80_percent_of_it(
    by_size: str | None, by_objects: str | None, used: tuple[int, int], target: tuple[int, int] | None
) -> None:
    given = {
        "cloud_storage_cache_size": "100",
        "cloud_storage_cache_max_objects": "10",
        "cloud_storage_cache_trim_threshold_percent_size": by_size,
        "cloud_storage_cache_trim_threshold_percent_objects": by_objects,
    }
    limits = read_cache_limits({name: value for name, value in given.items() if value is not None}, DISK)
    assert limits.find_trim_target(CacheUsage(*used)) == (None if target is None else CacheUsage(*target))


# -- strategies


def hydrated(*starts: int, shared: tuple[int, ...] = (), needed: dict[int, int] | None = None) -> list[HydratedChunk]:
    counts = needed or {}
    return [HydratedChunk(start, 1000 + start, start in shared, counts.get(start, 0)) for start in starts]


@pytest.mark.fact("F-R-048")
@pytest.mark.fact("F-R-049")
@pytest.mark.fact("F-R-050")
@pytest.mark.fact("F-R-051")
@pytest.mark.parametrize(
    ("strategy", "chunks", "shared", "needed", "evicted"),
    [
        ("eager", 10, (), {}, [0, 1, 2, 3, 4, 5, 6, 7]),
        ("eager", 10, (2, 5), {}, [0, 1, 3, 4, 6, 7]),
        ("eager", 10, tuple(range(8)), {}, []),
        ("capped", 10, (), {}, [0]),
        ("capped", 8, (), {}, [0, 1, 2]),
        ("capped", 8, (0, 1, 2), {}, [3, 4, 5]),
        ("capped", 8, tuple(range(7)), {}, [7]),
        ("capped", 20, (), {}, []),
        ("predictive", 8, (), {}, [0, 1, 2]),
        ("predictive", 8, (), {0: 2, 1: 1, 2: 1, 3: 3}, [4, 5, 6]),
        ("predictive", 8, (), {4: 1, 5: 1, 6: 2, 7: 1, 0: 3, 1: 3, 2: 3, 3: 3}, [4, 5, 7]),
        ("predictive", 8, (4, 5), {4: 0, 5: 0}, [0, 1, 2]),
        ("predictive", 20, (), {}, []),
    ],
)
def test_strategies_choose_among_chunks_that_nobody_shares(
    strategy: str, chunks: int, shared: tuple[int, ...], needed: dict[int, int], evicted: list[int]
) -> None:
    rule = EvictionRule.of({"cloud_storage_chunk_eviction_strategy": strategy})
    found = rule.select_chunks_to_evict(hydrated(*range(8), shared=shared, needed=needed), chunks)
    assert [chunk.start for chunk in found] == evicted


@pytest.mark.fact("F-R-052")
@pytest.mark.parametrize(("chunks", "most"), [(1, 1), (4, 4), (5, 3), (10, 7), (100, 70)])
def test_segments_of_few_chunks_may_be_there_whole(chunks: int, most: int) -> None:
    assert EvictionRule.of({}).compute_max_chunks(chunks) == most


def test_at_least_one_chunk_of_a_segment_may_stay() -> None:
    assert EvictionRule.of({"cloud_storage_hydrated_chunks_per_segment_ratio": "0"}).compute_max_chunks(9) == 1


# -- places


@pytest.mark.fact("F-R-053")
@pytest.mark.parametrize("declared", ["cache", "./cache", "~/cache", "../cache"])
def test_a_directory_that_is_no_full_path_is_refused(declared: str) -> None:
    with pytest.raises(UserError, match="which is not a full path") as raised:
        check_directory(declared)
    assert "/var/cache/reconciler" in raised.value.hint


@pytest.mark.parametrize(
    ("path", "size"), [("/c/topics/u/1/00000/0-9-4711-3-v1-abcdef12", 4711), ("/c/topics/u/1/00000/anything", 0)]
)
def test_the_size_of_a_segment_stands_in_its_name(path: str, size: int) -> None:
    assert parse_stored_bytes(path) == size
