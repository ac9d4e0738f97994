"""Maintenance of partitions as tasks, which executors may run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, TypeVar, assert_never

from reconciler.archives.manifest import read_manifest
from reconciler.archives.objects import retry_if_missing
from reconciler.archives.storage import check_storage_shared
from reconciler.embedded.maintenance.compaction import Compaction, CompactionScope
from reconciler.embedded.maintenance.roll import SegmentMerge
from reconciler.embedded.objects import check_cluster_visible, read_cluster_id
from reconciler.embedded.segments.admission import AppendRules, read_append_rules
from reconciler.embedded.segments.head import Head, Partition, read_head
from reconciler.embedded.segments.retention import CleanupPolicy, read_cleanup_policy
from reconciler.embedded.tiered.object_rewrites import PartitionRewrite, write_rolled
from reconciler.embedded.tiered.remote_tier import RemoteTier
from reconciler.embedded.tiered.upload import PartitionUpload, UploadBatch, upload_compacted_again
from reconciler.errors import ReconcilerError
from reconciler.runtime.dataclass import dataclass

if TYPE_CHECKING:
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.objectstore.base import ObjectStore
    from reconciler.records.log import OffsetRange


Job: TypeAlias = Literal["roll", "upload", "reupload", "compact", "merge"]

W = TypeVar("W", bound="Costly")
R = TypeVar("R")

_COST: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class Chore:
    """One partition to process; `bytes` estimates the bytes to read."""

    partition: Partition
    bytes: int
    offsets: OffsetRange | None = None
    """Offsets to upload or merge; `None` in other jobs."""
    keys: int = 0
    """Maximum keys that a compaction reads."""

    @property
    def cost(self) -> int:
        """Bytes to read, plus an allowance for requests and a swap."""
        return self.bytes + _COST


class Costly(Protocol):
    """Work with a cost."""

    @property
    def cost(self) -> int:
        """Return the cost in bytes."""
        ...


@dataclass(frozen=True, slots=True)
class FailedChore:
    """A partition whose processing failed."""

    partition: Partition
    error: ReconcilerError


_THREADS: Final = 4
_ROUND_BYTES: Final = 256 * 1024 * 1024
_TOGETHER: Final = 16


@dataclass(frozen=True)
class ChoreTask:
    """Writes replacements of parts without publishing them. Picklable."""

    store: ObjectStore
    catalog: CatalogRegister
    cluster_id: str
    job: Job
    now_ms: int
    remote: RemoteTier | None = None

    def __call__(self, chores: Iterable[Chore]) -> Iterator[PartitionRewrite | UploadBatch | FailedChore]:
        """Process each partition by its current head."""
        catalog = self._read_visible_catalog()
        names = {entry.id: name for name, entry in catalog.topics.items()}
        is_here = self._is_same_cluster()
        for chore in chores:
            check_cluster_visible(self.store, chore.partition.full_name, is_found=is_here)
            full_name = names.get(chore.partition.topic_id)
            if full_name is None:
                continue
            try:
                outcome = self._process(catalog, full_name, chore)
            except ReconcilerError as error:
                yield FailedChore(chore.partition, error)
            else:
                if outcome is not None:
                    yield outcome

    def plan_shared_compaction(self, chore: Chore) -> tuple[Compaction, CompactionScope] | None:
        """Return a compaction for several tasks with its input; `None` if nothing is due."""
        catalog = self._read_visible_catalog()
        self.check_shared(chore)
        names = {entry.id: name for name, entry in catalog.topics.items()}
        full_name = names.get(chore.partition.topic_id)
        head = read_head(self.store, chore.partition.topic_id, chore.partition.number)
        if full_name is None or head is None:
            return None
        policy, rules = read_cleanup_policy(catalog, full_name, self.cluster_id), read_append_rules(catalog, full_name)
        compaction = Compaction(self.store, chore.partition, policy, rules, self.remote)
        scope = compaction.plan_scope(head, now_ms=self.now_ms)
        return None if scope is None else (compaction, scope)

    def check_shared(self, chore: Chore) -> None:
        """Reject a cluster that this machine does not see."""
        check_cluster_visible(self.store, chore.partition.full_name, is_found=self._is_same_cluster())

    def _read_visible_catalog(self) -> Catalog:
        catalog = self.catalog.read()
        if self.remote is not None:
            check_storage_shared(self.remote.storage, catalog.cluster.storage_id)
        return catalog

    def _is_same_cluster(self) -> bool:
        return read_cluster_id(self.store) == self.cluster_id

    def _process(self, catalog: Catalog, full_name: str, chore: Chore) -> PartitionRewrite | UploadBatch | None:
        policy, rules = read_cleanup_policy(catalog, full_name, self.cluster_id), read_append_rules(catalog, full_name)

        def read_and_run() -> PartitionRewrite | UploadBatch | None:
            head = read_head(self.store, chore.partition.topic_id, chore.partition.number)
            return None if head is None else self._run_job(head, chore, policy, rules)

        return retry_if_missing(read_and_run)

    def _run_job(
        self, head: Head, chore: Chore, policy: CleanupPolicy, rules: AppendRules
    ) -> PartitionRewrite | UploadBatch | None:
        match self.job:
            case "roll":
                return write_rolled(self.store, head, chore.partition, policy, rules)
            case "compact":
                compaction = Compaction(self.store, chore.partition, policy, rules, self.remote)
                return compaction.write_compacted(head, now_ms=self.now_ms)
            case "upload" | "reupload":
                return self._upload(head, chore, policy, rules)
            case "merge":
                if self.remote is None or chore.offsets is None:
                    return None
                return SegmentMerge(self.remote, chore.partition, policy, rules).write_merged_runs(chore.offsets)
            case _:
                assert_never(self.job)

    def _upload(
        self, head: Head, chore: Chore, policy: CleanupPolicy, rules: AppendRules
    ) -> PartitionRewrite | UploadBatch | None:
        if self.remote is None or chore.offsets is None or policy.tiering is None or not policy.tiering.uploads:
            return None
        upload = PartitionUpload(self.store, self.remote.storage, chore.partition, policy.tiering, rules)
        if self.job == "upload":
            return upload.upload_segments(head, policy.limits, chore.offsets)
        manifest = read_manifest(self.remote.storage, upload.remote)
        return None if manifest is None else upload_compacted_again(upload, head, manifest, self.remote, chore.offsets)


def run_chores_here(chores: Sequence[W], task: Callable[[Sequence[W]], Iterable[R]]) -> Iterator[list[R]]:
    """Run chores in threads of this process; yield results in rounds."""
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="chore") as threads:
        for taken in split_into_rounds(chores, _ROUND_BYTES):
            done = threads.map(lambda together: list(task(together)), _group_chores(taken))
            yield [one for outcomes in done for one in outcomes]


def _group_chores(chores: Sequence[W]) -> Iterator[Sequence[W]]:
    size = max(1, min(_TOGETHER, len(chores) // _THREADS))
    for at in range(0, len(chores), size):
        yield chores[at : at + size]


def split_into_rounds(chores: Iterable[W], cost: int) -> Iterator[list[W]]:
    """Yield chores in order, in rounds of at most `cost`; a larger chore is a round of its own."""
    taken: list[W] = []
    left = cost
    for chore in chores:
        if taken and chore.cost > left:
            yield taken
            taken, left = [], cost
        taken.append(chore)
        left -= chore.cost
    if taken:
        yield taken
