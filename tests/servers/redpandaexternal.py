"""A Redpanda test cluster of the user, for `make conformance`: checked before the tests, cleared after each.

The variable `CONFORMANCE_REDPANDA` has JSON, or names a file with it: `kafka`, `admin`, `user` and `password`, as
`python -m tests.servers.redpanda` prints them. Optional are `security` (protocol, mechanism, caFile) for brokers that
need a login, `objectStorage`, and `source`: brokers of a cluster without a login that shadow links copy from.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import pytest
from confluent_kafka.admin import AdminClient as Brokers

from reconciler.errors import ReconcilerError
from reconciler.lifecycles import is_in_progress
from reconciler.providers.brokers.security import build_record_settings, reveal_secrets
from reconciler.providers.protocol import Edge
from reconciler.providers.redpanda.admin_facts import AdminFacts
from reconciler.providers.redpanda.client import AdminClient
from reconciler.providers.registry import open_provider
from reconciler.resources.cluster import Cluster
from reconciler.resources.kafka_configs import LEDGER
from tests.contracts import names
from tests.servers.brokers import emptied, list_rules

_REQUIRED: Final = {"kafka": str, "admin": list, "user": str, "password": str}
_OPTIONAL: Final = {"security": dict, "objectStorage": str, "source": str}
_PASSWORD: Final = "${env:RECONCILER_REDPANDA}"  # noqa: S105 - a reference
_REPLICAS: Final = ("default_topic_replications", "minimum_topic_replications")
_LIMIT_SECONDS: Final = 120.0
_PAUSE_SECONDS: Final = 0.2


class UnusableError(Exception):
    """The cluster, or what names it, cannot be used; the message says why and what to do."""


def read_json(option: str, given: str) -> dict[str, Any]:
    """Return the object that an option of `make conformance` has as JSON, or as the name of a file.

    Raises:
        UnusableError: It is neither.
    """
    try:
        text = given if given.lstrip().startswith("{") else Path(given).read_text(encoding="utf-8")
        content = json.loads(text)
    except (OSError, ValueError) as error:
        raise UnusableError(f"{option} names no JSON and no file with JSON: {error}") from None
    if not isinstance(content, dict):
        raise UnusableError(f"{option} names JSON without addresses and logins by name")
    return content


@dataclass(frozen=True)
class ExternalRedpanda:
    """Addresses and login of a cluster; what tests make on it has names that begin with `prefix`."""

    kafka: str
    admin: list[str]
    user: str
    password: str = field(repr=False)
    security: dict[str, str] = field(default_factory=dict)
    object_storage: str = "s3://conformance"
    source: str = ""
    prefix: str = names.PREFIX or names.COMMON_PREFIX

    @classmethod
    def parse(cls, given: str) -> Self:
        """Return the cluster that JSON, or the file of that name, describes; nothing is connected."""
        content = read_json("REDPANDA", given)
        kinds = {**_REQUIRED, **_OPTIONAL}
        wrong = [name for name in _REQUIRED if name not in content]
        wrong += [name for name, value in content.items() if not isinstance(value, kinds.get(name, ()))]
        if wrong:
            shape = ", ".join(f"{name} ({kind.__name__})" for name, kind in kinds.items())
            raise UnusableError(f"REDPANDA: {', '.join(wrong)} missing, unknown or of another type; it has {shape}")
        if "caFile" in content.get("security", {}):  # tests run in folders of their own
            content["security"]["caFile"] = str(Path(content["security"]["caFile"]).resolve())
        renamed = {"object_storage" if name == "objectStorage" else name: value for name, value in content.items()}
        return cls(**renamed)

    def declare(self, name: str, **spec: object) -> Cluster:
        """Return it as a Cluster of a workspace."""
        login = {"username": self.user, "password": _PASSWORD}
        connection: dict[str, object] = {"bootstrapServers": self.kafka.split(","), "adminUrls": self.admin}
        connection["admin"] = login
        if self.security:
            connection["security"] = {**self.security, **(login if "mechanism" in self.security else {})}
        content = {"provider": "redpanda", "redpanda": connection, "objectStorage": self.object_storage, **spec}
        return Cluster.model_validate({"metadata": {"name": name}, "spec": content})

    @property
    def edge(self) -> Edge:
        """What a provider of it needs."""
        return Edge(Path.cwd(), {"RECONCILER_REDPANDA": self.password}, str, lambda: 0)

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of confluent-kafka clients."""
        return reveal_secrets(build_record_settings(self.declare("west"), self.edge))

    def check(self) -> None:
        """Refuse a cluster that cannot be used, or that workspaces use.

        Raises:
            UnusableError: Such as a version below 25.3.
        """
        try:
            open_provider(self.declare("conformance"), self.edge).identify()
            properties = self._admin.read_properties()
        except ReconcilerError as error:
            raise UnusableError(f"{error.message}. {error.hint}") from error
        if wrong := [name for name in _REPLICAS if properties.get(name) not in {None, 1}]:
            shown = ", ".join(f"{name} is {properties[name]}" for name in wrong)
            hint = f"rpk cluster config set {wrong[0]} 1"
            raise UnusableError(f"{shown}, and the tests create topics with one replica. Set it to 1: {hint}")
        if LEDGER in Brokers(self.settings).list_topics(timeout=30).topics:
            message = f"topic {LEDGER} exists: workspaces apply to this cluster, or an earlier run was killed"
            raise UnusableError(f"{message}. Name a cluster that none uses, or delete the topic.")

    def check_or_exit(self) -> None:
        """Check it, and end the run of pytest if it cannot be used."""
        try:
            self.check()
        except UnusableError as error:
            pytest.exit(str(error), returncode=1)

    def explain_missing_shadow_links(self) -> str | None:
        """Return why it cannot copy topics of the source; `None` if it can."""
        why = AdminFacts(self._admin).explain_missing_shadow_links()
        return why if self.source else "REDPANDA names no `source`"

    def explain_missing_tiering(self) -> str | None:
        """Return why its topics cannot be tiered; `None` if they can."""
        return AdminFacts(self._admin).explain_missing_tiering()

    def empty(self) -> None:
        """End the migrations and delete the shadow link, topics, groups and access rules of this run."""
        self._end_migrations()
        for link in self._list_links():
            self._admin.call_shadow_links("DeleteShadowLink", {"name": link, "force": True})
        emptied(self.kafka, self.prefix, self.settings)
        if self.source:
            emptied(self.source, self.prefix)

    def clear(self) -> list[str]:
        """Remove what this run made, detached topics too, and return what remains.

        Redpanda has no call that deletes a detached topic: it is mounted, then deleted with its objects.
        """
        with suppress(ReconcilerError):
            self.empty()
            for number, entry in enumerate(self._list_mountable()):
                self._admin.mount({f"{self.prefix}left-{number}": entry})
            self._wait_for_migrations()
            self.empty()
        return self.list_remaining()

    def list_remaining(self) -> list[str]:
        """Return what exists on the cluster with a name of this run, and the ledger."""
        brokers = Brokers(self.settings)
        topics = sorted(brokers.list_topics(timeout=30).topics)
        groups = [group.group_id for group in brokers.list_consumer_groups().result().valid]
        return [
            *(f"topic {name}" for name in topics if name.startswith(self.prefix) or name == LEDGER),
            *(f"group {name}" for name in groups if name.startswith(self.prefix)),
            *(f"access rule of {rule.principal} on {rule.name}" for rule in list_rules(brokers, self.prefix)),
            *(f"migration {number}, {state}" for number, state in self._list_migrations().items()),
            *(f"detached topic {location}" for location in self._list_mountable()),
            *(f"shadow link {name}" for name in self._list_links()),
        ]

    @property
    def _admin(self) -> AdminClient:
        return AdminClient(self.declare("conformance"), self.edge)

    def _list_mountable(self) -> list[str]:
        return [entry.location for entry in self._admin.list_mountable() if entry.name.startswith(self.prefix)]

    def _list_links(self) -> list[str]:
        if AdminFacts(self._admin).explain_missing_shadow_links() is not None:
            return []
        rows = self._admin.call_shadow_links("ListShadowLinks", {}).get("shadowLinks") or ()
        return [row["name"] for row in rows if row["name"].startswith(self.prefix)]

    def _list_migrations(self) -> dict[int, str]:
        tasks = self._admin.list_tasks() if self.explain_missing_tiering() is None else ()
        return {task.id: task.state for task in tasks if all(name.startswith(self.prefix) for name in task.topics)}

    def _end_migrations(self) -> None:
        for number, state in self._list_migrations().items():
            if is_in_progress(state):
                with suppress(ReconcilerError):  # in a state that cannot be cancelled any more
                    self._admin.request_action(number, "cancel")
        for number in self._wait_for_migrations():
            self._admin.delete_task(number)

    def _wait_for_migrations(self) -> Sequence[int]:
        """Wait until none is in progress, and return those that have a record."""
        deadline = time.monotonic() + _LIMIT_SECONDS
        while any(map(is_in_progress, (left := self._list_migrations()).values())) and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)
        return [number for number, state in left.items() if not is_in_progress(state)]


def read_external() -> ExternalRedpanda | None:
    """Return the cluster that the environment names; a variable that names none ends the run."""
    given = os.environ.get(names.EXTERNAL)
    try:
        return ExternalRedpanda.parse(given) if given else None
    except UnusableError as error:
        return pytest.exit(str(error), returncode=1)


EXTERNAL: Final = read_external()
