"""Nodes, licence and cluster properties of the emulated cluster."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

_FOLDER: Final = Path(__file__).parent
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "boolean": (bool,), "integer": (int,), "number": (int, float), "string": (str,),
}  # fmt: skip
_STORAGE_KEYS: Final = {
    "config_file": ("region", "bucket", "access_key", "secret_key"),
    "azure": ("azure_storage_account", "azure_container"),
    "other": ("region", "bucket"),
}
_YEAR_SECONDS: Final = 365 * 86_400
SECRET: Final = "[secret]"  # noqa: S105 - what a secret reads back as


def load_table(name: str) -> dict[str, Any]:
    """Return a table next to this module."""
    table: dict[str, Any] = yaml.safe_load((_FOLDER / name).read_text())
    return table


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
    """Cluster properties that take effect after a restart, as of the last restart."""
    config_version: int = 1
    lag_polls: int = 0
    """Reads of the config status until this node reports the newest version."""
    down_until: float = 0.0
    """Time until which the node does not answer."""
    invalid: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


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
    def can_migrate(self) -> bool:
        return self.is_licensed and self.is_tiered

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

    def needs_restart(self, node: Node) -> bool:
        return any(self.get(name) != value for name, value in node.active.items())

    def restart(self, node: Node, seconds: float = 0.0) -> None:
        """Apply all properties of a node; it does not answer for some seconds."""
        node.active = {name: self.get(name) for name in node.active}
        node.down_until = time.monotonic() + seconds

    def read(self, *, defaults: bool, key: str | None) -> dict[str, Any] | None:
        """Return properties as the API shows them; `None` if the key is unknown."""
        if key is not None:
            key = self.aliases.get(key, key)
            if key not in self.schema:
                return None
            return {key: self._shown(key)}
        return {name: self._shown(name) for name in self.schema if defaults or name in self.stored}

    def write(self, upsert: dict[str, Any], remove: list[str], *, dry_run: bool = False) -> dict[str, str]:
        """Store properties; return what is wrong by property, and store nothing then."""
        upsert = {self.aliases.get(name, name): value for name, value in upsert.items()}
        remove = [self.aliases.get(name, name) for name in remove]
        errors = {name: "Unknown property" for name in [*upsert, *remove] if name not in self.schema}
        for name, value in upsert.items():
            if name in self.schema and (error := self._check(self.schema[name], value)):
                errors[name] = error
        changed = {name: value for name, value in {**self.stored, **upsert}.items() if name not in remove}
        if not errors:
            errors = self._check_storage(changed)
        if not errors and not dry_run and changed != self.stored:
            self.stored = changed
            self.config_version += 1
            for node in self.nodes:
                node.config_version = node.config_version if node.lag_polls else self.config_version
        return errors

    def read_status(self) -> list[dict[str, Any]]:
        """Return the config status of every node; a read counts as a poll for nodes that lag."""
        for node in self.nodes:
            node.lag_polls = max(0, node.lag_polls - 1)
            if not node.lag_polls:
                node.config_version = self.config_version
        return [
            {
                "node_id": node.id, "restart": self.needs_restart(node), "config_version": node.config_version,
                "invalid": node.invalid, "unknown": node.unknown,
            }
            for node in self.nodes
        ]  # fmt: skip

    def describe_schema(self) -> dict[str, Any]:
        properties = {
            name: {
                "description": name.replace("_", " "),
                "needs_restart": row.get("restart", False),
                "visibility": "user",
                "is_secret": row.get("secret", False),
                "type": row["type"],
                "nullable": row["default"] is None,
                **({"aliases": row["aliases"]} if "aliases" in row else {}),
                **({"enum_values": row["values"]} if "values" in row else {}),
            }
            for name, row in self.schema.items()
        }
        return {"properties": properties}

    def describe_nodes(self) -> list[dict[str, Any]]:
        return [
            {
                "node_id": node.id, "num_cores": 1, "internal_rpc_address": "127.0.0.1", "internal_rpc_port": 33145,
                "membership_status": "active", "is_alive": node.down_until <= time.monotonic(),
                "version": f"v{node.version} - {'0' * 40}", "maintenance_status": {"draining": False},
            }
            for node in self.nodes
        ]  # fmt: skip

    def describe_features(self) -> dict[str, Any]:
        logical = 13 + 3 * (self.version[0] - 24) + self.version[1]
        names = ("cloud_retention", "cloud_metadata_cluster_recovery", "data_migrations", "group_offset_retention")
        features = [{"name": name, "state": "active", "was_active": True} for name in names]
        versions = {"cluster_version": logical, "original_cluster_version": logical, "node_latest_version": logical}
        return {**versions, "features": features}

    def describe_license(self) -> dict[str, Any]:
        if self.license_status == "not_present":
            return {"loaded": False, "license": None}
        expires = int(time.time()) + (_YEAR_SECONDS if self.is_licensed else -_YEAR_SECONDS)
        return {
            "loaded": True,
            "license": {
                "format_version": 0,
                "org": "tests",
                "type": "enterprise",
                "expires": expires,
                "sha256": "0" * 64,
            },
        }

    def describe_enterprise(self) -> dict[str, Any]:
        tiering = "cloud_storage" if self.version < (26, 1) else "tiered_storage"
        violates = self.is_tiered and not self.is_licensed
        features = [{"name": tiering, "enabled": self.is_tiered}, {"name": "audit_logging", "enabled": False}]
        return {"license_status": self.license_status, "violation": violates, "features": features}

    def _shown(self, name: str) -> Any:
        value = self.get(name)
        return SECRET if self.schema[name].get("secret") and value else value

    def _check(self, row: dict[str, Any], value: Any) -> str | None:
        if value is None:
            return None if row["default"] is None else "expected type " + row["type"]
        is_typed = isinstance(value, _TYPES[row["type"]]) and (row["type"] == "boolean") == isinstance(value, bool)
        if not is_typed:
            return "expected type " + row["type"]
        if "values" in row and value not in row["values"]:
            return f"expected one of {row['values']}"
        return None

    def _check_storage(self, stored: dict[str, Any]) -> dict[str, str]:
        """Return what is missing to use object storage once it is enabled."""
        if not stored.get("cloud_storage_enabled"):
            return {}
        source = stored.get("cloud_storage_credentials_source", "config_file")
        is_azure = source.startswith("azure") or bool(stored.get("cloud_storage_azure_storage_account"))
        wanted = _STORAGE_KEYS["azure" if is_azure else source if source in _STORAGE_KEYS else "other"]
        if is_azure and source == "config_file":
            wanted = (*wanted, "azure_shared_key")
        names = [f"cloud_storage_{name}" for name in wanted]
        text = "Must be set when cloud storage enabled with cloud_storage_credentials_source = " + source
        return {name: text for name in names if not stored.get(name)}
