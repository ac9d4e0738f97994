"""Configs of topics and brokers, set and reset: one request for many, a key that is `None` is reset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reconciler.providers.kafka.faults import of_code

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reconciler.providers.kafka.client import KafkaClient

_SET, _DELETE = 0, 1


def altered(
    client: KafkaClient,
    wanted: Sequence[tuple[int, str, Mapping[str, str | None]]],
    *,
    doing: str,
    is_trial: bool = False,
) -> Sequence[Any]:
    """Return the answer about each resource, by type, name and configs; as a trial nothing is done."""
    from kafka.protocol.admin import IncrementalAlterConfigsRequest  # noqa: PLC0415 - only who connects pays

    resources = [
        (kind, name, [(key, _DELETE if value is None else _SET, value) for key, value in sorted(configs.items())])
        for kind, name, configs in wanted
    ]
    request = IncrementalAlterConfigsRequest(resources=resources, validate_only=is_trial)
    answers: Sequence[Any] = client.send(request, doing=doing).responses
    return answers


def alter(
    client: KafkaClient, wanted: Sequence[tuple[int, str, Mapping[str, str | None]]], *, doing: str, what: str
) -> None:
    """Set and reset all, where what is refused of one thing is refused as a whole; `what` names what has no name.

    Raises:
        ReconcilerError: The brokers refuse one.
    """
    for answer in altered(client, wanted, doing=doing):
        if answer.error_code:
            raise of_code(answer.error_code, answer.error_message or "", what=answer.resource_name or what)
