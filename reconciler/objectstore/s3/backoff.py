"""Pauses between the tries of a request: exponential, from what the settings say, as botocore decides to try again.

botocore's own pauses after a refusal begin at up to a second; a store that is only busy for a moment need not wait so
long. Whether a request is tried again, and how often, stays botocore's to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from reconciler.objectstore.nonces import jitter

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_s3.client import S3Client

_EVENT: Final = "needs-retry.s3"
_BOTOCORE: Final = "retry-config-s3"
"""What botocore calls its own handler."""
_LONGEST_S: Final = 20.0
_BUSY: Final = frozenset({429, 503})


def pause_from(client: S3Client, initial_ms: int, *, attempts: int) -> None:
    """Let a client pause `initial_ms` after the first refusal, and twice as long after each that follows."""
    from botocore.retries.standard import register_retry_handler  # noqa: PLC0415 - only users of S3 pay

    events: Any = client.meta.events
    events.unregister(_EVENT, unique_id=_BOTOCORE)
    decided: Callable[..., float | None] = register_retry_handler(client, attempts).needs_retry
    events.unregister(_EVENT, unique_id=_BOTOCORE)

    def needs_retry(**answered: Any) -> float | None:
        pause_s = decided(**answered)
        is_busy = answered.get("response") is not None and answered["response"][0].status_code in _BUSY
        return pause_s if pause_s is None or not is_busy else pause_after(answered["attempts"], initial_ms)

    events.register(_EVENT, needs_retry)


def pause_after(attempt: int, initial_ms: int) -> float:
    """Return the seconds to pause after a try that was refused, counted from 1: at least half of what doubling says."""
    longest: float = min(initial_ms / 1000 * 2.0 ** (attempt - 1), _LONGEST_S)
    return longest * (1 + jitter()) / 2
