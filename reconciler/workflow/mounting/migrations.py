"""`mount status`, `cancel` and `delete`: migrations under way, and what the table allows to be asked of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from reconciler.errors import InterruptedRunError, UserError
from reconciler.lifecycles.mounting import MOUNT, UNMOUNT, MigrationState
from reconciler.workflow.looking.overviews import stands
from reconciler.workflow.mounting.reaching import ask_each, clusters_named, verdict_on
from reconciler.workflow.running.emergencies import require_confirmation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reconciler.errors import ReconcilerError
    from reconciler.lifecycles.table import Lifecycle
    from reconciler.resources.migration import Migration
    from reconciler.workflow.beginning.opening import Site
    from reconciler.workflow.mounting.reaching import Reach
    from reconciler.workflow.running.stopping import Stop

Verb: TypeAlias = Literal["cancel", "delete"]


@dataclass(frozen=True, slots=True)
class Underway:
    """A migration of one cluster."""

    cluster: str
    migration: Migration

    @property
    def state(self) -> MigrationState:
        """Where it is."""
        return MigrationState(self.migration.state)

    @property
    def table(self) -> Lifecycle[MigrationState]:
        """The table of its direction."""
        return MOUNT if self.migration.direction == "inbound" else UNMOUNT

    @property
    def legal(self) -> tuple[str, ...]:
        """What may be asked for now."""
        return self.table.legal(self.state)

    @property
    def goes_on(self) -> bool:
        """Tell whether `run` brings it further."""
        if self.migration.by_jobs:
            return False
        if self.migration.is_automatic:
            return self.state is not MigrationState.CANCELLED
        return self.state is not MigrationState.FINISHED and bool(self.table.by_itself(self.state))


@dataclass(frozen=True, slots=True)
class MountStatus:
    """Migrations, by cluster and id."""

    migrations: tuple[Underway, ...]
    lost: Mapping[str, ReconcilerError]
    """Clusters of which nothing is known, and why."""

    @property
    def verdict(self) -> ReconcilerError | None:
        """The error to end with, where a cluster could not be read."""
        return verdict_on(self.lost)


def mount_status(reach: Reach, migration: int | None = None, cluster: str | None = None) -> MountStatus:
    """Return the migrations of the clusters there is a record of, or the one with an id.

    Raises:
        UserError: There is none with that id, or several clusters have one.
    """
    site = reach.site(is_reader=True)
    found, lost = _under_way(reach, site, cluster)
    if migration is None:
        return MountStatus(found, lost)
    return MountStatus((_the_one(found, lost, migration, clusters_named(site, _given(cluster))),), lost)


def ask_migration(
    reach: Reach,
    migration: int,
    verb: Verb,
    cluster: str | None,
    *,
    confirm: Callable[[Underway], bool],
    stop: Stop,
) -> Underway:
    """Cancel a migration, and bring it to its end, or delete its record; `confirm` is asked where that is legal.

    Raises:
        UserError: There is none, that is not legal in its state, or it was not confirmed.
        IncompleteError: It is cancelled, and not at its end: `run` goes on.
    """
    site = reach.site()
    found, lost = _under_way(reach, site, cluster)
    verdict = verdict_on(lost)
    if verdict is not None:
        verdict.hint = f"{verdict.hint.removesuffix('.')}. Where it is another cluster's, say whose: --cluster NAME"
        raise verdict
    one = _the_one(found, lost, migration, clusters_named(site, _given(cluster)))
    _check_legal(one, verb)
    reach.check_writable(site, one.cluster)
    require_confirmation(confirm(one))

    def go_on() -> None:
        if stop.is_requested:
            raise InterruptedRunError("Interrupted", hint="Nothing was started")

    with stop.ends(lambda: None):
        after = site.providers[one.cluster].migrations.ask(migration, verb, may_go_on=go_on)
    return replace(one, migration=after)


def _under_way(
    reach: Reach, site: Site, cluster: str | None
) -> tuple[tuple[Underway, ...], Mapping[str, ReconcilerError]]:
    recorded = reach.recorded(site)

    def look(name: str) -> list[Underway]:
        if not stands(site, name, recorded):
            return []
        return [Underway(name, each) for each in site.providers[name].migrations.under_way()]

    found, lost = ask_each(clusters_named(site, _given(cluster)), look)
    return tuple(each for name in sorted(found) for each in found[name]), lost


def _the_one(
    found: tuple[Underway, ...], lost: Mapping[str, ReconcilerError], migration: int, asked: tuple[str, ...]
) -> Underway:
    ones = [each for each in found if each.migration.id == migration]
    if len(ones) == 1:
        return ones[0]
    if ones:
        names = ", ".join(each.cluster for each in ones)
        message = f"migration {migration} is one of each of the clusters {names}: ids are counted by each cluster"
        raise UserError(message, hint=f"Say whose: --cluster {ones[0].cluster}")
    verdict = verdict_on(lost)
    if verdict is not None:
        raise verdict
    where = f" on cluster {asked[0]}" if len(asked) == 1 else f" on any of {', '.join(asked)}" if asked else ""
    message = f"migration {migration}: Data migration does not exist{where}"
    raise UserError(message, hint="One that is done is gone; see what is under way: reconciler mount status")


def _check_legal(one: Underway, verb: Verb) -> None:
    try:
        one.table.step(one.state, verb)
    except UserError as error:
        message = f"migration {one.migration.id} of cluster {one.cluster} is {one.state}: {error.message}"
        raise UserError(message, hint=error.hint) from error


def _given(cluster: str | None) -> tuple[str, ...]:
    return () if cluster is None else (cluster,)
