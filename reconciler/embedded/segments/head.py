"""A partition's head: its newest metadata, one object that is replaced by compare-and-swap."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from reconciler.archives.entries import Entry, PageRef
from reconciler.archives.objects import damaged_error, decode_object, retry_if_missing
from reconciler.archives.pages import encode_entries_page, encode_pages_page
from reconciler.embedded.keys import HEADS, head_key, heads_prefix, is_head_key, page_key, parse_head_key
from reconciler.objectstore.register import Register, RegisterSnapshot, create_mark
from reconciler.records.log import Bounds
from reconciler.resources.mirrors import NEVER_FETCHED, Position
from reconciler.runtime.dataclass import dataclass, field, replace

if TYPE_CHECKING:
    from reconciler.objectstore.base import ListedObject, ObjectStore


Json = dict[str, Any]

_SHAPE: Final = {
    "writer": str,
    "start": int,
    "local_start": int,
    "end": int,
    "is_settled": bool,
    "epochs": [[int]],
    "producers": {str: {"epoch": int, "last": int, "at_ms": int}},
    "transactions": {str: {"epoch": int, "base": int}},
    "compacted_to?": int,
    "source": (None, {"topic_id": (None, str), "epochs": [[int]], "fetched?": int}),
    "pages": list,
    "entries": list,
    "kms_key_id?": str,
    "uploaded_to?": int,
    "tiered_epoch?": int,
    "truncated?": {"operation": str, "offset": int, "epoch": int, "records": int},
}

PRODUCERS: Final = "producers"
NOBODY: Final = "nobody"
REPLICA: Final = "replica"
"""Writer of a read replica's heads."""


def build_link_writer(link_id: str) -> str:
    """Return the writer of a mirror's heads."""
    return f"link:{link_id}"


