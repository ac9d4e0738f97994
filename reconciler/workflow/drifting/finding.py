"""One way in which clusters and files differ, by who has to act; and the mark by which a caller remembers it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from reconciler.errors import UsageError
from reconciler.planning.canonical import fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reconciler.planning.actions import Value
    from reconciler.resources.address import Address

DriftClass: TypeAlias = Literal["drift", "missing", "in doubt", "unmanaged", "pending", "blocked"]
CLASSES: Final[tuple[DriftClass, ...]] = get_args(DriftClass)
ALWAYS: Final[frozenset[DriftClass]] = frozenset({"drift", "missing", "in doubt"})
"""The classes that fail whoever asks."""


@dataclass(frozen=True, slots=True)
class Found:
    """One finding."""

    kind: DriftClass
    address: Address
    message: str
    fingerprint: str
    """The same for the same finding, run after run: sha256 of address, path and what was observed."""
    path: str = ""
    """The field; empty where it is the resource as a whole."""
    recorded: Value = None
    observed: Value = None
    ignored: str | None = None
    """The rule that leaves it as it is; what is ignored is listed and fails nothing."""
    origin: str | None = None
    """The namespace that says what was recorded, where a topic has it written out."""


def fingerprint_of(kind: DriftClass, address: Address, what: object = None, path: str = "") -> str:
    """Return the fingerprint of what the planner has none for; never that of a drift at the same place."""
    return fingerprint([address, path, {kind: what}])


def failing(names: Iterable[str]) -> frozenset[DriftClass]:
    """Return the classes that fail, with those that `--fail-on` adds: `in-doubt` is `in doubt`.

    Raises:
        UsageError: One of them is no class.
    """
    by_name = {typed: kind for kind in CLASSES for typed in (kind, kind.replace(" ", "-"))}
    wrong = next((name for name in names if name not in by_name), None)
    if wrong is not None:
        typed = ", ".join(kind.replace(" ", "-") for kind in CLASSES)
        raise UsageError(f"there is no class {wrong!r} of drift", hint=f"Classes: {typed}.")
    return ALWAYS | {by_name[name] for name in names}
