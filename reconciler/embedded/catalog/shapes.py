"""What the catalog's register is written like, for who reads it. A snapshot needs none: it is known by its sha256."""

from __future__ import annotations

from typing import Final

_CONFIGS: Final = {str: str}
_ACL: Final = {
    "principal": str,
    "permission": str,
    "operations": [str],
    "host": str,
    "resources": [str],
    "names": [str],
}
_QUOTAS: Final = {"topics": (None, int), "partitions": (None, int), "bytes": (None, int)}
_NAMESPACE: Final = {"configs?": _CONFIGS, "acls?": [_ACL], "quotas?": _QUOTAS, "kms_key_id?": str}
_TROUBLE: Final = {"code": str, "message": str, "since_ms": int}
_OFFSETS: Final = {str: int}
_RULES: Final = {str: [str]}
_MIRROR: Final = {
    "link_id": str,
    "source": str,
    "source_topic_id": (None, str),
    "state": str,
    "first_copy_done": bool,
    "since_ms?": int,
    "operation?": {"id": str, "verb": str, "ends": (None, _OFFSETS)},
    "trouble?": _TROUBLE,
    "stopped_by?": str,
    "is_automatic?": bool,
    "begins?": _OFFSETS,
    "rules?": _RULES,
    "ended?": [str],
}
_TOPIC: Final = {
    "id": str,
    "partitions": int,
    "revision": int,
    "replication_factor?": int,
    "configs?": _CONFIGS,
    "mirror?": _MIRROR,
    "origin?": [str],
    "acls?": [_ACL],
    "initial?": _CONFIGS,
    "tiering?": {"state": str, "epoch": int, "policy": str},
    "recovering?": str,
    "hold?": {"migration": int, "is_closed": bool},
}
_MIGRATION: Final = {
    "direction": str,
    "state": str,
    "topics": [{"name": str, "topic_id": str, "location": str, "mounting?": str}],
    "claim": str,
    "created_ms": int,
    "completed_ms": (None, int),
    "is_automatic": bool,
}
_LINK: Final = {
    "id": str,
    "source_cluster": str,
    "declared": dict,
    "status?": str,
    "trouble?": _TROUBLE,
    "tasks?": {str: _TROUBLE},
    "source_cluster_id?": str,
    "rules?": {str: _RULES},
}
_NAMED: Final = {"name": str}
_DELETION: Final = {"name": str, "location?": str}
_CLUSTER: Final = {"properties?": _CONFIGS, "storage_id?": str}

COMMIT: Final = {
    "serial": int,
    "id": str,
    "revision": int,
    "tables?": {
        "namespaces?": {str: (None, _NAMESPACE)},
        "topics?": {str: (None, _TOPIC)},
        "links?": {str: (None, _LINK)},
        "deletions?": {str: (None, _DELETION)},
        "rewrites?": {str: (None, _NAMED)},
        "clusters?": {str: (None, _CLUSTER)},
        "migrations?": {str: (None, _MIGRATION)},
    },
    "key?": str,
    "sha256?": str,
}
"""A commit of the tail: as it is, or where its object lies."""

HEAD: Final = {
    "serial": int,
    "id": str,
    "revision": int,
    "snapshot": (None, {"id": str, "key": str, "sha256": str}),
    "tail": list,
}
"""The register; its tail is looked at commit by commit, as far as it is new."""
