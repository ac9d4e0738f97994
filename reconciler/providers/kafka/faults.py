"""Errors of the brokers and of the client libraries in our words."""

from __future__ import annotations

from typing import Final

from reconciler.errors import NotAuthorizedError, ReconcilerError, RetryableError, UserError

_TRANSIENT: Final = frozenset({5, 6, 7, 13, 14, 15, 16, 41, 56, 60, 89})
_FORBIDDEN: Final = frozenset({29, 30, 31, 53, 58})


def translated(error: BaseException, *, doing: str, cluster: str) -> ReconcilerError:
    """Return an error of a client library as one of ours."""
    if isinstance(error, ReconcilerError):
        return error
    code = getattr(error, "errno", None)
    if isinstance(code, int) and code > 0:
        return of_code(code, str(error), what=f"cluster {cluster}: {doing}")
    return RetryableError(f"cluster {cluster}: {doing}: {error}", hint="Check that its brokers can be reached.")


def of_code(code: int, message: str, *, what: str) -> ReconcilerError:
    """Return a refusal of the brokers as one of ours."""
    said = f"{what}: {message or f'the brokers answer with code {code}'}"
    if code in _TRANSIENT:
        return RetryableError(said, hint="Run it again.")
    if code in _FORBIDDEN:
        return NotAuthorizedError(said, hint="Allow it to whoever acts.")
    return UserError(said, hint="Correct it in the files, and plan again.")
