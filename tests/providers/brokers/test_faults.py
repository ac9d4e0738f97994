"""What each code of brokers and of librdkafka becomes: retry, log in otherwise, correct the files, look again."""

from __future__ import annotations

from typing import Final

import pytest
from confluent_kafka import KafkaError, KafkaException
from kafka import errors as theirs

from reconciler.errors import (
    NotAuthorizedError,
    NotFoundError,
    ProducerFencedError,
    ReconcilerError,
    RetryableError,
    UserError,
)
from reconciler.providers.brokers.faults import translate_code, translate_error

TRANSIENT: Final = (5, 6, 7, 13, 14, 15, 16, 41, 56, 60, 89)
KINDS: Final[dict[type[ReconcilerError], tuple[int, ...]]] = {
    RetryableError: (*TRANSIENT, KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN),
    NotAuthorizedError: (29, 30, 31, 53, 58, KafkaError._AUTHENTICATION),
    NotFoundError: (3, 69, 91, 100),
    UserError: (17, 36, 37, 38, 39, 40, 42, 44, 54, 87, 999, KafkaError._SSL),
    ProducerFencedError: (47, 90, KafkaError._FENCED),
}
CASES: Final = [(code, kind) for kind, codes in KINDS.items() for code in codes]


@pytest.mark.fact("F-K-084")
@pytest.mark.parametrize(("code", "kind"), CASES)
def test_a_code_becomes(code: int, kind: type[ReconcilerError]) -> None:
    error = translate_code(code, "", what="topic/west/shop:orders")
    assert type(error) is kind
    assert error.message.startswith("topic/west/shop:orders: ")
    assert error.hint


@pytest.mark.parametrize(("code", "kind"), CASES)
def test_librdkafka_s_error_of_a_code_becomes(code: int, kind: type[ReconcilerError]) -> None:
    error = translate_error(KafkaException(KafkaError(code)), doing="reading", cluster="west")
    assert type(error) is kind
    assert error.message.startswith("cluster west: reading")


@pytest.mark.parametrize(("code", "kind"), [(code, kind) for code, kind in CASES if code > 0])
def test_kafka_python_s_error_of_a_code_becomes(code: int, kind: type[ReconcilerError]) -> None:
    error = translate_error(theirs.for_code(code)(), doing="reading", cluster="west")
    assert type(error) is kind
    assert "Error]" not in error.message


@pytest.mark.fact("F-K-085")
def test_brokers_without_an_authorizer_are_told_apart_from_rules_they_refuse() -> None:
    error = translate_code(54, "", what="cluster west")
    assert "these brokers have no authorizer" in error.message
    assert "authorizer.class.name" in error.hint


@pytest.mark.parametrize(("code", "said"), [(10, "max.message.bytes"), (32, "message.timestamp."), (87, "key")])
def test_a_record_that_is_refused_says_what_to_do_about_the_record(code: int, said: str) -> None:
    error = translate_error(KafkaException(KafkaError(code)), doing="writing to orders", cluster="west")
    assert said in error.message
    assert said in error.hint
    assert "in the files" not in error.hint


def test_what_a_broker_says_itself_is_passed_on_with_the_place() -> None:
    error = translate_code(40, "Invalid value x for configuration retention.ms.", what="topic/west/orders")
    assert error.message == "topic/west/orders: Invalid value x for configuration retention.ms"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (theirs.KafkaTimeoutError("Timed out after 5 ms"), "it did not answer in time"),
        (theirs.KafkaConnectionError("socket disconnected"), "socket disconnected"),
        (OSError(58, "a number that means something else"), "a number that means something else"),
        (theirs.UnknownBrokerIdError(-1), "a partition has no leader at the moment"),
        (theirs.NodeNotReadyError(3), "broker 3 cannot be reached"),
    ],
)
def test_what_has_no_code_may_pass(error: Exception, said: str) -> None:
    found = translate_error(error, doing="reading", cluster="west")
    assert type(found) is RetryableError
    assert said in found.message


def test_what_is_an_error_of_ours_already_stays_as_it_is() -> None:
    ours = UserError("cannot be", hint="Do otherwise")
    assert translate_error(ours, doing="reading", cluster="west") is ours


def test_what_a_broker_prints_of_a_request_is_left_out_of_what_it_lacks() -> None:
    dump = "Request Request(processor=1, header=Header(HeapByteBuffer[pos=47 lim=3]), x=(y)) needs ALTER permission."
    assert translate_code(31, dump, what="topic/west/orders").message == "topic/west/orders: it needs ALTER permission"
