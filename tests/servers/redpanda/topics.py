"""Topic configs that Redpanda has and Kafka has not: stored here, checked as Redpanda checks them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from tests.servers.redpanda.cluster import Cluster, load_table, parse_version

MODE, WRITE, READ = "redpanda.storage.mode", "redpanda.remote.write", "redpanda.remote.read"
DELETE_RETENTION, RECOVERY, REPLICA_BUCKET, REPLICATION = (
    "delete.retention.ms",
    "redpanda.remote.recovery",
    "redpanda.remote.readreplica",
    "replication.factor",
)
_TABLE: Final = load_table("topic_keys.yaml")
_LONGEST_MS: Final = (2**63 - 1) // 1_000_000
RESTORED_BY_24_3: Final[list[str]] = _TABLE["restored_by_24.3"]

Configs: TypeAlias = Mapping[str, str | None]
"""Values by name; `None` resets a config."""


class TopicStore:
    """The Redpanda-only configs of every topic, with its replicas and where it was mounted from."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.kept: dict[str, dict[str, str]] = {}
        self.origins: dict[str, tuple[str, str, int]] = {}
        """Original name, cluster UUID and revision of mounted topics."""
        self._next_revision = 10
        version, rows = cluster.version, _TABLE["kept"].items()
        self.keys = {name: row for name, row in rows if parse_version(row.get("since", "0.0")) <= version}
        """Configs that are stored here."""
        self.broker_keys = [*_TABLE["broker"], *(_TABLE["broker_from_26.1"] if version >= (26, 1) else ())]
        """Configs that the Kafka broker keeps."""
        self._accepted = {*self.broker_keys, *self.keys, *_TABLE["accepted"], *_TABLE["broker_from_26.1"]}

    def get(self, topic: str, name: str) -> str:
        return self.kept.get(topic, {}).get(name) or self._default(name)

    def is_written(self, topic: str) -> bool:
        """Whether the records of a topic go to object storage."""
        mode = self._mode(topic)
        return mode == "tiered" or (mode == "unset" and self.get(topic, WRITE) == "true")

    def locate(self, topic: str) -> tuple[str, str, int]:
        """Return where a topic is stored: where it was mounted from, or a new place."""
        self._next_revision += 1
        return self.origins.setdefault(topic, (topic, self.cluster.uuid, self._next_revision))

    def count_replicas(self, topic: str) -> int:
        return int(self.kept.get(topic, {}).get(REPLICATION, "1"))

    def forget(self, topic: str) -> None:
        self.kept.pop(topic, None)
        self.origins.pop(topic, None)

    def describe(self, topic: str) -> list[tuple[str, str, bool]]:
        """Return name, value and whether it is the default."""
        defaults = {name: self._default(name) for name, row in self.keys.items() if not row.get("hidden")}
        values = {**defaults, **self.kept.get(topic, {})}
        return [(name, values[name], values[name] == default) for name, default in defaults.items()]

    def check_creation(self, configs: Configs) -> str | None:
        """Return why a topic cannot be created with these configs; unknown names are ignored."""
        known = {name: value or "" for name, value in configs.items() if name in self.keys}
        return self._check(self.initial(known), known, configs)

    def initial(self, configs: Configs) -> dict[str, str]:
        """Return what to keep for a new topic: what is given, and the cluster's defaults at this time."""
        given = {name: value for name, value in configs.items() if name in self.keys and value is not None}
        copied = {name: self._default(name) for name in (WRITE, READ, MODE) if name in self.keys}
        if given.get(MODE, copied.get(MODE, "unset")) != "unset" or given.get(REPLICA_BUCKET):
            copied |= {WRITE: "false", READ: "false"}
        return {**copied, **{name: self._normalize(name, value) for name, value in given.items()}}

    def check_change(self, topic: str, changes: Configs) -> str | None:
        """Return why configs cannot be changed."""
        given = {name: value for name, value in changes.items() if name in self.keys and value is not None}
        creation = [name for name in given if self.keys[name].get("creation")]
        if unknown := [name for name in changes if name not in self._accepted] or creation:
            return f"invalid topic property: {unknown[0]}"
        mode = self._mode(topic)
        if (wanted := given.get(MODE, mode)) not in _TABLE["mode_changes"][mode]:
            return f"{MODE} cannot change from {mode} to {wanted}"
        error = self._check({**self.kept.get(topic, {}), **given}, given, changes)
        return error or (self.check_replication(int(given[REPLICATION])) if REPLICATION in given else None)

    def change(self, topic: str, changes: Configs) -> None:
        """Store checked changes; a storage mode cannot be reset, and remote.* resets to the cluster's default."""
        kept = self.kept.setdefault(topic, {})
        for name in changes.keys() & self.keys.keys():
            value = self._default(name) if changes[name] is None and name in {WRITE, READ} else changes[name]
            if value is not None:
                kept[name] = self._normalize(name, value)
            elif name != MODE:
                kept.pop(name, None)

    def check_replication(self, factor: int) -> str | None:
        minimum, maximum = int(self.cluster.get("minimum_topic_replications")), len(self.cluster.nodes)
        if factor % 2 and minimum <= factor <= maximum:
            return None
        return f"Replication factor must be odd, at least {minimum} and at most {maximum}"

    def _mode(self, topic: str) -> str:
        return self.get(topic, MODE) if MODE in self.keys else "unset"

    def _default(self, name: str) -> str:
        row = _TABLE["kept"][name]
        return self.cluster.get_text(row["property"]) if "property" in row else str(row["default"])

    def _check(self, kept: Mapping[str, str], given: Mapping[str, str], configs: Configs) -> str | None:
        mode = kept.get(MODE, "unset")
        form = "tiered_v2" if mode == "tiered" and kept.get("redpanda.storage.mode.impl") == "tiered_v2" else mode
        for name, value in given.items():
            row = self.keys[name]
            if not _is_valid(row["kind"], value):
                return f"unable to parse property {name}: {value!r}"
            if not self.cluster.is_licensed and value.lower() == row.get("licensed"):
                return f"{name}={value} requires a valid enterprise license"
            if form not in row.get("modes", [form]):
                return f"{name} cannot be set when {MODE} is {mode}"
        if given.get(MODE) == "tiered" and not self.cluster.is_tiered:
            return f"{MODE}=tiered needs cloud_storage_enabled"
        if given.get(REPLICA_BUCKET) and "true" in {given.get(WRITE), given.get(READ)}:
            return f"{REPLICA_BUCKET} excludes {WRITE} and {READ}"
        is_tiered = mode == "tiered" or "true" in {kept.get(WRITE), kept.get(READ)}
        if is_tiered and configs.get(DELETE_RETENTION) not in {None, "-1"}:
            return f"cannot set {DELETE_RETENTION} on a topic with tiered storage"
        return None

    def _normalize(self, name: str, value: str) -> str:
        return value.lower() if self.keys[name]["kind"] == "bool" else value


def clamp(name: str, value: str | None) -> str | None:
    """Return a value as it is stored: durations count nanoseconds."""
    return str(min(int(value), _LONGEST_MS)) if value is not None and name in _TABLE["clamped"] else value


def _is_valid(kind: Any, value: str) -> bool:
    if kind == "bool":
        return value.lower() in {"true", "false"}
    return value.lstrip("-").isdigit() if kind == "int" else kind == "text" or value in kind
