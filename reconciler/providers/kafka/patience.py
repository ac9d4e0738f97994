"""How long brokers are waited for, and which requests are sent again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from time import monotonic
from typing import Any, Final, TypeVar

from reconciler.errors import ReconcilerError, RetryableError, UnansweredError
from reconciler.providers.kafka.faults import UNDONE, translated
from reconciler.runtime.retry import Backoff, pause

#
# What was never sent, or changes nothing, is sent again. A change whose answer is lost is not: whoever asked looks what
# is there. What brokers say they did not do (`faults.UNDONE`) is asked again for as long as the rest gets done, as
# slowly as they want it: a throttled connection stands still for the time they name.


T = TypeVar("T")
A = TypeVar("A")

READ_MS: Final = 30_000
WRITE_MS: Final = 90_000
"""More than brokers are given to do it in: they should be the ones who say that time is up."""
_AGAIN_SECONDS: Final = 30.0
"""For how long what can be sent again is, since brokers last answered anything: a dead cluster is waited for once.
A broker that died leads its partitions for up to ten seconds more, until the controller misses it."""
_THROTTLED_SECONDS: Final = 120.0
"""The longest that a throttled connection may stand still."""
_STALLED_SECONDS: Final = 60.0
"""After so long without a single thing done, what brokers leave undone is given up."""
_TRIES: Final = 8
"""So often, where no broker is there any more."""
_BACKOFF: Final = Backoff(first_s=0.2, longest_s=2.0)
_READING: Final = ("Describe", "List", "Metadata", "Find", "Fetch", "OffsetFetch", "ApiVersions")
"""How the names of requests begin that change nothing."""


def sent(
    connections: Any, request: Any, node: int | None, *, doing: str, cluster: str, is_only_once: bool = False
) -> Any:
    """Return the answer to a request, to one broker or to any.

    `is_only_once`: whoever asks looks which broker it is, and asks again.

    Raises:
        UnansweredError: It would change something, and nobody knows whether it did.
        ReconcilerError: It was not sent, or changes nothing; it was tried for a while where that is of use.
    """
    reads = _reads(request)
    limit = READ_MS if reads else WRITE_MS

    def may_repeat(error: BaseException) -> bool:
        return reads or _is_unsent(error)

    try:
        return _again(
            connections,
            lambda: connections.run(connections.send, request, node, limit),
            may_repeat,
            lambda error: translated(error, doing=doing, cluster=cluster),
            is_only_once=is_only_once,
        )
    except RetryableError as error:
        if error.__cause__ is None or may_repeat(error.__cause__):
            raise
        message = f"{error.message}; whether it was done is not known"
        raise UnansweredError(message, hint=error.hint) from error.__cause__


def called(connections: Any, call: Callable[[], T], *, doing: str, cluster: str) -> T:
    """Return what a call of the library answers that may be made again: it changes nothing, or to what it says.

    Raises:
        ReconcilerError: It was tried for a while where that is of use.
    """

    def told(error: Exception) -> ReconcilerError:
        connections.cluster._coordinators.clear()  # noqa: SLF001 - kept for ever, also when they move
        return translated(error, doing=doing, cluster=cluster)

    return _again(connections, call, lambda _error: True, told)


def _again(
    connections: Any,
    call: Callable[[], T],
    may_repeat: Callable[[BaseException], bool],
    told: Callable[[Exception], ReconcilerError],
    *,
    is_only_once: bool = False,
) -> T:
    """Call until there is an answer, as long as that is of use; what is raised is in our words."""
    tries = 0
    while True:
        try:
            answer = call()
        except Exception as error:
            found = told(error)
            tries += not _is_throttled(error)
            connections.silent_since = connections.silent_since or monotonic()
            patience = _THROTTLED_SECONDS if _is_throttled(error) else _AGAIN_SECONDS
            if not isinstance(found, RetryableError) or not may_repeat(error) or is_only_once:
                raise found from error
            is_down = tries >= _TRIES and not connections.route.is_any_up()
            if is_down or monotonic() - connections.silent_since > patience:
                raise found from error
        else:
            connections.silent_since = None
            return answer
        pause(_BACKOFF.after(tries))


def in_rounds(
    items: Sequence[T],
    ask: Callable[[Sequence[T]], Iterable[tuple[T, A]]],
    code: Callable[[A], int],
    may_go_on: Callable[[], None],
) -> Iterator[tuple[T, A]]:
    """Ask about all, then again about those that were left undone; yield each with the last answer about it.

    `may_go_on` is asked before every round but the first.
    """
    left, changed, tries = list(items), monotonic(), 0
    while left:
        undone: list[tuple[T, A]] = []
        for item, answer in ask(left):
            if code(answer) in UNDONE:
                undone.append((item, answer))
            else:
                yield item, answer
        if len(undone) < len(left):
            changed, tries = monotonic(), 0
        if undone and monotonic() - changed > _STALLED_SECONDS:
            yield from undone
            return
        left = [item for item, _ in undone]
        if left:
            tries += 1
            pause(_BACKOFF.after(tries))
            may_go_on()


def _reads(request: Any) -> bool:
    return type(request).__name__.startswith(_READING) or bool(getattr(request, "validate_only", False))


def _is_throttled(error: BaseException) -> bool:
    return "throttle" in str(error) and type(error).__name__ == "NodeNotReadyError"


def _is_unsent(error: BaseException) -> bool:
    """Return True if no broker can have seen the request: `connection.py` marks what no connection was made for."""
    return type(error).__name__ == "NodeNotReadyError" or getattr(error, "is_unsent", False)
