"""Translation of errors of brokers and both client libraries."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Protocol, runtime_checkable

from reconciler.errors import (
    NotAuthorizedError,
    NotFoundError,
    ProducerFencedError,
    ReconcilerError,
    RetryableError,
    UserError,
)
from reconciler.runtime.text import to_one_line

TRANSIENT: Final = {
    5: "a partition has no leader at the moment",
    6: "the leader of a partition has just changed",
    7: "the brokers did not finish in time",
    8: "a broker is not available",
    9: "a replica is not available",
    13: "a broker lost its connection",
    14: "the coordinator is still loading",
    15: "the coordinator is not available",
    16: "the coordinator has just changed",
    19: "too few replicas are in sync",
    20: "too few replicas are in sync",
    22: "the group has consumers that read now",
    25: "the group has consumers that read now",
    27: "the group has consumers that read now",
    41: "the controller has just changed",
    51: "another transaction of the same id is ending",
    55: "the brokers did not get to it",
    56: "a broker cannot read or write its disk",
    60: "partitions of it are moving already",
    74: "the leader of a partition has just changed",
    75: "the leader of a partition has just changed",
    78: "the leader of a partition is not ready yet",
    88: "a transaction has offsets that are not committed yet",
    89: "the quota of changes is used up for the moment",
}
"""Temporary errors, after which callers retry."""

UNDONE: Final = frozenset({14, 15, 16, 41, 55, 89})
"""Temporary errors that guarantee that nothing was done, so even a write may be repeated."""

FORBIDDEN: Final = {
    29: "this principal may not do that with the topic",
    30: "this principal may not do that with the group",
    31: "this principal may not do that with the cluster",
    53: "this principal may not use the transactional id",
    58: "the credentials are not accepted",
    65: "this principal may not use the token",
}

ABSENT: Final = {
    3: "the topic or partition does not exist",
    69: "the group does not exist, or its type does not support this request",
    91: "the object does not exist",
    100: "the topic was deleted, and perhaps created again",
}

FENCED: Final = {
    47: "a newer producer of the same transactional id took over",
    49: "brokers no longer know the producer of this transactional id, or a newer one has taken it over",
    90: "a newer producer of the same transactional id took over",
    -144: "a newer producer of the same transactional id took over",
}

REFUSED: Final = {
    10: "a record is larger than the topic takes (max.message.bytes)",
    17: "invalid topic name: 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-'",
    18: "a batch of records is larger than a segment of the topic",
    32: "the time of a record is further from now than the topic takes (message.timestamp.before/after.max.ms)",
    33: "the broker does not offer that mechanism of login",
    34: "that listener has no login (SASL)",
    35: "this version of the brokers cannot do that",
    36: "a topic of that name is there already",
    37: "that number of partitions is not possible",
    38: "there are fewer brokers than that many copies need",
    39: "that placement of replicas is not possible",
    40: "a config is unknown or cannot have that value",
    42: "the brokers do not take such a request",
    44: "a policy of the brokers forbids it",
    50: "the transaction's time-out is longer than the brokers allow (transaction.max.timeout.ms)",
    68: "the group still has members",
    73: "the brokers do not delete topics (delete.topic.enable)",
    76: "the brokers cannot read that compression",
    86: "members of the group are reading that topic",
    87: "the brokers do not take such a record; compacted topics want a key",
}
"""Permanent errors that the user corrects in the files."""

SECURITY_DISABLED: Final = 54

LIBRARY_TRANSIENT: Final = {
    -137: "one of its brokers went away",
    -166: "it did not answer in time",
    -185: "it did not answer in time",
    -187: "none of its brokers can be reached",
    -192: "records were not acknowledged in time",
    -193: "the name of a broker is known nowhere",
    -195: "the connection to a broker failed",
}

LIBRARY_PERMANENT: Final = {-169: "the credentials are not accepted", -181: "TLS with a broker failed"}


# ruff: noqa: PLC0415, SLF001


def find_original_error(producer: Any, error: Any) -> Any:
    """Return the original error if `error` only reports that the transactional producer is dead."""
    from confluent_kafka import KafkaError, KafkaException

    if error.code() != KafkaError._FATAL:
        return error
    try:
        producer.begin_transaction()  # librdkafka answers this call with the original error.
    except KafkaException as died:
        return died.args[0]
    return error


def find_cause(error: BaseException) -> Any:
    """Return the client's error behind an exception, or `None`."""
    from confluent_kafka import KafkaError, KafkaException

    if isinstance(error, SystemError):
        error = error.__cause__ or KafkaException(KafkaError(KafkaError._FATAL))
    return error.args[0] if isinstance(error, KafkaException) else None


