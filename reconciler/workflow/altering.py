"""`topic alter`: change configs of one topic now. An ordinary run of one action, or done without a state."""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, assert_never

from reconciler.applying.events import ActionDone, ActionStarted
from reconciler.applying.running import Basis, ToDo
from reconciler.errors import UserError
from reconciler.planning.actions import Change, Reason, Update
from reconciler.planning.deciding.decision import precondition
from reconciler.planning.document.digest import digest
from reconciler.providers.base import Done, Failed
from reconciler.resources.address import cluster_of
from reconciler.resources.configs import canonical_value
from reconciler.resources.topic import Topic
from reconciler.workflow.actingconfigs import acting_configs, configs_of
from reconciler.workflow.identity import refuse_another_cluster
from reconciler.workflow.opening import open_site, open_work
from reconciler.workflow.topicaddress import provider_of, topic_address
from reconciler.workflow.topics import find_topic
from reconciler.workflow.underlease import Wish, run_under_lease

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from reconciler.applying.events import Event
    from reconciler.providers.base import Provider
    from reconciler.resources.address import Address
    from reconciler.resources.capabilities import Capabilities
    from reconciler.resources.kinds import Resource
    from reconciler.state.snapshots import Snapshot
    from reconciler.workflow.actingconfigs import ConfigRow
    from reconciler.workflow.invocation import Invocation, Select
    from reconciler.workflow.stopping import Stop


@dataclass(frozen=True, slots=True)
class Altered:
    """What was changed; no changes where it was like that already."""

    address: Address
    changes: tuple[Change, ...]
    inherited: Mapping[str, ConfigRow]
    """What acts where the topic has no value of its own, by key, and where that is from."""


def alter_topic(  # noqa: PLR0913 - as many as the command has options, each named by its caller
    invocation: Invocation,
    select: Select,
    address: str,
    *,
    set_: Mapping[str, str],
    delete: Sequence[str],
    no_state: bool,
    state_url: str | None,
    lock_timeout_s: float,
    report: Callable[[Event], None],
    stop: Stop,
) -> Altered:
    """Set and reset configs of one topic, under the lease or, with `no_state`, without asking any state.

    `state_url` stands in for a workspace: connections then come from what is recorded there.

    Raises:
        UserError: The topic or a config is not there, or this workspace does not own the topic.
        LeaseError: Someone else is applying.
    """
    site = open_work(invocation, select) if state_url is None else open_site(invocation, state_url)
    topic = topic_address(address)
    provider = provider_of(site, topic)
    wanted = wanted_configs(provider.capabilities, set_, delete)
    name = cluster_of(topic) or ""
    if no_state:
        refuse_another_cluster(site, name, None)
        return _alter_now(provider, *_action(provider, topic, wanted), report)
    done: list[Altered] = []

    def decide(basis: Basis) -> ToDo:
        if basis.is_again:
            return ToDo((), digest(()))
        refuse_another_cluster(site, name, basis.snapshot)
        found, inherited = _action(provider, topic, wanted)
        action = _owned(found, basis.snapshot, wanted)
        done.append(Altered(action.address, action.changes, inherited))
        actions = [action] if action.changes else []
        return ToDo(actions, digest(actions))

    wish = Wish(
        command="topic alter",
        lock_timeout_s=lock_timeout_s,
        parallelism=2,
        report=report,
        stop=stop,
        # In an emergency another cluster may be the very one that does not answer.
        gives_up=lambda address: cluster_of(address) != name,
    )
    result = run_under_lease(site, wish, decide).result
    if result is not None and result.failed:
        raise result.failed[0].error
    return done[-1]


def wanted_configs(capabilities: Capabilities, set_: Mapping[str, str], delete: Sequence[str]) -> dict[str, str | None]:
    """Return each config and the value it is to have, `None` where it is to be inherited again.

    Raises:
        UserError: A config or its value cannot be.
    """
    wanted: dict[str, str | None] = dict.fromkeys(delete)
    wanted.update(set_)
    for key, value in wanted.items():
        if key not in capabilities.configs:
            near = get_close_matches(key, capabilities.configs, n=1)
            hint = f"Did you mean {near[0]}?" if near else "List them with: reconciler topic describe"
            raise UserError(f"there is no config {key!r}", hint=hint)
        if value is not None:
            try:
                wanted[key] = canonical_value(key, value, capabilities.configs)
            except ValueError as error:
                default = capabilities.configs[key].default
                raise UserError(f"{key}={value}: {error}", hint=f"Its default is {default!r}.") from error
    return wanted


def _action(
    provider: Provider, topic: Address, wanted: Mapping[str, str | None]
) -> tuple[Update, Mapping[str, ConfigRow]]:
    """Return the change of a topic as it is now, and what it inherits; no changes where it is like that already."""
    address, observed = find_topic(provider, topic)
    before = observed[address]
    own = configs_of(before.resource)
    changes = tuple(
        Change(f"configs.{key}", own.get(key), value) for key, value in sorted(wanted.items()) if own.get(key) != value
    )
    action = Update(
        address=address,
        before=before.resource,
        after=_with_configs(before.resource, wanted),
        changes=changes,
        reasons=(Reason.CHANGED,),
        precondition=precondition(address, before, [change.path for change in changes]),
    )
    above = {layer: found for layer, found in observed.items() if layer != address}
    return action, {row.key: row for row in acting_configs(address, above, provider.capabilities)}


def _owned(action: Update, snapshot: Snapshot, wanted: Mapping[str, str | None]) -> Update:
    """Return the action as it changes the record: what is recorded, with the same configs set and reset."""
    recorded = snapshot.record.get(action.address)
    if recorded is None:
        raise UserError(
            f"{action.address} is not owned by this workspace",
            hint="Declare it, or change it without remembering that: --no-state",
        )
    return replace(action, after=_with_configs(recorded.resource, wanted), origins=recorded.origins)


def _alter_now(
    provider: Provider, action: Update, inherited: Mapping[str, ConfigRow], report: Callable[[Event], None]
) -> Altered:
    """Change it on its platform and nowhere else."""
    if action.changes:
        report(ActionStarted(action.id, action.address))
        for outcome in provider.apply([action]):
            match outcome:
                case Failed(error=error):
                    raise error
                case Done():
                    report(ActionDone(action.id, action.address, 0.0))
                case _:
                    assert_never(outcome)
    return Altered(action.address, action.changes, inherited)


def _with_configs(resource: Resource, wanted: Mapping[str, str | None]) -> Resource:
    merged: dict[str, str | None] = {**configs_of(resource), **wanted}
    configs = {key: value for key, value in sorted(merged.items()) if value is not None}
    if isinstance(resource, Topic):
        return resource.model_copy(update={"spec": resource.spec.model_copy(update={"configs": configs})})
    return resource.model_copy(update={"configs": configs})
