"""Compute which records a change of retention or cleanup would delete."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from reconciler.planning.actions import Change, Estimate, Reason, Risk
from reconciler.planning.fields import CONFIGS, PROPERTIES
from reconciler.resources.cluster_properties import CONFIG_DEFAULTS
from reconciler.runtime.dataclass import dataclass, replace

if TYPE_CHECKING:
    from reconciler.resources.kafka_configs import ConfigKey
    from reconciler.resources.measures import Measure


RETENTION_MS: Final = "retention.ms"
RETENTION_BYTES: Final = "retention.bytes"
CLEANUP: Final = "cleanup.policy"
_FOREVER: Final = float("inf")
NO_DEFAULTS: Final[Mapping[str, str]] = MappingProxyType({})

_LOCAL: Final = ("retention.local.target.ms", "local.retention.ms")
_SWITCHES: Final = ("remote.write", "remote.read", "remote.storage.enable")

KEYS: Final = (RETENTION_MS, RETENTION_BYTES, CLEANUP, *_LOCAL, *_SWITCHES)
"""Configs on which the deletion of records depends."""


class Side(NamedTuple):
    """Functions that read a topic's configs before or after a change."""

    acting: Callable[[str], str | None]
    """Reads a config of the topic, its namespaces or the cluster."""
    own: Callable[[str], str | None]
    """Reads a config of the topic or its namespaces."""


@dataclass(frozen=True, slots=True)
class RetentionRule:
    """Retention and cleanup of a topic. Unlimited values are infinity."""

    ms: float
    bytes: float
    deletes: bool
    compacts: bool
    unknown: frozenset[str] = frozenset()
    """Unset configs whose default is unknown and assumed."""

    @classmethod
    def of_sides(
        cls,
        before: Side,
        after: Side,
        catalog: Mapping[str, ConfigKey],
        defaults: Mapping[str, str] = NO_DEFAULTS,
        defaults_after: Mapping[str, str] | None = None,
    ) -> tuple[RetentionRule, RetentionRule]:
        """Return the retention before and after a change.

        Even after tiering is disabled, a topic keeps at least its local retention (F-R-027).
        """
        was = cls.read(before.acting, catalog, defaults)
        will = cls.read(after.acting, catalog, defaults if defaults_after is None else defaults_after)
        if _LOCAL[0] not in catalog:
            return was, will
        raised = _raise_to_local(will, after)
        if raised != will and not any(
            side.acting(switch) == "true" for side in (before, after) for switch in _SWITCHES
        ):
            raised = will
        return _raise_to_local(was, before), raised

    @classmethod
    def read(
        cls,
        look_up: Callable[[str], str | None],
        catalog: Mapping[str, ConfigKey],
        defaults: Mapping[str, str] = NO_DEFAULTS,
    ) -> RetentionRule:
        """Return the retention by effective configs, or the cluster's or platform's defaults."""
        keys = (RETENTION_MS, RETENTION_BYTES, CLEANUP)

        def configured_value(key: str) -> str | None:
            # An empty value counts: an empty cleanup.policy deletes nothing.
            own, known = look_up(key), catalog.get(key)
            return own if own is not None else defaults.get(key, known.default if known is not None else None)

        def value(key: str, fallback: str) -> str:
            configured = configured_value(key)
            return fallback if configured is None else configured

        policies = value(CLEANUP, "delete").split(",")
        return cls(
            ms=_parse_limit(value(RETENTION_MS, "604800000")),
            bytes=_parse_limit(value(RETENTION_BYTES, "-1")),
            deletes="delete" in policies,
            compacts="compact" in policies,
            unknown=frozenset(key for key in keys if key in catalog and configured_value(key) is None),
        )

    def is_stricter_than(self, other: RetentionRule) -> bool:
        """Return whether this may delete records that `other` keeps."""
        return self.expires_before(other) or self.begins_to_compact(other)

    def expires_before(self, other: RetentionRule) -> bool:
        """Return whether records may expire that `other` keeps."""
        if self.unknown != other.unknown:
            return not self.keeps_all
        return self.deletes and (not other.deletes or self.ms < other.ms or self.bytes < other.bytes)

    def expired_before(self, now_ms: int) -> int | None:
        """Return the timestamp in ms before which records expire, or `None` without a time limit."""
        return None if self.ms == _FOREVER or not self.deletes else max(0, now_ms - int(self.ms))

    @property
    def keeps_all(self) -> bool:
        """Whether no record expires, whatever the unknown defaults are."""
        if not self.deletes and CLEANUP not in self.unknown:
            return True
        return self.ms == self.bytes == _FOREVER and not self.unknown

    def begins_to_compact(self, other: RetentionRule) -> bool:
        """Return whether compaction may delete records that `other` keeps."""
        return self.compacts and not other.compacts


