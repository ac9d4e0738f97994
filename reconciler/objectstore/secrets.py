"""Keys of an account, which travel inside pickles and are never shown."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """Text that shows as `***` wherever it is printed."""

    text: str

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__


@dataclass(frozen=True, slots=True)
class Credentials:
    """A key pair, with a session token where it was lent for a while."""

    access_key: str
    secret_key: Secret
    token: Secret | None = None
