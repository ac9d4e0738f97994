"""Access rules and consumer groups by REST."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from tests.servers.confluent.api import CONTRACT, ApiError, Document, Request, Route, refuse
from tests.servers.emulation.http_front import Answer
from tests.servers.emulation.reader import LATEST

if TYPE_CHECKING:
    from tests.servers.confluent.server import Confluent

_NUMBERS: Final[dict[str, dict[str, int]]] = CONTRACT["rules"]
_WORDS: Final = {field: {number: word for word, number in words.items()} for field, words in _NUMBERS.items()}
_RULE: Final = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")
_FILTERS: Final = "?" + "&".join(_RULE)
_REQUIRED: Final = ("resource_type", "pattern_type", "operation", "permission")
_SECONDS: Final = 30
_CREATED: Final = Answer(HTTPStatus.CREATED)


class Access:
    """The access rules and the groups of a cluster, as its broker has them."""

    def __init__(self, server: Confluent) -> None:
        self.server = server
        self._admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{server.broker_port}", "log_level": 0})

    def list_routes(self) -> dict[str, Route]:
        group = "/consumer-groups/{}"
        return {
            f"GET /acls{_FILTERS}": lambda request: request.show_list(
                "KafkaAcl", ("acls",), self._show_rules(request, read_filter(request.query))
            ),
            f"DELETE /acls{_FILTERS}": self._delete,
            "POST /acls": lambda request: self._create([request.read(dict.fromkeys(_RULE, str))]),
            "POST /acls:batch": lambda request: self._create(
                request.read({"data": [dict.fromkeys(_RULE, str)]})["data"]
            ),
            "GET /consumer-groups": lambda request: request.show_list(
                "KafkaConsumerGroup", ("consumer-groups",), self._show_groups(request, self._list_groups())
            ),
            f"GET {group}": lambda request, name: self._show_groups(request, [self._find_group(name)])[0],
            f"GET {group}/lags": lambda request, name: request.show_list(
                "KafkaConsumerLag", ("consumer-groups", name, "lags"), self._read_lags(request, name)
            ),
            f"GET {group}/lag-summary": self._sum_lags,
            f"GET {group}/lags/{{}}/partitions/{{}}": self._find_lag,
        }

    # Access rules

    def read_rules(self, fields: dict[str, Any]) -> list[Document]:
        """Return rules as the fields of a CreateAcls request."""
        with self.server.read_own([]) as own:
            return own.read_acls(fields)

    def _create(self, rows: list[Document]) -> Answer:
        rules = []
        for row in rows:
            numbers = {field: _NUMBERS[field].get(row[field], 0) for field in _NUMBERS}
            if min(numbers.values()) <= _NUMBERS["operation"]["ANY"]:
                raise refuse("A rule needs a type, a pattern, an operation and a permission", HTTPStatus.BAD_REQUEST)
            rule = {"principal": row["principal"], "host": row["host"], "operation": numbers["operation"]}
            place = {"resource_type": numbers["resource_type"], "resource_name": row["resource_name"]}
            place["resource_pattern_type"] = numbers["pattern_type"]
            rules.append({**place, **rule, "permission_type": numbers["permission"]})
        if len(self.read_rules(read_filter({}))) + len(rules) > self.server.limits["rules"]:
            raise refuse("The maximum number of ACLs of this cluster is reached")
        with self.server.connect() as broker:
            answer = broker.ask("CreateAcls", 1, creations=rules)
        if failures := [row for row in answer.results if row.error_code]:
            raise refuse(failures[0].error_message)
        return _CREATED

    def _delete(self, request: Request) -> Document:
        if missing := [name for name in _REQUIRED if request.query.get(name, "UNKNOWN") == "UNKNOWN"]:
            raise refuse(f"{missing[0]} cannot be unspecified or UNKNOWN", HTTPStatus.BAD_REQUEST)
        fields = read_filter(request.query)
        shown = self._show_rules(request, fields)
        with self.server.connect() as broker:
            broker.ask("DeleteAcls", 1, filters=[fields])
        return {"data": shown}

    def _show_rules(self, request: Request, fields: dict[str, Any]) -> list[Document]:
        return [self._show(request, rule) for rule in self.read_rules(fields)]

    def _show(self, request: Request, rule: Document) -> Document:
        shown = {**rule, "permission": rule["permission_type"], "pattern_type": rule["resource_pattern_type"]}
        values = {name: _WORDS[name][shown[name]] if name in _WORDS else shown[name] for name in _RULE}
        return request.show("KafkaAcl", ("acls",), cluster_id=self.server.cluster_id, **values)

    # Groups

    def _list_groups(self) -> list[str]:
        return sorted(row.group_id for row in self._admin.list_consumer_groups().result(_SECONDS).valid)

    def _find_group(self, name: str) -> str:
        if name not in self._list_groups():
            raise ApiError(HTTPStatus.NOT_FOUND, f"Consumer Group {name} cannot be found.")
        return name

    def _show_groups(self, request: Request, names: list[str]) -> list[Document]:
        groups = {name: future.result(_SECONDS) for name, future in self._describe(names).items()}
        return [
            request.show(
                "KafkaConsumerGroup",
                ("consumer-groups", name),
                cluster_id=self.server.cluster_id,
                consumer_group_id=name,
                is_simple=group.is_simple_consumer_group,
                partition_assignor=group.partition_assignor,
                state=group.state.name,
                type=group.type.name,
                is_mixed_consumer_group=False,
                coordinator=request.related("brokers", 1),
                consumers=request.related("consumer-groups", name, "consumers"),
                lag_summary=request.related("consumer-groups", name, "lag-summary"),
            )
            for name, group in groups.items()
        ]

    def _describe(self, names: list[str]) -> dict[str, Any]:
        described: dict[str, Any] = self._admin.describe_consumer_groups(names) if names else {}
        return described

    def _read_lags(self, request: Request, name: str) -> list[Document]:
        if not self.server.limits["lags"]:
            raise ApiError(HTTPStatus.FORBIDDEN, "Consumer lags are available in dedicated clusters only", 40301)
        self._find_group(name)
        group = self._describe([name])[name].result(_SECONDS)
        asked = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)])
        commits = asked[name].result(_SECONDS).topic_partitions
        owners = {
            (each.topic, each.partition): member
            for member in group.members
            for each in member.assignment.topic_partitions
        }
        with self.server.read_own({each.topic for each in commits}) as own:
            keys = [(each.topic, each.partition) for each in commits if each.topic in own.topics]
            ends = own.list_offsets(keys, LATEST)
        rows = []
        for each in sorted(commits, key=lambda each: (each.topic, each.partition)):
            key, member = (each.topic, each.partition), owners.get((each.topic, each.partition))
            if key in ends:
                ids = {"consumer_id": member.member_id, "client_id": member.client_id} if member else {}
                fields: Document = {"consumer_id": "", "client_id": "", **ids, "current_offset": each.offset}
                fields["instance_id"] = member.group_instance_id if member else None
                fields |= {"log_end_offset": ends[key], "lag": ends[key] - each.offset}
                place = ("consumer-groups", name, "lags", each.topic, "partitions", each.partition)
                ids = {"cluster_id": self.server.cluster_id, "consumer_group_id": name}
                ids |= {"topic_name": each.topic, "partition_id": each.partition}
                rows.append(request.show("KafkaConsumerLag", place, **ids, **fields))
        return rows

    def _sum_lags(self, request: Request, name: str) -> Document:
        rows = self._read_lags(request, name)
        if not rows:
            raise ApiError(HTTPStatus.NOT_FOUND, f"Consumer Group {name} has no offsets.")
        most = max(rows, key=lambda row: int(row["lag"]))
        names = ("consumer_id", "instance_id", "client_id", "topic_name", "partition_id")
        return request.show(
            "KafkaConsumerGroupLagSummary",
            ("consumer-groups", name, "lag-summary"),
            cluster_id=self.server.cluster_id,
            consumer_group_id=name,
            **{f"max_lag_{field}": most[field] for field in names},
            max_lag=most["lag"],
            total_lag=sum(row["lag"] for row in rows),
            max_lag_consumer=request.related("consumer-groups", name, "consumers", most["consumer_id"]),
            max_lag_partition=request.related("topics", most["topic_name"], "partitions", most["partition_id"]),
        )

    def _find_lag(self, request: Request, name: str, topic: str, number: str) -> Document:
        rows = [
            row
            for row in self._read_lags(request, name)
            if (row["topic_name"], str(row["partition_id"])) == (topic, number)
        ]
        if not rows:
            raise ApiError(HTTPStatus.NOT_FOUND, f"Consumer Group {name} has no offset of {topic}/{number}.")
        return rows[0]


def read_filter(query: Any) -> dict[str, Any]:
    """Return the fields of a DescribeAcls request for a search."""
    numbers = {}
    for field, words in _NUMBERS.items():
        word = query.get(field) or "ANY"
        if word not in words:
            raise refuse(f"Unknown {field} {word}", HTTPStatus.BAD_REQUEST)
        numbers[field] = words[word]
    return {
        "resource_type_filter": numbers["resource_type"],
        "resource_name_filter": query.get("resource_name") or None,
        "pattern_type_filter": numbers["pattern_type"],
        "principal_filter": query.get("principal") or None,
        "host_filter": query.get("host") or None,
        "operation": numbers["operation"],
        "permission_type": numbers["permission"],
    }
