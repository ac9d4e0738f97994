"""Consumer groups of a Kafka cluster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import BlockedError, NotAuthorizedError, NotFoundError, UserError
from reconciler.providers.kafka.faults import of_code
from reconciler.providers.kafka.offsets import Place, bounds_of, offsets_at
from reconciler.resources.groups import ConsumerGroup, GroupOffset, OffsetMove, Reset, move_of
from reconciler.resources.measures import GroupLag

if TYPE_CHECKING:
    from reconciler.providers.kafka.client import KafkaClient
    from reconciler.providers.kafka.translate import Naming


# Only who connects pays for the library.
# ruff: noqa: PLC0415

_MOST: Final = 1_000
"""Groups whose offsets one answer for a plan rests on."""
_SHARE: Final = "share"
_IDLE: Final = frozenset({"Empty", "Dead", ""})
"""States of a group that has no members; one in a state that this version does not know may have some."""
_TYPES: Final = frozenset({"", "classic", "consumer", _SHARE})
"""Types of groups of which it can be told what members read."""
_OTHER, _GONE = 35, 69
"""The brokers have no such request; there is no such group, or the request is not for groups of its type."""
_UNAUTHORIZED: Final = 30


@dataclass(frozen=True, slots=True)
class KafkaGroups:
    """What `provider.groups` is."""

    client: KafkaClient
    naming: Naming

    def names(self) -> Sequence[str]:
        """Return the names of all groups, sorted: one request to each broker."""
        return sorted(self._states())

    def called(self, group: str) -> str:
        """Return the name that is there, else the flat one: the rules of a namespace are about flat names."""
        return group if ":" not in group or group in self._states() else self.naming.physical(group)

    def describe(self, group: str) -> ConsumerGroup:
        """Return what a group has committed, its lag, and whether it is reading.

        Raises:
            UserError: There is no such group.
        """
        states = self._states()
        group = self._called(group, states)
        if group not in states:
            raise NotFoundError(f"group {group} does not exist", hint="See which there are: reconciler group list")
        committed = self._offsets({group: states[group]}).get(group, {})
        return self._group(group, states[group], self._rows(committed, committed))

    def of_topic(self, full_name: str) -> Sequence[ConsumerGroup] | None:
        """Return the groups that have offsets of a topic, each of that topic alone; `None`: too many to ask.

        Raises:
            UserError: There is no such topic.
        """
        places, states = self._places(full_name), self._states()
        if len(states) > _MOST:
            return None
        found = self._offsets(states)
        bounds = bounds_of(self.client, places)
        return [
            self._group(name, states[name], [self._row(place, bounds[place], found[name]) for place in places])
            for name in sorted(found)
            if any(place in found[name] for place in places)
        ]

    def reading(self) -> Mapping[str, Sequence[str]] | None:
        """Return the groups that have offsets of each topic, or read it now; `None`: that cannot be told of one.

        Brokers do not tell when an offset was committed (6.2), so each group that has one counts.

        Raises:
            NotAuthorizedError: There may be groups that are not listed, or one may not be described.
        """
        check_all_listed(self.client)
        states = self._states()
        if len(states) > _MOST:
            return None
        busy = {name: seen for name, seen in states.items() if seen.has_members}
        offsets, members = self._offsets(states), _topics_of_members(self.client, busy)
        if any(seen.type not in _TYPES and not offsets.get(name) for name, seen in busy.items()):
            return None
        found: dict[str, set[str]] = defaultdict(set)
        for group in states:
            for name in {name for name, _ in offsets.get(group, ())} | members.get(group, set()):
                found[self.naming.full_name(name)].add(group)
        return {name: tuple(sorted(groups)) for name, groups in sorted(found.items())}

    def lags(self, groups: Collection[str], bounds: Mapping[Place, tuple[int, int]]) -> tuple[list[GroupLag], int]:
        """Return how much groups have still to read of each topic of which they have offsets, by name.

        `bounds` are the first and the last stable offset of the partitions that count. With it comes how many of the
        groups may not be described.
        """
        found: list[GroupLag] = []
        shown, hidden = readable_by(self.client, groups)
        for group, committed in sorted(shown.items()):
            lags: defaultdict[str, int] = defaultdict(int)
            for place, at in committed.items():
                if place in bounds:
                    start, stable = bounds[place]
                    lags[self.naming.full_name(place[0])] += max(0, stable - max(at.offset, start))
            found += (GroupLag(group, topic, lag) for topic, lag in sorted(lags.items()))
        return found, len(hidden)

    def committed(self, group: str, topics: Iterable[str]) -> Mapping[tuple[str, int], int]:
        """Return where a group goes on reading; what it never committed is absent."""
        wanted = {self.naming.physical(topic): topic for topic in topics}
        group = self._called(group)
        found = self._committed([group]).get(group, {})
        return {(wanted[name], part): at.offset for (name, part), at in found.items() if name in wanted}

    def commit(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit the next offsets a group wants to read.

        Raises:
            UserError: A topic or partition does not exist, or the group has members: they alone commit then.
        """
        for topic in sorted({topic for topic, _ in offsets}):
            known = self._places(topic)
            for name, partition in offsets:
                if name == topic and (self.naming.physical(name), partition) not in known:
                    message = f"group {group}: {name}, partition {partition}: there is no such partition"
                    raise NotFoundError(message, hint=f"The topic has {len(known)} partitions.")
        places = {(self.naming.physical(name), part): at for (name, part), at in offsets.items()}
        self._set(self._called(group), places)

    def moves(
        self, group: str, reset: Reset, *, topic: str | None = None, partition: int | None = None
    ) -> Sequence[OffsetMove]:
        """Return what a reset would set, what stays left out; changes nothing.

        Raises:
            UserError: There is no such group, topic or partition.
        """
        group = self._called(group)
        states = self._states()
        _check_committing(group, states)
        if topic is None and group not in states:
            raise NotFoundError(
                f"group {group} does not exist", hint="Name a topic to give a new group its first offsets."
            )
        committed = self._committed([group]).get(group, {})
        names = sorted({name for name, _ in committed}) if topic is None else [self.naming.physical(topic)]
        places = [place for name in names for place in self._places(self.naming.full_name(name))]
        rows = [row for row in self._rows(places, committed) if partition in {None, row.partition}]
        if partition is not None and not rows:
            raise UserError(f"partition {partition}: no topic of the reset has it", hint="Partitions count from 0.")
        found = (move_of(row, reset, lambda at_ms, row=row: self._at_time(row, at_ms)) for row in rows)  # type: ignore[misc]
        return [move for move in found if move is not None]

    def move(self, group: str, moves: Sequence[OffsetMove], *, force: bool = False) -> None:
        """Set a group's offsets.

        Raises:
            BlockedError: The group has members. `force` does not help: brokers take offsets from them alone.
        """
        if not moves:
            return
        group = self._called(group)
        self._check_idle(group, force=force)
        self._set(group, {(self.naming.physical(move.topic), move.partition): move.after for move in moves})

    def delete(self, group: str, topic: str | None = None, *, force: bool = False) -> bool:
        """Forget a group, or what it has of one topic; say whether there was anything.

        Raises:
            BlockedError: It has members; as of `move`.
        """
        group, states = self._called(group), self._states()
        if group not in states:
            return False
        self._check_idle(group, force=force)
        if topic is None:
            found = self.client.asked_of_group("deleting a group", self.client.admin.delete_groups, [group])
            return _checked(found.get(group), f"group {group}", may_be_gone=True)
        _check_committing(group, states)
        from kafka.structs import TopicPartition

        places = [place for place in self._committed([group]).get(group, {}) if place[0] == self.naming.physical(topic)]
        if places:
            asked = [TopicPartition(*place) for place in places]
            admin = self.client.admin
            answers = self.client.asked_of_group("deleting offsets", admin.delete_group_offsets, group, asked)
            for answer in answers.values():
                _checked(answer, f"group {group}")
        return bool(places)

    def _called(self, group: str, there: Collection[str] | None = None) -> str:
        """Return what the broker calls a group: flat, as topics are, if only that is there; a new one as it is named.

        Links bring groups under the very names they have at the source.
        """
        if ":" not in group:
            return group
        there = self._states() if there is None else there
        flat = self.naming.physical(group)
        return flat if flat in there and group not in there else group

    def _states(self) -> dict[str, GroupSeen]:
        return group_states(self.client)

    def _offsets(self, states: Mapping[str, GroupSeen]) -> dict[str, dict[Place, Any]]:
        """Return committed offsets, and the first unread offsets of share groups."""
        shared = [name for name, seen in states.items() if seen.type == _SHARE]
        found = self._committed(name for name in states if name not in shared)
        return found | _offsets_of_share_groups(self.client, shared)

    def _committed(self, groups: Iterable[str]) -> dict[str, dict[Place, Any]]:
        return committed_by(self.client, groups)

    def _places(self, full_name: str) -> list[Place]:
        name = self.naming.physical(full_name)
        seen = self.client.topic(name)
        if seen is None:
            raise NotFoundError(f"topic {full_name} does not exist", hint="See which there are: reconciler topic list")
        return [(name, number) for number in range(len(seen.replicas))]

    def _rows(self, places: Iterable[Place], committed: Mapping[Place, Any]) -> list[GroupOffset]:
        there = self.client.topics({name for name, _ in places})
        living = [place for place in sorted(places) if place[0] in there and not there[place[0]].error]
        bounds = bounds_of(self.client, living)
        return [self._row(place, bounds[place], committed) for place in living]

    def _row(self, place: Place, bounds: Any, committed: Mapping[Place, Any]) -> GroupOffset:
        found = committed.get(place)
        at = None if found is None or found.offset < 0 else found.offset
        name, partition = place
        metadata = "" if found is None else found.metadata or ""
        return GroupOffset(
            self.naming.full_name(name), partition, at, bounds.start, bounds.stable, bounds.end, metadata=metadata
        )

    def _group(self, name: str, seen: GroupSeen, rows: Sequence[GroupOffset]) -> ConsumerGroup:
        return ConsumerGroup(name, seen.has_members, None, tuple(rows), seen.type or None)

    def _at_time(self, row: GroupOffset, at_ms: int) -> int | None:
        place = self.naming.physical(row.topic), row.partition
        found = offsets_at(self.client, [place], at_ms)[place]
        return None if found < 0 else found

    def _check_idle(self, group: str, *, force: bool) -> None:
        if (seen := self._states().get(group)) is not None and seen.has_members:
            why = "brokers take offsets from its members alone, --force or not" if force else "it has members"
            raise BlockedError(f"group {group} is reading: {why}", hint="Stop its consumers first.")

    def _set(self, group: str, offsets: Mapping[Place, int]) -> None:
        from kafka.structs import OffsetAndMetadata, TopicPartition

        asked = {TopicPartition(*place): OffsetAndMetadata(at, "", -1) for place, at in offsets.items()}
        answers = self.client.asked_of_group("setting offsets", self.client.admin.alter_group_offsets, group, asked)
        for answer in answers.values():
            _checked(answer, f"group {group}")


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """A group as a listing has it, in the brokers' words; what they do not say is empty."""

    state: str
    type: str = ""
    protocol: str = ""

    @property
    def has_members(self) -> bool:
        """Whether it has members, or may have some."""
        return self.state not in _IDLE


