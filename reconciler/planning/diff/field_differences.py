"""Differences in fields between desired, recorded and observed resources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from reconciler.lifecycles import TieringState
from reconciler.planning.actions import Change, Reason, Value
from reconciler.planning.fields import (
    OBJECT_STORAGE,
    canonicalize_field,
    is_equal_value,
    list_fields,
    list_record_fields,
)
from reconciler.planning.plan import DriftFinding
from reconciler.planning.plan_rows import hash_value
from reconciler.planning.situation import ALTERED, WantedResource, list_altered_paths, list_unset_paths
from reconciler.resources.configs import DEFAULT
from reconciler.resources.topic import Topic
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.text import to_json_types

if TYPE_CHECKING:
    from reconciler.planning.resolve.acting_configs import HiddenValue
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Observed, Recorded
    from reconciler.resources.kafka_configs import ConfigKey


NEVER_RESET: Final = ("replicationFactor", "partitions")
"""Fields that stay unchanged if removed from the files."""


_UNSET_ORIGINS: Final = frozenset({DEFAULT, ALTERED})

STEADY: Final = frozenset({None, TieringState.ENABLED, TieringState.DISABLED})
"""Tiering states of a topic without a transition in progress."""


@dataclass(frozen=True, slots=True)
class Differences:
    """Changes on the platform, drift, and changes that only the record needs."""

    changes: tuple[Change, ...] = ()
    drift: tuple[DriftFinding, ...] = ()
    held: tuple[tuple[Change, str], ...] = ()
    """(change, rule): changes in the files that do not apply, because the rule ignores drift of the field."""
    record_changes: tuple[Change, ...] = ()
    is_stale: bool = False
    """Whether the record differs from the files although the platform does not."""
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """Which fields to compare.

    `ignored` returns the rule that ignores a field's drift. `is_recorded` selects fields that only the record stores.
    """

    catalog: Mapping[str, ConfigKey]
    ignored: Callable[[Address, str], str | None]
    is_compared: Callable[[str], bool]
    is_recorded: Callable[[str], bool] = lambda _path: False
    hiding: tuple[HiddenValue, ...] = ()
    """Configs set on the topic outside the files, which override inherited declared values."""


def is_unchanged(wanted: WantedResource, last: Recorded, before: Observed) -> bool:
    """Return whether a topic surely needs no action. If `False`, all fields must be compared."""
    want, was, seen = wanted.resource, last.resource, before.resource
    if not (isinstance(want, Topic) and isinstance(was, Topic) and isinstance(seen, Topic)):
        return False
    goal, record, live = want.spec, was.spec, seen.spec
    if goal.configs != record.configs or goal.partitions != live.partitions or goal.partitions != record.partitions:
        return False
    if not goal.read_replica_of == record.read_replica_of == live.read_replica_of:
        return False
    if goal.replication_factor != record.replication_factor or goal.protect not in (None, last.protect):
        return False
    if goal.replication_factor is not None and goal.replication_factor != live.replication_factor:
        return False
    if goal.acls or record.acls or before.state not in STEADY:
        return False
    if last.incarnation != before.incarnation or DEFAULT in wanted.origins.values():
        return False
    if not _UNSET_ORIGINS.isdisjoint(last.origins.values()):
        return False
    configs = live.configs
    return configs == goal.configs or all(configs.get(key) == value for key, value in goal.configs.items())


def find_differences(
    address: Address, wanted: WantedResource, last: Recorded | None, before: Observed, how: Comparison
) -> Differences:
    """Compare the fields of one address. Without a record, only declared fields are compared."""
    want, seen = list_fields(wanted.resource), list_fields(before.resource)
    was = list_fields(last.resource) if last else {}
    fields = _Fields(address, want, was, seen, wanted, last, before)
    changes: list[Change] = []
    drift: list[DriftFinding] = []
    held: list[tuple[Change, str]] = []
    paths = {*want, *was, *list_unset_paths(wanted.origins), *list_altered_paths(last)} - {
        hidden_config.path for hidden_config in how.hiding
    }
    for path in sorted(paths):
        if not how.is_compared(path) or how.is_recorded(path):
            continue
        rule = how.ignored(address, path)
        moved = fields.drift(path, how.catalog)
        if moved:
            drift.append(replace(moved, ignored=rule))
        change = fields.change(path, how.catalog)
        if change and rule and (moved or last is None):
            held += [(change, rule)] if moved and not change.drift else []
        elif change:
            changes.append(change)
    for hidden in how.hiding:
        rule = how.ignored(address, hidden.path)
        moved = _find_hidden_drift(address, hidden, how.catalog) if last is not None else None
        if moved:
            drift.append(replace(moved, ignored=rule))
        if not rule:
            changes.append(Change(hidden.path, hidden.value, None, moved is not None, hidden.origin))
    return Differences(
        changes=tuple(changes),
        drift=tuple(drift),
        held=tuple(held),
        record_changes=_record_changes(wanted, last, how),
        is_stale=last is not None and fields.is_stale(how),
        reasons=fields.reasons(changes),
    )


@dataclass(frozen=True, slots=True)
class _Fields:
    address: Address
    want: Mapping[str, Value]
    was: Mapping[str, Value]
    seen: Mapping[str, Value]
    wanted: WantedResource
    last: Recorded | None
    before: Observed

    def change(self, path: str, catalog: Mapping[str, ConfigKey]) -> Change | None:
        goal, live = self.want.get(path), self.seen.get(path)
        origin = self.wanted.origins.get(path)
        if goal is None:
            is_reset = live is not None and path not in NEVER_RESET
            return Change(path, live, None, self._is_drift(path, None), origin) if is_reset else None
        if is_equal_value(path, goal, live, catalog):
            return None
        return Change(path, live, goal, self._is_drift(path, goal), origin)

    def drift(self, path: str, catalog: Mapping[str, ConfigKey]) -> DriftFinding | None:
        if self.last is None or not self._was_applied(path):
            return None
        recorded, live = self.was.get(path), self.seen.get(path)
        if is_equal_value(path, recorded, live, catalog):
            return None
        finding = build_drift_finding(
            self.address, path, recorded, live, meaning=canonicalize_field(path, live, catalog)
        )
        origin = self.last.origins.get(path, "")
        return replace(finding, origin=origin) if origin.startswith("namespace/") else finding

    def is_stale(self, how: Comparison) -> bool:
        if self.last is None:
            return False
        unset = (list_unset_paths(self.wanted.origins) ^ list_unset_paths(self.last.origins)) | list_altered_paths(
            self.last
        )
        moved = {path for path in {*self.want, *self.was} if self.want.get(path) != self.was.get(path)}
        return any(
            how.is_compared(path)
            and not (how.is_recorded(path) or how.ignored(self.address, path) or self._stays_unset(path))
            for path in sorted(unset | moved)
        )

    def reasons(self, changes: list[Change]) -> tuple[Reason, ...]:
        if self.last is None:
            return (Reason.ADOPTED_DIFFERS,)
        reasons = {self._reason(change) for change in changes}
        return tuple(reason for reason in Reason if reason in reasons)

    def _reason(self, change: Change) -> Reason:
        if change.drift:
            return Reason.DRIFTED
        is_gone = change.after is None and change.origin is None
        return Reason.NO_LONGER_DECLARED if is_gone else Reason.CHANGED

    def _was_applied(self, path: str) -> bool:
        if path == OBJECT_STORAGE:
            return False
        return path in self.was or (self.last is not None and self.last.origins.get(path) in _UNSET_ORIGINS)

    def _stays_unset(self, path: str) -> bool:
        return path in NEVER_RESET and path not in self.want

    def _is_drift(self, path: str, goal: Value) -> bool:
        if self.last is None or not self._was_applied(path):
            return False
        if goal is None and self.last.origins.get(path) == ALTERED:
            return True
        if goal is None:
            return self.wanted.origins.get(path) == DEFAULT and self.last.origins.get(path) == DEFAULT
        return self.was.get(path) == goal


def build_drift_finding(
    address: Address, path: str, recorded: Value, observed: Value, *, meaning: Value = None
) -> DriftFinding:
    """Return a drift finding. `meaning` is the observed value in canonical form."""
    mark = hash_value([address, path, to_json_types(observed if meaning is None else meaning)])
    return DriftFinding(address, path, recorded, observed, mark)


def _find_hidden_drift(address: Address, hidden: HiddenValue, catalog: Mapping[str, ConfigKey]) -> DriftFinding | None:
    path, value = hidden.path, hidden.value
    if hidden.recorded is None or is_equal_value(path, hidden.recorded, value, catalog):
        return None
    finding = build_drift_finding(
        address, path, hidden.recorded, value, meaning=canonicalize_field(path, value, catalog)
    )
    return replace(finding, origin=hidden.origin)


def _record_changes(wanted: WantedResource, last: Recorded | None, how: Comparison) -> tuple[Change, ...]:
    if last is None:
        return ()
    changes: list[Change] = []
    if isinstance(wanted.resource, Topic) and wanted.resource.spec.protect not in (None, last.protect):
        changes.append(Change("protect", last.protect, wanted.resource.spec.protect))
    want, was = (
        {
            **list_record_fields(item),
            **{path: value for path, value in list_fields(item).items() if how.is_recorded(path)},
        }
        for item in (wanted.resource, last.resource)
    )
    changes.extend(
        Change(path, was.get(path), want.get(path)) for path in sorted({*want, *was}) if want.get(path) != was.get(path)
    )
    return tuple(changes)