_ALIVE: Final = "See whether the brokers are alive and bootstrapServers names them, then run the same command again."
_HINTS: Final = {
    10: "Make the record smaller, or raise max.message.bytes of the topic, and run the same command again.",
    18: "Make the records smaller, or raise segment.bytes of the topic, and run the same command again.",
    32: "Raise message.timestamp.before.max.ms or message.timestamp.after.max.ms of the topic.",
    87: "Give every record a key, or take compact out of cleanup.policy of the topic, and run the same command again.",
    7: "It may have been done: the same command checks first.",
    60: "Wait until they have moved, or cancel that, and run the same command again.",
    22: "Stop its consumers, and run the same command again.",
    25: "Stop its consumers, and run the same command again.",
    27: "Stop its consumers, and run the same command again.",
    68: "Stop its consumers, and run the same command again.",
    86: "Stop its consumers, and run the same command again.",
    89: "Run the same command again later, or raise controller_mutation_rate for this principal.",
    35: "Upgrade the brokers, or leave it out of the files.",
    36: "Adopt it by declaring it, or choose another name.",
    38: "Lower the replication factor, or add brokers.",
    44: "Ask those who run the brokers what their policy wants.",
    58: "Check the credentials in `security` of the Cluster, and that the user exists.",
    -169: "Check the credentials in `security` of the Cluster, and that the user exists.",
    -181: "Check protocol and caFile in `security` of the Cluster, and the certificates of the brokers.",
}


@runtime_checkable
class _ConnectionError(Protocol):
    explain: Any


def translate_error(error: BaseException, *, doing: str, cluster: str) -> ReconcilerError:
    """Translate an error of a client library; `doing` completes "cluster C: doing"."""
    if isinstance(error, ReconcilerError):
        return error
    if isinstance(error, _ConnectionError) and isinstance(explained := error.explain(doing), ReconcilerError):
        return explained
    what = f"cluster {cluster}: {doing}"
    if (code := _find_code(error)) is not None:
        return translate_code(code, _find_text(error), what=what)
    if type(error).__name__ in {"NodeNotReadyError", "UnknownBrokerIdError"}:
        if _find_text(error) == _NO_LEADER:
            return RetryableError(f"{what}: {TRANSIENT[5]}", hint=_ALIVE)
        if _find_text(error).isdecimal():
            return RetryableError(f"{what}: broker {_find_text(error)} cannot be reached", hint=_ALIVE)
    if "Timeout" in type(error).__name__:
        return RetryableError(f"{what}: {LIBRARY_TRANSIENT[-185]}", hint=_ALIVE)
    return RetryableError(f"{what}: {_find_text(error) or type(error).__name__}", hint=_ALIVE)


def hidden_topic_error(cluster: str, name: str) -> NotAuthorizedError:
    """Return the error for a hidden topic, or hidden configs."""
    return NotAuthorizedError(
        f"cluster {cluster}: the principal of reconciler may not describe topic {name} and its configs",
        hint="Allow DESCRIBE and DESCRIBE_CONFIGS on it, or leave it out with --exclude.",
    )


def translate_code(code: int, message: str, *, what: str) -> ReconcilerError:
    """Translate an error code of brokers or librdkafka; `message` is the broker's text or empty."""

    def describe(meanings: Mapping[int, str]) -> str:
        return f"{what}: {_clean_message(message) or meanings[code]}"

    if code in TRANSIENT:
        return RetryableError(describe(TRANSIENT), hint=_HINTS.get(code, "Run the same command again."))
    if code in LIBRARY_TRANSIENT:
        return RetryableError(describe(LIBRARY_TRANSIENT), hint=_HINTS.get(code, _ALIVE))
    if code in FORBIDDEN:
        may = "Allow it to the principal of reconciler, or leave it out."
        return NotAuthorizedError(describe(FORBIDDEN), hint=_HINTS.get(code, may))
    if code in LIBRARY_PERMANENT:
        kind = NotAuthorizedError if code == _AUTHENTICATION else UserError
        return kind(describe(LIBRARY_PERMANENT), hint=_HINTS[code])
    if code in FENCED:
        return ProducerFencedError(
            describe(FENCED), hint="Another process continues it; nothing of this transaction is committed."
        )
    if code in ABSENT:
        return NotFoundError(
            describe(ABSENT), hint="It was deleted after it was read. To see the rest: reconciler plan"
        )
    if code == SECURITY_DISABLED:
        unarmed = f"{what}: these brokers have no authorizer, so that access rules are not possible"
        return UserError(unarmed, hint="Set authorizer.class.name at the brokers, or take the rules out of the files.")
    if code in REFUSED and message.startswith(_PREFIX):
        message = ""
    fallback = REFUSED if code in REFUSED else {code: f"the brokers refuse it with code {code}"}
    return UserError(describe(fallback), hint=_HINTS.get(code, "Correct it in the files, and plan again."))


def _clean_message(message: str) -> str:
    if any(part in message for part in _OF_LIBRDKAFKA):
        return ""  # librdkafka's texts are left out, because the meanings above are clearer.
    needed = _NEEDED.fullmatch(message.strip())
    return to_one_line(f"it needs {needed[1]}" if needed else message).rstrip(".")


_PREFIX: Final = "Broker: "
_OF_LIBRDKAFKA: Final = ("Local: ", "Timed out waiting for operation")
_NEEDED: Final = re.compile(r"Request Request\(.*\) needs (.+? permission)\.?", re.DOTALL)
_AUTHENTICATION: Final = -169
_NO_LEADER: Final = "-1"


def _find_code(error: BaseException) -> int | None:
    if isinstance(error, OSError):
        return None
    inner = error.args[0] if error.args else None
    code = getattr(inner, "code", None)
    number = code() if callable(code) else getattr(error, "errno", None)
    return number if isinstance(number, int) and number not in {0, -1} else None


def _find_text(error: BaseException) -> str:
    inner = error.args[0] if error.args else None
    text = getattr(inner, "str", None)
    return to_one_line(str(text()) if callable(text) else " ".join(str(part) for part in error.args))
