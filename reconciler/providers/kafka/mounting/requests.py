"""Requests about one topic that is restored or was archived: make it, set its configs, delete it by its id."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final

from reconciler.errors import RetryableError
from reconciler.providers.kafka.changing.writing import ABSENT, EXISTS, TIMEOUT_MS
from reconciler.providers.kafka.client import TOPIC
from reconciler.providers.kafka.faults import of_code

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.providers.kafka.client import KafkaClient, TopicSeen

# Only who connects pays for the library.
# ruff: noqa: PLC0415

_SHOWN_AFTER_S: Final = 30.0
_SET, _DELETE = 0, 1


def seen(client: KafkaClient, name: str) -> TopicSeen | None:
    """Return a topic as the metadata have it; `None`: there is none, or it is being deleted."""
    found = client.topics([name]).get(name)
    return None if found is None or found.error in ABSENT else found


def create(client: KafkaClient, name: str, shape: tuple[int, int], configs: Mapping[str, str]) -> str | None:
    """Make a topic of so many partitions and replicas and return its id once it shows; `None`: one has the name.

    Raises:
        UserError: The cluster refuses to.
    """
    from kafka.protocol.admin import CreateTopicsRequest

    kind = CreateTopicsRequest.CreatableTopic
    asked = kind(
        name=name,
        num_partitions=shape[0],
        replication_factor=shape[1],
        assignments=[],
        configs=[kind.CreatableTopicConfig(name=key, value=value) for key, value in sorted(configs.items())],
    )
    request = CreateTopicsRequest(topics=[asked], timeout_ms=TIMEOUT_MS, validate_only=False, min_version=7)
    (answer,) = client.send(request, doing=f"creating topic {name}").topics
    if answer.error_code == EXISTS:
        return None
    if answer.error_code:
        raise of_code(answer.error_code, answer.error_message or "", what=f"topic {name}")
    _wait(client, name, is_there=True)
    return str(answer.topic_id)


def configure(client: KafkaClient, name: str, configs: Mapping[str, str | None]) -> None:
    """Set configs of a topic in one request; `None`: back to what it inherits.

    Raises:
        UserError: The cluster refuses to; nothing was changed.
    """
    from kafka.protocol.admin import IncrementalAlterConfigsRequest

    operations = [(key, _DELETE if value is None else _SET, value) for key, value in sorted(configs.items())]
    request = IncrementalAlterConfigsRequest(resources=[(TOPIC, name, operations)], validate_only=False)
    (answer,) = client.send(request, doing=f"changing configs of topic {name}").responses
    if answer.error_code:
        raise of_code(answer.error_code, answer.error_message or "", what=f"topic {name}")


def delete(client: KafkaClient, name: str, topic_id: str) -> None:
    """Delete a topic by its id and return once it does not show: another of its name stays.

    Raises:
        UserError: The cluster refuses to.
        RetryableError: It shows still after half a minute.
    """
    from uuid import UUID

    from kafka.protocol.admin import DeleteTopicsRequest

    topic = DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=UUID(topic_id))
    request = DeleteTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS, min_version=6)
    (answer,) = client.send(request, doing=f"deleting topic {name}").responses
    if answer.error_code and answer.error_code not in ABSENT:
        raise of_code(answer.error_code, answer.error_message or "", what=f"topic {name}")
    _wait(client, name, topic_id, is_there=False)


def _wait(client: KafkaClient, name: str, topic_id: str | None = None, *, is_there: bool) -> None:
    """Return once the brokers show what their controller has done (6.2)."""
    deadline = monotonic() + _SHOWN_AFTER_S
    while True:
        found = seen(client, name)
        shows = found is not None and not found.error and bool(found.replicas)
        if shows == is_there or (found is not None and topic_id is not None and found.id != topic_id):
            return
        if monotonic() > deadline:
            word = "does not show" if is_there else "still shows"
            message = f"topic {name} {word} after {_SHOWN_AFTER_S:.0f} s"
            raise RetryableError(message, hint="The brokers lag behind their controller: run the same command again.")
