"""Nodes, licence and cluster properties of the emulated cluster."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

_TYPES: Final[dict[str, type]] = {"boolean": bool, "integer": int, "number": float, "string": str}
_YEAR_SECONDS: Final = 365 * 86_400


def load_table(name: str) -> dict[str, Any]:
    """Return a table next to this module."""
    table: dict[str, Any] = yaml.safe_load(Path(__file__).with_name(name).read_text())
    return table


_ANSWERS: Final = load_table("answers.yaml")


def parse_version(text: str) -> tuple[int, int]:
    """Return year and release of a version such as `25.3.1`."""
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


@dataclass
class Node:
    """One broker as the Admin API shows it."""

    id: int
    version: str
    active: dict[str, Any]
    """Properties that need a restart, as of the last one."""
    config_version: int = 1
    lag_polls: int = 0
    """Reads of the config status until this node reports the newest version."""
    down_until: float = 0.0


class Cluster:
    """The state behind `/v1/cluster_config`, `/v1/brokers` and `/v1/features`."""

    def __init__(self, versions: list[str], properties: dict[str, Any], license_status: str) -> None:
        self.uuid = str(uuid.uuid4())
        self.schema = load_table("properties.yaml")
        self.aliases = {alias: name for name, row in self.schema.items() for alias in row.get("aliases", ())}
        self.stored = dict(properties)
        self.config_version = 1
        self.license_status = license_status
        active = {name: self.get(name) for name, row in self.schema.items() if row.get("restart")}
        self.nodes = [Node(number, version, dict(active)) for number, version in enumerate(versions, 1)]

    @property
    def version(self) -> tuple[int, int]:
        return min(parse_version(node.version) for node in self.nodes)

    @property
    def is_licensed(self) -> bool:
        return self.license_status == "valid"

    @property
    def is_tiered(self) -> bool:
        """Whether object storage works on every node."""
        return all(node.active["cloud_storage_enabled"] for node in self.nodes)

    def get(self, name: str) -> Any:
        return self.stored.get(name, self.schema[name]["default"])

    def get_text(self, name: str) -> str:
        """Return a property as the Kafka API writes it."""
        value = self.get(name)
        return str(value).lower() if isinstance(value, bool) else str(value)

    def restart(self, node: Node, seconds: float) -> None:
        """Apply all properties of a node; it does not answer for some seconds."""
        node.active = {name: self.get(name) for name in node.active}
        node.down_until = time.monotonic() + seconds

    def read(self, *, defaults: bool, key: str | None) -> dict[str, Any] | None:
        """Return properties as the API shows them; `None` if the key is unknown."""
        names = (
            [self.aliases.get(key, key)] if key else [name for name in self.schema if defaults or name in self.stored]
        )
        if any(name not in self.schema for name in names):
            return None
        hidden = {name for name in names if self.schema[name].get("secret") and self.get(name)}
        return {name: "[secret]" if name in hidden else self.get(name) for name in names}

    def write(self, upsert: dict[str, Any], remove: list[str], *, dry_run: bool = False) -> dict[str, str]:
        """Store properties; return what is wrong by property, and store nothing then."""
        upsert = {self.aliases.get(name, name): value for name, value in upsert.items()}
        remove = [self.aliases.get(name, name) for name in remove]
        changed = {name: value for name, value in {**self.stored, **upsert}.items() if name not in remove}
        errors = {name: "Unknown property" for name in [*upsert, *remove] if name not in self.schema}
        errors |= {name: error for name, value in upsert.items() if (error := self._check(name, value))}
        errors = errors or self._check_storage(changed)
        if not errors and not dry_run and changed != self.stored:
            self.stored = changed
            self.config_version += 1
        return errors

    def read_status(self) -> list[dict[str, Any]]:
        """Return the config status of every node; a read counts as a poll for nodes that lag."""
        for node in self.nodes:
            node.lag_polls = max(0, node.lag_polls - 1)
            node.config_version = node.config_version if node.lag_polls else self.config_version
        return [
            {"node_id": node.id, "config_version": node.config_version, **self._read_pending(node)}
            for node in self.nodes
        ]

    def _read_pending(self, node: Node) -> dict[str, Any]:
        waits = any(self.get(name) != value for name, value in node.active.items())
        return {"restart": waits, "invalid": [], "unknown": []}

    def describe_schema(self) -> dict[str, Any]:
        properties = {}
        for name, row in self.schema.items():
            flags = {"needs_restart": row.get("restart", False), "is_secret": row.get("secret", False)}
            other = {"enum_values": row["values"]} if "values" in row else {}
            properties[name] = {"type": row["type"], "nullable": row["default"] is None, "visibility": "user", **flags}
            properties[name] |= {"description": name, "aliases": row.get("aliases", []), **other}
        return {"properties": properties}

    def describe_nodes(self) -> list[dict[str, Any]]:
        rows = [(node, f"v{node.version} - {'0' * 40}", node.down_until <= time.monotonic()) for node in self.nodes]
        return [
            {"node_id": node.id, "version": text, "is_alive": lives, **_ANSWERS["node"]} for node, text, lives in rows
        ]

    def describe_features(self) -> dict[str, Any]:
        logical = 13 + 3 * (self.version[0] - 24) + self.version[1]
        features = [{"name": name, "state": "active", "was_active": True} for name in _ANSWERS["features"]]
        return {"cluster_version": logical, "original_cluster_version": logical, "features": features}

    def describe_license(self) -> dict[str, Any]:
        if self.license_status == "not_present":
            return {"loaded": False, "license": None}
        expires = int(time.time()) + (_YEAR_SECONDS if self.is_licensed else -_YEAR_SECONDS)
        return {"loaded": True, "license": {**_ANSWERS["license"], "expires": expires}}

    def describe_enterprise(self) -> dict[str, Any]:
        tiering = "cloud_storage" if self.version < (26, 1) else "tiered_storage"
        features = [{"name": tiering, "enabled": self.is_tiered}, {"name": "audit_logging", "enabled": False}]
        violates = self.is_tiered and not self.is_licensed
        return {"license_status": self.license_status, "violation": violates, "features": features}

    def _check(self, name: str, value: Any) -> str | None:
        row = self.schema.get(name)
        if row is None or (value is None and row["default"] is None):
            return None
        is_typed = type(value) is _TYPES[row["type"]] or (row["type"] == "number" and type(value) is int)
        if not is_typed:
            return f"expected type {row['type']}"
        return None if value in row.get("values", [value]) else f"expected one of {row['values']}"

    def _check_storage(self, stored: dict[str, Any]) -> dict[str, str]:
        """Return what is missing to use object storage once it is enabled."""
        if not stored.get("cloud_storage_enabled"):
            return {}
        source = stored.get("cloud_storage_credentials_source", "config_file")
        kind = source if source in _ANSWERS["required"] else "azure_identity" if source.startswith("azure") else "other"
        if source == "config_file" and stored.get("cloud_storage_azure_storage_account"):
            kind = "azure_shared_key"
        missing = [name for part in _ANSWERS["required"][kind] if not stored.get(name := f"cloud_storage_{part}")]
        return dict.fromkeys(missing, f"Must be set with cloud_storage_credentials_source = {source}")
