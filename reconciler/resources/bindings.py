"""One access rule as brokers keep it: one principal, one operation, on one name or on all that begin with it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Binding:
    """One entry of a broker's access rules, in our words, with the broker's flat names."""

    resource: str
    """`topics`, `groups`, `transactional-ids`, and what we have no words for: `cluster`, `user`, `delegation-token`."""
    name: str
    is_prefix: bool
    principal: str
    host: str
    operation: str
    permission: str

    def __str__(self) -> str:
        """Return it as a person reads it: `allow User:checkout read on groups billing*`."""
        where = "" if self.host == "*" else f" from {self.host}"
        name = f"{self.name}*" if self.is_prefix else self.name
        return f"{self.permission} {self.principal}{where} {self.operation} on {self.resource} {name}"
