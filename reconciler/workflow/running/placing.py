"""Refusals of platforms with the line of the files that they are about."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from reconciler.applying.events import ActionFailed
from reconciler.manifests.origins import explain_origin
from reconciler.resources.address import Address, address_of, cluster_of, full_name_of, kind_of, split_name, tiers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reconciler.applying.events import Event
    from reconciler.manifests.loading import Loaded

_MOST: Final = 50
"""Addresses whose files are read again: a person reads the first few refusals."""
_KEYED: Final = ("spec.configs.", "spec.properties.")


@dataclass
class Placing:
    """Where in the files that were loaded a config or property is written that a platform names in its refusal."""

    loaded: Loaded
    _written: dict[Address, dict[str, str]] = field(default_factory=dict)

    def told(self, address: Address, message: str) -> str:
        """Return a refusal with its line before it, or as it is where it names nothing that is written."""
        for owner in _owners(address):
            for key, place in self._keys(owner).items():
                if key in message:
                    return f"{place}: {message}"
        return message

    def reporting(self, report: Callable[[Event], None]) -> Callable[[Event], None]:
        """Return what reports the same events, failures with their lines."""

        def say(event: Event) -> None:
            if isinstance(event, ActionFailed):
                event = replace(event, error=self.told(event.address, event.error))
            report(event)

        return say

    def _keys(self, owner: Address) -> dict[str, str]:
        """Return the keys that are written for an address with their places, those with the longest names first."""
        if owner not in self._written:
            if owner not in self.loaded.places or len(self._written) >= _MOST:
                return {}
            found = {
                path.removeprefix(group): place
                for path, place in explain_origin(self.loaded, owner).items()
                for group in _KEYED
                if path.startswith(group)
            }
            self._written[owner] = dict(sorted(found.items(), key=lambda each: (-len(each[0]), each[0])))
        return self._written[owner]


def _owners(address: Address) -> Iterator[Address]:
    """Yield what may say a config of an address, the nearest first."""
    yield address
    if kind_of(address) == "topic":
        namespace, _ = split_name(full_name_of(address))
        for tier in reversed(list(tiers_of(namespace))):
            yield address_of("namespace", cluster_of(address) or "", tier)
