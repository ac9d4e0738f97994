"""A state machine that sends topics around three clusters, with a death or a rival at any write, against a model."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from reconciler.embedded.catalog.tiering_state import TopicLocation
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.mounts.mounts import release
from reconciler.embedded.tiered.ownership import read_ownership
from reconciler.errors import ProducerFencedError
from tests.embedded.mortal import DAY_MS, Fault
from tests.embedded.mounting.bucket import Mount
from tests.embedded.mounting.migrants import owner_of
from tests.embedded.mounting.migrating import drive, process, refusal
from tests.embedded.mounting.migrationmodel import CLUSTERS, GROUP, PARTITIONS, MigrationModel, Open, finish_all

if TYPE_CHECKING:
    from reconciler.embedded.cluster import EmbeddedCluster

JOBS = ("roll", "upload", "merge", "retain", "compact")
VERBS = ("prepare", "execute", "finish", "delete", "cancel")
RIVALS = ("finish", "cancel", "produce", "mount elsewhere", "upkeep", "sweep")

names = st.sampled_from(CLUSTERS)
partitions = st.integers(0, PARTITIONS - 1)
which = st.integers(0, 3)
hows = st.sampled_from(["dies before", "dies after", "no answer"])
faults = st.one_of(st.none(), st.builds(Fault, st.integers(0, 6), hows), st.builds(Fault, st.integers(0, 40), hows))


class MigrationMachine(MigrationModel, RuleBasedStateMachine):
    """Topics of two partitions, and whoever has them."""

    def __init__(self) -> None:
        RuleBasedStateMachine.__init__(self)
        MigrationModel.__init__(self)

    def _one(self, number: int) -> str:
        locations = sorted(self.kept)
        return locations[number % len(locations)]

    # -- clients

    @rule(number=which, partition=partitions, fault=faults)
    def produce(self, number: int, partition: int, fault: Fault | None) -> None:
        """Append a record wherever the topic is; it is refused where it is not served."""
        location = self._one(number)
        for name in self.homes(location):
            self.produce_on(name, location, partition, fault)
        self.look()

    @rule(number=which)
    def begin(self, number: int) -> None:
        """Leave a transaction open."""
        location = self._one(number)
        name = next((each for each in self.homes(location) if self.is_open(each, location)), None)
        full_name = None if name is None else self.named(name, location)
        if name is None or full_name is None:
            return
        producer = process(self.bucket, name).producer(f"shop:tx{self.serial}", transaction_timeout_ms=900_000)
        producer.init_transactions()
        producer.begin()
        written = {(partition, self.value()) for partition in range(PARTITIONS)}
        for partition, value in sorted(written):
            producer.send(full_name, value, key=value, partition=partition)
        producer.flush()
        self.open.append(Open(producer, location, written))

    @precondition(lambda self: self.open)
    @rule(number=which, commits=st.booleans())
    def end(self, number: int, commits: bool) -> None:  # noqa: FBT001 - hypothesis names its arguments
        """Commit or abort one; what a migration has aborted is refused."""
        was = self.open.pop(number % len(self.open))
        said = refusal(was.producer.commit if commits else was.producer.abort)
        if commits and said is None:
            self.kept[was.location].acked |= was.rows
        elif commits and not isinstance(said, ProducerFencedError):
            self.kept[was.location].maybe.append(was.rows)
        self.look()

    @rule(number=which, offset=st.integers(0, 5), fault=faults)
    def commit_offsets(self, number: int, offset: int, fault: Fault | None) -> None:
        """Say where a group goes on, within what there is."""
        location = self._one(number)
        name = self.fill(location)
        full_name = None if name is None else self.named(name, location)
        if name is None or full_name is None:
            return
        offset = min(offset, self.bucket.cluster(name).log(full_name).bounds()[0].end)
        said = self.does(name, lambda it: it.groups.commit(GROUP, {(full_name, 0): offset}), fault)
        kept = self.kept[location]
        if said is None:
            kept.offsets = {offset}
        elif kept.offsets:
            kept.offsets |= {offset}
        self.look()

    # -- migrations

    @rule(number=which, fault=faults, is_driven=st.booleans())
    def unmount(self, number: int, fault: Fault | None, is_driven: bool) -> None:  # noqa: FBT001 - as above
        """Send a topic to sleep, or begin to."""
        location = self._one(number)
        name = self.fill(location)
        full_name = None if name is None else self.named(name, location)
        if name is not None and full_name is not None:
            self.does(name, lambda it: self._begun(it, it.mounts.unmount(full_name, is_automatic=is_driven)), fault)
            self.look()

    @rule(number=which, to=names, fault=faults, is_driven=st.booleans())
    def mount(self, number: int, to: str, fault: Fault | None, is_driven: bool) -> None:  # noqa: FBT001 - as above
        """Wake one, maybe under another name."""
        mount = Mount(self._detached(number), f"shop:on-{to}-{number}")
        self.does(to, lambda it: self._begun(it, it.mounts.mount(mount, is_automatic=is_driven)), fault)
        self.look()

    def _detached(self, number: int) -> str:
        """Have a topic detached where that is possible; return its location."""
        location = self._one(number)
        name = self.fill(location)
        full_name = None if name is None else self.named(name, location)
        if name is not None and full_name is not None:
            self.does(name, lambda it: self._begun(it, it.mounts.unmount(full_name)), None)
        return location

    def _begun(self, cluster: EmbeddedCluster, number: int) -> None:
        cluster.mounts.drive(number)

    @rule(name=st.sampled_from(CLUSTERS), verb=st.sampled_from(VERBS), fault=faults)
    def ask(self, name: str, verb: str, fault: Fault | None) -> None:
        """Move what waits to be told, or cancel it."""

        def all_of(cluster: EmbeddedCluster) -> None:
            for migration in cluster.mounts.under_way():
                cluster.mounts.ask(migration, verb)
                cluster.mounts.drive(migration)

        for each in (name, *CLUSTERS):
            if self.bucket.cluster(each).mounts.under_way():
                self.does(each, all_of, fault)
                break
        self.look()

    @rule(name=names, fault=faults)
    def finish_all(self, name: str, fault: Fault | None) -> None:
        """Do what `run` does for all that was begun."""
        for each in (name, *CLUSTERS):
            if self.bucket.cluster(each).mounts.under_way():
                self.does(each, finish_all, fault)
                break
        self.look()

    @rule(number=which, to=names, at=st.integers(0, 30), rival=st.sampled_from(RIVALS), is_mount=st.booleans())
    def overtake(self, number: int, to: str, at: int, rival: str, is_mount: bool) -> None:  # noqa: FBT001 - as above
        """Stop before a write of whoever drives, let another do all of something, and go on."""
        writes = itertools.count()
        location = self._detached(number) if is_mount else self._one(number)
        name = to if is_mount else self.fill(location)
        full_name = None if name is None else self.named(name, location)
        if name is None:
            return

        def meet(_what: str, _key: str) -> None:
            if next(writes) == at:
                self._rival(rival, name, number, to)

        if is_mount:
            mount = Mount(location, f"shop:on-{to}-{number}")
            self.does(to, lambda it: it.mounts.mount(mount), None)
        elif full_name is not None:
            self.does(name, lambda it: it.mounts.unmount(full_name), None)
        self.does(name, drive, None, before=meet)
        self.look()

    def _rival(self, rival: str, name: str, number: int, other: str) -> None:
        match rival:
            case "finish":
                self.finish_all(name, None)
            case "cancel":
                self.ask(name, "cancel", None)
            case "produce":
                self.produce(number, 0, None)
            case "mount elsewhere":
                self.finish_all(name, None)
                self.mount(number, CLUSTERS[CLUSTERS.index(other) - 1], None, is_driven=True)
                self.produce(number, 1, None)
            case "upkeep":
                self.upkeep(name, "upload", None)
            case _:
                self.sweep(other, None)

    @rule(number=which, fault=faults)
    def release(self, number: int, fault: Fault | None) -> None:
        """Take a topic from its owner, who hears of it and gives up what is left; what was not uploaded is lost."""
        location = self._one(number)
        self.fill(location)
        owner, where = owner_of(self.bucket, location), TopicLocation.parse(location)
        if owner is None:
            return
        found = read_ownership(self.bucket.storage, where)
        owner_id = where.cluster_id if found is None else found.owner
        assert owner_id is not None

        def released(cluster: EmbeddedCluster) -> None:
            assert cluster.storage is not None
            release(cluster.storage, where, owner_id, now_ms=cluster.now_ms())

        said = self.does("south", released, fault)
        if said is not None and owner_of(self.bucket, location) is not None:
            said = self.does("south", released, None)
        if said is None or owner_of(self.bucket, location) is None:
            self.lose(owner, location)
        self.look()

    @rule(name=names, job=st.sampled_from(JOBS), fault=faults)
    def upkeep(self, name: str, job: str, fault: Fault | None) -> None:
        """Do one job of a pass, a while later."""
        self.bucket.clock.now_ms += 0 if self.open else 3_600_000

        def job_of(cluster: EmbeddedCluster) -> None:
            tended = getattr(cluster.upkeep(), job)()
            assert tended.errors == [] or fault is not None, tended.errors

        self.does(name, job_of, fault)
        self.look(reads=False)

    @rule(name=names, fault=faults)
    def sweep(self, name: str, fault: Fault | None) -> None:
        """Sweep both stores as they will be in two days."""

        def swept(_cluster: EmbeddedCluster) -> None:
            process(self.bucket, name, fault=fault, ahead_ms=2 * DAY_MS).sweep()

        self.does(name, swept, None)
        self.look()

    @precondition(lambda self: len(self.kept) < 3)
    @rule()
    def another_topic(self) -> None:
        self.make(f"shop:more{len(self.kept)}-{self.serial}")
        self.serial += 1

    @rule(name=names, number=which, fault=faults)
    def alter(self, name: str, number: int, fault: Fault | None) -> None:
        """Change a config; what migrates refuses that."""
        full_name = self.named(name, self._one(number))
        if full_name is not None:
            self.does(
                name, lambda it: it.alter_topic(full_name, {"max.message.bytes": str(1_000_000 + self.serial)}), fault
            )

    @precondition(lambda self: len(self.kept) > 1)
    @rule(number=which, fault=faults)
    def delete(self, number: int, fault: Fault | None) -> None:
        """Delete a topic for good; what migrates refuses that."""
        location = self._one(number)
        name = next((each for each in self.homes(location) if self.is_open(each, location)), None)
        full_name = None if name is None else self.named(name, location)
        if name is None or full_name is None:
            return
        self.does(name, lambda it: it.delete_topic(full_name), fault)
        if self.named(name, location) is None:
            self.bucket.cluster(name).finish_deletions()
            del self.kept[location]
            self.open = [each for each in self.open if each.location != location]
        self.look()

    def teardown(self) -> None:
        """Everything comes to an end, and everything acknowledged is read on a cluster that never had it."""
        self.finish()
