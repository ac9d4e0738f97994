"""Migrations as plans see them: one mounting for each topic on its way, and the state it is in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.embedded.catalog.migrations import INBOUND
from reconciler.resources.address import Address, address_of, split_name
from reconciler.resources.inventory import Observed
from reconciler.resources.metadata import InNamespace
from reconciler.resources.mounting import Mounting, MountingSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.embedded.catalog.migrationentries import MigrantEntry
    from reconciler.embedded.catalog.tables import Catalog


def mountings_in(
    catalog: Catalog, cluster: str, is_wanted: Callable[[str], bool] | None = None
) -> dict[Address, Observed]:
    """Return what there are records of, by the address of the mounting that asked for it, else of the topic's name.

    Where there are several of one address the newest counts: what it followed was cancelled.
    """
    found: dict[Address, Observed] = {}
    for number in sorted(map(int, catalog.migrations)):
        migration = catalog.migrations[str(number)]
        for migrant in migration.topics:
            address = address_of("mounting", cluster, migrant.mounting or migrant.name)
            if is_wanted is None or is_wanted(address):
                state = "mounted" if migration.direction == INBOUND else "unmounted"
                found[address] = Observed(_mounting(cluster, migrant, state), state=migration.state)
    return found


def _mounting(cluster: str, migrant: MigrantEntry, state: str) -> Mounting:
    namespace, name = split_name(migrant.mounting or migrant.name)
    topic = split_name(migrant.name)[1]
    spec = {"state": state, "source": migrant.location, "as": None if topic == name else topic}
    return Mounting(
        metadata=InNamespace(name=name, namespace=namespace, cluster=cluster), spec=MountingSpec.model_validate(spec)
    )
