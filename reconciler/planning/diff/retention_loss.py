"""Which records a change of retention or cleanup would remove."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from reconciler.planning.actions import Estimate, Reason, Risk
from reconciler.planning.fields import CONFIGS, PROPERTIES
from reconciler.resources.cluster_properties import CONFIG_DEFAULTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.planning.actions import Change
    from reconciler.resources.kafka_configs import ConfigKey
    from reconciler.resources.measures import Measure


RETENTION_MS: Final = "retention.ms"
RETENTION_BYTES: Final = "retention.bytes"
CLEANUP: Final = "cleanup.policy"
_FOREVER: Final = float("inf")
NO_DEFAULTS: Final[Mapping[str, str]] = MappingProxyType({})

KEYS: Final = (RETENTION_MS, RETENTION_BYTES, CLEANUP)
"""The configs by which a platform removes records on its own."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """How long and how much a topic keeps, and whether it deletes or compacts at all; -1 is without limit."""

    ms: float
    bytes: float
    deletes: bool
    compacts: bool

    @classmethod
    def read(
        cls,
        look_up: Callable[[str], str | None],
        catalog: Mapping[str, ConfigKey],
        defaults: Mapping[str, str] = NO_DEFAULTS,
    ) -> Keeping:
        """Read it from effective configs; what is not set has the cluster's default, else the platform's."""

        def value(key: str, fallback: str) -> str:
            known = catalog.get(key)
            return look_up(key) or defaults.get(key) or (known.default if known and known.default else fallback)

        policies = value(CLEANUP, "delete").split(",")
        return cls(
            ms=_limit(value(RETENTION_MS, "604800000")),
            bytes=_limit(value(RETENTION_BYTES, "-1")),
            deletes="delete" in policies,
            compacts="compact" in policies,
        )

    def is_stricter_than(self, other: Keeping) -> bool:
        """Tell whether this may remove what the other keeps."""
        return self.expires_before(other) or self.begins_to_compact(other)

    def expires_before(self, other: Keeping) -> bool:
        """Tell whether records may expire that do not in the other."""
        return self.deletes and (not other.deletes or self.ms < other.ms or self.bytes < other.bytes)

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


def loss(before: Keeping, after: Keeping, measure: Measure | None, partitions: int, now_ms: int) -> Loss:
    """Return what goes when one topic's `before` becomes `after`."""
    if not after.is_stricter_than(before):
        return Loss()
    is_compacted = after.begins_to_compact(before)
    if measure is not None and not measure.records:
        return Loss()
    if not after.expires_before(before):
        return Loss(is_compacted=is_compacted)
    if measure is None:
        return Loss(is_known=False, is_compacted=is_compacted)
    expired = sum(size for newest, size in measure.ages if newest < now_ms - after.ms)
    # Bytes are limited per partition; how full each one is was not measured, so any may be beyond its share.
    excess = max(0, measure.bytes - after.bytes * partitions) if after.bytes != _FOREVER else 0
    is_beyond = measure.bytes > after.bytes
    is_dated = bool(measure.ages) or after.ms == _FOREVER
    is_known = is_dated and not (is_beyond and not excess)
    return Loss(max(expired, int(excess)), is_known, is_compacted)


def config_at(path: str) -> str:
    """Return the config a field says: its own, or the one a property of the cluster is the default of."""
    if path.startswith(PROPERTIES):
        return CONFIG_DEFAULTS.get(path.removeprefix(PROPERTIES), "")
    return path.removeprefix(CONFIGS)


def reason_of(change: Change) -> Reason | None:
    """Return why a change of retention lets records expire."""
    key = config_at(change.path)
    if key == CLEANUP:
        return Reason.DELETE_ADDED if "delete" in str(change.after or "delete").split(",") else None
    return Reason.RETENTION_LOWERED if key in {RETENTION_MS, RETENTION_BYTES} else None


def _limit(value: str) -> float:
    try:
        number = int(value)
    except ValueError:
        return _FOREVER
    return _FOREVER if number < 0 else number
