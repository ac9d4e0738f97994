"""What a platform that mounts topics must do with its migrations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from reconciler.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from reconciler.providers.copymoves import CopyMoves
    from reconciler.providers.hibernating import Hibernation
    from reconciler.resources.migration import Migration
    from reconciler.resources.mountable import Mountable

from reconciler.providers.base import go_on


class MigrationsOfCluster(Protocol):
    """The mounts and unmounts of one cluster, and who owns what lies in its object storage."""

    @property
    def by_jobs(self) -> Hibernation | None:
        """What jobs ask of the cluster to mount and unmount; `None`: it does so by itself."""
        ...

    @property
    def copies(self) -> CopyMoves | None:
        """What jobs ask of the cluster to move a topic by copying it; `None`: it renames topics by itself."""
        ...

    def under_way(self, *, is_measured: bool = True) -> Sequence[Migration]:
        """Return the migrations that there is a record of, by id; one that came to its end has none. Changes nothing.

        Left out are those of topics that whoever acts may not know of. Without `is_measured` nothing is said of what
        is left to upload, nor of what keeps one: the catalog alone is read.
        """
        ...

    def ask(self, migration: int, verb: str, *, may_go_on: Callable[[], None] = go_on) -> Migration:
        """Ask for a verb of the table and return what the migration is then; what is cancelled is driven to its end.

        `may_go_on` is asked before every write, from any thread, and may raise.

        Raises:
            UserError: There is none, or that is not legal in its state: it says what is.
            IncompleteError: It was asked for, and did not come to its end: it goes on in `run`.
        """
        ...

    def detached(self) -> Iterator[tuple[str, Mountable | UserError]]:
        """Yield every topic that was ever detached in the object storage, by its place there; or why that is no use.

        The cluster itself need not be there.

        Raises:
            UserError: There is no object storage, or whoever acts is not the super user.
        """
        ...

    def releasable(self, location: str, owner: str) -> Mountable:
        """Return what a release would make mountable, as it is now; changes nothing.

        Raises:
            UserError: There is no such topic, it has another owner or none, or whoever acts is not the super user.
        """
        ...

    def release(self, location: str, owner: str) -> Mountable:
        """Take a topic from an owner that will not come back, and return it. Doing it twice does it once.

        Raises:
            UserError: As of `releasable`.
        """
        ...
