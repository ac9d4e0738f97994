"""A batch of actions on namespaces and topics: looked at once, then carried out kind by kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.errors import ReconcilerError, StalePlanError, UserError
from reconciler.planning.fields import CONFIGS
from reconciler.providers.base import Done, Failed
from reconciler.providers.changes import check_unmoved
from reconciler.providers.kafka.acls import read_bindings
from reconciler.providers.kafka.changing import replicas, showing, writing
from reconciler.providers.kafka.changing.asked import Asked, asked, open_ones
from reconciler.providers.kafka.metadata import own_values
from reconciler.providers.kafka.permitting import placed
from reconciler.resources.aclpaths import ACLS, rule_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from reconciler.planning.actions import ControlAction, Value
    from reconciler.providers.base import Outcome
    from reconciler.providers.kafka.client import KafkaClient
    from reconciler.providers.kafka.metadata import TopicSeen
    from reconciler.providers.kafka.naming import Naming


class Batch:
    """Actions of one call, and how far they are."""

    def __init__(
        self, client: KafkaClient, naming: Naming, actions: Sequence[ControlAction], may_go_on: Callable[[], None]
    ) -> None:
        self._client, self._naming, self._may_go_on = client, naming, may_go_on
        self._asked: list[Asked] = []
        self._found: list[Asked | Failed] = []
        for action in actions:
            try:
                one = asked(action, naming)
            except ReconcilerError as error:
                self._found.append(Failed(action.id, error))
            else:
                self._found.append(one)
                self._asked.append(one)

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
                made = Done(each.action.id, each.incarnation, each.name) if each.is_made else None
                yield Failed(each.action.id, each.error, made)
            else:
                name = None if each.is_gone else each.name
                yield Done(each.action.id, each.incarnation if not each.is_gone else None, name)

    def _look(self) -> None:
        """Read what the actions are about, and refuse what was decided on something else."""
        named = [each for each in self._asked if not each.is_namespace and each.new is None]
        self._topics = self._client.topics(sorted({each.name for each in named}))
        if any(each.replicas for each in named):
            self._topics = replicas.under_way(self._topics, replicas.reassigning(self._client))
        changed = sorted({each.name for each in named if each.changes})
        there = [name for name in changed if (seen := self._topics.get(name)) is not None and not seen.error]
        configs = {name: own_values(found) for name, found in self._client.configs(there) if not isinstance(found, int)}
        rules = self._rules() if any(_is_about_rules(each) for each in self._asked) else {}
        for each in named:
            try:
                self._check(each, configs.get(each.name, {}), rules.get(each.action.address, {}))
            except ReconcilerError as error:
                each.error = error
        for each in self._asked:
            if each.is_namespace and _is_about_rules(each):
                try:
                    check_unmoved(each.action.address, each.changes, rules.get(each.action.address, {}))
                except ReconcilerError as error:
                    each.error = error

    def _check(self, each: Asked, configs: Mapping[str, str], rules: Mapping[str, Value]) -> None:
        seen = self._seen(each)
        if seen is None:
            if not each.is_gone:
                raise UserError(f"{each.action.address}: there is no topic {each.name}", hint="Plan again.")
            return
        if each.is_gone:
            if each.incarnation not in {None, seen.id}:
                message = f"{each.action.address}: topic {each.name} was deleted and made anew since it was looked at"
                raise StalePlanError(message, hint="Plan again.")
            return
        each.incarnation = seen.id
        current: dict[str, Value] = {CONFIGS + key: value for key, value in configs.items()}
        current |= {"partitions": len(seen.replicas), "replicationFactor": replicas.factor_of(seen), **rules}
        check_unmoved(each.action.address, each.changes, current)
        if each.partitions is not None and each.partitions < len(seen.replicas):
            message = f"{each.action.address}: a topic cannot have fewer partitions than it has ({len(seen.replicas)})"
            raise UserError(message, hint="Copy it to a new topic.")

    def _seen(self, each: Asked) -> TopicSeen | None:
        seen = self._topics.get(each.name)
        return None if seen is None or seen.error in writing.ABSENT else seen

    def _rules(self) -> dict[str, Mapping[str, Value]]:
        """Return the rules there are now, as fields, by address."""
        bindings, code = read_bindings(self._client)
        if code:
            return {}
        topics = {each.name for each in self._asked if not each.is_namespace}
        found = placed(bindings, self._naming, topics)
        cluster = self._asked[0].action.cluster
        return {
            **{f"namespace/{cluster}/{name}": rule_fields(rules) for name, rules in found.namespaces.items()},
            **{f"topic/{cluster}/{name}": rule_fields(rules) for name, rules in found.topics.items()},
        }

    def _create(self) -> None:
        new = [each for each in open_ones(self._asked) if each.new is not None]
        if not new:
            return
        self._may_go_on()
        there = writing.create(self._client, new, self._may_go_on)
        if there:
            self._recognize(there)
        showing.wait_until_made(self._client, sorted(each.name for each in open_ones(new)))

    def _recognize(self, there: Sequence[Asked]) -> None:
        """Take a topic that is as it was asked for as ours: an answer may have been lost, or this is done again."""
        topics = self._client.topics([each.name for each in there])
        configs = dict(self._client.configs([each.name for each in there]))
        for each in there:
            seen, found = topics.get(each.name), configs.get(each.name)
            own = own_values(found) if isinstance(found, dict) else {}
            wanted = each.spec
            if seen is None or len(seen.replicas) != wanted.partitions or own != dict(wanted.configs):
                message = f"topic {each.name} exists and differs from what was to be created"
                each.error = UserError(message, hint="Somebody made it since the plan: plan again.")
            else:
                each.incarnation = seen.id

    def _change(self) -> None:
        """Change topics: first tried where an action is of several requests, so that it is done whole or not at all."""
        changed = [each for each in open_ones(self._asked) if each.changes and not each.is_namespace]
        mixed = [each for each in changed if each.configs and each.partitions]
        writing.configure(self._client, mixed, is_trial=True)
        writing.grow(self._client, open_ones(mixed), is_trial=True)
        self._do(writing.configure, [each for each in changed if each.configs])
        self._do(writing.grow, [each for each in changed if each.partitions])
        showing.wait_until_changed(
            self._client, [each for each in open_ones(changed) if each.configs or each.partitions]
        )
        moved = open_ones([each for each in changed if each.replicas])
        if moved:
            self._may_go_on()
            replicas.reassign(self._client, moved, self._may_go_on)
            showing.wait_until_changed(self._client, open_ones(moved))

    def _do(
        self,
        change: Callable[[KafkaClient, Sequence[Asked], Callable[[], None]], None],
        wanted: Sequence[Asked],
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
            writing.delete(self._client, [each for each in gone if each.name in there], there, self._may_go_on)
            showing.wait_until_gone(
                self._client, {each.name: there[each.name] for each in open_ones(gone) if each.name in there}
            )

    def _permit(self) -> None:
        bound = [each for each in open_ones(self._asked) if each.binds or each.unbinds]
        if bound:
            self._may_go_on()
            writing.bind(self._client, bound)
            showing.wait_until_bound(self._client, open_ones(bound))


def _is_about_rules(each: Asked) -> bool:
    return any(change.path.startswith(ACLS) for change in each.changes)
