"""Failback: the source of a stopped mirror becomes its mirror.

Records that the mirror never got are diverged. Brokers cannot truncate a log's end, so partitions with diverged records
are emptied and copied again. Others continue by the inverted offset map.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import NotFoundError, StalePlanError, UserError
from reconciler.lifecycles import MirrorStatus
from reconciler.providers.brokers.ledger import (
    COPIES,
    MAP,
    PROGRESS,
    Changes,
    Entries,
    Key,
    build_writer_id,
    map_key,
    progress_key,
)
from reconciler.providers.brokers.links.link_groups import protect_mirrors
from reconciler.providers.brokers.links.link_states import RecordedMirror, build_mirror_changes, parse_states
from reconciler.providers.brokers.offsets import delete_records_below, is_only_compacted, read_bounds
from reconciler.providers.brokers.translate import select_own_configs
from reconciler.records.offset_map import Chunk, OffsetMap, Piece, append_pieces
from reconciler.resources.measures import UndeletableError, check_approved, diverged_error
from reconciler.resources.mirrors import (
    REVERSALS,
    DivergedPartition,
    ObservedMirror,
    OffsetStretch,
    Operation,
    Peer,
    TruncatedPartition,
    build_side_topic_name,
    join_peer,
    require_operation,
)
from reconciler.runtime.dataclass import dataclass, replace

if TYPE_CHECKING:
    from reconciler.providers.brokers.links.link_site import LinkSite
    from reconciler.providers.brokers.seal import Seals
    from reconciler.providers.brokers.translate import TopicMetadata
    from reconciler.records.log import Bounds, TopicLog

# ruff: noqa: PLC0415 - only a failback needs these


_COUNT_LIMIT: Final = 200_000
"""Largest range whose records a plan counts. Of a longer range, it counts the offsets."""


@dataclass(frozen=True)
class Failback:
    """Failback of one cluster's topics to mirrors."""

    site: LinkSite
    log: Callable[[str], TopicLog] | None
    """Opens a topic's log by full name; `None` if records cannot be read."""
    may_go_on: Callable[[], None]

    def make_mirror(self, full_name: str, of: ObservedMirror, begun: Operation) -> None:
        """Make a topic the mirror of `of`, which was its mirror. Idempotent per operation."""
        topic, seen = self._find_topic(full_name)

        def decide(entries: Entries) -> Changes:
            states = parse_states(entries)
            link = states.require_link(of.link)
            mirror = states.mirrors.get(topic)
            mirror = mirror if mirror is not None and mirror.topic_id == seen.id else None
            entry = None if mirror is None else mirror.entry
            status = MirrorStatus.REGULAR if mirror is None else states.compute_status(mirror)
            peer = Peer(of.link, of.name, of.topic_id)
            after = join_peer(full_name, entry, status, (peer, link), (begun, self.site.now_ms()))
            return (
                {}
                if after is entry
                else build_mirror_changes(topic, RecordedMirror(full_name, of.link, seen.id, after))
            )

        self.may_go_on()
        self.site.ledger.change(build_writer_id(of.link), decide)
        self.refuse_producers(full_name, begun.id)

    def refuse_producers(self, full_name: str, operation: str) -> None:
        """Seal a topic (see `seal.py`) until an operation ends."""
        topic, seen = self._find_topic(full_name)
        try:
            open_seals(self.site).seal_topic(topic, seen.id, self.may_go_on)
        finally:
            try:
                require_operation(
                    full_name, self.site.read_states().require_mirror(topic, full_name, seen.id).entry, operation
                )
            except UserError:
                open_seals(self.site).remove_seal(seen.id)
                raise

    def read_offset_maps(self, full_name: str) -> Mapping[int, OffsetMap]:
        """Return a mirror's offset maps by partition."""
        topic, seen = self._find_topic(full_name)
        entries = self.site.ledger.read(PROGRESS, MAP)
        return {number: _read_map(entries, topic, number, seen.id) for number in range(len(seen.replicas))}

    def find_diverged_ranges(self, full_name: str, cuts: Mapping[int, int]) -> tuple[DivergedPartition, ...]:
        """Return the ranges of diverged records."""
        topic, seen = self._find_topic(full_name)
        ranges = self._find_ranges(topic, seen, cuts)
        if ranges:
            self._check_deletable(full_name, topic)
        return ranges

    def _find_ranges(self, topic: str, seen: TopicMetadata, cuts: Mapping[int, int]) -> tuple[DivergedPartition, ...]:
        places = [(topic, number) for number in range(len(seen.replicas)) if number in cuts]
        ranges = []
        for (_, number), bounds in sorted(read_bounds(self.site.client, places).items()):
            start = max(bounds.start, cuts[number])
            if start < bounds.end:
                ranges.append(self._count_diverged(topic, number, start, bounds))
        return tuple(diverged for diverged in ranges if diverged.records)

    def empty_diverged_partitions(self, mirror: ObservedMirror, operation: str) -> Mapping[int, TruncatedPartition]:
        """Delete all records of partitions with diverged records, and return the deleted offset ranges."""
        full_name, link = mirror.name, mirror.link
        topic, seen = self._find_topic(full_name)
        current = self.site.read_states().require_mirror(topic, full_name, seen.id)
        begun = require_operation(full_name, current.entry, operation)
        cuts = begun.ends or {}
        ranges = self._find_ranges(topic, seen, cuts)
        if not ranges:
            return {}
        try:
            self._check_deletable(full_name, topic)
        except UndeletableError:
            self._undo_join(full_name, link, operation)
            raise
        if begun.diverged not in {"drop", "keep"}:
            self._undo_join(full_name, link, operation)
            raise diverged_error(self.site.cluster, full_name, ranges)
        if begun.diverged == "drop" and begun.approved is not None:
            try:
                lost = [OffsetStretch(diverged.partition, diverged.start, diverged.stop) for diverged in ranges]
                check_approved((self.site.cluster, full_name), (mirror.source_cluster, link), lost, begun.approved)
            except StalePlanError:
                self._undo_join(full_name, link, operation)
                raise
        if begun.diverged == "keep":
            self._copy_diverged(full_name, ranges, partitions=len(seen.replicas), link=link, operation=operation)
        self.may_go_on()
        delete_records_below(self.site.client, seen, {diverged.partition: diverged.stop for diverged in ranges})
        return {diverged.partition: TruncatedPartition(diverged.stop, diverged.records) for diverged in ranges}

    def record_agreement(
        self,
        full_name: str,
        source_topic_id: str,
        bounds: Mapping[int, Bounds],
        maps: Mapping[int, OffsetMap],
        operation: str,
    ) -> None:
        """Record the progress of a new mirror, with the inverted offset map of its source."""
        topic, seen = self._find_topic(full_name)
        places = [(topic, number) for number in range(len(seen.replicas))]
        own = {number: at for (_, number), at in read_bounds(self.site.client, places).items()}

        def decide(entries: Entries) -> Changes:
            mirror = parse_states(entries).require_mirror(topic, full_name, seen.id)
            begun = require_operation(full_name, mirror.entry, operation)
            cuts = {} if begun.ends is None or begun.verb in REVERSALS else begun.ends
            emptied = {number for number, cut in cuts.items() if number in own and own[number].start > cut}
            written: dict[Key, Mapping[str, Any]] = {}
            for number in own:
                if number in bounds:
                    turned = () if number in emptied else invert_offset_map(maps.get(number, ()), cuts.get(number))
                    written |= _build_entries((topic, seen.id, number), turned, source_topic_id, bounds[number])
            after = replace(mirror, entry=replace(mirror.entry, first_copy_done=not emptied, begins={}))
            changes: dict[Key, Mapping[str, Any] | None] = {
                key: None for key in entries if key[0] in {PROGRESS, MAP} and key[1] == topic and key not in written
            }
            changes |= {key: value for key, value in written.items() if entries.get(key) != value}
            return changes if after == mirror else {**changes, **build_mirror_changes(topic, after)}

        link = self.site.read_states().require_mirror(topic, full_name, seen.id).link
        self.may_go_on()
        self.site.ledger.change(build_writer_id(link), decide, *COPIES)
        with suppress(UserError):  # Each pass of the link protects its mirrors again, and reports errors.
            protect_mirrors(self.site, link)
        open_seals(self.site).remove_seal(seen.id)

    def _check_deletable(self, full_name: str, topic: str) -> None:
        if is_only_compacted(self.site.client, topic):
            message = f"topic {full_name} of cluster {self.site.cluster} is compacted: brokers delete no records of it"
            hint = "Keep what only it has elsewhere, delete the topic, and mirror it again."
            raise UndeletableError(message, hint=hint)

    def _undo_join(self, full_name: str, link: str, operation: str) -> None:
        topic, seen = self._find_topic(full_name)

        def decide(entries: Entries) -> Changes:
            mirror = parse_states(entries).require_mirror(topic, full_name, seen.id)
            require_operation(full_name, mirror.entry, operation)
            return build_mirror_changes(topic, None)

        self.may_go_on()
        open_seals(self.site).remove_seal(seen.id)
        self.site.ledger.change(build_writer_id(link), decide)

    def _count_diverged(self, topic: str, number: int, start: int, at: Bounds) -> DivergedPartition:
        from reconciler.providers.brokers.records.record_log import PartitionSource, read_batches
        from reconciler.records.log import OffsetRange

        place = PartitionSource(self.site.ledger.settings, self.site.cluster, topic, number, "read_committed")
        is_long = at.stable - start > _COUNT_LIMIT
        records, since_ms = 0, None
        for batch in read_batches(place, OffsetRange(start, at.stable)):
            times = [ms for ms in batch.column("timestamp_ms").to_pylist() if ms is not None and ms >= 0]
            since_ms = min([*times, *([] if since_ms is None else [since_ms])], default=None)
            records += batch.num_rows
            if is_long:
                records = at.stable - start
                break
        return DivergedPartition(number, start, at.stable, records, since_ms)

    def _copy_diverged(
        self, full_name: str, ranges: Iterable[DivergedPartition], *, partitions: int, link: str, operation: str
    ) -> None:
        from reconciler.providers.brokers.records.copy_sink import CopySink, CopyTarget
        from reconciler.records.log import ObservedSource, OffsetRange

        if self.log is None:
            raise UserError(f"the records of {full_name} cannot be read", hint="Restore it without keeping them.")
        topic, topic_id = self._ensure_side_topic(build_side_topic_name(full_name), partitions)
        log = self.log(full_name)
        bounds = log.read_bounds()
        for diverged in ranges:
            # Records of an earlier restore do not count as copied.
            begins = {diverged.partition: diverged.start}
            target = CopyTarget(
                self.site.ledger.settings, self.site.cluster, topic, topic_id, partitions, operation, begins=begins
            )
            self._delete_earlier_progress((topic, diverged.partition), link, diverged.start, log.topic_id)
            self.may_go_on()
            sink = CopySink(
                target, source=ObservedSource(log.topic_id, {diverged.partition: bounds[diverged.partition]})
            )
            for _ in sink.copy_range(diverged.partition, log, OffsetRange(diverged.start, diverged.stop)):
                self.may_go_on()

    def _ensure_side_topic(self, side: str, partitions: int) -> tuple[str, str | None]:
        """Create or extend the topic that keeps diverged records; return its name and id."""
        from reconciler.providers.brokers.mounts import select_filling_configs

        topic, seen = self.site.read_topic(side)
        wanted = select_filling_configs(self.site.capabilities().configs)
        if seen is None:
            made = self.site.create_topics({side: (partitions, wanted)}, self.may_go_on)[side]
            if not isinstance(made, str):
                raise made
            return topic, made
        ((_, configs),) = self.site.client.read_configs([topic])
        if not isinstance(configs, int):
            own, has = select_own_configs(configs), len(seen.replicas)
            missing = {key: value for key, value in wanted.items() if key not in own}
            self.site.change_topic(side, (has, own), (max(has, partitions), missing), self.may_go_on)
        return topic, seen.id

    def _delete_earlier_progress(self, place: tuple[str, int], link: str, start: int, topic_id: str | None) -> None:
        """Delete an earlier restore's progress if it ends at smaller offsets or belongs to a deleted topic."""

        def decide(entries: Entries) -> Changes:
            known = entries.get(progress_key(*place))
            if known is None or (known["through"] >= start and known["topic_id"] in {None, topic_id}):
                return {}
            return {key: None for key in entries if key[0] in {PROGRESS, MAP} and key[1:3] == place}

        self.site.ledger.change(build_writer_id(link), decide, PROGRESS, MAP)

    def _find_topic(self, full_name: str) -> tuple[str, TopicMetadata]:
        topic, seen = self.site.read_topic(full_name)
        if seen is None:
            raise NotFoundError(f"topic {full_name} does not exist", hint="List the topics with: reconciler topic list")
        return topic, seen


