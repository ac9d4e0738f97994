"""Carry out actions on topics: one request for each kind of change, until brokers show it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from reconciler.errors import ReconcilerError, RetryableError, StalePlanError, UserError
from reconciler.planning.fields import CONFIGS, equal
from reconciler.providers.kafka import admin_requests
from reconciler.providers.kafka.admin_requests import (
    EXISTS,
    PendingChange,
    alter,
    asked,
    creation,
    deletion,
    open_ones,
)
from reconciler.providers.kafka.client import ABSENT, KafkaClient, read_bindings
from reconciler.providers.kafka.faults import of_code
from reconciler.providers.kafka.translate import TOPIC, ConfigSeen, Naming, TopicSeen, own_values, placed
from reconciler.providers.models import check_unmoved
from reconciler.providers.protocol import Done, Failed, Outcome, silent
from reconciler.resources.acls import ACLS, rule_fields
from reconciler.resources.address import cluster_of
from reconciler.resources.kafka_configs import KAFKA_CONFIGS
from reconciler.runtime.retry import pause

if TYPE_CHECKING:
    from reconciler.planning.actions import ControlAction, Value


# Waiting until brokers show what the controller has done: their metadata lag behind its answer (6.2).
#
# A process that looks next must see it, or it would be decided on what was there before.


_PATIENCE_S: Final = 30.0
_FIRST_S, _MOST_S = 0.005, 0.25


def wait_until_made(client: KafkaClient, names: Sequence[str]) -> None:
    """Return once new topics show, with a leader for each partition."""

    def missing(left: Sequence[str]) -> list[str]:
        seen = client.topics(left)
        return [name for name in left if name not in seen or seen[name].error or not seen[name].is_led]

    _wait(missing, names, "new topics do not show")


def wait_until_gone(client: KafkaClient, ids: Mapping[str, str]) -> None:
    """Return once deleted topics, by name and id, do not show any more."""

    def left_of(names: Sequence[str]) -> list[str]:
        seen = client.topics(names)
        return [name for name in names if name in seen and not seen[name].error and seen[name].id == ids[name]]

    _wait(left_of, sorted(ids), "deleted topics still show")


def wait_until_changed(client: KafkaClient, asked: Sequence[PendingChange]) -> None:
    """Return once topics show their new configs and partitions."""
    wanted = {each.name: each for each in asked}
    keys = sorted({key for each in asked for key in each.configs})

    def old(names: Sequence[str]) -> list[str]:
        seen = client.topics(names)
        configs = dict(client.configs(names, keys)) if keys else {}
        return [name for name in names if name in seen and not _shows(wanted[name], seen[name], configs.get(name))]

    _wait(old, sorted(wanted), "changed topics still show what they had")


def wait_until_bound(client: KafkaClient, asked: Sequence[PendingChange]) -> None:
    """Return once the brokers show the access rules there are to be."""
    made = {bound for each in asked for bound in each.binds}
    gone = {bound for each in asked for bound in each.unbinds} - made

    def waiting(names: Sequence[str]) -> list[str]:
        there = set(read_bindings(client)[0])
        return [] if made <= there and not gone & there else list(names)

    _wait(waiting, sorted({each.name for each in asked}), "names still show other access rules")


def _shows(asked: PendingChange, seen: TopicSeen, configs: Mapping[str, ConfigSeen] | int | None) -> bool:
    if asked.partitions is not None and len(seen.replicas) < asked.partitions:
        return False
    if asked.replicas is not None and any(len(each) != asked.replicas for each in seen.replicas):
        return False
    own = own_values(configs) if isinstance(configs, Mapping) else {}
    return all(_is_same(key, own.get(key), value) for key, value in asked.configs.items())


def _is_same(key: str, left: str | None, right: str | None) -> bool:
    """Tell whether two values of a config mean the same: brokers write some in another way, such as 2.0E-4."""
    return equal(CONFIGS + key, left, right, KAFKA_CONFIGS)


def _are_same(left: Mapping[str, str], right: Mapping[str, str]) -> bool:
    return left.keys() == right.keys() and all(_is_same(key, value, right[key]) for key, value in left.items())


def _wait(left_of: Callable[[Sequence[str]], list[str]], names: Sequence[str], words: str) -> None:
    """Look until none is left; give up only after a while in which brokers have shown nothing more."""
    deadline, wait = time.monotonic() + _PATIENCE_S, _FIRST_S
    left = left_of(names) if names else []
    while left:
        if time.monotonic() > deadline:
            message = f"{len(left)} {words} after {_PATIENCE_S:.0f} s, such as {left[0]}"
            raise RetryableError(message, hint="The brokers lag behind their controller: plan again.")
        pause(wait)
        began, before = time.monotonic(), len(left)
        left = left_of(left)
        if len(left) < before:
            deadline = time.monotonic() + _PATIENCE_S
        # Brokers that are slow to answer have other things to do.
        wait = max(min(2 * wait, _MOST_S), time.monotonic() - began)


def pending(actions: Iterable[ControlAction], naming: Naming) -> Iterator[PendingChange | Failed]:
    """Yield the change that each action makes, or why a Kafka cluster cannot make it."""
    for action in actions:
        try:
            yield asked(action, naming)
        except ReconcilerError as error:
            yield Failed(action.id, error)


class Batch:
    """Changes of one call, and how far they are."""

    def __init__(
        self,
        client: KafkaClient,
        naming: Naming,
        changes: Iterable[PendingChange | Failed],
        may_go_on: Callable[[], None],
        warn: Callable[[str], None] = silent,
    ) -> None:
        self._client, self._naming, self._may_go_on, self._warn = client, naming, may_go_on, warn
        self._found = list(changes)
        self._asked = [change for change in self._found if isinstance(change, PendingChange)]

    def outcomes(self) -> Iterator[Outcome]:
        """Do all of them and yield one outcome each, in their order.

        Raises:
            ReconcilerError: The brokers cannot be reached, or do not answer: what was done is found by looking.
        """
        if self._asked:
            self._look()
            self._create()
            self._change()
            self._delete()
            self._permit()
        for each in self._found:
            if isinstance(each, Failed):
                yield each
            elif each.error is not None:
                made = Done(each.id, each.incarnation, each.name) if each.is_made else None
                yield Failed(each.id, each.error, made)
            else:
                name = None if each.is_gone else each.name
                yield Done(each.id, each.incarnation if not each.is_gone else None, name)

    def _look(self) -> None:
        """Read what the actions are about, and refuse what was decided on something else."""
        named = [each for each in self._asked if not each.is_namespace and each.new is None]
        self._topics = self._client.topics(sorted({each.name for each in named}))
        if any(each.replicas for each in named):
            self._topics = admin_requests.under_way(self._topics, admin_requests.reassigning(self._client))
        changed = sorted({each.name for each in named if each.changes})
        there = [name for name in changed if (seen := self._topics.get(name)) is not None and not seen.error]
        configs = {name: own_values(found) for name, found in self._client.configs(there) if not isinstance(found, int)}
        rules = self._rules() if any(_is_about_rules(each) for each in self._asked) else {}
        for each in named:
            try:
                self._check(each, configs.get(each.name, {}), rules.get(each.address, {}))
            except ReconcilerError as error:
                each.error = error
        for each in self._asked:
            if each.is_namespace and _is_about_rules(each):
                try:
                    check_unmoved(each.address, each.changes, rules.get(each.address, {}))
                except ReconcilerError as error:
                    each.error = error

    def _check(self, each: PendingChange, configs: Mapping[str, str], rules: Mapping[str, Value]) -> None:
        seen = self._seen(each)
        if seen is None:
            if not each.is_gone:
                raise UserError(f"{each.address}: there is no topic {each.name}", hint="Plan again.")
            return
        if seen.error:
            raise of_code(seen.error, "", what=str(each.address))
        if each.is_gone:
            if each.incarnation not in {None, seen.id}:
                message = f"{each.address}: topic {each.name} was deleted and created again since it was looked at"
                raise StalePlanError(message, hint="Plan again.")
            return
        each.incarnation = seen.id
        current: dict[str, Value] = {CONFIGS + key: value for key, value in configs.items()}
        current |= {"partitions": len(seen.replicas), "replicationFactor": admin_requests.factor_of(seen), **rules}
        check_unmoved(each.address, each.changes, current, KAFKA_CONFIGS)
        if each.partitions is not None and each.partitions < len(seen.replicas):
            message = f"{each.address}: a topic cannot have fewer partitions than it has ({len(seen.replicas)})"
            raise UserError(message, hint="Copy it to a new topic.")

    def _seen(self, each: PendingChange) -> TopicSeen | None:
        seen = self._topics.get(each.name)
        return None if seen is None or seen.error in ABSENT else seen

    def _rules(self) -> dict[str, Mapping[str, Value]]:
        """Return the rules there are now, as fields, by address."""
        bindings, code = read_bindings(self._client)
        if code:
            return {}
        topics = {each.name for each in self._asked if not each.is_namespace}
        found = placed(bindings, self._naming, topics)
        cluster = cluster_of(self._asked[0].address)
        return {
            **{f"namespace/{cluster}/{name}": rule_fields(rules) for name, rules in found.namespaces.items()},
            **{f"topic/{cluster}/{name}": rule_fields(rules) for name, rules in found.topics.items()},
        }

    def _create(self) -> None:
        new = [each for each in open_ones(self._asked) if each.new is not None]
        if not new:
            return
        self._may_go_on()
        there = admin_requests.create(self._client, new, self._may_go_on)
        if there:
            self._recognize(there)
        wait_until_made(self._client, sorted(each.name for each in open_ones(new)))

    def _recognize(self, there: Sequence[PendingChange]) -> None:
        """Take a topic that is as it was asked for as ours: an answer may have been lost, or this is done again."""
        topics = self._client.topics([each.name for each in there])
        configs = dict(self._client.configs([each.name for each in there]))
        for each in there:
            seen, found = topics.get(each.name), configs.get(each.name)
            wanted = each.spec
            is_alike = isinstance(found, Mapping) and _are_same(own_values(found), wanted.configs)
            if seen is None or len(seen.replicas) != wanted.partitions or not is_alike:
                message = f"topic {each.name} exists and differs from what was to be created"
                each.error = UserError(message, hint="It was created after the plan: plan again.")
            else:
                each.incarnation = seen.id

    def _change(self) -> None:
        """Change topics: first tried where an action is of several requests, so that it is done whole or not at all."""
        changed = [each for each in open_ones(self._asked) if each.changes and not each.is_namespace]
        growing = [each for each in changed if each.partitions and not self._is_grown(each)]
        mixed = [each for each in growing if each.configs]
        admin_requests.configure(self._client, mixed, is_trial=True)
        admin_requests.grow(self._client, open_ones(mixed), is_trial=True)
        self._do(admin_requests.configure, [each for each in changed if each.configs])
        self._do(admin_requests.grow, growing)
        at_once = [each for each in open_ones(changed) if each.configs or each.partitions]
        # Replicas are moved below, so brokers cannot show them yet.
        wait_until_changed(self._client, [replace(each, replicas=None) for each in at_once])
        moved = open_ones([each for each in changed if each.replicas])
        if moved:
            self._may_go_on()
            admin_requests.reassign(self._client, moved, self._may_go_on, self._warn)
            wait_until_changed(self._client, open_ones(moved))

    def _is_grown(self, each: PendingChange) -> bool:
        """Tell whether a topic had its new partitions before: brokers refuse the number that a topic has already."""
        seen = self._seen(each)
        return seen is not None and len(seen.replicas) == each.partitions

    def _do(
        self,
        change: Callable[[KafkaClient, Sequence[PendingChange], Callable[[], None]], None],
        wanted: Sequence[PendingChange],
    ) -> None:
        some = open_ones(wanted)
        if some:
            self._may_go_on()
            change(self._client, some, self._may_go_on)

    def _delete(self) -> None:
        gone = [each for each in open_ones(self._asked) if each.is_gone and not each.is_namespace]
        there = {each.name: seen.id for each in gone if (seen := self._seen(each)) is not None}
        if there:
            self._may_go_on()
            admin_requests.delete(self._client, [each for each in gone if each.name in there], there, self._may_go_on)
            wait_until_gone(
                self._client, {each.name: there[each.name] for each in open_ones(gone) if each.name in there}
            )

    def _permit(self) -> None:
        bound = [each for each in open_ones(self._asked) if each.binds or each.unbinds]
        if bound:
            self._may_go_on()
            admin_requests.bind(self._client, bound)
            wait_until_bound(self._client, open_ones(bound))


def _is_about_rules(each: PendingChange) -> bool:
    return any(change.path.startswith(ACLS) for change in each.changes)


# One topic made, configured, deleted: what is not an action of a plan. Each returns once brokers show it.


def create(client: KafkaClient, name: str, shape: tuple[int, int], configs: Mapping[str, str]) -> str | None:
    """Make a topic of so many partitions and replicas and return its id; `None`: one has the name.

    Raises:
        UserError: The cluster refuses to.
    """
    request = creation([(name, *shape, configs)])
    (answer,) = client.send(request, doing=f"creating topic {name}").topics
    if answer.error_code == EXISTS:
        return None
    if answer.error_code:
        raise of_code(answer.error_code, answer.error_message or "", what=f"topic {name}")
    wait_until_made(client, [name])
    return str(answer.topic_id)


def configure(client: KafkaClient, name: str, configs: Mapping[str, str | None]) -> None:
    """Set configs of a topic in one request; `None`: back to what it inherits.

    Raises:
        UserError: The cluster refuses to; nothing was changed.
    """
    alter(client, [(TOPIC, name, configs)], doing=f"changing configs of topic {name}", what=f"topic {name}")


def delete(client: KafkaClient, name: str, topic_id: str) -> None:
    """Delete a topic by its id: another of its name stays.

    Raises:
        UserError: The cluster refuses to.
        RetryableError: It shows still after half a minute.
    """
    (answer,) = client.send(deletion([topic_id]), doing=f"deleting topic {name}").responses
    if answer.error_code and answer.error_code not in ABSENT:
        raise of_code(answer.error_code, answer.error_message or "", what=f"topic {name}")
    wait_until_gone(client, {name: topic_id})
