"""What a producer died of: once it is dead every call says only that it is, or fails without a word."""

from __future__ import annotations

from typing import Any

# Whoever copies nothing imports no client.
# ruff: noqa: PLC0415
# The library has no public names for what it finds wrong itself.
# ruff: noqa: SLF001


def named(producer: Any, error: Any) -> Any:
    """Return the error a transactional producer died of where `error` says no more than that; else `error` itself."""
    from confluent_kafka import KafkaError, KafkaException

    if error.code() != KafkaError._FATAL:
        return error
    try:
        producer.begin_transaction()  # Dead, it asks nobody and answers why.
    except KafkaException as died:
        return died.args[0]
    return error


def behind(error: BaseException) -> Any:
    """Return the client's error behind what it raised, `None` where it is none of its.

    What is fatal it raises between two callbacks: the next of them (ours) then fails with it as the cause, or, where
    none follows, the call fails without an error.
    """
    from confluent_kafka import KafkaError, KafkaException

    if isinstance(error, SystemError):
        error = error.__cause__ or KafkaException(KafkaError(KafkaError._FATAL))
    return error.args[0] if isinstance(error, KafkaException) else None