def open_seals(site: LinkSite) -> Seals:
    """Return the `Seals` of a cluster."""
    from reconciler.providers.brokers.seal import Seals

    return Seals(site.client, site.ledger)


def invert_offset_map(pieces: Iterable[Piece], cut: int | None = None) -> tuple[Piece, ...]:
    """Swap source and target of an offset map; drop source offsets from `cut` on."""
    inverted = []
    for piece in pieces:
        length = piece.length if cut is None else min(piece.length, cut - piece.source)
        if length > 0:
            inverted.append(Piece(piece.target, piece.source, length))
    return tuple(inverted)


def _build_entries(
    place: tuple[str, str, int], pieces: tuple[Piece, ...], source_topic_id: str, bounds: Bounds
) -> dict[Key, Mapping[str, Any]]:
    topic, topic_id, number = place
    chunks = append_pieces(Chunk(), pieces)
    through = pieces[-1].source_end if pieces else bounds.start
    progress = {
        "through": through,
        "topic_id": source_topic_id,
        "epochs": [list(epoch) for epoch in bounds.epochs if epoch[1] < through],
        "chunk": chunks[-1].number if chunks else 0,
        "copy_id": topic_id,
    }
    written: dict[Key, Mapping[str, Any]] = {
        map_key(topic, number, chunk.number): chunk.to_document() for chunk in chunks
    }
    return {**written, progress_key(topic, number): progress}


def _read_map(entries: Entries, topic: str, number: int, topic_id: str) -> OffsetMap:
    from reconciler.providers.brokers.records.copy_progress import parse_offset_map

    known = entries.get(progress_key(topic, number), {})
    return parse_offset_map(entries, topic, number) if known.get("copy_id") in {None, topic_id} else OffsetMap((), 0)
