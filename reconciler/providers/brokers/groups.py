"""Consumer groups of a Kafka cluster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import BlockedError, NotAuthorizedError, NotFoundError, UserError
from reconciler.providers.brokers.faults import translate_code
from reconciler.providers.brokers.offsets import Place, read_bounds, read_offsets
from reconciler.resources.groups import ConsumerGroup, GroupOffset, OffsetMove, Reset, plan_offset_move
from reconciler.resources.measures import GroupLag
from reconciler.runtime.dataclass import dataclass

if TYPE_CHECKING:
    from reconciler.providers.brokers.client import KafkaClient
    from reconciler.providers.brokers.translate import ClusterNaming


# ruff: noqa: PLC0415 - imported on connection only

_MAX_GROUPS: Final = 1_000
_SHARE: Final = "share"
_IDLE: Final = frozenset({"Empty", "Dead", ""})
"""States of groups without members. A group in an unknown state may have members."""
_TYPES: Final = frozenset({"", "classic", "consumer", _SHARE})
"""Group types whose members' topics are readable."""
_UNSUPPORTED, _GONE = 35, 69
"""Error codes UNSUPPORTED_VERSION and GROUP_ID_NOT_FOUND."""
_UNAUTHORIZED: Final = 30


@dataclass(frozen=True, slots=True)
class KafkaGroups:
    """Consumer groups of a Kafka cluster."""

    client: KafkaClient
    naming: ClusterNaming

    def list_names(self) -> Sequence[str]:
        """Return all group names, sorted."""
        return sorted(self._read_states())

    def find_platform_name(self, group: str) -> str:
        """Return an existing group's name, or a new group's flat name, which namespace rules cover."""
        return group if ":" not in group or group in self._read_states() else self.naming.to_physical(group)

    def describe(self, group: str) -> ConsumerGroup:
        """Return a group; it is reading if it has members."""
        states = self._read_states()
        group = self._find_broker_name(group, states)
        if group not in states:
            raise NotFoundError(f"group {group} does not exist", hint="List the groups with: reconciler group list")
        committed = self._read_all_offsets({group: states[group]}).get(group, {})
        return self._build_group(group, states[group], self._build_rows(committed, committed))

    def list_for_topic(self, full_name: str) -> Sequence[ConsumerGroup] | None:
        """Return a topic's groups."""
        places, states = self._list_partitions(full_name), self._read_states()
        if len(states) > _MAX_GROUPS:
            return None
        offsets = self._read_all_offsets(states)
        bounds = read_bounds(self.client, places)
        return [
            self._build_group(
                name, states[name], [self._build_row(place, bounds[place], offsets[name]) for place in places]
            )
            for name in sorted(offsets)
            if any(place in offsets[name] for place in places)
        ]

    def find_topic_readers(self) -> Mapping[str, Sequence[str]] | None:
        """Return the groups with offsets or members by topic; `None` if unknown."""
        check_groups_visible(self.client)
        states = self._read_states()
        if len(states) > _MAX_GROUPS:
            return None
        busy = {name: seen for name, seen in states.items() if seen.has_members}
        offsets, members = self._read_all_offsets(states), _read_member_topics(self.client, busy)
        if any(seen.type not in _TYPES and not offsets.get(name) for name, seen in busy.items()):
            return None
        readers: dict[str, set[str]] = defaultdict(set)
        for group in states:
            for name in {name for name, _ in offsets.get(group, ())} | members.get(group, set()):
                readers[self.naming.to_full_name(name)].add(group)
        return {name: tuple(sorted(groups)) for name, groups in sorted(readers.items())}

    def measure_lags(
        self, groups: Collection[str], bounds: Mapping[Place, tuple[int, int]]
    ) -> tuple[list[GroupLag], int]:
        """Return lags by group and topic, and the number of hidden groups.

        `bounds` are the partitions' first and last stable offsets.
        """
        lags_of_groups: list[GroupLag] = []
        shown, hidden = read_describable_offsets(self.client, groups)
        for group, committed in sorted(shown.items()):
            lags: defaultdict[str, int] = defaultdict(int)
            for place, at in committed.items():
                if place in bounds:
                    start, stable = bounds[place]
                    lags[self.naming.to_full_name(place[0])] += max(0, stable - max(at.offset, start))
            lags_of_groups += (GroupLag(group, topic, lag) for topic, lag in sorted(lags.items()))
        return lags_of_groups, len(hidden)

    def read_committed_offsets(self, group: str, topics: Iterable[str]) -> Mapping[tuple[str, int], int]:
        """Return committed offsets."""
        wanted = {self.naming.to_physical(topic): topic for topic in topics}
        group = self._find_broker_name(group)
        offsets = self._read_committed([group]).get(group, {})
        return {(wanted[name], part): at.offset for (name, part), at in offsets.items() if name in wanted}

    def commit(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit offsets. Groups with members are rejected."""
        for topic in sorted({topic for topic, _ in offsets}):
            known = self._list_partitions(topic)
            for name, partition in offsets:
                if name == topic and (self.naming.to_physical(name), partition) not in known:
                    message = f"group {group}: {name}, partition {partition}: there is no such partition"
                    raise NotFoundError(message, hint=f"The topic has {len(known)} partitions.")
        places = {(self.naming.to_physical(name), part): at for (name, part), at in offsets.items()}
        self._commit_offsets(self._find_broker_name(group), places)

    def plan_reset(
        self, group: str, reset: Reset, *, topic: str | None = None, partition: int | None = None
    ) -> Sequence[OffsetMove]:
        """Return what a reset would change."""
        group = self._find_broker_name(group)
        states = self._read_states()
        _check_not_share(group, states)
        if topic is None and group not in states:
            raise NotFoundError(
                f"group {group} does not exist", hint="Name a topic to give a new group its first offsets."
            )
        committed = self._read_committed([group]).get(group, {})
        names = sorted({name for name, _ in committed}) if topic is None else [self.naming.to_physical(topic)]
        places = [place for name in names for place in self._list_partitions(self.naming.to_full_name(name))]
        rows = [row for row in self._build_rows(places, committed) if partition in {None, row.partition}]
        if partition is not None and not rows:
            raise UserError(f"partition {partition}: no topic of the reset has it", hint="Partitions count from 0.")
        candidates = (plan_offset_move(row, reset, partial(self._find_offset_at, row)) for row in rows)
        return [move for move in candidates if move is not None]

    def reset_offsets(self, group: str, moves: Sequence[OffsetMove], *, force: bool = False) -> None:
        """Set a group's offsets, with `force` even if it has members."""
        if not moves:
            return
        group = self._find_broker_name(group)
        self._check_idle(group, force=force)
        self._commit_offsets(
            group, {(self.naming.to_physical(move.topic), move.partition): move.after for move in moves}
        )

    def delete(self, group: str, topic: str | None = None, *, force: bool = False) -> bool:
        """Delete a group, or its offsets of one topic.

        A group with members requires `force`.
        """
        group, states = self._find_broker_name(group), self._read_states()
        if group not in states:
            return False
        self._check_idle(group, force=force)
        if topic is None:
            answers_by_group = self.client.call_coordinator(
                "deleting a group", self.client.admin.delete_groups, [group]
            )
            return _check_answer(answers_by_group.get(group), f"group {group}", may_be_gone=True)
        _check_not_share(group, states)
        from kafka.structs import TopicPartition

        places = [
            place
            for place in self._read_committed([group]).get(group, {})
            if place[0] == self.naming.to_physical(topic)
        ]
        if places:
            partitions = [TopicPartition(*place) for place in places]
            admin = self.client.admin
            answers = self.client.call_coordinator("deleting offsets", admin.delete_group_offsets, group, partitions)
            for answer in answers.values():
                _check_answer(answer, f"group {group}")
        return bool(places)

    def _find_broker_name(self, group: str, names: Collection[str] | None = None) -> str:
        """Return a group's name on the brokers: the flat name (`shop.eu.orders`) if only that exists."""
        if ":" not in group:
            return group
        names = self._read_states() if names is None else names
        flat = self.naming.to_physical(group)
        return flat if flat in names and group not in names else group

    def _read_states(self) -> dict[str, GroupDescription]:
        return read_group_states(self.client)

    def _read_all_offsets(self, states: Mapping[str, GroupDescription]) -> dict[str, dict[Place, Any]]:
        shared = [name for name, seen in states.items() if seen.type == _SHARE]
        offsets = self._read_committed(name for name in states if name not in shared)
        return offsets | _read_share_offsets(self.client, shared)

    def _read_committed(self, groups: Iterable[str]) -> dict[str, dict[Place, Any]]:
        return read_committed_offsets(self.client, groups)

    def _list_partitions(self, full_name: str) -> list[Place]:
        name = self.naming.to_physical(full_name)
        seen = self.client.read_topic(name)
        if seen is None:
            raise NotFoundError(f"topic {full_name} does not exist", hint="List the topics with: reconciler topic list")
        return [(name, number) for number in range(len(seen.replicas))]

    def _build_rows(self, places: Iterable[Place], committed: Mapping[Place, Any]) -> list[GroupOffset]:
        topics = self.client.read_topics({name for name, _ in places})
        living = [place for place in sorted(places) if place[0] in topics and not topics[place[0]].error]
        bounds = read_bounds(self.client, living)
        return [self._build_row(place, bounds[place], committed) for place in living]

    def _build_row(self, place: Place, bounds: Any, committed: Mapping[Place, Any]) -> GroupOffset:
        commit = committed.get(place)
        at = None if commit is None or commit.offset < 0 else commit.offset
        name, partition = place
        metadata = "" if commit is None else commit.metadata or ""
        return GroupOffset(
            self.naming.to_full_name(name), partition, at, bounds.start, bounds.stable, bounds.end, metadata=metadata
        )

    def _build_group(self, name: str, seen: GroupDescription, rows: Sequence[GroupOffset]) -> ConsumerGroup:
        return ConsumerGroup(name, seen.has_members, None, tuple(rows), seen.type or None)

    def _find_offset_at(self, row: GroupOffset, at_ms: int) -> int | None:
        place = self.naming.to_physical(row.topic), row.partition
        offset = read_offsets(self.client, [place], at_ms)[place]
        return None if offset < 0 else offset

    def _check_idle(self, group: str, *, force: bool) -> None:
        if (seen := self._read_states().get(group)) is not None and seen.has_members:
            why = "brokers take offsets from its members alone, --force or not" if force else "it has members"
            raise BlockedError(f"group {group} is reading: {why}", hint="Stop its consumers first.")

    def _commit_offsets(self, group: str, offsets: Mapping[Place, int]) -> None:
        from kafka.structs import OffsetAndMetadata, TopicPartition

        wanted = {TopicPartition(*place): OffsetAndMetadata(at, "", -1) for place, at in offsets.items()}
        answers = self.client.call_coordinator("setting offsets", self.client.admin.alter_group_offsets, group, wanted)
        for answer in answers.values():
            _check_answer(answer, f"group {group}")


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """Listed group; unknown fields are empty."""

    state: str
    type: str = ""
    protocol: str = ""

    @property
    def has_members(self) -> bool:
        """Whether the group may have members."""
        return self.state not in _IDLE


def read_group_states(client: KafkaClient) -> dict[str, GroupDescription]:
    """Return the states of all groups by name."""
    listing = client.call_admin("listing groups", client.admin.list_groups)
    words = ("group_state", "group_type", "protocol_type")
    return {row["group_id"]: GroupDescription(*(row.get(word) or "" for word in words)) for row in listing}


def _check_not_share(group: str, states: Mapping[str, GroupDescription]) -> None:
    if group in states and states[group].type == _SHARE:
        message = f"group {group} is a share group: it commits no offsets that could be set or forgotten here"
        raise UserError(message, hint="Use Kafka's kafka-share-groups.sh with --reset-offsets or --delete-offsets.")


def read_committed_offsets(client: KafkaClient, groups: Iterable[str]) -> dict[str, dict[Place, Any]]:
    """Return committed offsets by broker group name; raise if a group is unreadable."""
    offsets, refused = read_describable_offsets(client, tuple(groups))
    for error in refused.values():
        raise error
    return offsets


def _request_committed(client: KafkaClient, groups: Iterable[str]) -> dict[str, dict[Place, Any]]:
    wanted = dict.fromkeys(groups)
    if not wanted:
        return {}
    answers = client.call_admin("reading offsets of groups", client.admin.list_group_offsets, wanted)
    return {
        group: {(at.topic, at.partition): commit for at, commit in offsets.items() if commit.offset >= 0}
        for group, offsets in answers.items()
    }


def read_describable_offsets(
    client: KafkaClient, groups: Collection[str]
) -> tuple[dict[str, dict[Place, Any]], dict[str, NotAuthorizedError]]:
    """Return committed offsets of describable groups, and the errors of the others."""
    try:
        return _request_committed(client, groups), {}
    except NotAuthorizedError:
        hidden = _find_hidden_groups(client, groups)
        if not hidden:
            raise
    return _request_committed(client, [group for group in groups if group not in hidden]), hidden


def _find_hidden_groups(client: KafkaClient, groups: Iterable[str]) -> dict[str, NotAuthorizedError]:
    from kafka.protocol.metadata import FindCoordinatorRequest

    # A request for offsets fails if one group is hidden. This one reports an error per group.
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=sorted(groups), min_version=4)
    answer = client.send(request, doing="looking which groups may be described")
    errors = {}
    for coordinator in answer.coordinators:
        if coordinator.error_code == _UNAUTHORIZED:
            message = f"cluster {client.name}: the principal of reconciler may not describe group {coordinator.key}"
            hint = "Allow DESCRIBE on the group. A link can leave it out, by consumerOffsetSync.filters."
            errors[coordinator.key] = NotAuthorizedError(message, hint=hint)
    return errors


