"""Topic configs that Redpanda has and Kafka has not: stored here, checked as Redpanda checks them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tests.servers.redpanda.cluster import Cluster, load_table, parse_version

MODE: Final = "redpanda.storage.mode"
WRITE, READ, DELETE_RETENTION = "redpanda.remote.write", "redpanda.remote.read", "delete.retention.ms"
REPLICA_BUCKET, REPLICATION = "redpanda.remote.readreplica", "replication.factor"
_TABLE: Final = load_table("topic_keys.yaml")
_MODE_IMPLIED: Final = "tiered"


class Shown(NamedTuple):
    """A config as DescribeConfigs answers it."""

    name: str
    value: str
    is_default: bool


class TopicStore:
    """The Redpanda-only configs of every topic, with its replicas and where it was mounted from."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.kept: dict[str, dict[str, str]] = {}
        self.origins: dict[str, tuple[str, str, int]] = {}
        """Original name, cluster UUID and revision of mounted topics."""

    @property
    def broker_keys(self) -> list[str]:
        """Configs that the Kafka broker keeps."""
        return [*_TABLE["broker"], *(_TABLE["broker_from_26.1"] if self.cluster.version >= (26, 1) else ())]

    @property
    def keys(self) -> dict[str, dict[str, Any]]:
        """Configs that are stored here, in this version."""
        rows = _TABLE["kept"].items()
        return {name: row for name, row in rows if parse_version(row.get("since", "0.0")) <= self.cluster.version}

    def get(self, topic: str, name: str) -> str:
        return self.kept.get(topic, {}).get(name) or self._default(name)

    def is_written(self, topic: str) -> bool:
        """Whether the records of a topic go to object storage."""
        mode = self.get(topic, MODE) if MODE in self.keys else "unset"
        return mode == _MODE_IMPLIED or (mode == "unset" and self.get(topic, WRITE) == "true")

    def count_replicas(self, topic: str) -> int:
        return int(self.kept.get(topic, {}).get(REPLICATION, "1"))

    def forget(self, topic: str) -> None:
        self.kept.pop(topic, None)
        self.origins.pop(topic, None)

    def describe(self, topic: str) -> list[Shown]:
        defaults = {name: self._default(name) for name, row in self.keys.items() if not row.get("hidden")}
        kept = self.kept.get(topic, {})
        values = {name: kept.get(name, default) for name, default in defaults.items()}
        return [Shown(name, value, value == defaults[name]) for name, value in values.items()]

    def check_creation(self, configs: Mapping[str, str | None]) -> str | None:
        """Return why a topic cannot be created with these configs; unknown names are ignored."""
        known = {name: value or "" for name, value in configs.items() if name in self.keys}
        kept = self.initial(known)
        return self._check(kept, known, creates=True) or self._check_tiered(kept, configs)

    def initial(self, configs: Mapping[str, str | None]) -> dict[str, str]:
        """Return what to keep for a new topic: what is given, and the cluster's defaults at this time."""
        given = {name: value for name, value in configs.items() if name in self.keys and value is not None}
        copied = {name: self._default(name) for name in (WRITE, READ, MODE) if name in self.keys}
        if given.get(MODE, copied.get(MODE, "unset")) != "unset" or given.get(REPLICA_BUCKET):
            copied |= {WRITE: "false", READ: "false"}
        return {**copied, **{name: _normal(value, self.keys[name]) for name, value in given.items()}}

    def check_change(self, topic: str, changes: Mapping[str, str | None]) -> str | None:
        """Return why configs cannot be changed; a value of `None` resets a config."""
        accepted = {*self.broker_keys, *self.keys, *_TABLE["accepted"], *_TABLE["broker_from_26.1"]}
        unknown = [name for name in changes if name not in accepted]
        if unknown:
            return f"invalid topic property: {unknown[0]}"
        given = {name: value for name, value in changes.items() if name in self.keys and value is not None}
        mode = self.get(topic, MODE) if MODE in self.keys else "unset"
        if (wanted := given.get(MODE, mode)) not in _TABLE["mode_changes"][mode]:
            return f"{MODE} cannot change from {mode} to {wanted}"
        creation = [name for name in given if self.keys[name].get("creation")]
        if creation:
            return f"invalid topic property: {creation[0]} is set when a topic is created"
        kept = {**self.kept.get(topic, {}), **given}
        return self._check(kept, given, creates=False) or self._check_tiered(kept, changes)

    def change(self, topic: str, changes: Mapping[str, str | None]) -> None:
        """Store checked changes; a storage mode cannot be reset, and remote.* resets to the cluster's default."""
        kept = self.kept.setdefault(topic, {})
        for name, value in changes.items():
            if name not in self.keys:
                continue
            if value is not None:
                kept[name] = _normal(value, self.keys[name])
            elif name in {WRITE, READ}:
                kept[name] = self._default(name)
            elif name != MODE:
                kept.pop(name, None)

    def for_broker(self, configs: Mapping[str, str | None]) -> dict[str, str | None]:
        """Return the configs that the broker keeps."""
        return {name: value for name, value in configs.items() if name in self.broker_keys}

    def _default(self, name: str) -> str:
        row = _TABLE["kept"][name]
        return self.cluster.get_text(row["property"]) if "property" in row else str(row["default"])

    def _check(self, kept: Mapping[str, str], given: Mapping[str, str], *, creates: bool) -> str | None:
        mode = kept.get(MODE, "unset")
        form = "tiered_v2" if mode == "tiered" and kept.get("redpanda.storage.mode.impl") == "tiered_v2" else mode
        for name, value in given.items():
            row = self.keys[name]
            if error := self._check_value(name, value, row, creates=creates):
                return error
            if form not in row.get("modes", [form]):
                return f"{name} cannot be set when {MODE} is {mode}"
        if MODE in given and mode == "tiered" and not self.cluster.is_tiered:
            return f"{MODE}=tiered needs cloud_storage_enabled"
        if given.get(REPLICA_BUCKET) and any(given.get(name, "").lower() == "true" for name in (WRITE, READ)):
            return f"{REPLICA_BUCKET} excludes {WRITE} and {READ}"
        return None

    def _check_value(self, name: str, value: str, row: Mapping[str, Any], *, creates: bool) -> str | None:
        kind = row["kind"]
        is_valid = (
            value.lower() in {"true", "false"} if kind == "bool" else
            value.lstrip("-").isdigit() if kind == "int" else
            value in kind if isinstance(kind, list) else True
        )  # fmt: skip
        if not is_valid:
            return f"unable to parse property {name}: {value!r}"
        if not self.cluster.is_licensed and value.lower() == row.get("licensed"):
            return f"{name}={value} requires a valid enterprise license"
        if name == REPLICATION and not creates:
            return self.check_replication(int(value))
        return None

    def check_replication(self, factor: int) -> str | None:
        minimum = int(self.cluster.get("minimum_topic_replications"))
        if factor % 2 == 0 or not minimum <= factor <= len(self.cluster.nodes):
            return f"Replication factor must be odd, at least {minimum} and at most {len(self.cluster.nodes)}"
        return None

    def _check_tiered(self, kept: Mapping[str, str], given: Mapping[str, str | None]) -> str | None:
        is_tiered = kept.get(MODE) == _MODE_IMPLIED or "true" in {kept.get(WRITE), kept.get(READ)}
        if is_tiered and given.get(DELETE_RETENTION) not in {None, "-1"}:
            return f"cannot set {DELETE_RETENTION} on a topic with tiered storage"
        return None


def _normal(value: str, row: Mapping[str, Any]) -> str:
    return value.lower() if row["kind"] == "bool" else value


def keys_restored_by_24_3() -> list[str]:
    names: list[str] = _TABLE["restored_by_24.3"]
    return names