@dataclass(frozen=True, slots=True)
class Loss:
    """Bytes that a change would delete now. Without a measurement, `is_known` is false."""

    bytes: int = 0
    is_known: bool = True
    is_compacted: bool = False

    def __add__(self, other: Loss) -> Loss:
        compacted = self.is_compacted or other.is_compacted
        return Loss(self.bytes + other.bytes, self.is_known and other.is_known, compacted)

    def __or__(self, other: Loss) -> Loss:
        compacted = self.is_compacted or other.is_compacted
        return Loss(max(self.bytes, other.bytes), self.is_known and other.is_known, compacted)

    @property
    def expires(self) -> bool:
        """Whether records expire or may expire."""
        return bool(self.bytes) or not self.is_known

    @property
    def risk(self) -> Risk:
        """`data-loss` if records are or may be deleted."""
        return Risk.DATA_LOSS if self.expires or self.is_compacted else Risk.NONE

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Reasons to add to those of the changed configs."""
        compacted = (Reason.COMPACT_ADDED,) if self.is_compacted else ()
        return compacted if self.is_known else (*compacted, Reason.UNMEASURED)

    @property
    def estimate(self) -> Estimate:
        """Number of bytes that would expire."""
        return Estimate(bytes=self.bytes)


NO_LOSS: Final = Loss()


def compute_loss(
    before: RetentionRule, after: RetentionRule, measure: Measure | None, partitions: int, now_ms: int
) -> Loss:
    """Return the loss of a topic whose retention changes from `before` to `after`."""
    if not after.is_stricter_than(before):
        return Loss()
    is_compacted = after.begins_to_compact(before)
    if measure is not None and not measure.records:
        return Loss()
    if not after.expires_before(before):
        return Loss(is_compacted=is_compacted)
    if measure is None or after.unknown != before.unknown:
        return Loss(is_known=False, is_compacted=is_compacted)
    until = after.expired_before(now_ms)
    expired = 0 if until is None else measure.estimate_older_bytes(until)
    # A single partition may exceed the limit.
    excess = max(0, measure.bytes - after.bytes * partitions) if after.bytes != _FOREVER else 0
    is_beyond = measure.bytes > after.bytes
    is_known = expired is not None and not (is_beyond and not excess)
    return Loss(max(expired or 0, int(excess)), is_known, is_compacted)


def parse_config_key(path: str) -> str:
    """Return the key of a config or cluster property."""
    if path.startswith(PROPERTIES):
        return CONFIG_DEFAULTS.get(path.removeprefix(PROPERTIES), "")
    return path.removeprefix(CONFIGS)


def find_expiry_reason(change: Change) -> Reason | None:
    """Return why a changed field makes records expire, if it does."""
    key = parse_config_key(change.path)
    if key == CLEANUP:
        after = "delete" if change.after is None else str(change.after)
        return Reason.DELETE_ADDED if "delete" in after.split(",") else None
    return Reason.RETENTION_LOWERED if key in {RETENTION_MS, RETENTION_BYTES, *_LOCAL} else None


def _raise_to_local(keeping: RetentionRule, side: Side) -> RetentionRule:
    local = next((value for value in map(side.own, _LOCAL) if value is not None), "-1")
    return keeping if _parse_limit(local) == _FOREVER else replace(keeping, ms=max(keeping.ms, _parse_limit(local)))


def _parse_limit(value: str) -> float:
    try:
        number = int(value)
    except ValueError:
        return _FOREVER
    return _FOREVER if number < 0 else number
