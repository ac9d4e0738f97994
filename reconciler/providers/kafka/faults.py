"""Errors of the brokers and of both client libraries in our words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from reconciler.errors import NotAuthorizedError, ProducerFencedError, ReconcilerError, RetryableError, UserError
from reconciler.foreign import one_line
from reconciler.providers.kafka.codes import (
    ABSENT,
    FENCED,
    FORBIDDEN,
    LOGIN,
    OURS,
    REFUSED,
    SECURITY_DISABLED,
    TRANSIENT,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_ALIVE: Final = "See whether the brokers are alive and bootstrapServers names them, then run the same command again."
_HINTS: Final = {
    10: "Make the record smaller, or raise max.message.bytes of the topic, and run the same command again.",
    18: "Make the records smaller, or raise segment.bytes of the topic, and run the same command again.",
    32: "Raise message.timestamp.before.max.ms or message.timestamp.after.max.ms of the topic.",
    87: "Give every record a key, or take compact out of cleanup.policy of the topic, and run the same command again.",
    7: "It may have been done all the same: the same command looks first.",
    60: "Wait until they have moved, or cancel that, and run the same command again.",
    89: "Run the same command again later, or raise controller_mutation_rate for this principal.",
    35: "Upgrade the brokers, or leave it out of the files.",
    36: "Adopt it by declaring it, or choose another name.",
    38: "Lower the replication factor, or add brokers.",
    44: "Ask those who run the brokers what their policy wants.",
    58: "Check the credentials in spec.kafka.security, and that the user exists.",
    -169: "Check the credentials in spec.kafka.security, and that the user exists.",
    -181: "Check protocol and caFile in spec.kafka.security, and the certificates of the brokers.",
}
"""What to do about one code, where it is more than its kind says."""


@runtime_checkable
class _Dead(Protocol):
    """An error that connections died of; `connecting.py` lends it what it knows of the way."""

    told: Any


def translated(error: BaseException, *, doing: str, cluster: str) -> ReconcilerError:
    """Return an error of a client library as one of ours; `doing` completes "cluster C: doing"."""
    if isinstance(error, ReconcilerError):
        return error
    if isinstance(error, _Dead) and isinstance(found := error.told(doing), ReconcilerError):
        return found
    what = f"cluster {cluster}: {doing}"
    if (code := _code_of(error)) is not None:
        return of_code(code, _said(error), what=what)
    if "Timeout" in type(error).__name__:
        return RetryableError(f"{what}: {OURS[-185]}", hint=_ALIVE)
    return RetryableError(f"{what}: {_said(error) or type(error).__name__}", hint=_ALIVE)


def of_code(code: int, message: str, *, what: str) -> ReconcilerError:
    """Return a refusal of the brokers as one of ours; `message` is theirs, where they gave one."""

    def said(words: Mapping[int, str]) -> str:
        return f"{what}: {_plain(message) or words[code]}"

    if code in TRANSIENT:
        return RetryableError(said(TRANSIENT), hint=_HINTS.get(code, "Run the same command again."))
    if code in OURS:
        return RetryableError(said(OURS), hint=_HINTS.get(code, _ALIVE))
    if code in FORBIDDEN:
        may = "Allow it to the principal of spec.kafka.security, or leave it out."
        return NotAuthorizedError(said(FORBIDDEN), hint=_HINTS.get(code, may))
    if code in LOGIN:
        kind = NotAuthorizedError if code == _AUTHENTICATION else UserError
        return kind(said(LOGIN), hint=_HINTS[code])
    if code in FENCED:
        return ProducerFencedError(said(FENCED), hint="Somebody else goes on with it; nothing of this is committed.")
    if code in ABSENT:
        return UserError(said(ABSENT), hint="It has gone since it was last looked at: plan again.")
    if code == SECURITY_DISABLED:
        unarmed = f"{what}: these brokers have no authorizer, so that access rules are not possible"
        return UserError(unarmed, hint="Set authorizer.class.name at the brokers, or take the rules out of the files.")
    if code in REFUSED and message.startswith(_PREFIX):
        message = ""
    fallback = REFUSED if code in REFUSED else {code: f"the brokers refuse it with code {code}"}
    return UserError(said(fallback), hint=_HINTS.get(code, "Correct it in the files, and plan again."))


def _plain(message: str) -> str:
    """Return a broker's message without the request it prints whole in front of what it lacks."""
    if any(part in message for part in _OF_LIBRDKAFKA):
        return ""  # It has words of its own for its codes, and they say less than ours.
    needed = _NEEDED.fullmatch(message.strip())
    return one_line(f"it needs {needed[1]}" if needed else message).rstrip(".")


_PREFIX: Final = "Broker: "
"""How librdkafka begins its own words for a broker's code."""
_OF_LIBRDKAFKA: Final = ("Local: ", "Timed out waiting for operation")
_NEEDED: Final = re.compile(r"Request Request\(.*\) needs (.+? permission)\.?", re.DOTALL)
_AUTHENTICATION: Final = -169


def _code_of(error: BaseException) -> int | None:
    """Return the code of an error of either library; Python's own have numbers that mean something else."""
    if isinstance(error, OSError):
        return None
    inner = error.args[0] if error.args else None
    code = getattr(inner, "code", None)
    found = code() if callable(code) else getattr(error, "errno", None)
    return found if isinstance(found, int) and found not in {0, -1} else None


def _said(error: BaseException) -> str:
    """Return what an error says, without the name and the number that libraries put before it."""
    inner = error.args[0] if error.args else None
    text = getattr(inner, "str", None)
    return one_line(str(text()) if callable(text) else " ".join(str(part) for part in error.args))
