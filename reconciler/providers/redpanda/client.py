"""Redpanda's Admin API: one method per call, and the meaning of its errors."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast

from reconciler.errors import NotFoundError, ReconcilerError, RetryableError, UnansweredError, UserError
from reconciler.providers.brokers.security import Tls
from reconciler.providers.http import HttpAnswer, HttpApi, HttpLogin, build_basic_header, build_bearer_header
from reconciler.providers.secrets import resolve_secret
from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.retry import Backoff, RateLimit

if TYPE_CHECKING:
    import ssl

    from reconciler.providers.protocol import Edge
    from reconciler.resources.cluster import Cluster, RedpandaConnection


@dataclass(frozen=True, slots=True)
class Node:
    """A broker, as the Admin API lists it."""

    id: int
    version: str
    """Such as `25.3.1`; empty if it is not reported."""
    is_alive: bool


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """Version of the cluster's properties that one broker has applied."""

    id: int
    version: int
    needs_restart: bool


@dataclass(frozen=True, slots=True)
class MountableEntry:
    """A mountable topic, as the Admin API lists it."""

    name: str
    location: str
    """`<topic>/<cluster uuid>/<revision>`."""
    namespace: str
    """Redpanda's own namespace of topics; only `kafka` can be mounted."""


@dataclass(frozen=True, slots=True)
class MountTask:
    """A migration, as the Admin API lists it; its id is unique within the cluster."""

    id: int
    state: str
    """Known and unknown states, as the platform says them."""
    is_mount: bool
    topics: Mapping[str, str]
    """Name on this cluster → its source, a name or a location; for an unmount its location, or the name."""
    created_ms: int | None


