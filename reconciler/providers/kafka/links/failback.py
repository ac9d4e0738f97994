"""Failback: the original source of a stopped mirror goes on as the mirror of what it was mirrored to.

No broker cuts the end of a log. Where both agree up to the end of the original source, only what is new is copied: the
offset map is turned round, and says where. A partition that has records which never reached the mirror is emptied and
copied afresh, once these records are in a topic of their own, or somebody gave them up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import NotFoundError, StalePlanError, UserError
from reconciler.lifecycles import MirrorStatus
from reconciler.providers.kafka.ledger import (
    COPIES,
    MAP,
    PROGRESS,
    Changes,
    Entries,
    Key,
    map_key,
    progress_key,
    writer_of,
)
from reconciler.providers.kafka.links.link_groups import protect
from reconciler.providers.kafka.links.link_states import KeptMirror, mirror_changes, states_of
from reconciler.providers.kafka.offsets import bounds_of, delete_below, is_only_compacted
from reconciler.providers.kafka.translate import own_values
from reconciler.records.offset_map import Chunk, OffsetMap, Piece, appended
from reconciler.resources.measures import UndeletableError, check_approved, diverged_error
from reconciler.resources.mirrors import (
    REVERSALS,
    DivergedPartition,
    MirrorSeen,
    Operation,
    Peer,
    Stretch,
    TruncatedPartition,
    joined,
    side_topic,
    under_way,
)

if TYPE_CHECKING:
    from reconciler.providers.kafka.links.link_site import Site
    from reconciler.providers.kafka.seal import Seals
    from reconciler.providers.kafka.translate import TopicSeen
    from reconciler.records.log import Bounds, TopicLog


_COUNTED: Final = 200_000
"""Of a stretch that is longer only the first records are read, and its offsets are counted: a plan is not to wait."""


@dataclass(frozen=True)
class Failback:
    """Lets topics of one cluster become mirrors of their own mirrors."""

    site: Site
    log: Callable[[str], TopicLog] | None
    """The records of a topic, by its full name; `None`: nothing of them is kept."""
    may_go_on: Callable[[], None]

    def join(self, full_name: str, of: MirrorSeen, begun: Operation) -> None:
        """Let a topic become the mirror of `of`, its own mirror; once more under the same operation changes nothing.

        Raises:
            UserError: There is no such topic, no half of the link, it is a mirror already, or that operation is over.
        """
        topic, seen = self._there(full_name)

        def decide(entries: Entries) -> Changes:
            states = states_of(entries)
            link = states.link(of.link)
            kept = states.mirrors.get(topic)
            kept = kept if kept is not None and kept.topic_id == seen.id else None
            entry = None if kept is None else kept.entry
            status = MirrorStatus.REGULAR if kept is None else states.status(kept)
            peer = Peer(of.link, of.name, of.topic_id)
            after = joined(full_name, entry, status, (peer, link), (begun, self.site.now_ms()))
            return {} if after is entry else mirror_changes(topic, KeptMirror(full_name, of.link, seen.id, after))

        self.may_go_on()
        self.site.ledger.change(writer_of(of.link), decide)
        self.shut(full_name, begun.id)

    def shut(self, full_name: str, operation: str) -> None:
        """Let brokers refuse every record until an operation is over.

        Raises:
            UserError: It ended meanwhile; the seal is taken off.
            RetryableError: A broker does not answer, or a transaction stays open.
        """
        topic, seen = self._there(full_name)
        try:
            seals_of(self.site).put(topic, seen.id, self.may_go_on)
        finally:
            try:
                under_way(full_name, self.site.states().mirror(topic, full_name, seen.id).entry, operation)
            except UserError:
                seals_of(self.site).take_off(seen.id)
                raise

    def maps(self, full_name: str) -> Mapping[int, OffsetMap]:
        """Return where the records of a mirror's source lie in it, stopped or not, by partition."""
        topic, seen = self._there(full_name)
        entries = self.site.ledger.read(PROGRESS, MAP)
        return {number: _map(entries, topic, number, seen.id) for number in range(len(seen.replicas))}

    def diverged(self, full_name: str, cuts: Mapping[int, int]) -> tuple[DivergedPartition, ...]:
        """Return what a topic has from some offsets on; a partition without records there is absent.

        Raises:
            UndeletableError: It has something there, and brokers delete no records of it.
        """
        topic, seen = self._there(full_name)
        found = self._diverged(topic, seen, cuts)
        if found:
            self._check_deletable(full_name, topic)
        return found

    def _diverged(self, topic: str, seen: TopicSeen, cuts: Mapping[int, int]) -> tuple[DivergedPartition, ...]:
        places = [(topic, number) for number in range(len(seen.replicas)) if number in cuts]
        found = []
        for (_, number), at in sorted(bounds_of(self.site.client, places).items()):
            start = max(at.start, cuts[number])
            if start < at.end:
                found.append(self._counted(topic, number, start, at))
        return tuple(each for each in found if each.records)

    def empty(self, mirror: MirrorSeen, operation: str) -> Mapping[int, TruncatedPartition]:
        """Empty partitions with records that the mirror never got, as the operation says; return what went.

        Where nobody said what becomes of them, the topic is left as it was.

        Raises:
            UserError: Nobody gave them up, or brokers refuse it.
            StalePlanError: There are more of them than was approved.
        """
        full_name, link = mirror.name, mirror.link
        topic, seen = self._there(full_name)
        kept = self.site.states().mirror(topic, full_name, seen.id)
        asked = under_way(full_name, kept.entry, operation)
        cuts = asked.ends or {}
        found = self._diverged(topic, seen, cuts)
        if not found:
            return {}
        try:
            self._check_deletable(full_name, topic)
        except UndeletableError:
            self._leave(full_name, link, operation)
            raise
        if asked.diverged not in {"drop", "keep"}:
            self._leave(full_name, link, operation)
            raise diverged_error(self.site.cluster, full_name, found)
        if asked.diverged == "drop" and asked.approved is not None:
            try:
                lost = [Stretch(each.partition, each.start, each.stop) for each in found]
                check_approved((self.site.cluster, full_name), (mirror.source_cluster, link), lost, asked.approved)
            except StalePlanError:
                self._leave(full_name, link, operation)
                raise
        if asked.diverged == "keep":
            self._keep(full_name, found, partitions=len(seen.replicas), link=link, operation=operation)
        self.may_go_on()
        delete_below(self.site.client, seen, {each.partition: each.stop for each in found})
        return {each.partition: TruncatedPartition(each.stop, each.records) for each in found}

    def stand(
        self,
        full_name: str,
        source_topic_id: str,
        bounds: Mapping[int, Bounds],
        maps: Mapping[int, OffsetMap],
        operation: str,
    ) -> None:
        """Note up to where a new mirror has what its source has, and where that is: the source's map, turned round.

        `bounds`: of its source; `maps`: that of its source, when it was the mirror. A partition that was emptied begins
        where the source does.

        Raises:
            UserError: That operation is not under way.
        """
        topic, seen = self._there(full_name)
        places = [(topic, number) for number in range(len(seen.replicas))]
        own = {number: at for (_, number), at in bounds_of(self.site.client, places).items()}

        def decide(entries: Entries) -> Changes:
            kept = states_of(entries).mirror(topic, full_name, seen.id)
            asked = under_way(full_name, kept.entry, operation)
            cuts = {} if asked.ends is None or asked.verb in REVERSALS else asked.ends
            emptied = {number for number, cut in cuts.items() if number in own and own[number].start > cut}
            written: dict[Key, Mapping[str, Any]] = {}
            for number in own:
                if number in bounds:
                    turned = () if number in emptied else turned_round(maps.get(number, ()), cuts.get(number))
                    written |= _standing((topic, seen.id, number), turned, source_topic_id, bounds[number])
            after = replace(kept, entry=replace(kept.entry, first_copy_done=not emptied, begins={}))
            changes: dict[Key, Mapping[str, Any] | None] = {
                key: None for key in entries if key[0] in {PROGRESS, MAP} and key[1] == topic and key not in written
            }
            changes |= {key: value for key, value in written.items() if entries.get(key) != value}
            return changes if after == kept else {**changes, **mirror_changes(topic, after)}

        link = self.site.states().mirror(topic, full_name, seen.id).link
        self.may_go_on()
        self.site.ledger.change(writer_of(link), decide, *COPIES)
        with suppress(UserError):  # Each pass of the link reports what cannot be denied.
            protect(self.site, link)
        seals_of(self.site).take_off(seen.id)

    def _check_deletable(self, full_name: str, topic: str) -> None:
        if is_only_compacted(self.site.client, topic):
            message = f"topic {full_name} of cluster {self.site.cluster} is compacted: brokers delete no records of it"
            hint = "Keep what only it has elsewhere, delete the topic, and mirror it again."
            raise UndeletableError(message, hint=hint)

    def _leave(self, full_name: str, link: str, operation: str) -> None:
        """Let a topic be the ordinary one that it was: nothing was done to it, and it can be restored again."""
        topic, seen = self._there(full_name)

        def decide(entries: Entries) -> Changes:
            kept = states_of(entries).mirror(topic, full_name, seen.id)
            under_way(full_name, kept.entry, operation)
            return mirror_changes(topic, None)

        self.may_go_on()
        seals_of(self.site).take_off(seen.id)
        self.site.ledger.change(writer_of(link), decide)

    def _counted(self, topic: str, number: int, start: int, at: Bounds) -> DivergedPartition:
        from reconciler.providers.kafka.records.record_log import Place, batches  # noqa: PLC0415 - brings Arrow
        from reconciler.records.log import OffsetRange  # noqa: PLC0415 - as above

        place = Place(self.site.ledger.settings, self.site.cluster, topic, number, "read_committed")
        is_long = at.stable - start > _COUNTED
        records, since_ms = 0, None
        for batch in batches(place, OffsetRange(start, at.stable)):
            times = [ms for ms in batch.column("timestamp_ms").to_pylist() if ms is not None and ms >= 0]
            since_ms = min([*times, *([] if since_ms is None else [since_ms])], default=None)
            records += batch.num_rows
            if is_long:
                records = at.stable - start
                break
        return DivergedPartition(number, start, at.stable, records, since_ms)

    def _keep(
        self, full_name: str, found: Iterable[DivergedPartition], *, partitions: int, link: str, operation: str
    ) -> None:
        """Copy what diverged into a topic of its own, exactly once; goes on where a process before this one stopped."""
        from reconciler.providers.kafka.records.copy_sink import CopySink, Target  # noqa: PLC0415 - brings numpy
        from reconciler.records.log import OffsetRange, SourceSeen  # noqa: PLC0415 - as above

        if self.log is None:
            raise UserError(f"the records of {full_name} cannot be read", hint="Restore it without keeping them.")
        topic, topic_id = self._side(side_topic(full_name), partitions)
        log = self.log(full_name)
        bounds = log.bounds()
        for each in found:
            # An operation is an owner of its own: what an earlier one kept there stays, and is no beginning of this.
            begins = {each.partition: each.start}
            target = Target(
                self.site.ledger.settings, self.site.cluster, topic, topic_id, partitions, operation, begins=begins
            )
            self._forget_earlier((topic, each.partition), link, each.start, log.topic_id)
            self.may_go_on()
            sink = CopySink(target, source=SourceSeen(log.topic_id, {each.partition: bounds[each.partition]}))
            for _ in sink.copy_range(each.partition, log, OffsetRange(each.start, each.stop)):
                self.may_go_on()

    def _side(self, side: str, partitions: int) -> tuple[str, str | None]:
        """Return the topic that takes what diverged, and its id; it is made, or brought to what that needs.

        Whatever brokers do by themselves, nothing of it expires or is compacted, and it takes every record. What a
        person has set there stays.
        """
        from reconciler.providers.kafka.mounts import filling_configs  # noqa: PLC0415 - few keep anything

        topic, seen = self.site.topic(side)
        wanted = filling_configs(self.site.capabilities().configs)
        if seen is None:
            made = self.site.make({side: (partitions, wanted)}, self.may_go_on)[side]
            if not isinstance(made, str):
                raise made
            return topic, made
        ((_, configs),) = self.site.client.configs([topic])
        if not isinstance(configs, int):
            own, has = own_values(configs), len(seen.replicas)
            missing = {key: value for key, value in wanted.items() if key not in own}
            self.site.shape(side, (has, own), (max(has, partitions), missing), self.may_go_on)
        return topic, seen.id

    def _forget_earlier(self, place: tuple[str, int], link: str, start: int, topic_id: str | None) -> None:
        """Forget how far an earlier restore has kept what diverged then.

        That lies before what is kept now, or was of a topic that had the name before.
        """

        def decide(entries: Entries) -> Changes:
            known = entries.get(progress_key(*place))
            if known is None or (known["through"] >= start and known["topic_id"] in {None, topic_id}):
                return {}
            return {key: None for key in entries if key[0] in {PROGRESS, MAP} and key[1:3] == place}

        self.site.ledger.change(writer_of(link), decide, PROGRESS, MAP)

    def _there(self, full_name: str) -> tuple[str, TopicSeen]:
        topic, seen = self.site.topic(full_name)
        if seen is None:
            raise NotFoundError(f"topic {full_name} does not exist", hint="See which there are: reconciler topic list")
        return topic, seen


