"""The filters of a link against names, and the names that no link mirrors: one answer for cluster, planner and runner.

`*` is every name, an exclusion wins wherever it stands, and what nothing matches is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.resources.address import split_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reconciler.resources.linksyncs import NameFilter

AUDIT_LOG: Final = "confluent-audit-log-events"
SCHEMAS: Final = "_schemas"
_INTERNAL: Final = ("__", "_confluent")


def takes(filters: Iterable[NameFilter], name: str) -> bool:
    """Tell whether filters take a topic or a group, by its full name."""
    matching = {each.filter_type for each in filters if is_about(each, name)}
    return matching == {"include"}


def is_about(each: NameFilter, name: str) -> bool:
    """Tell whether one filter, of either kind, matches a name."""
    if each.pattern_type == "prefixed":
        return name.startswith(each.name)
    return each.name in {"*", name}


def is_never_mirrored(full_name: str) -> bool:
    """Tell whether a topic is the platform's own, or its audit log, which stay where they are."""
    name = split_name(full_name)[1]
    return name.startswith(_INTERNAL) or name == AUDIT_LOG


def is_never_made(full_name: str) -> bool:
    """Tell whether no mirror of a topic is made but by hand: schemas, too, are left to who asks for them."""
    return is_never_mirrored(full_name) or split_name(full_name)[1] == SCHEMAS
