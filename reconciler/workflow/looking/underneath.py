"""What lies on a cluster below a namespace, and the errors for names that lead nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.errors import InvalidNamespaceError, UserError
from reconciler.providers.base import Scope
from reconciler.resources.address import address_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.providers.base import Provider
    from reconciler.resources.inventory import Inventory


def observe_on(provider: Provider, cluster: str, *patterns: str) -> Inventory:
    """Return what matches patterns.

    Raises:
        UserError: The cluster was never made.
        NotAuthorizedError: Something there may not be seen by whoever acts: it would be overlooked.
    """
    if provider.identify() is None:
        raise UserError(f"cluster {cluster} is not there yet", hint="Create it with: reconciler apply")
    found = provider.observe(Scope(patterns))
    hidden = [item.hidden for _, item in sorted(found.items()) if item.hidden is not None]
    if hidden:
        raise hidden[0]
    return found


def observe_below(provider: Provider, cluster: str, name: str) -> Inventory:
    """Return a namespace, those below it, and all topics in them.

    Raises:
        InvalidNamespaceError: It does not exist.
    """
    below = f"{cluster}/{name}:*"
    patterns = (f"namespace/{cluster}/{name}", f"namespace/{below}", f"topic/{below}", f"mirror/{below}")
    found = observe_on(provider, cluster, *patterns)
    if not name or address_of("namespace", cluster, name) not in found:
        provider.check_shown(address_of("namespace", cluster, name))
        raise unknown_namespace(name, cluster)
    return found


def unknown_namespace(name: str, cluster: str) -> InvalidNamespaceError:
    """Return the error for a namespace that is not there, or for the default one, which always is."""
    message = f"namespace {name!r} does not exist on cluster {cluster}" if name else "the default namespace '' stays"
    return InvalidNamespaceError(message, hint=f"List what does with: reconciler namespace list {cluster}")


def check_name(check: Callable[[str], str], name: str, example: str) -> None:
    """Refuse a name that cannot be.

    Raises:
        UserError: Says what is legal.
    """
    try:
        check(name)
    except ValueError as error:
        raise UserError(f"{name!r} is {error}", hint=f"Example: {example}.") from error
    if not name:
        raise UserError("the default namespace '' always exists", hint=f"Name one, such as {example}.")