def group_states(client: KafkaClient) -> dict[str, GroupSeen]:
    """Return every group, by name."""
    found = client.asked("listing groups", client.admin.list_groups)
    words = ("group_state", "group_type", "protocol_type")
    return {each["group_id"]: GroupSeen(*(each.get(word) or "" for word in words)) for each in found}


def _check_committing(group: str, states: Mapping[str, GroupSeen]) -> None:
    if group in states and states[group].type == _SHARE:
        message = f"group {group} is a share group: it commits no offsets that could be set or forgotten here"
        raise UserError(message, hint="Use Kafka's kafka-share-groups.sh with --reset-offsets or --delete-offsets.")


def committed_by(client: KafkaClient, groups: Iterable[str]) -> dict[str, dict[Place, Any]]:
    """Return what groups have committed, by the names brokers give topics: one request to each coordinator.

    Raises:
        NotAuthorizedError: One of them may not be read.
    """
    found, refused = readable_by(client, tuple(groups))
    for error in refused.values():
        raise error
    return found


def _committed_by(client: KafkaClient, groups: Iterable[str]) -> dict[str, dict[Place, Any]]:
    wanted = dict.fromkeys(groups)
    if not wanted:
        return {}
    found = client.asked("reading offsets of groups", client.admin.list_group_offsets, wanted)
    return {
        group: {(at.topic, at.partition): each for at, each in offsets.items() if each.offset >= 0}
        for group, offsets in found.items()
    }