@dataclass(frozen=True, slots=True)
class Head:
    """A partition's register. `start` is its first offset, `end` the next offset to write.

    `is_settled` means that the catalog, read after the head was created, agreed with it. Fencing commits to the catalog
    before it lists heads, so either fencing or the append notices the other. A change of writer unsettles the head and
    raises its epoch.
    """

    writer: str
    start: int = 0
    local_start: int = 0
    end: int = 0
    is_settled: bool = False
    epochs: tuple[tuple[int, int], ...] = ((0, 0),)
    pages: tuple[PageRef, ...] = ()
    entries: tuple[Entry, ...] = ()
    producers: Json = field(default_factory=dict)
    """Producers of the last 24 hours: id → `{epoch, last, at_ms}`; `last` is a sequence number."""
    transactions: Json = field(default_factory=dict)
    """Open transactions: transactional id → `{epoch, base}`."""
    compacted_to: int = 0
    """Offset below which closed segments have each key only once."""
    source: Json | None = None
    """A mirror's source: topic id, epochs, and copied end offset."""
    kms_key_id: str | None = None
    """KMS key of all entries at the last rewrite; later entries store theirs."""
    uploaded_to: int = 0
    """Offset below which the remote manifest has all unexpired records."""
    tiered_epoch: int = 0
    """Tiered epoch of the last change of `uploaded_to`; older ones cannot change it (F-K-056)."""
    truncated: Json | None = None
    """Last truncation: `{operation, offset, epoch, records}`. A manifest without this epoch must be truncated, too."""

    def may_be_acknowledged(self, epoch: int) -> bool:
        """Whether records may have been acknowledged, and no deletion sealed the head; `epoch` is its register's.

        If the catalog lacks the topic of such a head, an older catalog was restored.
        """
        return self.writer != NOBODY and (self.is_settled or (epoch > 0 and self.end > 0))

    @property
    def last_truncation_epoch(self) -> int:
        """Leader epoch of the last truncation; 0 without truncations."""
        return 0 if self.truncated is None else int(self.truncated["epoch"])

    @property
    def bounds(self) -> Bounds:
        """The partition's offset bounds."""
        first_open: list[int] = [opened["base"] for opened in self.transactions.values()]
        stable = min([self.end, *first_open])
        return Bounds(self.start, self.local_start, stable, self.end, self.epochs, self.compacted_to)

    @property
    def stored_bytes(self) -> int:
        """Stored bytes of all parts."""
        return sum(page.bytes for page in self.pages) + sum(entry.bytes for entry in self.entries)

    @property
    def records(self) -> int:
        """Number of records."""
        return sum(page.records for page in self.pages) + sum(entry.digest.records for entry in self.entries)

    @property
    def newest_ms(self) -> int | None:
        """Latest record timestamp in ms, or `None`."""
        times = *(page.max_ts for page in self.pages), *(entry.max_ts for entry in self.entries)
        return max(times, default=None)

    def with_appended(self, added: Iterable[Entry], *, end: int) -> Head:
        """Return the head with more parts and a new log end."""
        return replace(self, entries=(*self.entries, *added), end=end)

    def with_uploaded(self, to: int, tiered_epoch: int) -> Head | None:
        """Return the head with a higher `uploaded_to`; `None` if nothing changes.

        The tiered epoch prevents older disablings from lowering it (F-K-056).
        """
        is_news = to > self.uploaded_to and tiered_epoch >= self.tiered_epoch
        return replace(self, uploaded_to=to, tiered_epoch=tiered_epoch) if is_news else None

    def to_json(self) -> Json:
        """Convert to JSON."""
        document: Json = {
            "writer": self.writer,
            "start": self.start,
            "local_start": self.local_start,
            "end": self.end,
            "is_settled": self.is_settled,
            "epochs": self.epochs,
            "producers": self.producers,
            "transactions": self.transactions,
            "compacted_to": self.compacted_to,
            "source": self.source,
            "pages": [page.to_json() for page in self.pages],
            "entries": [entry.to_json() for entry in self.entries],
        }
        if self.kms_key_id is not None:
            document["kms_key_id"] = self.kms_key_id
        if self.uploaded_to:
            document["uploaded_to"] = self.uploaded_to
        if self.tiered_epoch:
            document["tiered_epoch"] = self.tiered_epoch
        if self.truncated is not None:
            document["truncated"] = self.truncated
        return document

    @classmethod
    def from_json(cls, document: Json) -> Head:
        """Parse JSON."""
        if document["source"] is not None:
            parse_epochs(document["source"])  # The epochs are parsed here, so an error names the head.
        return cls(
            writer=document["writer"],
            start=document["start"],
            local_start=document["local_start"],
            end=document["end"],
            is_settled=document["is_settled"],
            epochs=parse_epochs(document),
            pages=tuple(map(PageRef.from_json, document["pages"])),
            entries=tuple(map(Entry.from_json, document["entries"])),
            producers=document["producers"],
            transactions=document["transactions"],
            compacted_to=document.get("compacted_to", 0),
            source=document["source"],
            kms_key_id=document.get("kms_key_id"),
            uploaded_to=document.get("uploaded_to", 0),
            tiered_epoch=document.get("tiered_epoch", 0),
            truncated=document.get("truncated"),
        )


def parse_epochs(document: Json) -> tuple[tuple[int, int], ...]:
    """Return leader epochs with their first offsets."""
    return tuple((epoch, start) for epoch, start in document["epochs"])


def head_register(store: ObjectStore, topic_id: str, partition: int) -> Register:
    """Return a partition's register."""
    return Register(store, head_key(topic_id, partition), format="reconciler.head/3", shape=_SHAPE)


def parse_head(store: ObjectStore, key: str, document: Json) -> Head:
    """Parse a head; reject contradictions."""
    head = parse_head_unchecked(store, key, document)
    wrong = next(_find_contradictions(head), None)
    if wrong is not None:
        topic_id, partition = parse_head_key(key)
        raise damaged_error(
            store, key, f"the head of partition {partition} of topic id {topic_id} contradicts itself: {wrong}"
        )
    return head


def parse_head_unchecked(store: ObjectStore, key: str, document: Json) -> Head:
    """Parse a head without checks, to repair or delete it."""
    return decode_object(store, key, document, Head.from_json)


def _find_contradictions(head: Head) -> Iterator[str]:
    if not 0 <= head.start <= head.end:
        yield f"it begins at offset {head.start} and ends at {head.end}"
    if not head.start <= head.local_start <= head.end:
        yield f"it begins at offset {head.start}, locally at {head.local_start}, and ends at {head.end}"
    if head.compacted_to > head.end:
        yield f"it is compacted to offset {head.compacted_to} and ends at {head.end}"
    borders: list[PageRef | Entry] = [*head.pages[:2], *head.pages[2:][-2:], *head.entries[:2], *head.entries[2:][-2:]]
    last = -1
    for border in borders:
        if not last < border.base <= border.last:
            yield f"{border.key} has offsets {border.base} to {border.last}, after offset {last}"
        last = border.last
    if last >= head.end:
        yield f"it ends at {head.end} and names offset {last}"


