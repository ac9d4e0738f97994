"""`topic alter`: change configs of one topic now. An ordinary run of one action, or done without a state."""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from reconciler.errors import UserError
from reconciler.lifecycles.tiering import TieringState
from reconciler.planning.actions import Change, Reason, Update
from reconciler.planning.deciding.decision import precondition
from reconciler.resources.address import cluster_of
from reconciler.resources.configs import DEFAULT, canonical_value
from reconciler.resources.tierrules import RETAIN, disable_policy_in, switches_in
from reconciler.resources.topic import Topic
from reconciler.workflow.beginning.topicaddress import provider_of, topic_address
from reconciler.workflow.looking.actingconfigs import acting_configs, configs_of
from reconciler.workflow.topics import find_topic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reconciler.providers.base import Provider
    from reconciler.resources.address import Address
    from reconciler.resources.capabilities import Capabilities
    from reconciler.resources.inventory import Inventory, Record
    from reconciler.resources.kinds import Resource
    from reconciler.workflow.looking.actingconfigs import ConfigRow
    from reconciler.workflow.running.emergencies import Emergency


@dataclass(frozen=True, slots=True)
class Altered:
    """What was changed; no changes where it was like that already."""

    address: Address
    changes: tuple[Change, ...]
    inherited: Mapping[str, ConfigRow]
    """What acts where the topic has no value of its own, by key, and where that is from."""


def alter_topic(emergency: Emergency, address: str, set_: Mapping[str, str], delete: Sequence[str]) -> Altered:
    """Set and reset configs of one topic.

    Raises:
        UserError: The topic or a config is not there, or this workspace does not own the topic.
        LeaseError: Someone else is applying.
    """
    topic = topic_address(address)
    name = cluster_of(topic) or ""
    site = emergency.site(name)
    wanted = wanted_configs(provider_of(site, topic).capabilities, set_, delete)
    found: list[Altered] = []

    def decide(provider: Provider, record: Record | None) -> list[Update]:
        action, inherited = _action(provider, topic, wanted)
        if record is not None:
            action = _owned(action, record, wanted)
        found.append(Altered(action.address, action.changes, inherited))
        return [action] if action.changes else []

    emergency.carry_out(site, name, decide)
    return found[-1]


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
    _check_switching(provider, action, observed)
    above = {layer: found for layer, found in observed.items() if layer != address}
    return action, {row.key: row for row in acting_configs(address, above, provider.capabilities)}


def _check_switching(provider: Provider, action: Update, observed: Inventory) -> None:
    """Refuse what would delete remote records unseen: only a plan says which offsets become unreadable, and blocks.

    Raises:
        UserError: The change turns tiered storage off, and remote data would be deleted by that (KIP-950).
    """
    before = observed[action.address]
    after = {**observed, action.address: replace(before, resource=action.after)}
    rows = acting_configs(action.address, after, provider.capabilities)
    acting = {row.key: (row.value, row.origin) for row in rows if row.origin != DEFAULT}
    is_on = before.state == TieringState.ENABLED
    if is_on and switches_in(acting).is_off and disable_policy_in(acting) != RETAIN:
        message = f"{action.address}: this turns its tiered storage off, and deletes what lies in object storage"
        raise UserError(
            message,
            hint="Declare it, and plan: the plan says which offsets become unreadable, and is blocked until allowed.",
        )


def _owned(action: Update, record: Record, wanted: Mapping[str, str | None]) -> Update:
    """Return the action as it changes the record: what is recorded, with the same configs set and reset."""
    recorded = record.get(action.address)
    if recorded is None:
        raise UserError(
            f"{action.address} is not owned by this workspace",
            hint="Declare it, or change it without remembering that: --no-state",
        )
    return replace(action, after=_with_configs(recorded.resource, wanted), origins=recorded.origins)


def _with_configs(resource: Resource, wanted: Mapping[str, str | None]) -> Resource:
    merged: dict[str, str | None] = {**configs_of(resource), **wanted}
    configs = {key: value for key, value in sorted(merged.items()) if value is not None}
    if isinstance(resource, Topic):
        return resource.model_copy(update={"spec": resource.spec.model_copy(update={"configs": configs})})
    return resource.model_copy(update={"configs": configs})
