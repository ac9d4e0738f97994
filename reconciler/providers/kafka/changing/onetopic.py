"""One topic made, configured, deleted: what is not an action of a plan. Each returns once brokers show it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.providers.kafka.changing.altering import alter
from reconciler.providers.kafka.changing.showing import wait_until_gone, wait_until_made
from reconciler.providers.kafka.changing.writing import ABSENT, EXISTS, creation, deletion
from reconciler.providers.kafka.faults import of_code
from reconciler.providers.kafka.metadata import TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.providers.kafka.client import KafkaClient
    from reconciler.providers.kafka.metadata import TopicSeen


def seen(client: KafkaClient, name: str) -> TopicSeen | None:
    """Return a topic as the metadata have it; `None`: there is none, or it is being deleted."""
    found = client.topics([name]).get(name)
    return None if found is None or found.error in ABSENT else found


def create(client: KafkaClient, name: str, shape: tuple[int, int], configs: Mapping[str, str]) -> str | None:
    """Make a topic of so many partitions and replicas and return its id; `None`: one has the name.

    Raises:
        UserError: The cluster refuses to.
    """
    request = creation([(name, *shape, configs)])
    (answer,) = client.send(request, doing=f"creating topic {name}").topics
    if answer.error_code == EXISTS:
        return None
    if answer.error_code:
        raise of_code(answer.error_code, answer.error_message or "", what=f"topic {name}")
    wait_until_made(client, [name])
    return str(answer.topic_id)


def configure(client: KafkaClient, name: str, configs: Mapping[str, str | None]) -> None:
    """Set configs of a topic in one request; `None`: back to what it inherits.

    Raises:
        UserError: The cluster refuses to; nothing was changed.
    """
    alter(client, [(TOPIC, name, configs)], doing=f"changing configs of topic {name}", what=f"topic {name}")


def delete(client: KafkaClient, name: str, topic_id: str) -> None:
    """Delete a topic by its id: another of its name stays.

    Raises:
        UserError: The cluster refuses to.
        RetryableError: It shows still after half a minute.
    """
    (answer,) = client.send(deletion([topic_id]), doing=f"deleting topic {name}").responses
    if answer.error_code and answer.error_code not in ABSENT:
        raise of_code(answer.error_code, answer.error_message or "", what=f"topic {name}")
    wait_until_gone(client, {name: topic_id})
