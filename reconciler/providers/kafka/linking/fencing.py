"""Shutting copiers out: whoever holds one of these transactional ids commits nothing any more."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import RetryableError
from reconciler.providers.kafka.faults import of_code
from reconciler.providers.kafka.ledgerwire import TRANSACTION_MS, WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reconciler.providers.kafka.client import KafkaClient

_AGAIN: Final = frozenset({14, 15, 16, 51})
"""The coordinator loads, moves, or still ends a transaction of the one that is fenced."""


def fence(client: KafkaClient, transactional_ids: Iterable[str]) -> None:
    """Fence producers and abort what they have open; when it returns, nothing of theirs is in doubt.

    Raises:
        RetryableError: A coordinator does not answer.
        NotAuthorizedError: Whoever acts may not write with such ids.
    """
    left = sorted(transactional_ids)
    until = monotonic() + WAIT_S
    while left:
        answers = client.asked("fencing copiers", _initialised, client, left)
        left = [name for name, code in answers.items() if code in _AGAIN]
        for name, code in answers.items():
            if code and code not in _AGAIN:
                raise of_code(code, "", what=f"transactional id {name}")
        if left and monotonic() > until:
            message = f"{len(left)} copiers of cluster {client.name} could not be fenced, such as {left[0]}"
            raise RetryableError(message, hint="Its transaction coordinator does not answer: try again.")


def _initialised(client: KafkaClient, transactional_ids: list[str]) -> dict[str, int]:
    """Ask the coordinator of each id for a new epoch of its producer, as a producer that begins does."""
    from kafka.protocol.metadata import CoordinatorType  # noqa: PLC0415 - only who changes links pays
    from kafka.protocol.producer.transaction import InitProducerIdRequest  # noqa: PLC0415 - as above

    admin: Any = client.admin
    connections = admin._manager  # noqa: SLF001 - the library has no method for it

    async def asked() -> dict[str, int]:
        found = {}
        coordinators = await admin._find_coordinator_ids(transactional_ids, key_type=CoordinatorType.TRANSACTION)  # noqa: SLF001
        for name, node in coordinators.items():
            request = InitProducerIdRequest(
                transactional_id=name, transaction_timeout_ms=TRANSACTION_MS, producer_id=-1, producer_epoch=-1
            )
            found[name] = (await connections.send(request, node_id=node)).error_code
        return found

    return dict(connections.run(asked))
