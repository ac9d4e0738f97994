"""What a producer died of: once it is dead every call says only that it is."""

from __future__ import annotations

from typing import Any


def named(producer: Any, error: Any) -> Any:
    """Return the error a transactional producer died of where `error` says no more than that; else `error` itself."""
    from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415 - whoever copies nothing imports no client

    if error.code() != KafkaError._FATAL:  # noqa: SLF001 - all codes of the library's own are called so
        return error
    try:
        producer.begin_transaction()  # Dead, it asks nobody and answers why.
    except KafkaException as died:
        return died.args[0]
    return error
