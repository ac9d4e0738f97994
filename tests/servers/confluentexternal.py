"""Two Confluent test clusters of the user, for `make conformance`: checked before the tests, cleared after them.

The variable `CONFORMANCE_CONFLUENT` has JSON, or names a file with it, as `python -m tests.servers.confluent` prints:
`source` and `destination`, each with `kafka`, `rest`, `cluster_id`, `key` and `secret`. A `rest` without TLS means that
the brokers need neither TLS nor a login.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Final, Self

import urllib3

from reconciler.resources.kafka_configs import LEDGER
from tests.contracts import names
from tests.servers.redpandaexternal import UnusableError, read_json

_LIMIT_SECONDS: Final = 60.0
_RULE: Final = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")


@dataclass(frozen=True)
class ExternalConfluent:
    """Addresses and login of a cluster; what tests make on it has names that begin with `prefix`."""

    kafka: str
    rest: str
    cluster_id: str
    key: str
    secret: str = field(repr=False)
    prefix = names.PREFIX or names.COMMON_PREFIX
    kind, is_cloud = None, True

    @cached_property
    def _pool(self) -> urllib3.PoolManager:
        return urllib3.PoolManager(headers=urllib3.make_headers(basic_auth=f"{self.key}:{self.secret}"))

    def send(self, method: str, path: str, **options: Any) -> Any:
        """Return what the REST API answers; `None` for what does not exist."""
        url = f"{self.rest.rstrip('/').removesuffix('/kafka/v3')}/kafka/v3/clusters/{self.cluster_id}{path}"
        answer = self._pool.request(method, url, **options)
        if answer.status == 404:
            return None
        if answer.status >= 400:
            raise UnusableError(f"{method} {url} answers {answer.status}: {answer.data.decode(errors='replace')[:300]}")
        return answer.json() if answer.data else {}

    def check(self) -> None:
        """Refuse a cluster that cannot be used, or that workspaces use."""
        if self.send("GET", "") is None:
            raise UnusableError(f"{self.rest} does not know cluster {self.cluster_id}")
        if self.send("GET", f"/topics/{LEDGER}") is not None:
            message = f"topic {LEDGER} exists: workspaces apply to this cluster, or an earlier run was killed"
            raise UnusableError(f"{message}. Name a cluster that none uses, or delete the topic.")

    def clear(self) -> list[str]:
        """Remove what this run made, and return what remains."""
        for link in self._list("links", "link_name"):
            rows = self.send("GET", f"/links/{link}/mirrors")["data"]
            live = [row["mirror_topic_name"] for row in rows if row["mirror_status"] != "STOPPED"]
            if live:
                self.send("POST", f"/links/{link}/mirrors:failover", json={"mirror_topic_names": live})
            self.send("DELETE", f"/links/{link}", fields={"force": "true"})
        for rule in self._list_rules():
            self.send("DELETE", "/acls", fields={name: rule[name] for name in _RULE})
        for topic in self._list("topics", "topic_name"):
            self.send("DELETE", f"/topics/{topic}")
        deadline = time.monotonic() + _LIMIT_SECONDS
        while (remaining := self.list_remaining()) and time.monotonic() < deadline:
            pass  # The API answers before it has deleted them.
        return remaining

    def list_remaining(self) -> list[str]:
        """Return what exists on the cluster with a name of this run, and the ledger."""
        kinds = {"links": "link_name", "topics": "topic_name"}
        found = [f"{self.cluster_id}: {kind} {name}" for kind, key in kinds.items() for name in self._list(kind, key)]
        return found + [f"{self.cluster_id}: access rule on {rule['resource_name']}" for rule in self._list_rules()]

    def _list(self, kind: str, key: str) -> list[str]:
        rows = self.send("GET", f"/{kind}")["data"]
        return [row[key] for row in rows if row[key].startswith(self.prefix) or row[key] == LEDGER]

    def _list_rules(self) -> list[dict[str, str]]:
        rows = self.send("GET", "/acls")["data"]
        return [row for row in rows if row["resource_name"].startswith(self.prefix)]


@dataclass(frozen=True)
class ExternalPair:
    """Two clusters of the user."""

    source: ExternalConfluent
    destination: ExternalConfluent

    @classmethod
    def parse(cls, given: str) -> Self:
        """Return the clusters that JSON, or the file of that name, describes; nothing is connected."""
        content = read_json("CONFLUENT", given)
        parts = [part.name for part in fields(ExternalConfluent)]
        for name in (part.name for part in fields(cls)):
            place = content.get(name)
            if not isinstance(place, dict) or sorted(place) != sorted(parts) or {*map(type, place.values())} != {str}:
                raise UnusableError(f"CONFLUENT: {name} is to have {', '.join(parts)}, each a text, and nothing else")
        return cls(*(ExternalConfluent(**content[part.name]) for part in fields(cls)))

    def check(self) -> None:
        """Refuse clusters that cannot be used.

        Raises:
            UnusableError: Such as a ledger of workspaces.
        """
        for cluster in (self.source, self.destination):
            cluster.check()

    def clear(self) -> list[str]:
        """Remove what this run made, and return what remains. The destination first: its links follow the source."""
        return [line for cluster in (self.destination, self.source) for line in cluster.clear()]