class AdminClient:
    """The Admin API of one cluster."""

    def __init__(self, declared: Cluster, edge: Edge) -> None:
        """Open no connection; the first request resolves the secrets."""
        connection = cast("RedpandaConnection", declared.spec.connection)
        self.name = declared.metadata.name
        login = _make_login(connection, edge, f"{declared.address}: spec.redpanda")
        self._api = HttpApi(
            f"cluster {self.name}: Admin API",
            connection.admin_urls,
            "adminUrls",
            connection.admin_timeout / 1000,
            login,
            rate=RateLimit.create(connection.requests_per_second),
        )

    def list_nodes(self) -> Sequence[Node]:
        """Return all brokers, with one request."""
        return [
            Node(entry["node_id"], str(entry.get("version", "")), bool(entry.get("is_alive", True)))
            for entry in _rows(self._get("/v1/brokers"), "node_id")
        ]

    def read_uuid(self) -> str:
        """Return the cluster's UUID, which is part of the locations of its topics."""
        return str(_object(self._get("/v1/cluster/uuid")).get("cluster_uuid", ""))

    def read_license_status(self) -> str:
        """Return `valid`, `expired` or `not_present`; `unknown` if this version does not report it."""
        answer = self._api.read("/v1/features/enterprise")
        if not answer.is_success:
            return "unknown"
        content = answer.json()
        return str(content.get("license_status", "unknown")) if isinstance(content, dict) else "unknown"

    def read_properties(self, *, with_defaults: bool = True) -> Mapping[str, Any]:
        """Return cluster properties with their values; secrets read as `[secret]`."""
        return _object(self._get(f"/v1/cluster_config?include_defaults={str(with_defaults).lower()}"))

    def read_property_schema(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the type, range and need of a restart of each property."""
        properties = _object(self._get("/v1/cluster_config/schema")).get("properties")
        return properties if isinstance(properties, dict) else {}

    def list_node_configs(self) -> Sequence[NodeConfig]:
        """Return the version of the properties on each broker."""
        return [
            NodeConfig(entry["node_id"], int(entry.get("config_version", -1)), bool(entry.get("restart")))
            for entry in _rows(self._get("/v1/cluster_config/status"), "node_id")
        ]

    def set_properties(self, upsert: Mapping[str, object], remove: Collection[str]) -> int:
        """Set and reset properties, all or none, and return the version that brokers must reach. Repeatable."""
        content = {"upsert": dict(upsert), "remove": sorted(remove)}
        answer = self._api.change("PUT", "/v1/cluster_config", content, is_repeatable=True)
        if answer.status == HTTPStatus.BAD_REQUEST:
            message = f"{answer.where} refuses properties: {'; '.join(_describe_refused_properties(answer))}"
            raise UserError(message, hint="Correct them in the Cluster, and plan again.")
        return int(_object(_check_success(answer, "change properties").json()).get("config_version", -1))

    def read_storage_status(self, topic: str, partition: int) -> Mapping[str, Any]:
        """Return sizes and offsets of a partition on disk and in object storage."""
        return _object(self._get(f"/v1/cloud_storage/status/{topic}/{partition}"))

    def start_recovery(self, cluster_uuid: str | None) -> None:
        """Start the cluster's recovery, by default of the bucket's last cluster. Not repeatable.

        Raises:
            UnansweredError: It may have begun.
        """
        content = {} if cluster_uuid is None else {"cluster_uuid_override": cluster_uuid}
        _check_success(self._api.change("POST", _RECOVERY, content), "recover the cluster")

    def read_recovery(self) -> tuple[str, str]:
        """Return the recovery's stage and error; `inactive` is done or never begun."""
        status = _object(self._get(_RECOVERY))
        return str(status.get("state", "")).rpartition("::")[2], str(status.get("error") or "")

    def list_mountable(self) -> Sequence[MountableEntry]:
        """Return the mountable topics of the object storage."""
        rows = _rows(_object(self._get("/v1/topics/mountable")).get("topics"), "topic")
        return [
            MountableEntry(row["topic"], str(row.get("topic_location", "")), str(row.get("ns") or KAFKA))
            for row in rows
        ]

    def mount(self, topics: Mapping[str, str]) -> int:
        """Start one mount and return its id. Not repeatable. `topics`: source (name or location) by new name.

        Raises:
            UnansweredError: It may have begun.
        """
        content = [
            {"source_topic_reference": {"topic": source, "ns": KAFKA}, "alias": {"topic": name, "ns": KAFKA}}
            for name, source in topics.items()
        ]
        return self._begin("/v1/topics/mount", content, f"mount {', '.join(topics)}")

    def unmount(self, topics: Sequence[str]) -> int:
        """Start one unmount and return its id. Not repeatable.

        Raises:
            UnansweredError: It may have begun.
        """
        return self._begin("/v1/topics/unmount", [{"topic": name} for name in topics], f"unmount {', '.join(topics)}")

    def list_tasks(self) -> Sequence[MountTask]:
        """Return the unfinished migrations that the answering broker knows."""
        return [_task(row) for row in _rows(self._get("/v1/migrations"), "id")]

    def read_task(self, number: int) -> MountTask | None:
        """Return one migration; `None` if it is gone or never was."""
        answer = self._api.read(f"/v1/migrations/{number}")
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        return _task(_object(_check_success(answer, f"read migration {number}").json()))

    def request_action(self, number: int, verb: str) -> bool:
        """Request `cancel` or another action; return whether the migration exists. Repeatable.

        Raises:
            UserError: The action is not legal in its state.
        """
        path = f"/v1/migrations/{number}?action={verb}"
        return self._exists(self._api.change("POST", path, is_repeatable=True), f"{verb} migration {number}")

    def delete_task(self, number: int) -> bool:
        """Delete the record of a migration that has ended; return whether there was one. Repeatable."""
        path = f"/v1/migrations/{number}"
        return self._exists(self._api.change("DELETE", path, is_repeatable=True), f"delete migration {number}")

    def call_shadow_links(self, method: str, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Call a method of the shadow link service. Creations, deletions and failovers are not repeatable.

        Raises:
            UnansweredError: It may have been done.
        """
        path, headers = f"/redpanda.core.admin.v2.ShadowLinkService/{method}", {"Connect-Protocol-Version": "1"}
        is_repeatable = method.startswith(("List", "Update"))
        answer = self._api.change("POST", path, content, is_repeatable=is_repeatable, headers=headers)
        content_of_answer = _check_success(answer, f"call {method}").json()
        if not isinstance(content_of_answer, dict):
            message = f"{answer.where}: the answer to {method} is no object of JSON"
            raise UserError(message, hint="Check adminUrls of the Cluster, and any proxy in between.")
        return content_of_answer

    def _begin(self, path: str, topics: Sequence[object], doing: str) -> int:
        answer = _check_success(self._api.change("POST", path, {"topics": topics}), doing)
        number = _object(answer.json()).get("id")
        if not isinstance(number, int):
            message = f"{answer.where}: the answer to {doing} names no migration"
            raise UnansweredError(message, hint="Run the same command again: it checks what has begun.")
        return number

    def _exists(self, answer: HttpAnswer, doing: str) -> bool:
        if answer.status == HTTPStatus.NOT_FOUND:
            return False
        _check_success(answer, doing)
        return True

    def _get(self, path: str) -> Any:
        return _check_success(self._api.read(path), f"read {path.partition('?')[0]}").json()


_RECOVERY: Final = "/v1/cloud_storage/automated_recovery"
POLLS: Final = Backoff(0.2, 2.0, spread=0.2)
"""Pauses between reads of what the cluster has begun."""
KAFKA: Final = "kafka"
"""The only namespace of Redpanda whose topics clients see."""


_LOGIN_HINT: Final = (
    "Check username and password of `admin` in the Cluster, or those of `security`: it must be a superuser."
)


def _make_login(connection: RedpandaConnection, edge: Edge, where: str) -> HttpLogin:
    """Use its own login if declared, otherwise the user and certificates of the brokers."""
    token = None if connection.admin is None else connection.admin.token
    login = connection.security if connection.admin is None else connection.admin
    where = f"{where}.{'security' if connection.admin is None else 'admin'}"

    def read_headers() -> Mapping[str, str]:
        if token is not None:
            return build_bearer_header(resolve_secret(token, edge.environ).reveal())
        if login is None or login.username is None or login.password is None:
            return {}
        return build_basic_header(login.username, resolve_secret(login.password, edge.environ).reveal())

    def build_context() -> ssl.SSLContext:
        tls = Tls() if login is None else Tls.read_files(login, edge, where=where)
        return tls.build_context(where=where)

    return HttpLogin(read_headers, build_context, _LOGIN_HINT)


_MEANINGS: Final[Mapping[str, tuple[str, str]]] = {
    "does not exist": ("", "It was unmounted or deleted after the plan read it: plan again."),
    "undergoing data migration": (
        "it is being mounted or unmounted already",
        "See what is in progress: reconciler mount status",
    ),
    "already been created": (
        "a topic of that name exists on this cluster",
        "Choose another name with `as`, or unmount that topic.",
    ),
    "not eligible": (
        "Redpanda unmounts only topics of namespace kafka with remote.write on",
        "Give the topic a TieringPolicy with remoteWrite, apply it, and unmount it then.",
    ),
    "Requested feature is disabled": (
        "mounting needs a licence, and tiered storage switched on",
        "Check `rpk cluster license info` and cloud_storage_enabled.",
    ),
    "migrations are disabled": (
        "data migrations are disabled on this cluster",
        "Set data_migrations_api_enabled, and see that tiered storage is on.",
    ),
    "link feature is disabled": (
        "shadow links are switched off",
        "Set the property enable_shadow_linking: true, apply that, and plan again.",
    ),
    "active shadow topics": (
        "it still copies topics",
        "Fail them over first: reconciler mirror failover",
    ),
    "unreachable": (
        "its source does not answer",
        "Check bootstrapServers and security of the source, as the brokers of this cluster reach it.",
    ),
    "limit of 1 shadow link": ("a cluster has one shadow link", "Delete the other link first."),
    "valid license": ("a shadow link needs a licence", "Check `rpk cluster license info`."),
    "No matching metadata": (
        "its bucket has no metadata of another cluster, or not of that one",
        "Check cloud_storage_bucket, and the UUID of --from.",
    ),
    "Recovery already active": ("its recovery has begun already", "Run the same command again: it follows that one."),
    "state transition": ("this is not legal in its state", "See its state: reconciler mount status"),
}
"""Part of a message → our words and hint. Versions answer 400 or 500 for the same: the message decides (F-R-203)."""


def _build_refusal(answer: HttpAnswer, doing: str) -> ReconcilerError:
    """`doing` completes "cannot …"."""
    theirs = answer.message
    for part, (ours, hint) in _MEANINGS.items():
        if part in theirs:
            why = f"{ours} ({theirs})" if ours else theirs
            return UserError(f"{answer.where} cannot {doing}: {why}", hint=hint)
    if answer.status == HTTPStatus.NOT_FOUND:
        message = f"{answer.where} cannot {doing}: it does not exist ({theirs})"
        return NotFoundError(message, hint="Plan again; perhaps this is no Admin API of a supported version.")
    message = f"{answer.where} cannot {doing}: {answer.status}: {theirs}"
    if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return RetryableError(message, hint="See the log of the brokers, then run the same command again.")
    return UserError(message, hint="Correct it in the files, and plan again.")


def _check_success(answer: HttpAnswer, doing: str) -> HttpAnswer:
    if not answer.is_success:
        raise _build_refusal(answer, doing)
    return answer


def _describe_refused_properties(answer: HttpAnswer) -> Iterator[str]:
    """Yield `property: text`; the body is a map of these, or an ordinary error."""
    content = answer.json()
    if isinstance(content, dict) and "message" not in content:
        yield from (f"{name}: {text}" for name, text in sorted(content.items()))
    else:
        yield answer.message


def _task(row: Mapping[str, Any]) -> MountTask:
    migration = _object(row.get("migration"))
    is_mount = migration.get("migration_type") == "inbound"
    topics: dict[str, str] = {}
    for topic in migration.get("topics") or ():
        if is_mount:
            source = _object(topic.get("source_topic_reference")).get("topic", "")
            alias = _object(topic.get("alias")).get("topic")
            topics[alias or source.partition("/")[0]] = source
        else:
            topics[topic.get("topic", "")] = topic.get("remote_location") or topic.get("topic", "")
    created = row.get("created_timestamp")
    return MountTask(
        int(row["id"]), str(row.get("state", "")), is_mount, topics, created if isinstance(created, int) else None
    )


def _object(content: Any) -> Mapping[str, Any]:
    return content if isinstance(content, dict) else {}


def _rows(content: Any, key: str) -> list[dict[str, Any]]:
    """Skip items without the key, because newer versions may add them."""
    return [row for row in content if isinstance(row, dict) and key in row] if isinstance(content, list) else []
