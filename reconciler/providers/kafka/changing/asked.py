"""What an action asks of the brokers, in their words. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from reconciler.errors import BrokenInvariantError, UserError
from reconciler.planning.actions import Change, Create, Delete, Transition, Update
from reconciler.providers.changes import moved
from reconciler.providers.kafka.permitting import bindings_of_namespace, bindings_of_topic
from reconciler.resources.aclpaths import rule_at
from reconciler.resources.namespace import Namespace
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from reconciler.errors import ReconcilerError
    from reconciler.planning.actions import ControlAction
    from reconciler.providers.kafka.naming import Naming
    from reconciler.resources.bindings import Binding
    from reconciler.resources.kinds import Resource
    from reconciler.resources.topic import TopicSpec

PLATFORM: Final = "a Kafka cluster"


@dataclass
class Asked:
    """One action in the making: what is left of it to do, and what came of it."""

    action: ControlAction
    name: str
    """The flat name of a topic; what every name of a namespace begins with."""
    is_namespace: bool = False
    new: Topic | None = None
    is_gone: bool = False
    incarnation: str | None = None
    """Of what is deleted, as it was looked at; of what is there, once it is done."""
    configs: Mapping[str, str | None] = field(default_factory=dict)
    partitions: int | None = None
    replicas: int | None = None
    binds: tuple[Binding, ...] = ()
    unbinds: tuple[Binding, ...] = ()
    changes: Sequence[Change] = ()
    error: ReconcilerError | None = None
    is_bound: bool = False
    """Whether one of its access rules was made."""

    @property
    def is_made(self) -> bool:
        """Whether it is there, or something of it, though its access rules were refused."""
        return isinstance(self.action, Create) and (self.incarnation is not None or self.is_bound)

    @property
    def spec(self) -> TopicSpec:
        """What a new topic is to be."""
        if self.new is None:
            message = f"{self.action.address} makes no topic"
            raise BrokenInvariantError(message, hint="Please report it.")
        return self.new.spec

    @property
    def is_open(self) -> bool:
        """Whether nothing has refused it."""
        return self.error is None


def asked(action: ControlAction, naming: Naming) -> Asked:
    """Return what an action on a namespace or topic asks for.

    Raises:
        UserError: A Kafka cluster cannot do that.
    """
    match action:
        case Create(after=Topic() as topic):
            name = naming.physical(topic.full_name)
            return Asked(action, name, new=topic, binds=tuple(bindings_of_topic(name, topic.spec.acls)))
        case Create(after=Namespace() as namespace):
            prefix = naming.prefix(namespace.metadata.name)
            return Asked(
                action, prefix, is_namespace=True, binds=tuple(bindings_of_namespace(prefix, namespace.spec.acls))
            )
        case Delete(before=Topic() as topic):
            name = naming.physical(topic.full_name)
            rules = tuple(bindings_of_topic(name, topic.spec.acls))
            return Asked(action, name, is_gone=True, incarnation=action.incarnation, unbinds=rules)
        case Delete(before=Namespace() as namespace):
            prefix = naming.prefix(namespace.metadata.name)
            rules = tuple(bindings_of_namespace(prefix, namespace.spec.acls))
            return Asked(action, prefix, is_namespace=True, is_gone=True, unbinds=rules)
        case Update() | Transition(after=Topic()):
            return _changed(action, action.after, naming)
        case _:
            raise cannot(action)


def _changed(action: Update | Transition, after: Resource, naming: Naming) -> Asked:
    if isinstance(after, Namespace):
        name, is_namespace = naming.prefix(after.metadata.name), True
    elif isinstance(after, Topic) and (action.changes or isinstance(action, Update)):
        name, is_namespace = naming.physical(after.full_name), False
    else:
        raise cannot(action)
    wanted = moved(action.address, action.changes, platform=PLATFORM)
    if wanted.keys or (is_namespace and wanted.configs):
        raise cannot(action)
    rules = [change for change in action.changes if change.path in wanted.rules]
    before = {each for rule in rules for each in _bound(name, rule.path, rule.before, is_namespace=is_namespace)}
    now = {each for rule in rules for each in _bound(name, rule.path, rule.after, is_namespace=is_namespace)}
    return Asked(
        action,
        name,
        is_namespace,
        configs=wanted.configs,
        partitions=wanted.partitions,
        replicas=wanted.replication_factor,
        binds=tuple(sorted(now - before)),
        unbinds=tuple(sorted(before - now)),
        changes=action.changes,
    )


def _bound(name: str, path: str, operations: object, *, is_namespace: bool) -> Iterator[Binding]:
    if not isinstance(operations, tuple):
        return
    rule = rule_at(path, operations)
    yield from bindings_of_namespace(name, [rule]) if is_namespace else bindings_of_topic(name, [rule])


def cannot(action: ControlAction) -> UserError:
    """Return the refusal of what no Kafka cluster does in place."""
    message = f"{action.address}: {PLATFORM} cannot {action.verb} it"
    return UserError(message, hint="Set it back in the files, and plan again.")


def open_ones(all_asked: Iterable[Asked]) -> list[Asked]:
    """Return those that nothing has refused yet."""
    return [each for each in all_asked if each.is_open]