def list_heads(store: ObjectStore, topic_id: str | None = None) -> Iterator[ListedObject]:
    """Yield the head objects of one topic, or of all."""
    prefix = HEADS if topic_id is None else heads_prefix(topic_id)
    return (listed for listed in store.list(prefix) if is_head_key(listed.key))


def read_head(store: ObjectStore, topic_id: str, partition: int) -> Head | None:
    """Return a partition's head; `None` if never written."""
    register = head_register(store, topic_id, partition)
    held = register.read()
    return None if held is None else parse_head(store, register.key, held.value)


def read_heads(store: ObjectStore, topic_id: str) -> dict[int, Head]:
    """Return a topic's heads by partition; one listing, and one GET per head."""
    return {
        partition: parse_head(store, key, document) for partition, key, document in _read_documents(store, topic_id)
    }


def read_bounds(
    store: ObjectStore, topic_id: str, partitions: int, only: Collection[int] | None = None
) -> dict[int, Bounds]:
    """Return the bounds of all partitions, or of `only`."""
    bounds_by_partition = dict.fromkeys(range(partitions) if only is None else sorted(only), UNWRITTEN_BOUNDS)
    heads = read_trimmed_heads(store, topic_id, only)
    return {
        partition: heads[partition].bounds if partition in heads else bounds
        for partition, bounds in bounds_by_partition.items()
    }


def read_trimmed_heads(store: ObjectStore, topic_id: str, only: Collection[int] | None = None) -> dict[int, Head]:
    """Return heads with only their last page and entry; `only` selects partitions without a listing."""
    return {
        partition: parse_head(store, key, _trim_entries(document))
        for partition, key, document in _read_documents(store, topic_id, only)
    }


def _trim_entries(document: Json) -> Json:
    return {**document, "pages": document["pages"][-1:], "entries": document["entries"][-1:]}


def _read_documents(
    store: ObjectStore, topic_id: str, only: Collection[int] | None = None
) -> Iterator[tuple[int, str, Json]]:
    if only is None:
        keys = [listed.key for listed in list_heads(store, topic_id)]
    else:
        keys = [head_key(topic_id, partition) for partition in sorted(only)]
    partitions = [parse_head_key(key)[1] for key in keys]

    def read(partition: int) -> RegisterSnapshot | None:
        return head_register(store, topic_id, partition).read()

    if len(keys) <= _MAX_SERIAL_READS:
        registers = list(map(read, partitions))
    else:
        with ThreadPoolExecutor(min(_READ_THREADS, len(keys)), thread_name_prefix="heads") as threads:
            registers = list(threads.map(read, partitions))
    for partition, key, held in zip(partitions, keys, registers, strict=True):
        if held is not None:
            yield partition, key, held.value


UNWRITTEN_BOUNDS: Final = Head(NOBODY).bounds
_MAX_SERIAL_READS: Final = 3
_READ_THREADS: Final = 16


def get_link_position(head: Head | None) -> Position:
    """Return a partition's offsets and epochs, for comparisons by links."""
    if head is None:
        return Position(0, 0)
    source = head.source
    if source is None:
        return Position(head.start, head.end, head.epochs)
    fetched = source.get("fetched", NEVER_FETCHED)
    return Position(head.start, head.end, head.epochs, source["topic_id"], parse_epochs(source), fetched)


LINK: Final = "link:"
"""Prefix of the writer of a mirror's heads; the link's id follows."""


def changes_mirroring(before: str, now: str) -> bool:
    """Whether a change of writer begins or ends mirroring."""
    return before != now and {_get_writer_kind(before), _get_writer_kind(now)} in ({PRODUCERS, LINK}, {LINK})


def _get_writer_kind(writer: str) -> str:
    return LINK if writer.startswith(LINK) else writer


