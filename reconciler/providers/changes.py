"""What the changes of an update ask for, field by field, as every provider reads them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from reconciler.errors import StalePlanError, UserError
from reconciler.resources.aclpaths import ACLS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reconciler.planning.actions import Change, Value
    from reconciler.resources.address import Address

CONFIGS: Final = "configs."
QUOTAS: Final = "quotas."
ENCRYPTION: Final = "encryption.kmsKeyId"


@dataclass(frozen=True, slots=True)
class Moved:
    """The fields of a topic, namespace or mirror that change; `None` takes a value away."""

    configs: Mapping[str, str | None]
    partitions: int | None = None
    replication_factor: int | None = None
    quotas: Mapping[str, int | None] = field(default_factory=dict)
    keys: tuple[str | None, ...] = ()
    """The key it is to have, where that changes."""
    rules: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    """Access rules by their paths: the operations there are to be; `None` takes one away."""


def moved(address: Address, changes: Sequence[Change], *, platform: str) -> Moved:
    """Read the changes of a topic, namespace or mirror.

    Raises:
        UserError: A field cannot be changed on that platform.
    """
    configs: dict[str, str | None] = {}
    numbers: dict[str, int] = {}
    quotas: dict[str, int | None] = {}
    keys: tuple[str | None, ...] = ()
    rules: dict[str, tuple[str, ...] | None] = {}
    for change in changes:
        match change.path, change.after:
            case str(path), str() | None as value if path.startswith(CONFIGS):
                configs[path.removeprefix(CONFIGS)] = value
            case ("partitions" | "replicationFactor") as path, int(number):
                numbers[path] = number
            case str(path), int() | None as limit if path.startswith(QUOTAS):
                quotas[path.removeprefix(QUOTAS)] = limit
            case "encryption.kmsKeyId", str() | None as key:
                keys = (key,)
            case str(path), tuple() | None as operations if path.startswith(ACLS):
                rules[path] = None if operations is None else tuple(map(str, operations))
            case path, _:
                message = f"{address}: {platform} of this version cannot change {path}"
                raise UserError(message, hint="Set it back in the files, and plan again.")
    return Moved(configs, numbers.get("partitions"), numbers.get("replicationFactor"), quotas, keys, rules)


def check_unmoved(address: Address, changes: Sequence[Change], current: Mapping[str, Value]) -> None:
    """Refuse changes decided on values that somebody has changed since; what stands as wanted already is no change.

    Raises:
        StalePlanError: Names the first of them.
    """
    for change in changes:
        found = current.get(change.path)
        if found not in (change.before, change.after):
            now, before = ("unset" if value is None else repr(value) for value in (found, change.before))
            message = f"{address}: {change.path} is {now} now, not {before}"
            raise StalePlanError(message, hint="Somebody changed it since it was looked at: plan again.")
