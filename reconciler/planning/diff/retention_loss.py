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
    """How long and how much a topic keeps, and whether it deletes at all; -1 is without limit."""

    ms: float
    bytes: float
    deletes: bool

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

        return cls(
            ms=_limit(value(RETENTION_MS, "604800000")),
            bytes=_limit(value(RETENTION_BYTES, "-1")),
            deletes="delete" in value(CLEANUP, "delete").split(","),
        )

    def is_stricter_than(self, other: Keeping) -> bool:
        """Tell whether this may remove what the other keeps."""
        if not self.deletes:
            return False
        return not other.deletes or self.ms < other.ms or self.bytes < other.bytes


@dataclass(frozen=True, slots=True)
class Loss:
    """What a change would remove now. `is_known` is false where nobody measured."""

    bytes: int = 0
    is_known: bool = True

    def __add__(self, other: Loss) -> Loss:
        """Add what two topics lose."""
        return Loss(self.bytes + other.bytes, self.is_known and other.is_known)

    @property
    def risk(self) -> Risk:
        """Data loss where records go, or where we cannot tell."""
        return Risk.DATA_LOSS if self.bytes or not self.is_known else Risk.NONE

    @property
    def estimate(self) -> Estimate:
        """The bytes that would expire."""
        return Estimate(bytes=self.bytes)


def loss(before: Keeping, after: Keeping, measure: Measure | None, partitions: int, now_ms: int) -> Loss:
    """Return what goes when one topic's `before` becomes `after`."""
    if not after.is_stricter_than(before):
        return Loss()
    if measure is None:
        return Loss(is_known=False)
    if not measure.records:
        return Loss()
    expired = sum(size for newest, size in measure.ages if newest < now_ms - after.ms)
    # Bytes are limited per partition; how full each one is was not measured, so any may be beyond its share.
    excess = max(0, measure.bytes - after.bytes * partitions) if after.bytes != _FOREVER else 0
    is_beyond = measure.bytes > after.bytes
    is_dated = bool(measure.ages) or after.ms == _FOREVER
    return Loss(max(expired, int(excess)), is_known=is_dated and not (is_beyond and not excess))


def config_at(path: str) -> str:
    """Return the config a field says: its own, or the one a property of the cluster is the default of."""
    if path.startswith(PROPERTIES):
        return CONFIG_DEFAULTS.get(path.removeprefix(PROPERTIES), "")
    return path.removeprefix(CONFIGS)


def reason_of(change: Change) -> Reason | None:
    """Return why a change of retention is worth a second look."""
    key = config_at(change.path)
    if key == CLEANUP:
        return Reason.DELETE_ADDED
    return Reason.RETENTION_LOWERED if key in {RETENTION_MS, RETENTION_BYTES} else None


def _limit(value: str) -> float:
    try:
        number = int(value)
    except ValueError:
        return _FOREVER
    return _FOREVER if number < 0 else number
