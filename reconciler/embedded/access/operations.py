"""What access rules are about: operations, and the kinds of things they are done with."""

from __future__ import annotations

from enum import StrEnum


class Operation(StrEnum):
    """What may be allowed or denied, in the words of manifests."""

    ALL = "all"
    READ = "read"
    WRITE = "write"
    CREATE = "create"
    DELETE = "delete"
    ALTER = "alter"
    DESCRIBE = "describe"
    CLUSTER_ACTION = "cluster-action"
    DESCRIBE_CONFIGS = "describe-configs"
    ALTER_CONFIGS = "alter-configs"
    IDEMPOTENT_WRITE = "idempotent-write"


class Kind(StrEnum):
    """What rules are about. A namespace has the rules on topics that cover everything in it."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional id"
    NAMESPACE = "namespace"