def readable_by(
    client: KafkaClient, groups: Collection[str]
) -> tuple[dict[str, dict[Place, Any]], dict[str, NotAuthorizedError]]:
    """Return the same of the groups that may be described, and what to say of those that may only be listed."""
    try:
        return _committed_by(client, groups), {}
    except NotAuthorizedError:
        hidden = _hidden(client, groups)
        if not hidden:
            raise
    return _committed_by(client, [group for group in groups if group not in hidden]), hidden


def _hidden(client: KafkaClient, groups: Iterable[str]) -> dict[str, NotAuthorizedError]:
    from kafka.protocol.metadata import FindCoordinatorRequest

    # One request tells it of each group; one for offsets fails whole where a single group is refused.
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=sorted(groups), min_version=4)
    answer = client.send(request, doing="looking which groups may be described")
    found = {}
    for each in answer.coordinators:
        if each.error_code == _UNAUTHORIZED:
            message = f"cluster {client.name}: the principal of reconciler may not describe group {each.key}"
            hint = "Allow DESCRIBE on the group. A link can leave it out, by consumerOffsetSync.filters."
            found[each.key] = NotAuthorizedError(message, hint=hint)
    return found


def check_all_listed(client: KafkaClient) -> None:
    """Refuse who is shown only some of the groups: brokers leave out the others without a word.

    Raises:
        NotAuthorizedError: The principal may not describe the cluster.
    """
    if "DESCRIBE" not in client.cluster().operations:
        message = f"cluster {client.name}: the principal of reconciler is not shown every consumer group"
        raise NotAuthorizedError(message, hint="Allow DESCRIBE on the cluster, then run the same command again.")