def seals_of(site: Site) -> Seals:
    """Return what lets the brokers of a cluster refuse records of a topic, and take them again."""
    from reconciler.providers.kafka.seal import Seals  # noqa: PLC0415 - only who swaps roles pays

    return Seals(site.client, site.ledger)


def turned_round(pieces: Iterable[Piece], cut: int | None = None) -> tuple[Piece, ...]:
    """Return a map the other way, in order; of what lies from offset `cut` of its source on, nothing."""
    found = []
    for piece in pieces:
        length = piece.length if cut is None else min(piece.length, cut - piece.source)
        if length > 0:
            found.append(Piece(piece.target, piece.source, length))
    return tuple(found)


def _standing(
    place: tuple[str, str, int], pieces: tuple[Piece, ...], source_topic_id: str, bounds: Bounds
) -> dict[Key, Mapping[str, Any]]:
    """Return the progress and the map of a partition that has these pieces of its source, and nothing else."""
    topic, topic_id, number = place
    chunks = appended(Chunk(), pieces)
    through = pieces[-1].source_end if pieces else bounds.start
    progress = {
        "through": through,
        "topic_id": source_topic_id,
        "epochs": [list(epoch) for epoch in bounds.epochs if epoch[1] < through],
        "chunk": chunks[-1].number if chunks else 0,
        "copy_id": topic_id,
    }
    written: dict[Key, Mapping[str, Any]] = {map_key(topic, number, chunk.number): chunk.document() for chunk in chunks}
    return {**written, progress_key(topic, number): progress}


def _map(entries: Entries, topic: str, number: int, topic_id: str) -> OffsetMap:
    from reconciler.providers.kafka.records.copy_progress import map_of  # noqa: PLC0415 - only who fails back pays

    known = entries.get(progress_key(topic, number), {})
    return map_of(entries, topic, number) if known.get("copy_id") in {None, topic_id} else OffsetMap((), 0)
