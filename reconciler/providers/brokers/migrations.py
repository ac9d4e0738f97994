"""Migrations and mounts of a Kafka cluster, for plans and `mount status`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Final

from reconciler.archives.archive import Archive, release_claim
from reconciler.archives.location import TopicLocation
from reconciler.archives.recoverable import check_recoverable, find_location
from reconciler.errors import NotFoundError, ReconcilerError, UserError
from reconciler.lifecycles import MOUNT, UNMOUNT, MigrationState
from reconciler.providers.brokers.ledger import TOPIC, Ledger
from reconciler.providers.brokers.mount_ledger import (
    KINDS,
    SEALED,
    Seal,
    list_moves,
    parse_locations,
    parse_seals,
    to_cluster_uuid,
)
from reconciler.providers.brokers.mounts import KafkaMoves
from reconciler.providers.brokers.seal import Seals, sealed_error
from reconciler.providers.migration_views import (
    finish_command,
    list_mountable_topics,
    list_registers,
    read_releasable_topic,
    release_lost_topic,
)
from reconciler.providers.models import no_storage_error
from reconciler.providers.protocol import NO_REPLICAS, Edge, Groups
from reconciler.providers.protocol_moves import MountJob
from reconciler.providers.secrets import open_location
from reconciler.resources.address import Address, address_of, full_name_of, split_name
from reconciler.resources.base import InNamespace
from reconciler.resources.inventory import Capabilities, Observed, RemoteRemains
from reconciler.resources.mount import (
    MIGRATING,
    Direction,
    Migrant,
    Migration,
    MountableTopic,
    Mounting,
    MountingSpec,
    RecoverableTopic,
    Recoveries,
)
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.retry import skip_check
from reconciler.runtime.threads import map_in_parallel

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore
    from reconciler.providers.brokers.client import KafkaClient
    from reconciler.providers.brokers.translate import ClusterNaming
    from reconciler.records.log import TopicLog
    from reconciler.resources.cluster import Cluster


_CLOSED_DIRECTION: Final = "inbound"
"""Direction of moves that fill a topic, which producers must not write to."""


@dataclass(frozen=True)
class KafkaMigrations:
    """Mounts and unmounts of one cluster. Jobs copy the records, so only an apply continues them."""

    job_steps: KafkaMoves
    run_migration: ClassVar[None] = None
    """`None`, because jobs mount and unmount."""

    def list_unfinished(self, *, is_measured: bool = True) -> Sequence[Migration]:  # noqa: ARG002 - nothing more is known
        """Return the mounts and unmounts in the ledger. Their ids are their start times in ms."""
        entries = self.job_steps.ledger.read(*KINDS, SEALED)
        seals = parse_seals(entries)
        name = self.job_steps.client.name
        return [_build_migration(move, seals.get(move.topic_id or ""), name) for move in list_moves(entries)]

    def request_verb(self, migration: int, verb: str, *, may_go_on: Callable[[], None] = skip_check) -> Migration:
        """Cancel a mount (release its claim, delete the new topic) or an unmount (unseal the topic).

        Archived objects stay.
        """
        moves = list_moves(self.job_steps.ledger.read(*KINDS))
        move = next((move for move in moves if move.at_ms == migration), None)
        if move is None:
            message = f"migration {migration}: Data migration does not exist"
            raise NotFoundError(
                message, hint="A finished migration is no longer listed; see those in progress: reconciler mount status"
            )
        after = (MOUNT if move.direction == "inbound" else UNMOUNT).apply_verb(move.state, verb)
        if after is not MigrationState.CANCELING:
            message = f"migration {migration} is {move.state}: it continues by itself"
            raise UserError(message, hint="The next apply finishes it; until then it can be cancelled.")
        may_go_on()
        self._undo_move(move, may_go_on)
        return replace(_build_migration(replace(move, state=MigrationState.CANCELLED)), waits=())

    def find_obstacles(self, direction: Direction, topics: Mapping[str, str]) -> Mapping[str, ReconcilerError]:  # noqa: ARG002 - both go the same way
        """Return errors for topics being mounted or unmounted."""
        moves = {move.topic: move for move in list_moves(self.job_steps.ledger.read(*KINDS))}
        hint = "See how far it is: reconciler mount status"
        return {
            name: UserError(f"topic {name} is undergoing data migration {moves[name].at_ms}", hint=hint)
            for name in topics
            if name in moves
        }

    def list_detached_topics(self) -> Iterator[tuple[str, MountableTopic | UserError]]:
        """Yield the detached topics."""
        return list_registers(self.job_steps.storage)

    def read_releasable_topic(self, location: str, owner: str) -> MountableTopic:
        """Return the topic that a release would make mountable."""
        return read_releasable_topic(self.job_steps.storage, location, owner)

    def release_topic(self, location: str, owner: str) -> MountableTopic:
        """Release a topic of a lost owner."""
        return release_lost_topic(self.job_steps.storage, location, owner, now_ms=self.job_steps.now_ms())

    def _undo_move(self, move: MountJob, may_go_on: Callable[[], None]) -> None:
        moves = self.job_steps
        if move.direction == "inbound":
            topic_id = move.topic_id
            if topic_id is None and (made := moves.find_made_topic(move.topic)) is not None:
                topic_id = made.id  # The process that created the topic died before it recorded the id.
            if topic_id is not None:
                moves.delete_topic(move.topic, topic_id)
            may_go_on()
            place = TopicLocation.parse(move.location)
            release_claim(Archive(moves.storage, place, moves.cluster_id), move.claim, now_ms=self.job_steps.now_ms())
        elif move.topic_id is not None:
            moves.accept_producers(move.topic_id)
        may_go_on()
        moves.remove_job(replace(move, topic_id=None))


def list_mountings(
    moves: Iterable[MountJob], cluster: str, is_wanted: Callable[[str], bool] | None
) -> Iterator[tuple[Address, Observed]]:
    """Yield mounts and unmounts in progress as resources for plans."""
    for move in moves:
        address = address_of("mounting", cluster, move.mounting)
        if is_wanted is None or is_wanted(address):
            yield address, Observed(_build_mounting(cluster, move), state=str(move.state), is_by_hand=move.by_hand)


def _build_mounting(cluster: str, move: MountJob) -> Mounting:
    namespace, name = split_name(move.mounting)
    topic = split_name(move.topic)[1]
    state = "mounted" if move.direction == "inbound" else "unmounted"
    spec = {"state": state, "source": move.location, "as": None if topic == name else topic}
    return Mounting(
        metadata=InNamespace(name=name, namespace=namespace, cluster=cluster), spec=MountingSpec.model_validate(spec)
    )


def _build_migration(move: MountJob, seal: Seal | None = None, cluster: str = "") -> Migration:
    mounting = None if move.by_hand else move.mounting
    migrant = Migrant(move.topic, move.location, mounting, is_closed=move.direction == _CLOSED_DIRECTION)
    goes_on = (
        finish_command(move.direction, address_of("topic", cluster, move.topic))
        if move.by_hand
        else "the next `reconciler apply` continues it"
    )
    return Migration(
        id=move.at_ms,
        direction=move.direction,
        state=str(move.state),
        topics=(migrant,),
        created_ms=move.at_ms,
        is_automatic=False,
        by_jobs=True,
        waits=(goes_on, *_explain_seal_wait(move, seal)),
    )


def _explain_seal_wait(move: MountJob, seal: Seal | None) -> tuple[str, ...]:
    if seal is None:
        return ()
    until = "it is deleted" if move.state is MigrationState.CUT_OVER else "it is deleted, or this is cancelled"
    return (f"topic {move.topic} is sealed: its brokers refuse every record until {until}",)


@dataclass(frozen=True)
class KafkaMountings:
    """Mounts of one cluster."""

    declared: Cluster
    edge: Edge
    client: KafkaClient
    ledger: Ledger

    @cached_property
    def storage(self) -> ObjectStore | None:
        """Object storage; `None` if not declared."""
        location = self.declared.spec.object_storage
        return None if location is None else open_location(location, self.edge)

    def migrations(
        self,
        naming: ClusterNaming,
        groups: Groups,
        capabilities: Callable[[], Capabilities],
        log: Callable[[Address], TopicLog],
    ) -> KafkaMigrations:
        """Return the cluster's mounts and unmounts."""
        name = self.declared.metadata.name
        moves = KafkaMoves(
            self.declared.address,
            self.client,
            naming,
            self.ledger,
            groups,
            capabilities,
            self.storage,
            lambda full_name: log(address_of("topic", name, full_name)),
            self.edge.now_ms,
        )
        return KafkaMigrations(moves)

    def add_moves(
        self, inventory: Mapping[Address, Observed], is_wanted: Callable[[str], bool] | None
    ) -> dict[Address, Observed]:
        """Add mounts and unmounts in progress, and locations of mounted topics."""
        overlaid = dict(inventory)
        if self.client.read_topic(TOPIC) is None:
            return overlaid
        entries, name = self.ledger.read(*KINDS), self.declared.metadata.name
        moves, places = list(list_moves(entries)), parse_locations(entries)
        filled = {address_of("topic", name, move.topic) for move in moves if move.direction == "inbound"}
        for address, observed in inventory.items():
            if address in filled:
                overlaid[address] = replace(observed, state=MIGRATING)
            elif observed.incarnation in places:
                legacy = RemoteRemains(places[observed.incarnation], is_deleted=False)
                overlaid[address] = replace(observed, topic=replace(observed.topic, legacy=legacy))
        overlaid.update(list_mountings(moves, name, is_wanted))
        return overlaid

    def check_open(self, full_name: str, topic_id: str) -> None:
        """Reject producers of a topic sealed or being mounted."""
        sealed = Seals(self.client, self.ledger).find_seal(topic_id)
        if sealed is not None:
            raise sealed_error(sealed)
        moves = list_moves(self.ledger.read(*KINDS))
        move = next(
            (candidate for candidate in moves if candidate.direction == "inbound" and candidate.topic == full_name),
            None,
        )
        if move is None:
            return
        message = f"topic {full_name} of cluster {self.client.name} is being mounted from {move.location}"
        hint = f"Write to it once it is whole: see `reconciler mount status {move.at_ms} --cluster {self.client.name}`."
        raise UserError(message, hint=hint)

    def list_mountable_topics(self) -> Sequence[MountableTopic]:
        """Return detached topics. Those of this cluster have its Kafka id as owner."""
        topics = list_mountable_topics(self.declared.address, self.storage)
        cluster_id = self.client.describe_cluster().id
        mine = to_cluster_uuid(cluster_id)
        return [replace(topic, owner=cluster_id) if topic.owner == mine else topic for topic in topics]

    def read_stored_cluster(self, cluster_id: str | None = None) -> None:
        """Return `None`, because brokers store the cluster's metadata."""

    def find_recovery_sources(
        self,
        topics: Mapping[Address, str | None],
        replicas: Mapping[Address, str] = NO_REPLICAS,  # noqa: ARG002 - brokers have none
    ) -> Recoveries:
        """Return sources, or errors, for new topics. Sends one GET per topic and partition."""
        if not topics:
            return {}
        own_id = to_cluster_uuid(self.client.describe_cluster().id)

        def find_source(address: Address, location: str | None) -> RecoverableTopic | UserError:
            try:
                if self.storage is None:
                    return no_storage_error()
                name = full_name_of(address)
                where = find_location(self.storage, name) if location is None else TopicLocation.parse(location)
                return check_recoverable(self.storage, where, own_id)
            except UserError as error:
                return error

        sources = map_in_parallel(lambda item: find_source(*item), topics.items(), name="recoverable")
        return dict(zip(topics, sources, strict=True))
