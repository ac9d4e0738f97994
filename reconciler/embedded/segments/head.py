"""The head: the register of a partition."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from reconciler.archives.entries import Entry, PageRef
from reconciler.archives.objects import damaged, decoded, look_again
from reconciler.archives.pages import entries_page, pages_page
from reconciler.embedded.keys import HEADS, head_key, heads_prefix, is_head_key, page_key, partition_of_head
from reconciler.objectstore.register import ReadRegister, Register, fresh_mark
from reconciler.records.log import Bounds
from reconciler.resources.mirrors import NEVER_FETCHED, Position

if TYPE_CHECKING:
    from reconciler.objectstore.base import Listed, ObjectStore


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
"""The writer of a read replica's heads: no client, only what follows its source."""


def link_writer(link_id: str) -> str:
    """Return the writer of a mirror's heads: its one link."""
    return f"link:{link_id}"


@dataclass(frozen=True, slots=True)
class Head:
    """A partition as its register has it. Offsets below `start` are gone; `end` is the next to be written.

    `is_settled`: somebody read the catalog after the head was there and found the topic as the head has it. Until then
    every append reads the catalog again: the other side commits first and lists heads then, so one sees the other.
    No append is acknowledged before the head was settled once; a hand-over unsettles it again, and raises its epoch.
    """

    writer: str
    start: int = 0
    local_start: int = 0
    end: int = 0
    is_settled: bool = False
    epochs: tuple[tuple[int, int], ...] = ((0, 0),)
    """(epoch, first offset), oldest first."""
    pages: tuple[PageRef, ...] = ()
    entries: tuple[Entry, ...] = ()
    producers: Json = field(default_factory=dict)
    """By producer id: `{epoch, last, at_ms}`, its last sequence number, for 24 hours."""
    transactions: Json = field(default_factory=dict)
    """By transactional id: `{epoch, base}` of what is open here."""
    compacted_to: int = 0
    """Below this offset no key comes twice, as far as closed segments go."""
    source: Json | None = None
    """Of a mirror: its source's topic id, epochs and fetched offset."""
    kms_key_id: str | None = None
    """The key all of it was under when it was made, or last gone through; what came since tells its own."""
    uploaded_to: int = 0
    """Every record below this offset is named by the remote manifest too, or is gone. It may lag behind the manifest,
    and never runs ahead of it."""
    tiered_epoch: int = 0
    """Under which `uploaded_to` was changed last; under an older one it is neither raised nor taken back (F-K-056)."""
    truncated: Json | None = None
    """The last cut of the log's end: `{operation, offset, epoch, records}`, the epoch that began with it, and how many
    records went. A manifest that knows only older epochs is still to be cut there."""

    def is_acknowledged(self, epoch: int) -> bool:
        """Tell whether its records may have been acknowledged, and no deletion sealed it; `epoch` is the register's.

        It was read beside a catalog that had its topic. Where none has, an older catalog was put back.
        """
        return self.writer != NOBODY and (self.is_settled or (epoch > 0 and self.end > 0))

    @property
    def truncated_in(self) -> int:
        """The epoch that began with the last cut: what was read of the log under an older one may be gone. 0: none."""
        return 0 if self.truncated is None else int(self.truncated["epoch"])

    @property
    def bounds(self) -> Bounds:
        """Where the partition begins and ends."""
        first_open: list[int] = [opened["base"] for opened in self.transactions.values()]
        stable = min([self.end, *first_open])
        return Bounds(self.start, self.local_start, stable, self.end, self.epochs, self.compacted_to)

    @property
    def stored_bytes(self) -> int:
        """What its parts take in the store."""
        return sum(page.bytes for page in self.pages) + sum(entry.bytes for entry in self.entries)

    @property
    def records(self) -> int:
        """How many records it holds."""
        return sum(page.records for page in self.pages) + sum(entry.digest.records for entry in self.entries)

    @property
    def newest_ms(self) -> int | None:
        """The latest timestamp of a record in its parts; `None`: it has none."""
        times = *(page.max_ts for page in self.pages), *(entry.max_ts for entry in self.entries)
        return max(times, default=None)

    def extended(self, added: Iterable[Entry], *, end: int) -> Head:
        """Return it with parts at its end, which becomes `end`."""
        return replace(self, entries=(*self.entries, *added), end=end)

    def uploaded(self, to: int, tiered_epoch: int) -> Head | None:
        """Return it with everything below `to` uploaded, by who acts under that tiered epoch; `None`: no change.

        It keeps the epoch, so that who finishes an older disabling late does not cut what this one uploaded (F-K-056).
        """
        is_news = to > self.uploaded_to and tiered_epoch >= self.tiered_epoch
        return replace(self, uploaded_to=to, tiered_epoch=tiered_epoch) if is_news else None

    def to_json(self) -> Json:
        """Return what the register keeps."""
        kept: Json = {
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
            kept["kms_key_id"] = self.kms_key_id
        if self.uploaded_to:
            kept["uploaded_to"] = self.uploaded_to
        if self.tiered_epoch:
            kept["tiered_epoch"] = self.tiered_epoch
        if self.truncated is not None:
            kept["truncated"] = self.truncated
        return kept

    @classmethod
    def from_json(cls, kept: Json) -> Head:
        """Read it back."""
        if kept["source"] is not None:
            epochs_in(kept["source"])  # refused here, where it is said which head it is
        return cls(
            writer=kept["writer"],
            start=kept["start"],
            local_start=kept["local_start"],
            end=kept["end"],
            is_settled=kept["is_settled"],
            epochs=epochs_in(kept),
            pages=tuple(map(PageRef.from_json, kept["pages"])),
            entries=tuple(map(Entry.from_json, kept["entries"])),
            producers=kept["producers"],
            transactions=kept["transactions"],
            compacted_to=kept.get("compacted_to", 0),
            source=kept["source"],
            kms_key_id=kept.get("kms_key_id"),
            uploaded_to=kept.get("uploaded_to", 0),
            tiered_epoch=kept.get("tiered_epoch", 0),
            truncated=kept.get("truncated"),
        )


def epochs_in(kept: Json) -> tuple[tuple[int, int], ...]:
    """Return the epochs of a head, or of the source that it keeps, each with its first offset."""
    return tuple((epoch, start) for epoch, start in kept["epochs"])


def head_register(store: ObjectStore, topic_id: str, partition: int) -> Register:
    """Return the register of a partition."""
    return Register(store, head_key(topic_id, partition), format="reconciler.head/3", shape=_SHAPE)


def parse_head(store: ObjectStore, key: str, kept: Json) -> Head:
    """Read a head back.

    Raises:
        UserError: It is damaged, or contradicts itself: records would be missed, or offsets come twice.
    """
    head = head_as_kept(store, key, kept)
    wrong = next(_contradictions(head), None)
    if wrong is not None:
        topic_id, partition = partition_of_head(key)
        raise damaged(
            store, key, f"the head of partition {partition} of topic id {topic_id} contradicts itself: {wrong}"
        )
    return head


def head_as_kept(store: ObjectStore, key: str, kept: Json) -> Head:
    """Read a head back whatever it says; for who looks for faults, or deletes it.

    Raises:
        UserError: It is damaged.
    """
    return decoded(store, key, kept, Head.from_json)


def _contradictions(head: Head) -> Iterator[str]:
    """Look where it costs the same however long the log is: at the borders of what a head names."""
    if not 0 <= head.start <= head.end:
        yield f"it begins at offset {head.start} and ends at {head.end}"
    if not head.start <= head.local_start <= head.end:
        yield f"it begins at offset {head.start}, locally at {head.local_start}, and ends at {head.end}"
    if head.compacted_to > head.end:
        yield f"it is compacted to offset {head.compacted_to} and ends at {head.end}"
    borders: list[PageRef | Entry] = [*head.pages[:2], *head.pages[2:][-2:], *head.entries[:2], *head.entries[2:][-2:]]
    last = -1
    for each in borders:
        if not last < each.base <= each.last:
            yield f"{each.key} has offsets {each.base} to {each.last}, after offset {last}"
        last = each.last
    if last >= head.end:
        yield f"it ends at {head.end} and names offset {last}"


def list_heads(store: ObjectStore, topic_id: str | None = None) -> Iterator[Listed]:
    """Yield the registers of a topic's partitions, or of all; what is none of them is left alone."""
    prefix = HEADS if topic_id is None else heads_prefix(topic_id)
    return (listed for listed in store.list(prefix) if is_head_key(listed.key))


def read_head(store: ObjectStore, topic_id: str, partition: int) -> Head | None:
    """Return a partition's head; `None` where nothing was ever written."""
    register = head_register(store, topic_id, partition)
    held = register.read()
    return None if held is None else parse_head(store, register.key, held.value)


def read_heads(store: ObjectStore, topic_id: str) -> dict[int, Head]:
    """Return the heads of all partitions ever written: one listing, one GET each."""
    return {partition: parse_head(store, key, kept) for partition, key, kept in _kept_heads(store, topic_id)}


def read_bounds(
    store: ObjectStore, topic_id: str, partitions: int, only: Collection[int] | None = None
) -> dict[int, Bounds]:
    """Return where each partition, or of `only` some, begins and ends, without looking at what lies between."""
    found = dict.fromkeys(range(partitions) if only is None else sorted(only), NEVER_WRITTEN)
    heads = read_borders(store, topic_id, only)
    return {partition: heads[partition].bounds if partition in heads else bounds for partition, bounds in found.items()}


def read_borders(store: ObjectStore, topic_id: str, only: Collection[int] | None = None) -> dict[int, Head]:
    """Return heads that name only what lies at their ends: a listing and a GET each; of `only` some, just the GETs."""
    return {
        partition: parse_head(store, key, _at_borders(kept))
        for partition, key, kept in _kept_heads(store, topic_id, only)
    }


def _at_borders(kept: Json) -> Json:
    return {**kept, "pages": kept["pages"][-1:], "entries": kept["entries"][-1:]}


def _kept_heads(
    store: ObjectStore, topic_id: str, only: Collection[int] | None = None
) -> Iterator[tuple[int, str, Json]]:
    """Yield what is kept of every partition ever written, or of `only` those; many are read side by side."""
    if only is None:
        keys = [listed.key for listed in list_heads(store, topic_id)]
    else:
        keys = [head_key(topic_id, partition) for partition in sorted(only)]
    partitions = [partition_of_head(key)[1] for key in keys]

    def read(partition: int) -> ReadRegister | None:
        return head_register(store, topic_id, partition).read()

    if len(keys) <= _FEW:
        found = list(map(read, partitions))
    else:
        with ThreadPoolExecutor(min(_AT_ONCE, len(keys)), thread_name_prefix="heads") as threads:
            found = list(threads.map(read, partitions))
    for partition, key, held in zip(partitions, keys, found, strict=True):
        if held is not None:
            yield partition, key, held.value


NEVER_WRITTEN: Final = Head(NOBODY).bounds
"""Where a partition begins and ends that has no head."""
_FEW: Final = 3
_AT_ONCE: Final = 16


# Where a partition stands, in the words of links.


def position_of(head: Head | None) -> Position:
    """Return where a partition stands; one never written stands at the beginning."""
    if head is None:
        return Position(0, 0)
    source = head.source
    if source is None:
        return Position(head.start, head.end, head.epochs)
    fetched = source.get("fetched", NEVER_FETCHED)
    return Position(head.start, head.end, head.epochs, source["topic_id"], epochs_in(source), fetched)


# Heads go from one writer to another: to producers when mirroring ends, to a link when a topic becomes a mirror.
#
# The catalog says so first. A swap under the next epoch then shuts the old writer out, whatever it had begun; a head
# that nobody came to is taken over by the next append (`gate.py`).


LINK: Final = "link:"
"""What the writer of a mirror's head begins with; the link's id follows."""


def is_mirroring(before: str, now: str) -> bool:
    """Tell whether one writer follows the other because mirroring began or ended."""
    return before != now and {_kind(before), _kind(now)} in ({PRODUCERS, LINK}, {LINK})


def _kind(writer: str) -> str:
    return LINK if writer.startswith(LINK) else writer


def hand_over(store: ObjectStore, partition: tuple[str, int], writer: str, *, makes: bool) -> Head | None:
    """Let `writer` alone append to a partition, by topic id and number, and return its head; it may be done again.

    Where there is no head one is made, if it `makes` one: the first append of somebody else would not be noticed. The
    head is not settled: who comes late and hands it to the wrong one lets nobody in, for the next append reads the
    catalog.
    """
    topic_id, number = partition
    register = head_register(store, topic_id, number)

    def handed(held: ReadRegister | None) -> dict[str, Any] | None:
        if held is None:
            return Head(writer).to_json() if makes else None
        if held.value["writer"] in {NOBODY, writer}:
            return None
        end = held.value["end"]
        # An epoch in which nothing was written tells nothing.
        epochs = [each for each in held.value["epochs"] if each[1] < end]
        return {**held.value, "writer": writer, "is_settled": False, "epochs": [*epochs, [held.epoch + 1, end]]}

    held = register.update(handed, mark=fresh_mark(), raises_epoch=True)
    return None if held is None else Head.from_json(held.value)


# Upkeep's swaps of a head: what is there becomes other objects or fewer of them, and nobody's writing is in the way.
#
# The head is never made, never touched once it is sealed, and its epoch and writer stay. What a swap made superfluous
# is deleted after it: whoever dies in between leaves orphans to the sweep, and a reader that misses an object looks at
# the head again.


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """One partition of a topic; `full_name` is what the topic was called when it was looked at."""

    full_name: str
    topic_id: str
    number: int

    def __str__(self) -> str:
        """Say which, in sentences."""
        return f"{self.full_name}, partition {self.number}"


def swap_head(store: ObjectStore, partition: Partition, change: Callable[[Head], Head | None]) -> bool:
    """Change a head by one swap and say whether that was done.

    `change` returns what the head shall become, `None` for no change, and runs again after a lost race: what it decided
    last is what holds.

    Raises:
        MissingObjectError: A page that the head names is not there.
        UserError: The head is damaged.
        LostRaceError: Others were faster every time.
    """
    register = head_register(store, partition.topic_id, partition.number)
    is_changed = False

    def changed(held: ReadRegister | None) -> dict[str, Any] | None:
        nonlocal is_changed
        is_changed = False
        if held is None or held.value.get("writer") == NOBODY:
            return None
        after = change(parse_head(store, register.key, held.value))
        is_changed = after is not None
        return None if after is None else after.to_json()

    look_again(lambda: register.update(changed, mark=fresh_mark()))
    return is_changed


TAIL: Final = 64
"""Entries a head keeps; above, the older half goes to a page at once, not one by one."""
BRANCHES: Final = 16
"""Pages a page of pages names; a head keeps at most twice as many of each level."""


class Spill:
    """Writes pages of one partition. One for each change of its head: a lost race reuses what it wrote."""

    def __init__(
        self, store: ObjectStore, topic_id: str, partition: int, known: dict[bytes, PageRef] | None = None
    ) -> None:
        """Name the partition; nothing is written yet. `known`: what all tries of the change wrote, by content."""
        self._store = store
        self._topic_id = topic_id
        self._partition = partition
        self._known = {} if known is None else known
        self._written: dict[bytes, PageRef] = {}

    @property
    def keys(self) -> tuple[str, ...]:
        """The pages written so far, or taken from those that are known."""
        return tuple(page.key for page in self._written.values())

    def spilled(self, head: Head) -> Head:
        """Return the head with few entries and few pages. What is not stable stays: an abort takes it from the head."""
        if len(head.entries) <= TAIL:
            return head
        stable = head.bounds.stable
        settled = next((at for at, entry in enumerate(head.entries) if entry.last >= stable), len(head.entries))
        count = min(settled, len(head.entries) - TAIL // 2)
        if count < TAIL // 2:
            return head
        oldest = head.entries[:count]
        leaves = [self.leaf(oldest[at : at + TAIL]) for at in range(0, count, TAIL)]
        return replace(head, pages=self.packed([*head.pages, *leaves]), entries=head.entries[count:])

    def leaf(self, entries: Sequence[Entry]) -> PageRef:
        """Write a page of entries."""
        return self._page(entries_page(entries), lambda key: PageRef.of(key, entries))

    def branch(self, pages: Sequence[PageRef]) -> PageRef:
        """Write a page of pages."""
        return self._page(pages_page(pages), lambda key: PageRef.over(key, pages))

    def packed(self, pages: Sequence[PageRef]) -> tuple[PageRef, ...]:
        """Return the pages, those of each level that are too many gathered below one of the next, oldest first."""
        packed, level = list(pages), 0
        while any(page.level >= level for page in packed):
            while sum(page.level == level for page in packed) > 2 * BRANCHES:
                first = next(at for at, page in enumerate(packed) if page.level <= level)
                packed[first : first + BRANCHES] = [self.branch(packed[first : first + BRANCHES])]
            level += 1
        return tuple(packed)

    def _page(self, body: bytes, of: Callable[[str], PageRef]) -> PageRef:
        page = self._known.get(body)
        if page is None:
            page = of(page_key(self._topic_id, self._partition))
            self._store.put(page.key, body)
            self._known[body] = page
        self._written[body] = page
        return page
