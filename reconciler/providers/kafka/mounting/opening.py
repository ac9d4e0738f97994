"""The mountings of one cluster, opened: its object storage, its ledger, and what plans are told of both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from reconciler.embedded.catalog.tiering import TopicLocation
from reconciler.embedded.remote.recovery.locating import location_named, recoverable
from reconciler.embedded.threads import side_by_side
from reconciler.errors import UserError
from reconciler.providers.kafka.changing.onetopic import seen
from reconciler.providers.kafka.ledger import TOPIC
from reconciler.providers.kafka.mounting.hibernating import KafkaHibernation
from reconciler.providers.kafka.mounting.keeping import KINDS, moves_in, places_in
from reconciler.providers.kafka.mounting.migrating import KafkaMigrations, mountings_in
from reconciler.providers.kafka.mounting.places import cluster_uuid
from reconciler.providers.kafka.seal import Seals, refusal
from reconciler.providers.mountables import mountable_in
from reconciler.providers.stores import opened
from reconciler.resources.address import address_of, full_name_of
from reconciler.resources.inventory import RemoteLegacy
from reconciler.resources.mountable import MIGRATING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from reconciler.objectstore.base import ObjectStore
    from reconciler.providers.base import Edge
    from reconciler.providers.groups import GroupsOfCluster
    from reconciler.providers.kafka.client import KafkaClient
    from reconciler.providers.kafka.ledger import Ledger
    from reconciler.providers.kafka.naming import Naming
    from reconciler.records.log import TopicLog
    from reconciler.resources.address import Address
    from reconciler.resources.capabilities import Capabilities
    from reconciler.resources.cluster import Cluster
    from reconciler.resources.inventory import Observed
    from reconciler.resources.mountable import Mountable
    from reconciler.resources.recoverable import Recoverable, Recoveries


@dataclass(frozen=True)
class Mountings:
    """What a provider says of mountings. Nothing is read before it is asked."""

    declared: Cluster
    edge: Edge
    client: KafkaClient
    ledger: Ledger

    @cached_property
    def storage(self) -> ObjectStore | None:
        """The object storage, where one is declared."""
        location = self.declared.spec.object_storage
        return None if location is None else opened(location, self.edge)

    def migrations(
        self,
        naming: Naming,
        groups: GroupsOfCluster,
        capabilities: Callable[[], Capabilities],
        log: Callable[[Address], TopicLog],
    ) -> KafkaMigrations:
        """Return the mounts and unmounts of the cluster."""
        name = self.declared.metadata.name
        hibernation = KafkaHibernation(
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
        return KafkaMigrations(hibernation, self.edge.now_ms)

    def laid_over(
        self, inventory: Mapping[Address, Observed], is_wanted: Callable[[str], bool] | None
    ) -> dict[Address, Observed]:
        """Return an inventory with what the ledger says: moves under way, and where mounted topics lie."""
        found = dict(inventory)
        if seen(self.client, TOPIC) is None:
            return found
        entries, name = self.ledger.read(*KINDS), self.declared.metadata.name
        moves, places = list(moves_in(entries)), places_in(entries)
        filled = {address_of("topic", name, move.topic) for move in moves if move.direction == "inbound"}
        for address, there in inventory.items():
            if address in filled:
                found[address] = replace(there, state=MIGRATING)
            elif there.incarnation in places:
                found[address] = replace(there, legacy=RemoteLegacy(places[there.incarnation], is_deleted=False))
        found.update(mountings_in(moves, name, is_wanted))
        return found

    def check_open(self, full_name: str, topic_id: str) -> None:
        """Refuse what producers want of a topic that is being mounted, or sealed.

        Brokers would let them into one that is filled, too early.

        Raises:
            UserError: It is not whole yet, or about to be deleted.
        """
        sealed = Seals(self.client, self.ledger).of(topic_id)
        if sealed is not None:
            raise refusal(sealed)
        moves = moves_in(self.ledger.read(*KINDS))
        move = next((each for each in moves if each.direction == "inbound" and each.topic == full_name), None)
        if move is None:
            return
        message = f"topic {full_name} of cluster {self.client.name} is being mounted from {move.location}"
        hint = f"Write to it once it is whole: see `reconciler mount status {move.at_ms} --cluster {self.client.name}`."
        raise UserError(message, hint=hint)

    def mountable(self) -> Sequence[Mountable]:
        """Return what was ever detached; this very cluster is named as its brokers do, as plans compare it."""
        found = mountable_in(self.declared.address, self.storage)
        cluster_id = self.client.cluster().id
        mine = cluster_uuid(cluster_id)
        return [replace(each, owner=cluster_id) if each.owner == mine else each for each in found]

    def recoverable(self, topics: Mapping[Address, str | None]) -> Recoveries:
        """Return what object storage has of topics that are to be mounted."""
        if not topics:
            return {}
        here = cluster_uuid(self.client.cluster().id)

        def look(address: Address, location: str | None) -> Recoverable | UserError:
            try:
                if self.storage is None:
                    return UserError("there is no object storage", hint="Declare objectStorage on the Cluster.")
                name = full_name_of(address)
                where = location_named(self.storage, name) if location is None else TopicLocation.parse(location)
                return recoverable(self.storage, where, here)
            except UserError as error:
                return error

        found = side_by_side(lambda each: look(*each), topics.items(), name="recoverable")
        return dict(zip(topics, found, strict=True))
