"""`namespace list`: the hierarchy as it is on the clusters."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.errors import InvalidNamespaceError
from reconciler.resources.address import Address, address_of, full_name_of, split_name
from reconciler.workflow.beginning.opening import open_work
from reconciler.workflow.looking.overviews import look_over

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.workflow.beginning.invocation import Invocation, Select


@dataclass(frozen=True, slots=True)
class NamespaceRow:
    """One namespace, how many topics lie in it itself, and what they inherit from it."""

    address: Address
    topics: int
    configs: Mapping[str, str]


def list_namespaces(
    invocation: Invocation, select: Select, cluster: str | None, under: str | None = None
) -> tuple[NamespaceRow, ...]:
    """Return the namespaces of one cluster, or of all; `under`: only those below that one.

    Raises:
        InvalidNamespaceError: There is no such namespace on that cluster.
    """
    work = open_work(invocation, select)
    rows = []
    for name, overview in sorted(look_over(work, work.to_read if cluster is None else [cluster]).items()):
        topics = Counter(split_name(full_name_of(topic.address))[0] for topic in overview.topics)
        rows += [
            NamespaceRow(address_of("namespace", name, namespace), topics[namespace], configs)
            for namespace, configs in overview.namespaces.items()
            if not under or namespace.startswith(f"{under}:")
        ]
        if under and under not in overview.namespaces:
            work.providers[name].check_shown(address_of("namespace", name, under))
            raise InvalidNamespaceError(
                f"namespace {under!r} does not exist on cluster {name}",
                hint=f"List what does with: reconciler namespace list {name}",
            )
    return tuple(rows)
