"""Requests to a Kafka cluster, each about many things; how long brokers are waited for; access rules on the wire."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from reconciler.errors import NotAuthorizedError, ReconcilerError, RetryableError, UnansweredError, UserError
from reconciler.providers.kafka.faults import UNDONE, of_code, translated
from reconciler.providers.kafka.security import admin_settings
from reconciler.providers.kafka.translate import BROKER, TOPIC, ClusterSeen, ConfigSeen, TopicSeen
from reconciler.resources.acls import Binding
from reconciler.runtime.retry import Backoff, pause

if TYPE_CHECKING:
    from reconciler.providers.kafka.connection import Described
    from reconciler.providers.protocol import Edge
    from reconciler.resources.cluster import Cluster


# What was never sent, or changes nothing, is sent again. A change whose answer is lost is not: whoever asked looks what
# is there. What brokers say they did not do (`faults.UNDONE`) is asked again for as long as the rest gets done, as
# slowly as they want it: a throttled connection stands still for the time they name.


T = TypeVar("T")
A = TypeVar("A")

READ_MS: Final = 30_000
WRITE_MS: Final = 90_000
"""More than brokers are given to do it in: they should be the ones who say that time is up."""
_AGAIN_SECONDS: Final = 30.0
"""For how long what can be sent again is, since brokers last answered anything: a dead cluster is waited for once.
A broker that died leads its partitions for up to ten seconds more, until the controller misses it."""
_THROTTLED_SECONDS: Final = 120.0
"""The longest that a throttled connection may stand still."""
_STALLED_SECONDS: Final = 60.0
"""After so long without a single thing done, what brokers leave undone is given up."""
_TRIES: Final = 8
"""So often, where no broker is there any more."""
_BACKOFF: Final = Backoff(first_s=0.2, longest_s=2.0)
_READING: Final = ("Describe", "List", "Metadata", "Find", "Fetch", "OffsetFetch", "ApiVersions")
"""How the names of requests begin that change nothing."""


def sent(
    connections: Any, request: Any, node: int | None, *, doing: str, cluster: str, is_only_once: bool = False
) -> Any:
    """Return the answer to a request, to one broker or to any.

    `is_only_once`: whoever asks looks which broker it is, and asks again.

    Raises:
        UnansweredError: It would change something, and nobody knows whether it did.
        ReconcilerError: It was not sent, or changes nothing; it was tried for a while where that is of use.
    """
    reads = _reads(request)
    limit = READ_MS if reads else WRITE_MS

    def may_repeat(error: BaseException) -> bool:
        return reads or _is_unsent(error)

    try:
        return _again(
            connections,
            lambda: connections.run(connections.send, request, node, limit),
            may_repeat,
            lambda error: translated(error, doing=doing, cluster=cluster),
            is_only_once=is_only_once,
        )
    except RetryableError as error:
        if error.__cause__ is None or may_repeat(error.__cause__):
            raise
        message = f"{error.message}; whether it was done is not known"
        raise UnansweredError(message, hint=error.hint) from error.__cause__


def called(connections: Any, call: Callable[[], T], *, doing: str, cluster: str) -> T:
    """Return what a call of the library answers that may be made again: it changes nothing, or to what it says.

    Raises:
        ReconcilerError: It was tried for a while where that is of use.
    """

    def told(error: Exception) -> ReconcilerError:
        connections.cluster._coordinators.clear()  # noqa: SLF001 - kept for ever, also when they move
        return translated(error, doing=doing, cluster=cluster)

    return _again(connections, call, lambda _error: True, told)


def _again(
    connections: Any,
    call: Callable[[], T],
    may_repeat: Callable[[BaseException], bool],
    told: Callable[[Exception], ReconcilerError],
    *,
    is_only_once: bool = False,
) -> T:
    """Call until there is an answer, as long as that is of use; what is raised is in our words."""
    tries = 0
    while True:
        try:
            answer = call()
        except Exception as error:
            found = told(error)
            tries += not _is_throttled(error)
            connections.silent_since = connections.silent_since or monotonic()
            patience = _THROTTLED_SECONDS if _is_throttled(error) else _AGAIN_SECONDS
            if not isinstance(found, RetryableError) or not may_repeat(error) or is_only_once:
                raise found from error
            is_down = tries >= _TRIES and not connections.route.is_any_up()
            if is_down or monotonic() - connections.silent_since > patience:
                raise found from error
        else:
            connections.silent_since = None
            return answer
        pause(_BACKOFF.after(tries))


def in_rounds(
    items: Sequence[T],
    ask: Callable[[Sequence[T]], Iterable[tuple[T, A]]],
    code: Callable[[A], int],
    may_go_on: Callable[[], None],
) -> Iterator[tuple[T, A]]:
    """Ask about all, then again about those that were left undone; yield each with the last answer about it.

    `may_go_on` is asked before every round but the first.
    """
    left, changed, tries = list(items), monotonic(), 0
    while left:
        undone: list[tuple[T, A]] = []
        for item, answer in ask(left):
            if code(answer) in UNDONE:
                undone.append((item, answer))
            else:
                yield item, answer
        if len(undone) < len(left):
            changed, tries = monotonic(), 0
        if undone and monotonic() - changed > _STALLED_SECONDS:
            yield from undone
            return
        left = [item for item, _ in undone]
        if left:
            tries += 1
            pause(_BACKOFF.after(tries))
            may_go_on()


def _reads(request: Any) -> bool:
    return type(request).__name__.startswith(_READING) or bool(getattr(request, "validate_only", False))


def _is_throttled(error: BaseException) -> bool:
    return "throttle" in str(error) and type(error).__name__ == "NodeNotReadyError"


def _is_unsent(error: BaseException) -> bool:
    """Return True if no broker can have seen the request: `connection.py` marks what no connection was made for."""
    return type(error).__name__ == "NodeNotReadyError" or getattr(error, "is_unsent", False)


# Whether the clients of Kafka are here: an installation without them manages other platforms.


def check_installed(*, cluster: str) -> None:
    """Return if both client libraries can be imported.

    Raises:
        UserError: One is not installed.
    """
    missing = [name for name, module in _CLIENTS.items() if find_spec(module) is None]
    if missing:
        message = f"cluster {cluster}: Apache Kafka needs {' and '.join(missing)}, not installed here"
        raise UserError(message, hint="Install it: pip install 'stream-reconciler[kafka]'.")


_CLIENTS = {"kafka-python": "kafka", "confluent-kafka": "confluent_kafka"}


_COORDINATING: Final = frozenset({14, 15, 16})
"""What brokers answer while nobody, or somebody else, coordinates a group."""
ABSENT: Final = frozenset({3, 100})
"""What brokers answer of a topic that is not there."""
UNAUTHORIZED: Final = 29
"""What they answer of one that may not be described, be it there or not."""
_CONFIGS_AT_ONCE: Final = 5_000
"""Topics whose configs one answer has: about 10 MB."""


class KafkaClient:
    """One connection to one cluster, opened when it is first needed. Safe to share between threads."""

    def __init__(self, name: str, settings: Callable[[], Mapping[str, Any]]) -> None:
        """Take what the cluster is called in the files, and what gives the settings `connection.opened_admin` takes."""
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
                from reconciler.providers.kafka.connection import let_go, opened_admin

                self._admin = opened_admin(self._settings(), cluster=self.name)
                # Its thread would go on for ever, also when the cluster is gone; the end of a process waits for none.
                weakref.finalize(self, let_go, self._admin).atexit = False
            return self._admin

    def asked(self, doing: str, call: Any, *given: Any, **named: Any) -> Any:
        """Return what a call of the library answers, one that may be made again; its errors in our words."""
        connections = self.admin._manager  # noqa: SLF001 - as in `send`: what it is shared with waits together
        return called(connections, partial(call, *given, **named), doing=doing, cluster=self.name)

    def asked_of_group(self, doing: str, call: Any, *given: Any) -> Mapping[Any, Any]:
        """Return what the coordinator of a group answers, item by item; one that moves, or begins, is waited for.

        What is refused is a class of the library's errors.
        """

        def answered() -> Mapping[Any, Any]:
            answers = {item: _error_of(answer) for item, answer in call(*given).items()}
            for answer in answers.values():
                if getattr(answer, "errno", 0) in _COORDINATING:
                    raise answer
            return answers

        found: Mapping[Any, Any] = self.asked(doing, answered)
        return found

    def send(self, request: Any, *, doing: str, node: int | None = None, is_only_once: bool = False) -> Any:
        """Send one request of the protocol, to any broker or to one, and return its answer.

        `is_only_once`: whoever asks looks which broker it is, and asks again.
        """
        connections = self.admin._manager  # noqa: SLF001 - the library has no other way to send what it has no method for
        return sent(connections, request, node, doing=doing, cluster=self.name, is_only_once=is_only_once)

    def cluster(self) -> ClusterSeen:
        """Return who answers, and which brokers are alive."""
        found = self.asked("describing the cluster", self.admin.describe_cluster)
        alive = sorted((each["broker_id"], each["rack"]) for each in found["brokers"] if not each.get("is_fenced"))
        return ClusterSeen(found["cluster_id"], dict(alive), frozenset(found.get("authorized_operations") or ()))

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicSeen]:
        """Return topics by name, in one request: those of `names`, or all that may be described."""
        from kafka.protocol.metadata import MetadataRequest

        wanted = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        if wanted == []:
            return {}
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False, min_version=10)
        answer = self.send(request, doing="listing topics")
        return {topic.name: _topic(topic) for topic in answer.topics}

    def topic(self, name: str) -> TopicSeen | None:
        """Return one topic; `None`: there is none, or it is being deleted.

        Raises:
            NotAuthorizedError: The principal may not describe it: whether it is there brokers do not say.
            ReconcilerError: The brokers cannot say it at the moment, or there can be no such topic.
        """
        found = self.topics([name]).get(name)
        if found is None or found.error in ABSENT:
            return None
        if found.error == UNAUTHORIZED:
            raise self.hidden(name)
        if found.error:
            raise of_code(found.error, "", what=f"topic {name} of cluster {self.name}")
        return found

    def hidden(self, name: str) -> NotAuthorizedError:
        """Return what to say of a topic that may not be described, and may be there."""
        message = f"cluster {self.name}: the principal of reconciler may not describe topic {name}"
        return NotAuthorizedError(message, hint="Allow DESCRIBE on it, then run the same command again.")

    def configs(
        self, names: Sequence[str], keys: Sequence[str] | None = None, *, node: int | None = None
    ) -> Iterator[tuple[str, Mapping[str, ConfigSeen] | int]]:
        """Yield the configs of topics, all or those of `keys`, as one broker knows them; a code where it refuses."""
        for begin in range(0, len(names), _CONFIGS_AT_ONCE):
            wanted = [(TOPIC, name, None if keys is None else list(keys)) for name in names[begin:][:_CONFIGS_AT_ONCE]]
            # Of one broker that is gone another is asked, or none: waiting for it is of no use.
            is_only_once = node is not None
            for result in self._described(wanted, node, doing="reading configs of topics", is_only_once=is_only_once):
                yield result.resource_name, result.error_code or result.configs

    def broker_configs(self) -> Mapping[str, ConfigSeen]:
        """Return the configs that were set for all brokers at run time."""
        return self._of_brokers([""])[""]

    def own_broker_configs(self, broker: int) -> Mapping[str, ConfigSeen]:
        """Return the configs of one broker, those that it sets for itself alone among them."""
        return self._of_brokers([str(broker)], broker, is_only_once=True)[str(broker)]

    def both_broker_configs(
        self, broker: int, *, is_only_once: bool = True
    ) -> tuple[Mapping[str, ConfigSeen], Mapping[str, ConfigSeen]]:
        """Return the configs of one broker, and those set for all of them at run time: one request.

        `is_only_once`: another broker is asked where this one is gone.
        """
        found = self._of_brokers([str(broker), ""], broker, is_only_once=is_only_once)
        return found[str(broker)], found[""]

    def _of_brokers(
        self, names: Sequence[str], node: int | None = None, *, is_only_once: bool = False
    ) -> Mapping[str, Mapping[str, ConfigSeen]]:
        found = {}
        wanted = [(BROKER, name, None) for name in names]
        for result in self._described(wanted, node, doing="reading configs of brokers", is_only_once=is_only_once):
            if result.error_code:
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
        self,
        wanted: Sequence[tuple[int, str, list[str] | None]],
        node: int | None,
        *,
        doing: str,
        is_only_once: bool,
    ) -> Sequence[Described]:
        from reconciler.providers.kafka.connection import DescribeAllConfigsRequest

        request = DescribeAllConfigsRequest(wanted)
        answer = self.send(request, doing=doing, node=node, is_only_once=is_only_once)
        found: Sequence[Described] = answer.results
        return found


def _error_of(answer: Any) -> Any:
    """Return an answer about one item, of which some calls of the library give but the name of the error."""
    from kafka import errors

    return getattr(errors, answer, answer) if isinstance(answer, str) else answer


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
        tuple(tuple(each.isr_nodes) for each in partitions),
    )


# Bindings on the wire: all of them read in one request, as many made or taken away in one as the controller takes.


# Only who connects pays for the library.

_ANY: Final = 1
_LITERAL, _PREFIXED = 3, 4
_MADE_AT_ONCE: Final = 9_000
"""The controller takes 10,000 records in one operation, one for each binding (6.2)."""
_TAKEN_AT_ONCE: Final = 1_000
"""It looks through all bindings for each that is taken away: of 9,000 among 10,000 it was not done in time."""

_RESOURCES: Final[Mapping[int, str]] = {
    2: "topics",
    3: "groups",
    4: "cluster",
    5: "transactional-ids",
    6: "delegation-token",
    7: "user",
}
_OPERATIONS: Final[Mapping[int, str]] = {
    2: "all",
    3: "read",
    4: "write",
    5: "create",
    6: "delete",
    7: "alter",
    8: "describe",
    9: "cluster-action",
    10: "describe-configs",
    11: "alter-configs",
    12: "idempotent-write",
    13: "create-tokens",
    14: "describe-tokens",
    15: "two-phase-commit",
}
_PERMISSIONS: Final[Mapping[int, str]] = {2: "deny", 3: "allow"}


def _codes(words: Mapping[int, str]) -> dict[str, int]:
    return {word: code for code, word in words.items()}


_RESOURCE_CODES, _OPERATION_CODES, _PERMISSION_CODES = _codes(_RESOURCES), _codes(_OPERATIONS), _codes(_PERMISSIONS)


def read_bindings(client: KafkaClient) -> tuple[list[Binding], int]:
    """Return every binding, or the code of why they cannot be read."""
    answer = _described(client)
    return list(bindings_in(answer)), answer.error_code


def bindings_in(answer: Any) -> Iterator[Binding]:
    """Yield the bindings of an answer; a code that this version does not know becomes a word such as `unknown-16`."""
    for resource in answer.resources:
        kind = _word(_RESOURCES, resource.resource_type)
        if resource.pattern_type not in {_LITERAL, _PREFIXED}:
            kind = f"{kind} by pattern type {resource.pattern_type}"
        for each in resource.acls:
            yield Binding(
                kind,
                resource.resource_name,
                resource.pattern_type == _PREFIXED,
                each.principal,
                each.host,
                _word(_OPERATIONS, each.operation),
                _word(_PERMISSIONS, each.permission_type),
            )


def _word(words: Mapping[int, str], code: int) -> str:
    return words.get(code, f"unknown-{code}")


def _described(client: KafkaClient) -> Any:
    from kafka.protocol.admin import DescribeAclsRequest

    request = DescribeAclsRequest(
        resource_type_filter=_ANY,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
        min_version=1,
    )
    return client.send(request, doing="reading access rules")


def create_bindings(client: KafkaClient, bindings: Sequence[Binding]) -> list[tuple[int, str]]:
    """Make bindings and return a code and a message for each, in their order; one that is there stays."""
    return [answer for some in _portions(bindings, _MADE_AT_ONCE) for answer in _created(client, some)]


def delete_bindings(client: KafkaClient, bindings: Sequence[Binding]) -> list[tuple[int, str]]:
    """Take bindings away and return a code and a message for each, in their order; one that is not there is gone."""
    return [answer for some in _portions(bindings, _TAKEN_AT_ONCE) for answer in _deleted(client, some)]


def _portions(bindings: Sequence[Binding], most: int) -> Iterator[Sequence[Binding]]:
    for begin in range(0, len(bindings), most):
        yield bindings[begin : begin + most]


def _created(client: KafkaClient, bindings: Sequence[Binding]) -> list[tuple[int, str]]:
    from kafka.protocol.admin import CreateAclsRequest

    made = [
        CreateAclsRequest.AclCreation(
            resource_type=_RESOURCE_CODES[each.resource],
            resource_name=each.name,
            resource_pattern_type=_PREFIXED if each.is_prefix else _LITERAL,
            principal=each.principal,
            host=each.host,
            operation=_OPERATION_CODES[each.operation],
            permission_type=_PERMISSION_CODES[each.permission],
        )
        for each in bindings
    ]
    answer = client.send(CreateAclsRequest(creations=made, min_version=1), doing="making access rules")
    return [(each.error_code, each.error_message or "") for each in answer.results]


def _deleted(client: KafkaClient, bindings: Sequence[Binding]) -> list[tuple[int, str]]:
    from kafka.protocol.admin import DeleteAclsRequest

    filters: list[Any] = [
        DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=_RESOURCE_CODES[each.resource],
            resource_name_filter=each.name,
            pattern_type_filter=_PREFIXED if each.is_prefix else _LITERAL,
            principal_filter=each.principal,
            host_filter=each.host,
            operation=_OPERATION_CODES[each.operation],
            permission_type=_PERMISSION_CODES[each.permission],
        )
        for each in bindings
    ]
    answer = client.send(DeleteAclsRequest(filters=filters, min_version=1), doing="taking access rules away")
    return list(deletions_in(answer))


def deletions_in(answer: Any) -> Iterator[tuple[int, str]]:
    """Yield a code and a message for each filter: it succeeds also where a rule that it matches is refused."""
    for each in answer.filter_results:
        refused = next((one for one in (each, *each.matching_acls) if one.error_code), each)
        yield refused.error_code, refused.error_message or ""