def _checked(answer: Any, what: str, *, may_be_gone: bool = False) -> bool:
    """Return whether there was anything, of what the library says of one item: a class of its errors, or a name."""
    from kafka.errors import NoError

    if answer in {None, NoError, "OK"}:
        return True
    code = getattr(answer, "errno", None)
    if code is None:
        raise UserError(f"{what}: {answer}", hint="Stop its consumers, and try again.")
    if may_be_gone and code == _GONE:
        return False
    raise of_code(code, getattr(answer, "description", ""), what=what)


# Messages about groups that the library lacks: what members of KIP-848 read, and where share groups have got to.


@cache
def _message(name: str) -> Any:
    """Return the request of an API as `messages` has it; the answer is kept with it, for the library holds none."""
    from kafka.protocol.api_message import ApiMessage

    kind, folder = type(ApiMessage), "reconciler.providers.kafka.messages"
    answer = kind(f"{name}Response", (ApiMessage,), {}, load_json=folder)
    return kind(f"{name}Request", (ApiMessage,), {"answer": answer}, load_json=folder)


def _topics_of_members(client: KafkaClient, busy: Mapping[str, GroupSeen]) -> dict[str, set[str]]:
    """Return the topics that groups with members read now, by the names brokers give them."""
    classic = [name for name, seen in busy.items() if seen.type in {"", "classic"} and seen.protocol == "consumer"]
    described = client.asked("describing groups", client.admin.describe_groups, classic) if classic else {}
    members = {name: [each["member_metadata"] for each in group["members"]] for name, group in described.items()}
    found = {
        name: {topic for each in of if isinstance(each, Mapping) for topic in each["topics"]}  # Else it is not read.
        for name, of in members.items()
    }
    newer, ask = [name for name, seen in busy.items() if seen.type == "consumer"], _message("ConsumerGroupDescribe")
    for name, group in _described(client, newer, lambda names: ask(names, include_authorized_operations=False)):
        assigned = {topic.topic_name for each in group.members for topic in each.assignment.topic_partitions}
        found[name] = assigned.union(*(each.subscribed_topic_names for each in group.members))
    return found


def _offsets_of_share_groups(client: KafkaClient, groups: Collection[str]) -> dict[str, dict[Place, Any]]:
    """Return the first unread offsets of share groups, in the form of committed offsets; -1: the group never read."""
    from kafka.structs import OffsetAndMetadata

    request, found = _message("DescribeShareGroupOffsets"), {}
    for name, group in _described(client, groups, lambda names: request([request.Group(each) for each in names])):
        places = ((topic.topic_name, each) for topic in group.topics for each in topic.partitions)
        found[name] = {(at, each.partition_index): OffsetAndMetadata(each.start_offset, "", -1) for at, each in places}
    return found


def _described(
    client: KafkaClient, groups: Collection[str], request: Callable[[list[str]], Any]
) -> Iterator[tuple[str, Any]]:
    """Yield what the coordinators answer about groups; nothing about one that has gone, or has another type by now."""
    from kafka.errors import for_code

    def ask() -> dict[str, Any]:
        connections = client.admin._manager  # noqa: SLF001 - the library has no method for it
        nodes = connections.run(client.admin._find_coordinator_ids, groups)  # noqa: SLF001 - as above
        asked = {
            node: request([each for each in groups if nodes[each] == node]) for node in sorted(set(nodes.values()))
        }
        answers = [connections.run(connections.send, each, node) for node, each in asked.items()]
        found = {each.group_id: each for answer in answers for each in answer.groups}
        return {name: for_code(each.error_code) if each.error_code else each for name, each in found.items()}

    for name, answer in client.asked_of_group("describing groups", ask).items() if groups else ():
        if (code := getattr(answer, "errno", 0)) not in {0, _OTHER, _GONE}:
            raise of_code(code, "", what=f"cluster {client.name}: group {name}")
        if not code:
            yield name, answer
