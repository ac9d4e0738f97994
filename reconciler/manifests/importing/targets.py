"""Where what was found goes to: a cluster of ours, what it is like, and what is declared of it already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reconciler.manifests.configwords import CATALOGS
from reconciler.resources.address import Address
from reconciler.resources.configkeys import ConfigKey
from reconciler.resources.inventory import Declared

SEPARATOR = "."
PROVIDER = "kafka"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One cluster of ours."""

    name: str
    separator: str = SEPARATOR
    provider: str = PROVIDER
    is_declared: bool = False
    declared: Mapping[Address, Declared] = field(default_factory=dict)
    """What the workspace declares on it already."""

    @property
    def catalog(self) -> Mapping[str, ConfigKey] | None:
        """The config keys it knows; `None`: they are judged at plan."""
        return CATALOGS.get(self.provider)
