"""What the codes of brokers and of librdkafka mean, and what to do about each (facts 6.2)."""

from __future__ import annotations

from typing import Final

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
"""Wait, and do the same again."""

UNDONE: Final = frozenset({14, 15, 16, 41, 55, 89})
"""Of those, what says that nothing was done: even a write is sent again."""

FORBIDDEN: Final = {
    29: "this principal may not do that with the topic",
    30: "this principal may not do that with the group",
    31: "this principal may not do that with the cluster",
    53: "this principal may not use the transactional id",
    58: "the credentials are not accepted",
    65: "this principal may not use the token",
}

ABSENT: Final = {
    3: "there is no such topic or partition",
    69: "there is no such group",
    91: "there is no such object",
    100: "the topic was deleted, and perhaps made anew under its name",
}

FENCED: Final = {
    47: "a newer producer of the same transactional id took over",
    90: "a newer producer of the same transactional id took over",
    -144: "a newer producer of the same transactional id took over",
}

REFUSED: Final = {
    10: "a record is larger than the topic takes (max.message.bytes)",
    17: "that is no name for a topic: 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-'",
    18: "a batch of records is larger than a segment of the topic",
    32: "the time of a record is further from now than the topic takes (message.timestamp.before/after.max.ms)",
    33: "the broker does not offer that mechanism of login",
    34: "nobody logs in on that listener",
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
"""Correct the files."""

SECURITY_DISABLED: Final = 54

OURS: Final = {
    -137: "one of its brokers went away",
    -166: "it did not answer in time",
    -185: "it did not answer in time",
    -187: "none of its brokers can be reached",
    -192: "records were not acknowledged in time",
    -193: "the name of a broker is known nowhere",
    -195: "the connection to a broker broke or could not be made",
}
"""Codes that librdkafka gives by itself, for what may pass."""

LOGIN: Final = {-169: "the credentials are not accepted", -181: "TLS with a broker failed"}
"""Those of librdkafka that do not pass."""
