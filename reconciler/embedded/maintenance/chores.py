"""Work on partitions for tasks: roll, upload, compact, merge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, TypeVar, assert_never

from reconciler.archives.manifest import read_manifest
from reconciler.archives.objects import look_again
from reconciler.archives.storage import check_storage_shared
from reconciler.embedded.maintenance.compaction import Cleaning, Compaction
from reconciler.embedded.maintenance.roll import Merge
from reconciler.embedded.objects import check_shared, read_cluster_id
from reconciler.embedded.segments.admission import Rules, rules_of
from reconciler.embedded.segments.head import Head, Partition, read_head
from reconciler.embedded.segments.retention import CleanupPolicy, cleanup_policy
from reconciler.embedded.tiered.object_rewrites import Rewritten, rolled
from reconciler.embedded.tiered.remote_tier import RemoteTier
from reconciler.embedded.tiered.upload import Upload, Uploaded, reuploaded
from reconciler.errors import ReconcilerError

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
    """One partition that is to be rolled, uploaded, compacted or merged, and about how many stored bytes that reads."""

    partition: Partition
    bytes: int
    offsets: OffsetRange | None = None
    """Of an upload and of a merge: what of the partition."""
    keys: int = 0
    """Of a compaction: at most so many keys are to be learned."""

    @property
    def cost(self) -> int:
        """How much of a round it takes, in bytes: its own, and a few requests and a swap."""
        return self.bytes + _COST


class Costly(Protocol):
    """A piece of work that says how much of a round it takes, in bytes."""

    @property
    def cost(self) -> int:
        """Return it."""
        ...


@dataclass(frozen=True, slots=True)
class Refused:
    """A partition that could not be written anew; the others stand for themselves."""

    partition: Partition
    error: ReconcilerError


# What a task does with partitions that are to be rolled, uploaded, compacted or merged, wherever it runs.


_THREADS: Final = 4
"""Arrow decodes and encodes beside Python; more would only take memory."""
_ROUND_BYTES: Final = 256 * 1024 * 1024
_TOGETHER: Final = 16


@dataclass(frozen=True)
class ChoreTask:
    """Writes what is to take the place of parts, under fresh names; publishes nothing. Picklable."""

    store: ObjectStore
    catalog: CatalogRegister
    cluster_id: str
    job: Job
    now_ms: int
    """The present, as the driver has it."""
    remote: RemoteTier | None = None

    def __call__(self, chores: Iterable[Chore]) -> Iterator[Rewritten | Uploaded | Refused]:
        """Do one task: look at each partition as it is now, and write what its configs ask for.

        Raises:
            UserError: The cluster, or its object storage, is not seen from this machine.
        """
        catalog = self._shared_catalog()
        names = {entry.id: name for name, entry in catalog.topics.items()}
        is_here = self._is_here()
        for chore in chores:
            check_shared(self.store, chore.partition.full_name, is_found=is_here)
            full_name = names.get(chore.partition.topic_id)
            if full_name is None:
                continue  # It was deleted meanwhile.
            try:
                found = self._done(catalog, full_name, chore)
            except ReconcilerError as error:
                yield Refused(chore.partition, error)
            else:
                if found is not None:
                    yield found

    def cleaning(self, chore: Chore) -> tuple[Compaction, Cleaning] | None:
        """Return what a compaction goes over, for one that takes several tasks; `None`: nothing is to be done.

        Raises:
            UserError: As of a call; or a part is damaged.
        """
        catalog = self._shared_catalog()
        self.check_shared(chore)
        names = {entry.id: name for name, entry in catalog.topics.items()}
        full_name = names.get(chore.partition.topic_id)
        head = read_head(self.store, chore.partition.topic_id, chore.partition.number)
        if full_name is None or head is None:
            return None
        policy, rules = cleanup_policy(catalog, full_name, self.cluster_id), rules_of(catalog, full_name)
        compaction = Compaction(self.store, chore.partition, policy, rules, self.remote)
        found = compaction.cleaning(head, now_ms=self.now_ms)
        return None if found is None else (compaction, found)

    def check_shared(self, chore: Chore) -> None:
        """Return if the cluster is seen from this machine.

        Raises:
            UserError: It is not.
        """
        check_shared(self.store, chore.partition.full_name, is_found=self._is_here())

    def _shared_catalog(self) -> Catalog:
        catalog = self.catalog.read()
        if self.remote is not None:
            check_storage_shared(self.remote.storage, catalog.cluster.storage_id)
        return catalog

    def _is_here(self) -> bool:
        return read_cluster_id(self.store) == self.cluster_id

    def _done(self, catalog: Catalog, full_name: str, chore: Chore) -> Rewritten | Uploaded | None:
        policy, rules = cleanup_policy(catalog, full_name, self.cluster_id), rules_of(catalog, full_name)

        def done() -> Rewritten | Uploaded | None:
            head = read_head(self.store, chore.partition.topic_id, chore.partition.number)
            return None if head is None else self._of(head, chore, policy, rules)

        return look_again(done)

    def _of(self, head: Head, chore: Chore, policy: CleanupPolicy, rules: Rules) -> Rewritten | Uploaded | None:
        match self.job:
            case "roll":
                return rolled(self.store, head, chore.partition, policy, rules)
            case "compact":
                compaction = Compaction(self.store, chore.partition, policy, rules, self.remote)
                return compaction.compacted(head, now_ms=self.now_ms)
            case "upload" | "reupload":
                return self._uploaded(head, chore, policy, rules)
            case "merge":
                if self.remote is None or chore.offsets is None:
                    return None
                return Merge(self.remote, chore.partition, policy, rules).written(chore.offsets)
            case _:
                assert_never(self.job)

    def _uploaded(self, head: Head, chore: Chore, policy: CleanupPolicy, rules: Rules) -> Rewritten | Uploaded | None:
        if self.remote is None or chore.offsets is None or policy.tiering is None or not policy.tiering.uploads:
            return None
        upload = Upload(self.store, self.remote.storage, chore.partition, policy.tiering, rules)
        if self.job == "upload":
            return upload.put(head, policy.limits, chore.offsets)
        manifest = read_manifest(self.remote.storage, upload.remote)
        return None if manifest is None else reuploaded(upload, head, manifest, self.remote, chore.offsets)


def do_here(chores: Sequence[W], task: Callable[[Sequence[W]], Iterable[R]]) -> Iterator[list[R]]:
    """Do chores in a few threads of this process, and yield what came of them in rounds."""
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="chore") as threads:
        for taken in rounds_of(chores, _ROUND_BYTES):
            done = threads.map(lambda together: list(task(together)), _together(taken))
            yield [one for outcomes in done for one in outcomes]


def _together(chores: Sequence[W]) -> Iterator[Sequence[W]]:
    """Yield chores a few at a time: each task reads the catalog, and looks whether it is in the right place, once."""
    size = max(1, min(_TOGETHER, len(chores) // _THREADS))
    for at in range(0, len(chores), size):
        yield chores[at : at + size]


def rounds_of(chores: Iterable[W], cost: int) -> Iterator[list[W]]:
    """Yield chores in order, as many at a time as `cost` allows, always at least one."""
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
