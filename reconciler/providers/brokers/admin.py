"""Topic changes, with a wait until brokers show them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from reconciler.errors import ReconcilerError, RetryableError, StalePlanError, UserError
from reconciler.planning.fields import CONFIGS, is_equal_value
from reconciler.providers.brokers import admin_requests
from reconciler.providers.brokers.admin_requests import (
    EXISTS,
    PendingChange,
    alter_configs,
    build_creation_request,
    build_deletion_request,
    drop_failed,
    to_pending_change,
)
from reconciler.providers.brokers.client import ABSENT, KafkaClient, read_bindings
from reconciler.providers.brokers.faults import translate_code
from reconciler.providers.brokers.translate import (
    TOPIC,
    ClusterNaming,
    ConfigState,
    TopicMetadata,
    assign_bindings,
    select_own_configs,
)
from reconciler.providers.models import check_unchanged
from reconciler.providers.protocol import CompletedAction, FailedAction, Outcome, ignore_line
from reconciler.resources.acls import ACLS, to_rule_fields
from reconciler.resources.address import cluster_of
from reconciler.resources.kafka_configs import KAFKA_CONFIGS
from reconciler.runtime.retry import pause
from reconciler.runtime.text import pluralize

if TYPE_CHECKING:
    from reconciler.planning.actions import ControlAction, Value


# Brokers show a change some time after the controller has made it (facts 6.2).


_PATIENCE_S: Final = 30.0
_FIRST_S, _MOST_S = 0.005, 0.25


def wait_until_created(client: KafkaClient, names: Sequence[str]) -> None:
    """Wait until new topics are visible with leaders for all partitions."""

    def find_missing(left: Sequence[str]) -> list[str]:
        seen = client.read_topics(left)
        return [name for name in left if name not in seen or seen[name].error or not seen[name].is_led]

    _wait_until_empty(find_missing, names, "brokers do not list", "new topic")


def wait_until_deleted(client: KafkaClient, ids: Mapping[str, str]) -> None:
    """Wait until topics, given as ids by name, disappear."""

    def find_existing(names: Sequence[str]) -> list[str]:
        seen = client.read_topics(names)
        return [name for name in names if name in seen and not seen[name].error and seen[name].id == ids[name]]

    _wait_until_empty(find_existing, sorted(ids), "brokers still list", "deleted topic")


def wait_until_changed(client: KafkaClient, changes: Sequence[PendingChange]) -> None:
    """Wait until brokers show the new configs, partitions and replicas."""
    wanted = {change.name: change for change in changes}
    keys = sorted({key for change in changes for key in change.configs})

    def find_outdated(names: Sequence[str]) -> list[str]:
        seen = client.read_topics(names)
        configs = dict(client.read_configs(names, keys)) if keys else {}
        return [
            name
            for name in names
            if name in seen
            and not _shows_change(wanted[name], seen[name], configs.get(name), tells_own=client.dialect.tells_own)
        ]

    _wait_until_empty(find_outdated, sorted(wanted), "brokers still show the old values of", "changed topic")


def wait_until_rules_shown(client: KafkaClient, changes: Sequence[PendingChange]) -> None:
    """Wait until brokers show the requested access rules."""
    created = {bound for change in changes for bound in change.new_bindings}
    deleted = {bound for change in changes for bound in change.removed_bindings} - created

    def find_pending(names: Sequence[str]) -> list[str]:
        current = set(read_bindings(client)[0])
        return [] if created <= current and not deleted & current else list(names)

    names = sorted({change.name for change in changes})
    _wait_until_empty(find_pending, names, "brokers still report other access rules of", "resource")


def _shows_change(
    change: PendingChange,
    seen: TopicMetadata,
    configs: Mapping[str, ConfigState] | int | None,
    *,
    tells_own: bool,
) -> bool:
    if change.partitions is not None and len(seen.replicas) < change.partitions:
        return False
    if change.replicas is not None and any(len(brokers) != change.replicas for brokers in seen.replicas):
        return False
    own = select_own_configs(configs) if isinstance(configs, Mapping) else {}
    shown = {key: state.value for key, state in configs.items()} if isinstance(configs, Mapping) else {}
    return all(
        is_equal_config(key, own.get(key), value)
        or (value is not None and not tells_own and is_equal_config(key, shown.get(key), value))
        for key, value in change.configs.items()
    )


def is_equal_config(key: str, left: str | None, right: str | None) -> bool:
    """Return whether config values are equal, even if formatted differently, such as 2.0E-4."""
    return is_equal_value(CONFIGS + key, left, right, KAFKA_CONFIGS)


def _are_equal_configs(left: Mapping[str, str], right: Mapping[str, str]) -> bool:
    return left.keys() == right.keys() and all(is_equal_config(key, value, right[key]) for key, value in left.items())


def _wait_until_empty(
    find_remaining: Callable[[Sequence[str]], list[str]], names: Sequence[str], problem: str, noun: str
) -> None:
    """Each name that disappears extends the deadline."""
    deadline, wait = time.monotonic() + _PATIENCE_S, _FIRST_S
    left = find_remaining(names) if names else []
    while left:
        if time.monotonic() > deadline:
            message = f"{problem} {pluralize(len(left), noun)} after {_PATIENCE_S:.0f} s, such as {left[0]}"
            raise RetryableError(message, hint="The brokers lag behind their controller: plan again.")
        pause(wait)
        began, before = time.monotonic(), len(left)
        left = find_remaining(left)
        if len(left) < before:
            deadline = time.monotonic() + _PATIENCE_S
        wait = max(min(2 * wait, _MOST_S), time.monotonic() - began)


def to_pending_changes(
    actions: Iterable[ControlAction], naming: ClusterNaming
) -> Iterator[PendingChange | FailedAction]:
    """Yield each action as a change, or as a failure if Kafka does not support it."""
    for action in actions:
        try:
            yield to_pending_change(action, naming)
        except ReconcilerError as error:
            yield FailedAction(action.id, error)


class TopicBatch:
    """Topic changes of one `apply`."""

    def __init__(
        self,
        client: KafkaClient,
        naming: ClusterNaming,
        changes: Iterable[PendingChange | FailedAction],
        may_go_on: Callable[[], None],
        warn: Callable[[str], None] = ignore_line,
    ) -> None:
        self._client, self._naming, self._may_go_on, self._warn = client, naming, may_go_on, warn
        self._pending = list(changes)
        self._changes = [change for change in self._pending if isinstance(change, PendingChange)]

    def apply_changes(self) -> Iterator[Outcome]:
        """Make all changes and yield one outcome each, in order."""
        if self._changes:
            self._read_current()
            self._create_topics()
            self._change_topics()
            self._delete_topics()
            self._bind_access_rules()
        for change in self._pending:
            if isinstance(change, FailedAction):
                yield change
            elif change.error is not None:
                creation = CompletedAction(change.id, change.incarnation, change.name) if change.was_created else None
                yield FailedAction(change.id, change.error, creation)
            else:
                name = None if change.is_deletion else change.name
                yield CompletedAction(change.id, change.incarnation if not change.is_deletion else None, name)

    def _read_current(self) -> None:
        named = [change for change in self._changes if not change.is_namespace and change.new_spec is None]
        self._topics = self._client.read_topics(sorted({change.name for change in named}))
        if any(change.replicas for change in named):
            self._topics = admin_requests.apply_reassignments(
                self._topics, admin_requests.read_reassignments(self._client)
            )
        changed = sorted({change.name for change in named if change.changes})
        readable = [name for name in changed if (seen := self._topics.get(name)) is not None and not seen.error]
        described = {name: of for name, of in self._client.read_configs(readable) if not isinstance(of, int)}
        rules = self._read_rules() if any(_is_about_rules(change) for change in self._changes) else {}
        for change in named:
            try:
                self._check_change(change, described.get(change.name, {}), rules.get(change.address, {}))
            except ReconcilerError as error:
                change.error = error
        for change in self._changes:
            if change.is_namespace and _is_about_rules(change):
                try:
                    check_unchanged(change.address, change.changes, rules.get(change.address, {}))
                except ReconcilerError as error:
                    change.error = error

    def _check_change(
        self, change: PendingChange, configs: Mapping[str, ConfigState], rules: Mapping[str, Value]
    ) -> None:
        seen = self._find_topic(change)
        if seen is None:
            if not change.is_deletion:
                raise UserError(f"{change.address}: there is no topic {change.name}", hint="Plan again.")
            return
        if seen.error:
            raise translate_code(seen.error, "", what=str(change.address))
        if change.is_deletion:
            if change.incarnation not in {None, seen.id}:
                message = f"{change.address}: topic {change.name} was deleted and created again after it was read"
                raise StalePlanError(message, hint="Plan again.")
            return
        change.incarnation = seen.id
        own = select_own_configs(configs)
        if not self._client.dialect.tells_own:
            # These brokers do not tell set values from inherited ones, so the plan compared both.
            known = {item.path.removeprefix(CONFIGS) for item in change.changes if item.before is not None}
            own = {**{key: configs[key].value or "" for key in known & configs.keys()}, **own}
        current: dict[str, Value] = {
            **{CONFIGS + key: value for key, value in own.items()},
            "partitions": len(seen.replicas),
            "replicationFactor": admin_requests.count_replicas(seen),
            **rules,
        }
        check_unchanged(change.address, change.changes, current, KAFKA_CONFIGS)
        if change.partitions is not None and change.partitions < len(seen.replicas):
            message = f"{change.address}: a topic cannot have fewer partitions than it has ({len(seen.replicas)})"
            raise UserError(message, hint="Copy it to a new topic.")

    def _find_topic(self, change: PendingChange) -> TopicMetadata | None:
        seen = self._topics.get(change.name)
        return None if seen is None or seen.error in ABSENT else seen

    def _read_rules(self) -> dict[str, Mapping[str, Value]]:
        bindings, code = read_bindings(self._client)
        if code:
            return {}
        topics = {change.name for change in self._changes if not change.is_namespace}
        by_carrier = assign_bindings(bindings, self._naming, topics)
        cluster = cluster_of(self._changes[0].address)
        return {
            **{f"namespace/{cluster}/{name}": to_rule_fields(rules) for name, rules in by_carrier.namespaces.items()},
            **{f"topic/{cluster}/{name}": to_rule_fields(rules) for name, rules in by_carrier.topics.items()},
        }

    def _create_topics(self) -> None:
        new = [change for change in drop_failed(self._changes) if change.new_spec is not None]
        if not new:
            return
        self._may_go_on()
        existing = admin_requests.create_topics(self._client, new, self._may_go_on)
        if existing:
            self._accept_existing(existing)
        wait_until_created(self._client, sorted(change.name for change in drop_failed(new)))
        if not self._client.dialect.tells_own:
            self._check_created(drop_failed(new))

    def _check_created(self, new: Sequence[PendingChange]) -> None:
        described = dict(self._client.read_configs([change.name for change in new]))
        for change in new:
            configs = described.get(change.name)
            if not isinstance(configs, Mapping):
                continue
            values = {key: state.value for key, state in configs.items()}
            ignored = [
                key
                for key, value in change.spec.configs.items()
                if key not in self._client.dialect.unreported and not is_equal_config(key, values.get(key), value)
            ]
            if ignored:
                message = f"topic {change.name} was created, and its brokers ignored {', '.join(sorted(ignored))}"
                change.error = UserError(message, hint="Remove them from the files, and plan again.")

    def _accept_existing(self, existing: Sequence[PendingChange]) -> None:
        """Accept an equal existing topic, because the response to its creation may be lost."""
        topics = self._client.read_topics([change.name for change in existing])
        configs = dict(self._client.read_configs([change.name for change in existing]))
        for change in existing:
            seen, current = topics.get(change.name), configs.get(change.name)
            spec = change.spec
            is_alike = isinstance(current, Mapping) and self._has_configs(current, spec.configs)
            if seen is None or len(seen.replicas) != spec.partitions or not is_alike:
                message = f"topic {change.name} exists and differs from what was to be created"
                change.error = UserError(message, hint="It was created after the plan: plan again.")
            else:
                change.incarnation = seen.id

    def _has_configs(self, seen: Mapping[str, ConfigState], wanted: Mapping[str, str]) -> bool:
        if self._client.dialect.tells_own:
            return _are_equal_configs(select_own_configs(seen), wanted)
        return all(
            key in self._client.dialect.unreported or (key in seen and is_equal_config(key, seen[key].value, value))
            for key, value in wanted.items()
        )

    def _change_topics(self) -> None:
        changed = [change for change in drop_failed(self._changes) if change.changes and not change.is_namespace]
        growing = [change for change in changed if change.partitions and not self._has_requested_partitions(change)]
        mixed = [change for change in growing if change.configs]
        admin_requests.alter_topic_configs(self._client, mixed, is_trial=True)
        admin_requests.add_partitions(self._client, drop_failed(mixed), is_trial=True)
        self._send_changes(admin_requests.alter_topic_configs, [change for change in changed if change.configs])
        self._send_changes(admin_requests.add_partitions, growing)
        at_once = [change for change in drop_failed(changed) if change.configs or change.partitions]
        wait_until_changed(self._client, [replace(change, replicas=None) for change in at_once])
        moved = drop_failed([change for change in changed if change.replicas])
        if moved:
            self._may_go_on()
            if self._client.dialect.replication == "config":
                factors = [replace(change, configs={"replication.factor": str(change.replicas)}) for change in moved]
                admin_requests.alter_topic_configs(self._client, factors, self._may_go_on)
            else:
                admin_requests.reassign_replicas(self._client, moved, self._may_go_on, self._warn)
            wait_until_changed(self._client, drop_failed(moved))

    def _has_requested_partitions(self, change: PendingChange) -> bool:
        seen = self._find_topic(change)
        return seen is not None and len(seen.replicas) == change.partitions

    def _send_changes(
        self,
        change: Callable[[KafkaClient, Sequence[PendingChange], Callable[[], None]], None],
        wanted: Sequence[PendingChange],
    ) -> None:
        some = drop_failed(wanted)
        if some:
            self._may_go_on()
            change(self._client, some, self._may_go_on)

    def _delete_topics(self) -> None:
        gone = [change for change in drop_failed(self._changes) if change.is_deletion and not change.is_namespace]
        ids = {change.name: seen.id for change in gone if (seen := self._find_topic(change)) is not None}
        if ids:
            self._may_go_on()
            admin_requests.delete_topics(
                self._client, [change for change in gone if change.name in ids], ids, self._may_go_on
            )
            wait_until_deleted(
                self._client, {change.name: ids[change.name] for change in drop_failed(gone) if change.name in ids}
            )

    def _bind_access_rules(self) -> None:
        bound = [change for change in drop_failed(self._changes) if change.new_bindings or change.removed_bindings]
        if bound:
            self._may_go_on()
            admin_requests.apply_access_rules(self._client, bound)
            wait_until_rules_shown(self._client, drop_failed(bound))


def _is_about_rules(pending_change: PendingChange) -> bool:
    return any(change.path.startswith(ACLS) for change in pending_change.changes)


def create_topic(
    client: KafkaClient, name: str, shape: tuple[int, int], configs: Mapping[str, str], *, is_trial: bool = False
) -> str | None:
    """Create a topic; `shape` is (partitions, replicas). Return its id; `None` if the name exists, or after a trial."""
    request = build_creation_request(client.dialect, [(name, *shape, configs)])
    request.validate_only = is_trial
    (answer,) = client.send(request, doing=f"creating topic {name}").topics
    if answer.error_code == EXISTS:
        return None
    if answer.error_code:
        raise translate_code(answer.error_code, answer.error_message or "", what=f"topic {name}")
    if is_trial:
        return None
    wait_until_created(client, [name])
    return str(answer.topic_id)


def configure_topic(client: KafkaClient, name: str, configs: Mapping[str, str | None]) -> None:
    """Set a topic's configs, all or none. `None` resets a config."""
    alter_configs(client, [(TOPIC, name, configs)], doing=f"changing configs of topic {name}", what=f"topic {name}")


def delete_topic(client: KafkaClient, name: str, topic_id: str) -> None:
    """Delete a topic by id, and wait until it disappears."""
    (answer,) = client.send(build_deletion_request([topic_id]), doing=f"deleting topic {name}").responses
    if answer.error_code and answer.error_code not in ABSENT:
        raise translate_code(answer.error_code, answer.error_message or "", what=f"topic {name}")
    wait_until_deleted(client, {name: topic_id})
