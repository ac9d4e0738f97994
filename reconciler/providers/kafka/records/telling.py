"""What confluent-kafka finds wrong, in our words: its own codes are negative, those of brokers are the protocol's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaError, KafkaException

from reconciler.errors import ProducerFencedError
from reconciler.providers.kafka.faults import of_code, translated

if TYPE_CHECKING:
    from reconciler.errors import ReconcilerError

# The library has no public names for what it finds itself.
# ruff: noqa: SLF001

_FENCED: Final = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
_AS_BROKERS_SAY: Final = {
    KafkaError._UNKNOWN_TOPIC: KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION: KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._AUTHENTICATION: KafkaError.SASL_AUTHENTICATION_FAILED,
}


def told(error: KafkaError, *, doing: str, cluster: str) -> ReconcilerError:
    """Return an error of the client or of a broker as ours."""
    if error.code() in _FENCED:
        message = f"{doing} on cluster {cluster}: a newer producer of the same transactional id took over"
        return ProducerFencedError(message, hint="Somebody else goes on with it; nothing of this attempt is committed.")
    code = _AS_BROKERS_SAY.get(error.code(), error.code())
    if code > 0:
        return of_code(code, error.str(), what=f"cluster {cluster}: {doing}")
    return translated(KafkaException(error), doing=doing, cluster=cluster)