def check_groups_visible(client: KafkaClient) -> None:
    """Reject a principal that may not describe the cluster, because brokers hide groups from it."""
    if "describe" not in client.describe_cluster().operations:
        message = f"cluster {client.name}: the principal of reconciler is not shown every consumer group"
        raise NotAuthorizedError(message, hint="Allow DESCRIBE on the cluster, then run the same command again.")


def _check_answer(answer: Any, what: str, *, may_be_gone: bool = False) -> bool:
    from kafka.errors import NoError

    if answer in {None, NoError, "OK"}:
        return True
    code = getattr(answer, "errno", None)
    if code is None:
        raise UserError(f"{what}: {answer}", hint="Stop its consumers, and try again.")
    if may_be_gone and code == _GONE:
        return False
    raise translate_code(code, getattr(answer, "description", ""), what=what)


@cache
def _load_request_class(name: str) -> Any:
    """Build a request class for KIP-848 groups or share groups, which the library lacks."""
    from kafka.protocol.api_message import ApiMessage

    kind, folder = type(ApiMessage), "reconciler.providers.brokers.messages"
    answer = kind(f"{name}Response", (ApiMessage,), {}, load_json=folder)
    return kind(f"{name}Request", (ApiMessage,), {"answer": answer}, load_json=folder)


