"""Regular expressions over full names: RE2, as Kafka's broker-side subscriptions are, so that none takes long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from reconciler.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST_PATTERN: Final = 10_000


def matching(pattern: str, full_names: Sequence[str]) -> list[str]:
    """Return the names that match a pattern as a whole, as Java's `Pattern.matches` would.

    Raises:
        UserError: It is no regular expression, or too large.
    """
    if len(pattern) > LONGEST_PATTERN:
        message = f"a regular expression of {len(pattern):,} characters"
        raise UserError(message, hint=f"It has at most {LONGEST_PATTERN:,}.")
    try:
        pc.match_substring_regex(pa.array([""]), pattern)  # alone first: a ')' must not end the group around it
        is_match = pc.match_substring_regex(pa.array(full_names, pa.string()), rf"\A(?:{pattern})\z")
    except (pa.ArrowException, UnicodeEncodeError) as error:
        message = f"{pattern!r} is no regular expression: {str(error).removeprefix('Invalid regular expression: ')}"
        raise UserError(message, hint="Example: shop:eu:.* (RE2: without look-around and back-references).") from error
    return [name for name, is_wanted in zip(full_names, is_match.to_pylist(), strict=True) if is_wanted]
