"""Which records a change of retention or cleanup would remove."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from reconciler.planning.actions import Change, Estimate, Reason, Risk
from reconciler.planning.fields import CONFIGS, PROPERTIES
from reconciler.resources.cluster_properties import CONFIG_DEFAULTS

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
"""The configs by which a platform removes records on its own: on a tiered topic, what is kept locally is one."""


class Side(NamedTuple):
    """The configs of a topic before or after a change: a function gives the value of each, `None` where none is set."""

    acting: Callable[[str], str | None]
    """With what the properties of the cluster say."""
    own: Callable[[str], str | None]
    """What the topic and its namespaces say."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """How long and how much a topic keeps, and whether it deletes or compacts at all; -1 is without limit."""

    ms: float
    bytes: float
    deletes: bool
    compacts: bool
    unknown: frozenset[str] = frozenset()
    """The configs of these that nobody set and whose default is not known; the platform's usual one stands for it."""

    @classmethod
    def of_sides(
        cls,
        before: Side,
        after: Side,
        catalog: Mapping[str, ConfigKey],
        defaults: Mapping[str, str] = NO_DEFAULTS,
        defaults_after: Mapping[str, str] | None = None,
    ) -> tuple[Keeping, Keeping]:
        """Read what is kept before and after a change.

        A tiered topic keeps as long in total as it is said to keep locally (F-R-027), and does so when tiering is off
        again. That cannot be told from its configs: where neither side is tiered, only `before` is taken to be longer.
        """
        was = cls.read(before.acting, catalog, defaults)
        will = cls.read(after.acting, catalog, defaults if defaults_after is None else defaults_after)
        if _LOCAL[0] not in catalog:
            return was, will
        raised = _raised(will, after)
        if raised != will and not any(
            side.acting(switch) == "true" for side in (before, after) for switch in _SWITCHES
        ):
            raised = will
        return _raised(was, before), raised

    @classmethod
    def read(
        cls,
        look_up: Callable[[str], str | None],
        catalog: Mapping[str, ConfigKey],
        defaults: Mapping[str, str] = NO_DEFAULTS,
    ) -> Keeping:
        """Read it from effective configs; what is not set has the cluster's default, else the platform's."""
        keys = (RETENTION_MS, RETENTION_BYTES, CLEANUP)

        def said(key: str) -> str | None:
            own, known = look_up(key), catalog.get(key)  # an empty cleanup.policy is one: nothing is removed
            return own if own is not None else defaults.get(key, known.default if known is not None else None)

        def value(key: str, fallback: str) -> str:
            found = said(key)
            return fallback if found is None else found

        policies = value(CLEANUP, "delete").split(",")
        return cls(
            ms=_limit(value(RETENTION_MS, "604800000")),
            bytes=_limit(value(RETENTION_BYTES, "-1")),
            deletes="delete" in policies,
            compacts="compact" in policies,
            unknown=frozenset(key for key in keys if key in catalog and said(key) is None),
        )

    def is_stricter_than(self, other: Keeping) -> bool:
        """Tell whether this may remove what the other keeps."""
        return self.expires_before(other) or self.begins_to_compact(other)

    def expires_before(self, other: Keeping) -> bool:
        """Tell whether records may expire that do not in the other."""
        if self.unknown != other.unknown:
            return not self.keeps_all
        return self.deletes and (not other.deletes or self.ms < other.ms or self.bytes < other.bytes)

    def expired_before(self, now_ms: int) -> int | None:
        """Return the time in ms before which records are expired; `None`: none expires by its age."""
        return None if self.ms == _FOREVER or not self.deletes else max(0, now_ms - int(self.ms))

    @property
    def keeps_all(self) -> bool:
        """Whether no record expires, whatever a default is that is not known."""
        if not self.deletes and CLEANUP not in self.unknown:
            return True
        return self.ms == self.bytes == _FOREVER and not self.unknown

    def begins_to_compact(self, other: Keeping) -> bool:
        """Tell whether records go that later ones of their keys supersede, and the other keeps them."""
        return self.compacts and not other.compacts


@dataclass(frozen=True, slots=True)
class Loss:
    """What a change would remove now. `is_known` is false where nobody measured.

    `is_compacted`: compaction removes records that later ones supersede. How many is not measured.
    """

    bytes: int = 0
    is_known: bool = True
    is_compacted: bool = False

    def __add__(self, other: Loss) -> Loss:
        """Add what two topics lose."""
        compacted = self.is_compacted or other.is_compacted
        return Loss(self.bytes + other.bytes, self.is_known and other.is_known, compacted)

    def __or__(self, other: Loss) -> Loss:
        """Return the worse of what one topic may lose in one of two ways."""
        compacted = self.is_compacted or other.is_compacted
        return Loss(max(self.bytes, other.bytes), self.is_known and other.is_known, compacted)

    @property
    def expires(self) -> bool:
        """Whether records expire, as far as we can tell."""
        return bool(self.bytes) or not self.is_known

    @property
    def risk(self) -> Risk:
        """Data loss where records go, or where we cannot tell."""
        return Risk.DATA_LOSS if self.expires or self.is_compacted else Risk.NONE

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """What else is to be said of it than which config does it."""
        compacted = (Reason.COMPACT_ADDED,) if self.is_compacted else ()
        return compacted if self.is_known else (*compacted, Reason.UNMEASURED)

    @property
    def estimate(self) -> Estimate:
        """The bytes that would expire."""
        return Estimate(bytes=self.bytes)


NO_LOSS: Final = Loss()


def loss(before: Keeping, after: Keeping, measure: Measure | None, partitions: int, now_ms: int) -> Loss:
    """Return what goes when one topic's `before` becomes `after`."""
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
    expired = 0 if until is None else measure.older_than(until)
    # Bytes are limited per partition; how full each one is was not measured, so any may be beyond its share.
    excess = max(0, measure.bytes - after.bytes * partitions) if after.bytes != _FOREVER else 0
    is_beyond = measure.bytes > after.bytes
    is_known = expired is not None and not (is_beyond and not excess)
    return Loss(max(expired or 0, int(excess)), is_known, is_compacted)


def config_at(path: str) -> str:
    """Return the config a field says: its own, or the one a property of the cluster is the default of."""
    if path.startswith(PROPERTIES):
        return CONFIG_DEFAULTS.get(path.removeprefix(PROPERTIES), "")
    return path.removeprefix(CONFIGS)


def reason_of(change: Change) -> Reason | None:
    """Return why a change of retention lets records expire."""
    key = config_at(change.path)
    if key == CLEANUP:
        after = "delete" if change.after is None else str(change.after)
        return Reason.DELETE_ADDED if "delete" in after.split(",") else None
    return Reason.RETENTION_LOWERED if key in {RETENTION_MS, RETENTION_BYTES, *_LOCAL} else None


def _raised(keeping: Keeping, side: Side) -> Keeping:
    local = next((value for value in map(side.own, _LOCAL) if value is not None), "-1")
    return keeping if _limit(local) == _FOREVER else replace(keeping, ms=max(keeping.ms, _limit(local)))


def _limit(value: str) -> float:
    try:
        number = int(value)
    except ValueError:
        return _FOREVER
    return _FOREVER if number < 0 else number