def replace_writer(store: ObjectStore, partition: tuple[str, int], writer: str, *, makes: bool) -> Head | None:
    """Let only `writer` append to a partition; return the partition's head.

    The catalog must name the writer first; the head's next epoch then fences the previous one. `makes` creates a
    missing head, which fences a first append.
    """
    topic_id, number = partition
    register = head_register(store, topic_id, number)

    def replace_writer(held: RegisterSnapshot | None) -> dict[str, Any] | None:
        if held is None:
            return Head(writer).to_json() if makes else None
        if held.value["writer"] in {NOBODY, writer}:
            return None
        end = held.value["end"]
        epochs = [epoch for epoch in held.value["epochs"] if epoch[1] < end]
        return {**held.value, "writer": writer, "is_settled": False, "epochs": [*epochs, [held.epoch + 1, end]]}

    held = register.update(replace_writer, mark=create_mark(), raises_epoch=True)
    return None if held is None else Head.from_json(held.value)


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """A partition, with its topic's name when it was read."""

    full_name: str
    topic_id: str
    number: int

    def __str__(self) -> str:
        return f"{self.full_name}, partition {self.number}"


def swap_head(store: ObjectStore, partition: Partition, change: Callable[[Head], Head | None]) -> bool:
    """Change a head by one swap; return whether it changed.

    Missing and sealed heads, epochs and writers stay. Callers delete unreferenced objects. `change` returns the new
    head or `None`; it runs again after a lost race.
    """
    register = head_register(store, partition.topic_id, partition.number)
    is_changed = False

    def apply_change(held: RegisterSnapshot | None) -> dict[str, Any] | None:
        nonlocal is_changed
        is_changed = False
        if held is None or held.value.get("writer") == NOBODY:
            return None
        after = change(parse_head(store, register.key, held.value))
        is_changed = after is not None
        return None if after is None else after.to_json()

    retry_if_missing(lambda: register.update(apply_change, mark=create_mark()))
    return is_changed


TAIL: Final = 64
"""Maximum entries in a head; beyond it, the older half moves to a page."""
BRANCHES: Final = 16
"""Pages in a page of pages; a head holds at most twice as many per level."""


class PageWriter:
    """Writes pages for one change of a head; retries reuse them."""

    def __init__(
        self, store: ObjectStore, topic_id: str, partition: int, known: dict[bytes, PageRef] | None = None
    ) -> None:
        """Reuse pages of earlier attempts in `known`, by content."""
        self._store = store
        self._topic_id = topic_id
        self._partition = partition
        self._known = {} if known is None else known
        self._written: dict[bytes, PageRef] = {}

    @property
    def used_keys(self) -> tuple[str, ...]:
        """Keys of the pages used."""
        return tuple(page.key for page in self._written.values())

    def spill_entries(self, head: Head) -> Head:
        """Return the head with surplus entries moved to pages, except entries of open transactions."""
        if len(head.entries) <= TAIL:
            return head
        stable = head.bounds.stable
        settled = next((at for at, entry in enumerate(head.entries) if entry.last >= stable), len(head.entries))
        count = min(settled, len(head.entries) - TAIL // 2)
        if count < TAIL // 2:
            return head
        oldest = head.entries[:count]
        leaves = [self.write_leaf(oldest[at : at + TAIL]) for at in range(0, count, TAIL)]
        return replace(head, pages=self.pack_pages([*head.pages, *leaves]), entries=head.entries[count:])

    def write_leaf(self, entries: Sequence[Entry]) -> PageRef:
        """Write a page of entries."""
        return self._write_page(encode_entries_page(entries), lambda key: PageRef.from_entries(key, entries))

    def write_branch(self, pages: Sequence[PageRef]) -> PageRef:
        """Write a page of pages."""
        return self._write_page(encode_pages_page(pages), lambda key: PageRef.from_pages(key, pages))

    def pack_pages(self, pages: Sequence[PageRef]) -> tuple[PageRef, ...]:
        """Return the pages, oldest first, with surplus pages moved below pages of the next level."""
        packed, level = list(pages), 0
        while any(page.level >= level for page in packed):
            while sum(page.level == level for page in packed) > 2 * BRANCHES:
                first = next(at for at, page in enumerate(packed) if page.level <= level)
                packed[first : first + BRANCHES] = [self.write_branch(packed[first : first + BRANCHES])]
            level += 1
        return tuple(packed)

    def _write_page(self, body: bytes, of: Callable[[str], PageRef]) -> PageRef:
        page = self._known.get(body)
        if page is None:
            page = of(page_key(self._topic_id, self._partition))
            self._store.put(page.key, body)
            self._known[body] = page
        self._written[body] = page
        return page
