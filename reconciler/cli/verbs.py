"""Shared parts of the migration and state commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from reconciler.cli import signals
from reconciler.cli.options import FileOptions, WorkspaceOptions, parse_seconds
from reconciler.cli.show import confirm_effects
from reconciler.runtime.dataclass import dataclass

if TYPE_CHECKING:
    from reconciler.operations.clusters.mounts import ClusterMigration, MigrationVerb
    from reconciler.operations.state_edit import RecordEdit
    from reconciler.operations.steps.runner import SiteOptions
    from reconciler.planning.plan import Plan


@contextmanager
def open_state_edit(
    files: FileOptions, place: WorkspaceOptions, command: str, lock_timeout: str, show: Callable[[Plan], None] | None
) -> Iterator[RecordEdit]:
    """Yield access to edit the state; a signal cancels an edit only before its start."""
    lock_timeout_s = parse_seconds("--lock-timeout", lock_timeout)
    from reconciler.operations.state_edit import RecordEdit
    from reconciler.operations.steps.runner import Stop

    stop = Stop()
    with signals.forward_signals(stop):
        yield RecordEdit(
            invocation=place.read_invocation(),
            select=files.build_select(),
            command=command,
            lock_timeout_s=lock_timeout_s,
            stop=stop,
            show=show,
        )


@dataclass(frozen=True, slots=True)
class MigrationId:
    """A migration id, and its cluster if given."""

    migration: int
    cluster: str | None


def request_migration(
    reach: SiteOptions, which: MigrationId, verb: MigrationVerb, *, yes: bool, form: Literal["text", "json"]
) -> ClusterMigration:
    """Cancel or delete a migration after confirmation; return its new state."""
    from reconciler.cli.text.mounts_text import format_migration_question
    from reconciler.operations.clusters.mounts import change_migration
    from reconciler.operations.steps.runner import Stop

    def confirm(underway: ClusterMigration) -> bool:
        return confirm_effects(
            format_migration_question(underway, verb), f"{verb.capitalize()} the migration?", yes=yes, form=form
        )

    stop = Stop()
    with signals.forward_signals(stop, patience_s=signals.RUN_PATIENCE_S):
        return change_migration(reach, which.migration, verb, which.cluster, confirm=confirm, stop=stop)
