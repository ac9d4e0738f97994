"""The wire: requests to a cluster, each about many things at once, and what they answer as plain values."""

from __future__ import annotations

import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from reconciler.providers.kafka.installed import check_installed
from reconciler.providers.kafka.metadata import BROKER, TOPIC, ClusterSeen, ConfigSeen, TopicSeen
from reconciler.providers.kafka.reaching.security import admin_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from reconciler.providers.base import Edge
    from reconciler.providers.kafka.describing import Described
    from reconciler.resources.cluster import Cluster

_COORDINATING: Final = frozenset({14, 15, 16})
"""What brokers answer while nobody, or somebody else, coordinates a group."""
_CONFIGS_AT_ONCE: Final = 5_000
"""Topics whose configs one answer has: about 10 MB."""


class KafkaClient:
    """One connection to one cluster, opened when it is first needed. Safe to share between threads."""

    def __init__(self, name: str, settings: Callable[[], Mapping[str, Any]]) -> None:
        """Take what the cluster is called in the files, and what gives the settings `connecting.opened_admin` takes."""
        self.name, self._settings = name, settings
        self._admin: Any = None
        self._opening = threading.Lock()

    @classmethod
    def of(cls, declared: Cluster, edge: Edge) -> Self:
        """Return the client of a declared cluster; secrets are looked up when it is opened."""
        return cls(declared.metadata.name, lambda: admin_settings(declared, edge))

    @property
    def admin(self) -> Any:
        """The client of the library, for what it says well itself. Errors of its calls: `asked`."""
        with self._opening:
            if self._admin is None:
                check_installed(cluster=self.name)
                from reconciler.providers.kafka.reaching.connecting import let_go, opened_admin

                self._admin = opened_admin(self._settings(), cluster=self.name)
                # Its thread would go on for ever, also when the cluster is gone; the end of a process waits for none.
                weakref.finalize(self, let_go, self._admin).atexit = False
            return self._admin

    def asked(self, doing: str, call: Any, *given: Any, **named: Any) -> Any:
        """Return what a call of the library answers, one that may be made again; its errors in our words."""
        from reconciler.providers.kafka.reaching.patience import called

        connections = self.admin._manager  # noqa: SLF001 - as in `send`: what it is shared with waits together
        return called(connections, partial(call, *given, **named), doing=doing, cluster=self.name)

    def asked_of_group(self, doing: str, call: Any, *given: Any) -> Mapping[Any, Any]:
        """Return what the coordinator of a group answers, item by item; one that moves, or begins, is waited for."""

        def answered() -> Mapping[Any, Any]:
            answers: Mapping[Any, Any] = call(*given)
            for answer in answers.values():
                if getattr(answer, "errno", 0) in _COORDINATING:
                    raise answer
            return answers

        found: Mapping[Any, Any] = self.asked(doing, answered)
        return found

    def send(self, request: Any, *, doing: str, node: int | None = None) -> Any:
        """Send one request of the protocol, to any broker or to one, and return its answer."""
        from reconciler.providers.kafka.reaching.patience import sent

        connections = self.admin._manager  # noqa: SLF001 - the library has no other way to send what it has no method for
        return sent(connections, request, node, doing=doing, cluster=self.name)

    def cluster(self) -> ClusterSeen:
        """Return who answers, and which brokers are alive."""
        found = self.asked("describing the cluster", self.admin.describe_cluster)
        from kafka.admin import ACLOperation

        alive = sorted((each["broker_id"], each["rack"]) for each in found["brokers"] if not each.get("is_fenced"))
        operations = frozenset(ACLOperation[name].value for name in found.get("authorized_operations") or ())
        return ClusterSeen(found["cluster_id"], dict(alive), operations)

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicSeen]:
        """Return topics by name, in one request: those of `names`, or all that may be described."""
        from kafka.protocol.metadata import MetadataRequest

        wanted = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        if wanted == []:
            return {}
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False, min_version=10)
        answer = self.send(request, doing="listing topics")
        return {topic.name: _topic(topic) for topic in answer.topics}

    def configs(
        self, names: Sequence[str], keys: Sequence[str] | None = None, *, node: int | None = None
    ) -> Iterator[tuple[str, Mapping[str, ConfigSeen] | int]]:
        """Yield the configs of topics, all or those of `keys`, as one broker knows them; a code where it refuses."""
        for begin in range(0, len(names), _CONFIGS_AT_ONCE):
            wanted = [(TOPIC, name, None if keys is None else list(keys)) for name in names[begin:][:_CONFIGS_AT_ONCE]]
            for result in self._described(wanted, node=node, doing="reading configs of topics"):
                yield result.resource_name, result.error_code or result.configs

    def broker_configs(self) -> Mapping[str, ConfigSeen]:
        """Return the configs that were set for all brokers at run time."""
        return self._of_brokers([""], None)[""]

    def both_broker_configs(self, broker: int) -> tuple[Mapping[str, ConfigSeen], Mapping[str, ConfigSeen]]:
        """Return the configs of one broker, and those set for all of them at run time: one request."""
        found = self._of_brokers([str(broker), ""], broker)
        return found[str(broker)], found[""]

    def _of_brokers(self, names: Sequence[str], node: int | None) -> Mapping[str, Mapping[str, ConfigSeen]]:
        found = {}
        for result in self._described(
            [(BROKER, name, None) for name in names], node=node, doing="reading configs of brokers"
        ):
            if result.error_code:
                from reconciler.providers.kafka.faults import of_code

                raise of_code(result.error_code, result.error_message or "", what=f"cluster {self.name}")
            found[result.resource_name] = result.configs
        return found

    def close(self) -> None:
        """Close the connection; another call opens it again."""
        with self._opening:
            if self._admin is not None:
                self._admin.close()
                self._admin = None

    def _described(
        self, wanted: Sequence[tuple[int, str, list[str] | None]], *, doing: str, node: int | None = None
    ) -> Sequence[Described]:
        from reconciler.providers.kafka.describing import DescribeAllConfigsRequest

        found: Sequence[Described] = self.send(DescribeAllConfigsRequest(wanted), doing=doing, node=node).results
        return found


def _topic(topic: Any) -> TopicSeen:
    partitions = sorted(topic.partitions, key=lambda each: each.partition_index)
    return TopicSeen(
        topic.name,
        str(topic.topic_id),
        bool(topic.is_internal),
        tuple(tuple(each.replica_nodes) for each in partitions),
        topic.error_code,
        all(each.leader_id >= 0 for each in partitions) and bool(partitions),
        tuple(each.leader_id for each in partitions),
    )
