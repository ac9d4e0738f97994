"""Requests that change something, each about many things; what they answer goes to each action it is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from reconciler.providers.base import go_on
from reconciler.providers.kafka.acls import create_bindings, delete_bindings
from reconciler.providers.kafka.changing.altering import alter, altered
from reconciler.providers.kafka.faults import of_code
from reconciler.providers.kafka.metadata import BROKER, TOPIC
from reconciler.providers.kafka.reaching.patience import in_rounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from reconciler.providers.kafka.changing.asked import Asked
    from reconciler.providers.kafka.client import KafkaClient
    from reconciler.resources.bindings import Binding

# Only who connects pays for the library.
# ruff: noqa: PLC0415

RECORDS_AT_ONCE: Final = 9_000
"""The controller takes 10,000 records in one operation, one for each topic, partition and config (6.2)."""
TIMEOUT_MS: Final = 60_000
EXISTS: Final = 36
ABSENT: Final = frozenset({3, 100})


def creation(topics: Iterable[tuple[str, int | None, int | None, Mapping[str, str]]]) -> Any:
    """Return the request that makes topics: name, partitions, replicas and configs; `None`: as many as brokers give."""
    from kafka.protocol.admin import CreateTopicsRequest

    kind = CreateTopicsRequest.CreatableTopic
    made = [
        kind(
            name=name,
            num_partitions=partitions or -1,
            replication_factor=replicas or -1,
            assignments=[],
            configs=[kind.CreatableTopicConfig(name=key, value=value) for key, value in sorted(configs.items())],
        )
        for name, partitions, replicas, configs in topics
    ]
    return CreateTopicsRequest(topics=made, timeout_ms=TIMEOUT_MS, validate_only=False, min_version=7)


def deletion(ids: Iterable[str]) -> Any:
    """Return the request that deletes topics by their ids: one made anew under the same name is another one."""
    from uuid import UUID

    from kafka.protocol.admin import DeleteTopicsRequest

    topics = [DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=UUID(each)) for each in ids]
    return DeleteTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS, min_version=6)


def create(client: KafkaClient, asked: Sequence[Asked], may_go_on: Callable[[], None] = go_on) -> list[Asked]:
    """Make new topics; return those that are there already, for their looks tell whose they are."""
    there: list[Asked] = []

    def ask(some: Sequence[Asked]) -> list[tuple[Asked, Any]]:
        request = creation(
            (each.name, each.spec.partitions, each.spec.replication_factor, each.spec.configs) for each in some
        )
        answers = {each.name: each for each in client.send(request, doing="creating topics").topics}
        return [(each, answers[each.name]) for each in some]

    for some in _by_records(asked, _records_of_new):
        for each, answer in in_rounds(some, ask, _code, may_go_on):
            if answer.error_code == EXISTS:
                there.append(each)
            elif answer.error_code:
                each.error = _refusal(each, answer)
            else:
                each.incarnation = str(answer.topic_id)
    return there


def grow(
    client: KafkaClient, asked: Sequence[Asked], may_go_on: Callable[[], None] = go_on, *, is_trial: bool = False
) -> None:
    """Give topics more partitions; as a trial nothing is done, and what would be refused is."""
    from kafka.protocol.admin import CreatePartitionsRequest

    kind = CreatePartitionsRequest.CreatePartitionsTopic

    def ask(some: Sequence[Asked]) -> list[tuple[Asked, Any]]:
        topics = [kind(name=each.name, count=each.partitions, assignments=None) for each in some]
        request = CreatePartitionsRequest(topics=topics, timeout_ms=TIMEOUT_MS, validate_only=is_trial)
        answers = {each.name: each for each in client.send(request, doing="adding partitions").results}
        return [(each, answers[each.name]) for each in some]

    for some in _by_records(asked, lambda each: each.partitions or 0):
        _refuse(in_rounds(some, ask, _code, may_go_on))


def configure(
    client: KafkaClient, asked: Sequence[Asked], may_go_on: Callable[[], None] = go_on, *, is_trial: bool = False
) -> None:
    """Set and reset configs of topics, all of one topic at once; as a trial nothing is done."""

    def ask(some: Sequence[Asked]) -> list[tuple[Asked, Any]]:
        wanted = [(TOPIC, each.name, each.configs) for each in some]
        found = altered(client, wanted, doing="changing configs of topics", is_trial=is_trial)
        answers = {each.resource_name: each for each in found}
        return [(each, answers[each.name]) for each in some]

    for some in _by_records(asked, lambda each: len(each.configs)):
        _refuse(in_rounds(some, ask, _code, may_go_on))


def configure_brokers(client: KafkaClient, wanted: Mapping[str, str | None]) -> None:
    """Set and reset properties of all brokers.

    Raises:
        ReconcilerError: The brokers refuse one; nothing was changed.
    """
    alter(client, [(BROKER, "", wanted)], doing="changing properties", what=f"cluster {client.name}")


def delete(
    client: KafkaClient, asked: Sequence[Asked], ids: Mapping[str, str], may_go_on: Callable[[], None] = go_on
) -> None:
    """Delete topics by their ids: one that was made anew under the same name is another one."""

    def ask(some: Sequence[Asked]) -> list[tuple[Asked, Any]]:
        request = deletion(ids[each.name] for each in some)
        answers = {str(each.topic_id): each for each in client.send(request, doing="deleting topics").responses}
        return [(each, answers[ids[each.name]]) for each in some]

    for some in _by_records(asked, lambda _each: 1):
        for each, answer in in_rounds(some, ask, _code, may_go_on):
            if answer.error_code and answer.error_code not in ABSENT:
                each.error = _refusal(each, answer)


def bind(client: KafkaClient, asked: Sequence[Asked]) -> None:
    """Make and take away access rules."""
    _each_binding(client, asked, create_bindings, lambda each: each.binds)
    _each_binding(client, asked, delete_bindings, lambda each: each.unbinds)


def _each_binding(
    client: KafkaClient,
    asked: Sequence[Asked],
    do: Callable[[KafkaClient, Sequence[Binding]], list[tuple[int, str]]],
    wanted: Callable[[Asked], Sequence[Binding]],
) -> None:
    for some in _by_records([each for each in asked if each.is_open and wanted(each)], lambda each: len(wanted(each))):
        answers = iter(do(client, [bound for each in some for bound in wanted(each)]))
        for each in some:
            for _ in wanted(each):
                code, message = next(answers)
                each.is_bound |= not code
                if code and each.error is None:
                    each.error = of_code(code, message, what=str(each.action.address))


def _records_of_new(each: Asked) -> int:
    return 1 + (each.spec.partitions or 1) + len(each.spec.configs)


def _by_records(asked: Sequence[Asked], records: Callable[[Asked], int]) -> Iterator[list[Asked]]:
    """Yield actions in portions that one request may have; one that is too large alone is refused by the broker."""
    some: list[Asked] = []
    taken = 0
    for each in asked:
        count = records(each)
        if some and taken + count > RECORDS_AT_ONCE:
            yield some
            some, taken = [], 0
        some.append(each)
        taken += count
    if some:
        yield some


def _refuse(answered: Iterable[tuple[Asked, Any]]) -> None:
    for each, answer in answered:
        if answer.error_code:
            each.error = _refusal(each, answer)


def _code(answer: Any) -> int:
    return int(answer.error_code)


def _refusal(each: Asked, answer: Any) -> Any:
    return of_code(answer.error_code, answer.error_message or "", what=str(each.action.address))