def _read_member_topics(client: KafkaClient, busy: Mapping[str, GroupDescription]) -> dict[str, set[str]]:
    classic = [name for name, seen in busy.items() if seen.type in {"", "classic"} and seen.protocol == "consumer"]
    described = client.call_admin("describing groups", client.admin.describe_groups, classic) if classic else {}
    members = {name: [member["member_metadata"] for member in group["members"]] for name, group in described.items()}
    topics = {
        name: {topic for member in of if isinstance(member, Mapping) for topic in member["topics"]}
        for name, of in members.items()
    }
    newer, ask = (
        [name for name, seen in busy.items() if seen.type == "consumer"],
        _load_request_class("ConsumerGroupDescribe"),
    )
    for name, group in _describe_groups(client, newer, lambda names: ask(names, include_authorized_operations=False)):
        assigned = {topic.topic_name for member in group.members for topic in member.assignment.topic_partitions}
        topics[name] = assigned.union(*(member.subscribed_topic_names for member in group.members))
    return topics


def _read_share_offsets(client: KafkaClient, groups: Collection[str]) -> dict[str, dict[Place, Any]]:
    """Return share groups' start offsets as committed offsets; -1 means that nothing was read."""
    from kafka.structs import OffsetAndMetadata

    request, offsets = _load_request_class("DescribeShareGroupOffsets"), {}
    for name, group in _describe_groups(client, groups, lambda names: request([request.Group(item) for item in names])):
        places = ((topic.topic_name, item) for topic in group.topics for item in topic.partitions)
        offsets[name] = {
            (at, item.partition_index): OffsetAndMetadata(item.start_offset, "", -1) for at, item in places
        }
    return offsets


def _describe_groups(
    client: KafkaClient, groups: Collection[str], request: Callable[[list[str]], Any]
) -> Iterator[tuple[str, Any]]:
    from kafka.errors import for_code

    def ask() -> dict[str, Any]:
        connections = client.admin._manager  # noqa: SLF001 - no public method
        nodes = connections.run(client.admin._find_coordinator_ids, groups)  # noqa: SLF001 - as above
        requests = {
            node: request([item for item in groups if nodes[item] == node]) for node in sorted(set(nodes.values()))
        }
        answers = [connections.run(connections.send, item, node) for node, item in requests.items()]
        by_name = {item.group_id: item for answer in answers for item in answer.groups}
        return {name: for_code(item.error_code) if item.error_code else item for name, item in by_name.items()}

    for name, answer in client.call_coordinator("describing groups", ask).items() if groups else ():
        if (code := getattr(answer, "errno", 0)) not in {0, _UNSUPPORTED, _GONE}:
            raise translate_code(code, "", what=f"cluster {client.name}: group {name}")
        if not code:
            yield name, answer
