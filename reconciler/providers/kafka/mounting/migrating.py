"""Mounts and unmounts of a Kafka cluster as others see them: those the ledger keeps, until an apply has ended them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from reconciler.embedded.archiving.archive import Archive
from reconciler.embedded.archiving.taking import give_back
from reconciler.embedded.catalog.tiering import TopicLocation
from reconciler.errors import UserError
from reconciler.lifecycles.mounting import MOUNT, UNMOUNT, MigrationState
from reconciler.providers.base import go_on
from reconciler.providers.kafka.mounting.keeping import KINDS, SEALED, moves_in, seals_in
from reconciler.providers.kafka.mounting.moving import KafkaCopyMoves
from reconciler.providers.mountables import detached_in, releasable_in, released_in
from reconciler.resources.address import Address, address_of, split_name
from reconciler.resources.inventory import Observed
from reconciler.resources.metadata import InNamespace
from reconciler.resources.migration import Migrant, Migration
from reconciler.resources.mounting import Mounting, MountingSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from reconciler.providers.hibernating import Hibernation, Kept
    from reconciler.providers.kafka.mounting.hibernating import KafkaHibernation
    from reconciler.providers.kafka.mounting.keeping import Seal
    from reconciler.resources.mountable import Mountable

_CLOSED: Final = "inbound"
"""Of a topic that is filled nobody may take what is there for all; brokers keep nobody out, so it is only said."""


@dataclass(frozen=True)
class KafkaMigrations:
    """The moves of one cluster. Only an apply goes on with one: it takes jobs."""

    hibernation: KafkaHibernation
    now_ms: Callable[[], int]

    @property
    def by_jobs(self) -> Hibernation:
        """What jobs ask of the cluster."""
        return self.hibernation

    @property
    def copies(self) -> KafkaCopyMoves:
        """What jobs ask of the cluster to move a topic by copying it."""
        here = self.hibernation
        return KafkaCopyMoves(here.client, here.naming, here.ledger, here.groups, here.capabilities, here.log)

    def under_way(self, *, is_measured: bool = True) -> Sequence[Migration]:  # noqa: ARG002 - nothing more is known
        """Return the moves the ledger keeps; their ids are the moments in which they began."""
        entries = self.hibernation.ledger.read(*KINDS, SEALED)
        seals = seals_in(entries)
        return [_migration(move, seals.get(move.topic_id or "")) for move in moves_in(entries)]

    def ask(self, migration: int, verb: str, *, may_go_on: Callable[[], None] = go_on) -> Migration:
        """Cancel a move: the claim is given back, what was restored is deleted; what was archived stays unnamed.

        Of an unmount producers are let in again.
        """
        moves = moves_in(self.hibernation.ledger.read(*KINDS))
        move = next((move for move in moves if move.at_ms == migration), None)
        if move is None:
            message = f"migration {migration}: Data migration does not exist"
            raise UserError(message, hint="One that is done is gone; see what is under way: reconciler mount status")
        after = (MOUNT if move.direction == "inbound" else UNMOUNT).step(move.state, verb)
        if after is not MigrationState.CANCELING:
            message = f"migration {migration} is {move.state}: it goes on by itself"
            raise UserError(message, hint="The next apply brings it to its end; before that it can be cancelled.")
        may_go_on()
        self._undo(move, may_go_on)
        return _migration(replace(move, state=MigrationState.CANCELLED))

    def detached(self) -> Iterator[tuple[str, Mountable | UserError]]:
        """Yield what the registers of the object storage say."""
        return detached_in(self.hibernation.storage)

    def releasable(self, location: str, owner: str) -> Mountable:
        """Return what a release would make mountable."""
        return releasable_in(self.hibernation.storage, location, owner)

    def release(self, location: str, owner: str) -> Mountable:
        """Take a topic from an owner that will not come back."""
        return released_in(self.hibernation.storage, location, owner, now_ms=self.now_ms())

    def _undo(self, move: Kept, may_go_on: Callable[[], None]) -> None:
        here = self.hibernation
        if move.direction == "inbound":
            if move.topic_id is not None:
                here.remove(move.topic, move.topic_id)
            may_go_on()
            place = TopicLocation.parse(move.location)
            give_back(Archive(here.storage, place, here.cluster_id), move.claim, now_ms=self.now_ms())
        else:
            here.let_in(move)
        may_go_on()
        here.end(replace(move, topic_id=None))


def mountings_in(
    moves: Iterable[Kept], cluster: str, is_wanted: Callable[[str], bool] | None
) -> Iterator[tuple[Address, Observed]]:
    """Yield the moves under way as plans see them, by the addresses of their mountings."""
    for move in moves:
        address = address_of("mounting", cluster, move.mounting)
        if is_wanted is None or is_wanted(address):
            yield address, Observed(_mounting(cluster, move), state=str(move.state))


def _mounting(cluster: str, move: Kept) -> Mounting:
    namespace, name = split_name(move.mounting)
    topic = split_name(move.topic)[1]
    state = "mounted" if move.direction == "inbound" else "unmounted"
    spec = {"state": state, "source": move.location, "as": None if topic == name else topic}
    return Mounting(
        metadata=InNamespace(name=name, namespace=namespace, cluster=cluster), spec=MountingSpec.model_validate(spec)
    )


def _migration(move: Kept, seal: Seal | None = None) -> Migration:
    migrant = Migrant(move.topic, move.location, move.mounting, is_closed=move.direction == _CLOSED)
    return Migration(
        id=move.at_ms,
        direction=move.direction,
        state=str(move.state),
        topics=(migrant,),
        created_ms=move.at_ms,
        is_automatic=False,
        by_jobs=True,
        waits=("the next `reconciler apply` goes on with it", *_sealed(move, seal)),
    )


def _sealed(move: Kept, seal: Seal | None) -> tuple[str, ...]:
    if seal is None:
        return ()
    return (f"topic {move.topic} is sealed: its brokers refuse every record until it is deleted, or this is cancelled",)
