"""Nonces: the one thing below the edge that may be different every time.

They name fresh objects and let a writer recognise its own body; no decision ever rests on their value.
"""

from __future__ import annotations

import secrets


def nonce() -> str:
    """Return 32 random hexadecimal digits; what needs a shorter name takes the first of them."""
    return secrets.token_hex(16)


def jitter() -> float:
    """Return a number between 0 and 1 that spreads writers which lost the same race."""
    return secrets.randbits(32) / (1 << 32)
