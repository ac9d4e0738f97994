"""Create, adopt, update or keep one resource."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar, assert_never

from reconciler.lifecycles import TIERING, TieringState, is_in_progress
from reconciler.planning.actions import (
    SEALED,
    Action,
    Adopt,
    Change,
    Create,
    Delete,
    Forget,
    Reason,
    Transition,
    Update,
    Value,
)
from reconciler.planning.diff.field_differences import Comparison, Differences, build_drift_finding, find_differences
from reconciler.planning.fields import (
    CONFIGS,
    LINK_FEATURES,
    OBJECT_STORAGE,
    PARTITIONS,
    PROPERTIES,
    QUOTAS,
    list_fields,
)
from reconciler.planning.plan import DriftFinding, FieldMark, HeldChange, PlanFinding, UnfinishedTransition
from reconciler.planning.plan_rows import hash_value
from reconciler.planning.resolve.acting_configs import RECOVERY, SWITCH_PATHS, SwitchReader, find_hidden_values
from reconciler.planning.resolve.limits import (
    FIXED,
    can_reset,
    check_changes,
    is_unreported,
    read_storage_mode,
)
from reconciler.planning.resolve.physical_names import use_physical_names
from reconciler.planning.selection import build_half_parameters
from reconciler.planning.situation import get_mounted_topic, is_recreated
from reconciler.resources.acls import TopicAcl, build_rule_path, to_rule_fields
from reconciler.resources.address import Address, address_of, cluster_of, list_levels, split_name
from reconciler.resources.cluster import Cluster
from reconciler.resources.configs import DEFAULT
from reconciler.resources.inventory import Capabilities, Observed, Recorded, Resource, read_own_configs
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic
from reconciler.resources.mount import Mounting
from reconciler.resources.namespace import Namespace
from reconciler.resources.tiering_policy import SWITCHES, TieringPolicy, read_disable_policy, read_switches
from reconciler.resources.topic import Topic
from reconciler.runtime.dataclass import dataclass, field, replace
from reconciler.runtime.text import list_first, pluralize, to_json_types

if TYPE_CHECKING:
    from reconciler.planning.situation import Situation, WantedResource


@dataclass(slots=True)
class Decision:
    """Actions and findings of the addresses decided so far."""

    actions: list[Action] = field(default_factory=list)
    drift: list[DriftFinding] = field(default_factory=list)
    held: list[HeldChange] = field(default_factory=list)
    waiting: list[UnfinishedTransition] = field(default_factory=list)
    errors: list[PlanFinding] = field(default_factory=list)
    warnings: list[PlanFinding] = field(default_factory=list)
    settled: set[Address] = field(default_factory=set)
    """Recorded addresses missing in the files and already decided."""

    def refuse(
        self, address: Address, source: str | None, message: str, hint: str, *, marks: tuple[FieldMark, ...] = ()
    ) -> None:
        """Add an error about the fields `marks`."""
        self.errors.append(PlanFinding(address, source, message, hint, marks))

    def warn(
        self, address: Address | None, source: str | None, message: str, hint: str, *, marks: tuple[FieldMark, ...] = ()
    ) -> None:
        """Add a warning."""
        self.warnings.append(PlanFinding(address, source, message, hint, marks))

    def add_held_change(self, sides: AddressView, message: str, hint: str, now: str) -> None:
        """Warn that a resource keeps the role or location `now`, which a command set."""
        self.held.append(HeldChange(sides.address, sides.wanted.source, message, hint, now, sides.wanted.marks))


@dataclass(frozen=True, slots=True)
class AddressView:
    """One address as desired, recorded and observed."""

    address: Address
    wanted: WantedResource
    last: Recorded | None
    before: Observed | None

    @classmethod
    def at(cls, address: Address, situation: Situation) -> AddressView:
        """Return the view of a desired address."""
        return cls(address, situation.wanted[address], situation.recorded.get(address), situation.observed.get(address))


def compute_precondition(address: Address, before: Observed | None, paths: Iterable[str] = ()) -> str:
    """Return the fingerprint of the observed fields that a decision depends on; empty for a missing resource."""
    if before is None:
        return ""
    wanted = sorted(paths)
    seen = list_fields(before.resource) if wanted else {}
    rests_on = {path: to_json_types(seen.get(path)) for path in wanted}
    return hash_value({"address": address, "incarnation": before.incarnation, "observed": rests_on})


def compute_state_precondition(address: Address, before: Observed) -> str:
    """Return the fingerprint of incarnation and state, for a transition."""
    return hash_value({"address": address, "incarnation": before.incarnation, "state": before.state})


Rule = TypeVar("Rule", bound="TopicAcl")


def adopt_observed_values(wanted: WantedResource, before: Observed) -> Resource:
    """Return the desired resource with observed values in its declared fields."""
    resource, seen = wanted.resource, before.resource
    match resource:
        case Topic():
            return _adopt_topic_values(resource, seen)
        case Namespace():
            if not isinstance(seen, Namespace):
                return resource
            changed = {
                "configs": _pick_live_values(resource.spec.configs, seen.spec.configs),
                "acls": _pick_shared_rules(resource.spec.acls, seen.spec.acls),
            }
            return resource.model_copy(update={"spec": resource.spec.model_copy(update=changed)})
        case MirrorTopic():
            live = seen.configs if isinstance(seen, MirrorTopic) else {}
            return resource.model_copy(update={"configs": _pick_live_values(resource.configs, live)})
        case MirrorLink():
            spec = seen.spec if isinstance(seen, MirrorLink) else resource.spec
            bare = spec.model_copy(update={"mirror_topics": (), "moved_from": None})
            return resource.model_copy(update={"spec": bare})
        case Cluster():
            return _adopt_cluster_values(resource, seen)
        case Mounting() | TieringPolicy():
            return resource
        case _:
            assert_never(resource)


def drop_unset_origins(origins: Mapping[str, str]) -> dict[str, str]:
    """Return the origins without unset fields, because an adoption changes no field."""
    return {path: origin for path, origin in origins.items() if origin != DEFAULT}


def _adopt_cluster_values(cluster: Cluster, seen: Resource) -> Cluster:
    if not isinstance(seen, Cluster):
        return cluster
    spec, live = cluster.spec, seen.spec
    changed = {
        "properties": _pick_live_values(spec.properties, live.properties),
        "object_storage": spec.object_storage if live.object_storage is not None else None,
    }
    return cluster.model_copy(update={"spec": spec.model_copy(update=changed)})


def _adopt_topic_values(topic: Topic, seen: Resource) -> Topic:
    if not isinstance(seen, Topic):
        return topic
    spec, live = topic.spec, seen.spec
    changed = {
        "partitions": live.partitions,
        "replication_factor": live.replication_factor if spec.replication_factor is not None else None,
        "configs": _pick_live_values(spec.configs, live.configs),
        "acls": _pick_shared_rules(spec.acls, live.acls),
    }
    return topic.model_copy(update={"spec": spec.model_copy(update=changed)})


def _pick_live_values(declared: Mapping[str, str], live: Mapping[str, str]) -> dict[str, str]:
    return {key: live[key] for key in declared if key in live}


def _pick_shared_rules(declared: Sequence[Rule], live: Sequence[TopicAcl]) -> tuple[Rule, ...]:
    observed_rules = to_rule_fields(live)
    ours = {path: rule for rule in declared if (path := build_rule_path(rule)) in observed_rules}
    return tuple(rule.model_copy(update={"operations": observed_rules[path]}) for path, rule in ours.items())


_MUST_BE_DECLARED: Final = ("remote.write", "remote.read")
_MAX_NAMES: Final = 3
_HINT_SWITCH_OFF: Final = (
    "Switch it off first: keep the policy with remoteWrite: false and remoteRead: false for one apply."
)
_HINT_DECLARE: Final = (
    "Give it or a namespace above it a tieringPolicy: the one it had, or, to switch its tiering off, one with "
    "remoteWrite: false and remoteRead: false."
)


def separate_tiering(
    sides: AddressView, before: Observed, differing: Differences, situation: Situation
) -> tuple[Transition | None, Differences]:
    """Separate a tiering change, a transition (KIP-950), from the rest; `None` without one."""
    moving = tuple(change for change in differing.changes if change.path in SWITCH_PATHS)
    state = _read_state(before)
    if not moving or state is None or not isinstance(sides.wanted.resource, Topic):
        return None, differing
    old = before.resource.address if isinstance(before.resource, Topic) else None
    then = SwitchReader(situation).then(sides.address, before, None if old == sides.address else old)
    is_off = read_switches(then).is_off
    if is_off != (state is TieringState.ENABLED):
        return None, differing
    rest = replace(differing, changes=tuple(change for change in differing.changes if change not in moving))
    verb = "disable-tiering" if is_off else "enable-tiering"
    wanted, is_all = sides.wanted, not rest.changes
    return Transition(
        address=sides.address,
        machine=TIERING.name,
        verb=verb,
        from_state=state,
        to_state=TIERING.apply_verb(state, verb),
        after=wanted.resource if is_all else _set_desired_tiering(sides, before),
        parameters={"policy": read_disable_policy(then)} if is_off else {},
        changes=moving,
        reasons=differing.reasons,
        source=wanted.source,
        origins=wanted.origins if is_all else drop_unset_origins(wanted.origins),
        precondition=compute_precondition(sides.address, before, (change.path for change in moving)),
    ), rest


def is_disabling(before: Observed) -> bool:
    """Return whether a topic's tiering is being disabled."""
    return _read_state(before) is TieringState.DISABLING


def find_tiering_problems(
    address: Address, before: Observed, changes: tuple[Change, ...], situation: Situation
) -> Iterator[tuple[str, str]]:
    """Yield why the tiering of a topic, or of topics below a namespace, cannot change."""
    switched = [change for change in changes if change.path in SWITCH_PATHS]
    if not switched or before.resource.cluster is None:
        return
    concerned = list(_list_affected_topics(address, before, situation))
    busy = [topic for topic, seen in concerned if is_disabling(seen)]
    if busy:
        which = "its tiering" if busy == [address] else f"the tiering of {list_first(busy, _MAX_NAMES, grouping='')}"
        key = switched[0].path.removeprefix("configs.")
        yield (
            f"{which} is being switched off ({TieringState.DISABLING}): {key} cannot change until that is done",
            "`run` finishes it; then plan again.",
        )
    left = _find_undeclared_switch(switched, concerned, situation)
    if left is not None:
        key, topics = left
        whose = "its tiered storage"
        if topics != [address]:
            whose = f"the tiered storage of {list_first(topics, _MAX_NAMES, grouping='')}"
        where, hint = "any more", _HINT_SWITCH_OFF
        if before.resource.address != address:
            where, hint = "where it moves", _HINT_DECLARE
        yield f"{whose} would be unmanaged: no file sets {key} {where}, and it is on", hint


def _find_undeclared_switch(
    switched: list[Change], concerned: list[tuple[Address, Observed]], situation: Situation
) -> tuple[str, list[Address]] | None:
    look = SwitchReader(situation)
    for key in _MUST_BE_DECLARED:
        if not any(change.path == f"configs.{key}" and change.after is None for change in switched):
            continue
        left = [topic for topic, seen in concerned if _is_undeclared(look, key, topic, seen)]
        if left:
            return key, left
    return None


def _is_undeclared(look: SwitchReader, key: str, topic: Address, seen: Observed) -> bool:
    place = seen.resource.address
    value, _ = look.now(place, seen).get(key, ("", ""))
    then = look.then(topic, seen, None if place == topic else place)
    return value == "true" and key not in then and "remote.storage.enable" not in then


def _list_affected_topics(
    address: Address, before: Observed, situation: Situation
) -> Iterator[tuple[Address, Observed]]:
    resource = before.resource
    if isinstance(resource, Topic):
        yield address, before
    elif isinstance(resource, Namespace):
        name = resource.metadata.name
        for topic, seen in sorted(situation.observed.items()):
            if cluster_of(topic) == resource.cluster and isinstance(seen.resource, Topic):
                namespace, _ = split_name(seen.resource.full_name)
                if name in list_levels(namespace):
                    yield topic, seen


def _read_state(before: Observed) -> TieringState | None:
    return next((state for state in TieringState if state == before.state), None)


def _set_desired_tiering(sides: AddressView, before: Observed) -> Topic:
    wanted, seen = sides.wanted.resource, adopt_observed_values(sides.wanted, before)
    if not (isinstance(wanted, Topic) and isinstance(seen, Topic)):
        message = "only the tiering of topics is switched"
        raise TypeError(message)
    unchanged = {key: value for key, value in seen.spec.configs.items() if key not in SWITCHES}
    moved = {key: value for key, value in wanted.spec.configs.items() if key in SWITCHES}
    return seen.model_copy(update={"spec": seen.spec.model_copy(update={"configs": {**unchanged, **moved}})})


_HINT_UNTOUCHED = "These rules stay. Access that only the deleted rules allowed ends."


def is_only_a_prefix(wanted: WantedResource, before: Observed, situation: Situation) -> bool:
    """Return whether a namespace exists only as a prefix, without its access rules."""
    resource, seen = wanted.resource, before.resource
    if (
        not isinstance(resource, Namespace)
        or not isinstance(seen, Namespace)
        or not _is_rule_namespace(resource, situation)
    ):
        return False
    return to_rule_fields(resource.spec.acls).keys().isdisjoint(to_rule_fields(seen.spec.acls))


def find_part_to_delete(last: Resource | None, before: Resource, *, are_rules: bool) -> Resource:
    """Return the part of an observed resource to delete: with `are_rules`, only the recorded access rules."""
    if not are_rules:
        return before
    match before:
        case Namespace(spec=spec):
            rules = _pick_recorded_rules(spec.acls, last.spec.acls if isinstance(last, Namespace) else ())
            return before.model_copy(update={"spec": spec.model_copy(update={"acls": rules})})
        case Topic(spec=spec):
            of_topic = _pick_recorded_rules(spec.acls, last.spec.acls if isinstance(last, Topic) else ())
            return before.model_copy(update={"spec": spec.model_copy(update={"acls": of_topic})})
        case _:
            return before


def _pick_recorded_rules(live: Sequence[Rule], recorded: Sequence[Rule]) -> tuple[Rule, ...]:
    live_operations = to_rule_fields(live)
    rules = (
        (
            rule,
            tuple(
                operation
                for operation in rule.operations
                if operation in live_operations.get(build_rule_path(rule), ())
            ),
        )
        for rule in recorded
    )
    return tuple(rule.model_copy(update={"operations": operations}) for rule, operations in rules if operations)


def find_surviving_rules(before: Observed, gone: Resource) -> tuple[str, ...]:
    """Return the access rules that remain after a delete, as text."""
    observed = before.resource
    if not isinstance(observed, Namespace | Topic) or not isinstance(gone, Namespace | Topic):
        return ()
    taken = to_rule_fields(gone.spec.acls)
    left = [
        (rule, sorted(set(rule.operations) - set(taken.get(build_rule_path(rule), ())))) for rule in observed.spec.acls
    ]
    left += [(rule, list(rule.operations)) for rule in before.undeclarable]
    return tuple(
        f"{rule.principal} {rule.permission} {', '.join(operations)}" for rule, operations in left if operations
    )


def warn_of_foreign_rules(address: Address, before: Observed, gone: Resource, decision: Decision) -> None:
    """Warn about other owners' access rules that remain after a delete."""
    left = find_surviving_rules(before, gone)
    if not left:
        return
    on = "its prefix" if isinstance(gone, Namespace) else "its name"
    what = pluralize(len(left), f"access rule on {on} is", f"access rules on {on} are", grouping="")
    stays = "it stays" if len(left) == 1 else "they stay"
    hint = (
        f"A later principal of that name gets {'it' if len(left) == 1 else 'them'}, too. Remove rules with: "
        "kafka-acls --remove"
    )
    decision.warn(address, None, f"{what} not managed: {stays} ({list_first(left, _MAX_NAMES, grouping='')})", hint)


def warn_of_own_rules(address: Address, last: Recorded, situation: Situation, decision: Decision) -> None:
    """Warn that access rules may remain of a topic deleted outside reconciler."""
    topic = last.resource
    if not isinstance(topic, Topic) or not topic.spec.acls:
        return
    if not situation.find_capabilities(topic.cluster).namespaces_are_rules:
        return
    named = tuple(f"{rule.principal} {rule.permission} {', '.join(rule.operations)}" for rule in topic.spec.acls)
    decision.warn(
        address,
        None,
        "it was deleted outside reconciler, and the brokers keep its access rules: "
        f"{list_first(named, _MAX_NAMES, grouping='')}",
        "A new topic of that name gets them. Remove them with: kafka-acls --bootstrap-server HOST:PORT "
        f"--remove --topic {last.physical_name or topic.full_name}",
    )


def warn_of_kept_topics(namespaces: Iterable[Namespace], situation: Situation, decision: Decision) -> None:
    """Warn about topics that remain under the prefixes of deleted namespaces."""
    prefixes = {namespace.address for namespace in namespaces if _is_rule_namespace(namespace, situation)}
    if not prefixes:
        return
    gone = {action.address for action in decision.actions if isinstance(action, Delete)}
    still_recorded = situation.recorded.keys() - {
        action.address for action in decision.actions if isinstance(action, Forget)
    }
    remaining: dict[Address, dict[str, bool]] = {}
    for address, seen in situation.observed.items():
        if address not in gone and not seen.is_internal and isinstance(seen.resource, Topic | MirrorTopic):
            _, cluster, name = address.split("/", 2)
            for level in list_levels(name.rpartition(":")[0]):
                if (namespace := address_of("namespace", cluster, level)) in prefixes:
                    remaining.setdefault(namespace, {})[f"{cluster}/{name}"] = address in still_recorded
    for namespace, names in remaining.items():
        strange = sum(not is_ours for is_ours in names.values())
        for count, rest in ((strange, "not managed: "), (len(names) - strange, "managed here: ")):
            if count:
                what = pluralize(count, "topic with its prefix is", "topics with its prefix are")
                stays = "it stays" if count == 1 else "they stay"
                decision.warn(namespace, None, f"{what} {rest}{stays}", _HINT_UNTOUCHED)


def warn_of_kept_rules(address: Address, last: Recorded, situation: Situation, decision: Decision) -> None:
    """Warn about rules that remain when an adopted namespace is forgotten."""
    namespace = last.resource
    if not isinstance(namespace, Namespace) or not namespace.spec.acls or not _is_rule_namespace(namespace, situation):
        return
    count = len(to_rule_fields(namespace.spec.acls))
    what = pluralize(count, "access rule on its prefix stays", "access rules on its prefix stay", grouping="")
    hint = "To delete them, too: reconciler destroy --include-adopted"
    decision.warn(address, None, f"it was adopted, and is forgotten: {what}", hint)


def _is_rule_namespace(namespace: Namespace, situation: Situation) -> bool:
    return situation.find_capabilities(namespace.cluster).namespaces_are_rules


GOING: Final = "DELETING"


UNSEAL: Final = Change(SEALED, before=True, after=None, drift=True)
"""Removes the seal that an unfinished move or unmount left on a topic, which rejects writes."""


def converge(sides: AddressView, situation: Situation, decision: Decision) -> None:
    """Create, adopt, update or keep a resource that can change in place."""
    address, wanted, last, before = sides.address, sides.wanted, sides.last, sides.before
    if before is None:
        plan_creation(sides, decision, build_half_parameters(wanted, situation))
    elif before.state == GOING:
        decision.refuse(
            address,
            wanted.source,
            "it is being deleted",
            "Wait until it is deleted (`run` finishes it), then plan again.",
        )
    elif last is None:
        if wanted.implied_by is None:
            reason = Reason.ONLY_A_PREFIX if is_only_a_prefix(wanted, before, situation) else Reason.ALREADY_EXISTS
            _converge_new(sides, before, situation, decision, reason)
    elif is_recreated(last, before):
        decision.drift.append(build_drift_finding(address, "incarnation", last.incarnation, before.incarnation))
        _converge_new(sides, before, situation, decision, Reason.RECREATED)
    else:
        _converge_known(sides, before, situation, decision)


def plan_creation(sides: AddressView, decision: Decision, parameters: Mapping[str, Value] | None = None) -> None:
    """Add the creation of a missing resource and, if it was recorded, drift."""
    wanted, last = sides.wanted, sides.last
    reason = Reason.DECLARED if wanted.implied_by is None else Reason.IMPLIED_BY_TIER
    if last is not None:
        reason = Reason.MISSING
        decision.drift.append(build_drift_finding(sides.address, "", to_json_types(last.resource.to_json()), None))
        if isinstance(wanted.resource, Topic) and not parameters:
            hint = f"To leave it out of the files instead: reconciler drift --accept {sides.address}"
            decision.warn(
                sides.address, wanted.source, "it was deleted, and is created again without its records", hint
            )
    decision.actions.append(
        Create(
            address=sides.address,
            after=wanted.resource,
            reasons=(reason,),
            source=wanted.source,
            origins=wanted.origins,
            parameters=parameters or {},
        )
    )


def plan_deletion(
    address: Address, before: Observed, reason: Reason, *, gone: Resource | None = None, source: str | None = None
) -> Delete:
    """Return the delete of a resource, or of its part `gone`."""
    return Delete(
        address=address,
        before=gone or before.resource,
        incarnation=before.incarnation,
        reasons=(reason,),
        source=source,
        precondition=compute_precondition(address, before),
    )


def plan_adoption(
    sides: AddressView, before: Observed, differing: Differences, reason: Reason, moved_from: Address | None = None
) -> Adopt:
    """Return the adoption of an existing resource with its observed values."""
    wanted = sides.wanted
    after: Resource = adopt_observed_values(wanted, before) if differing.changes else wanted.resource
    return Adopt(
        address=sides.address,
        observed=before.resource,
        after=after,
        changes=differing.record_changes,
        incarnation=before.incarnation,
        physical_name=before.physical_name,
        moved_from=moved_from,
        reasons=(reason,),
        source=wanted.source,
        origins=drop_unset_origins(wanted.origins) if differing.changes else wanted.origins,
        precondition=compute_precondition(sides.address, before, (change.path for change in differing.changes)),
    )


def plan_update(sides: AddressView, before: Observed, differing: Differences) -> Update:
    """Return the update of all differing fields."""
    return Update(
        address=sides.address,
        before=before.resource,
        after=sides.wanted.resource,
        changes=differing.changes,
        reasons=differing.reasons,
        source=sides.wanted.source,
        origins=sides.wanted.origins,
        precondition=compute_precondition(sides.address, before, (change.path for change in differing.changes)),
    )


def plan_resource_changes(
    sides: AddressView, before: Observed, differing: Differences, situation: Situation, decision: Decision
) -> None:
    """Add the actions that change an existing resource, tiering first."""
    move, rest = separate_tiering(sides, before, differing, situation)
    if move is not None:
        decision.actions.append(move)
    if rest.changes:
        decision.actions.append(plan_update(sides, before, rest))


def find_platform_differences(sides: AddressView, before: Observed, situation: Situation) -> Differences:
    """Return the differences of an observed resource in fields that the platform stores."""
    capabilities = situation.find_capabilities(cluster_of(sides.address) or "")
    if not capabilities.tells_own:
        before = _complete_configs(sides, before, capabilities)
    is_link = isinstance(sides.wanted.resource, MirrorLink)
    if is_link and not capabilities.mirrors.by_jobs:
        sides, before = _use_physical_names(sides, before, situation)
    left_alone = _find_incomparable_paths(sides, before, capabilities)
    how = Comparison(
        catalog=capabilities.configs,
        ignored=situation.find_ignore_rule,
        is_compared=(lambda path: _is_supported(path, capabilities.mirrors.features))
        if is_link
        else lambda path: path not in left_alone,
        is_recorded=_supports_no_path if capabilities.keeps_quotas else _is_quota,
        hiding=find_hidden_values(situation, sides.wanted, sides.last, before),
    )
    differing = find_differences(sides.address, sides.wanted, sides.last, before, how)
    if left := tuple(_find_leftover_configs(sides, before)):
        reasons = tuple(dict.fromkeys((*differing.reasons, Reason.DRIFTED)))
        differing = replace(differing, changes=(*differing.changes, *left), reasons=reasons)
    if (
        not before.topic.is_sealed
        or before.resource.address != sides.address
        or _is_unmounting(sides.address, situation)
    ):
        return differing
    reasons = (*differing.reasons, Reason.DRIFTED)
    return replace(differing, changes=(*differing.changes, UNSEAL), reasons=tuple(dict.fromkeys(reasons)))


def _use_physical_names(sides: AddressView, before: Observed, situation: Situation) -> tuple[AddressView, Observed]:
    """Return views of a link with the platform's names in its filters."""
    cluster = situation.clusters[cluster_of(sides.address) or ""]
    wanted, last = sides.wanted, sides.last
    if isinstance(wanted.resource, MirrorLink):
        wanted = replace(wanted, resource=use_physical_names(wanted.resource, cluster))
    if last is not None and isinstance(last.resource, MirrorLink):
        last = replace(last, resource=use_physical_names(last.resource, cluster))
    if isinstance(before.resource, MirrorLink):
        before = replace(before, resource=use_physical_names(before.resource, cluster))
    return replace(sides, wanted=wanted, last=last, before=before), before


def _complete_configs(sides: AddressView, before: Observed, capabilities: Capabilities) -> Observed:
    """Return a topic or mirror with the effective values of declared configs, even if reported as unset.

    Configs that brokers never report have the recorded value.
    """
    topic = before.resource
    if not isinstance(topic, Topic | MirrorTopic):
        return before
    declared = read_own_configs(sides.wanted.resource)
    acting = {**capabilities.defaults, **before.topic.initial}
    recorded = sides.last.resource if sides.last is not None else None
    known = {**declared, **read_own_configs(recorded)} if isinstance(recorded, Topic | MirrorTopic) else declared
    own = read_own_configs(topic)
    configs = {
        **{key: acting[key] for key in declared.keys() & acting.keys()},
        **{key: value for key, value in known.items() if is_unreported(key, capabilities) and key != RECOVERY},
        **own,
    }
    if configs == own:
        return before
    completed = {"configs": dict(sorted(configs.items()))}
    if isinstance(topic, MirrorTopic):
        return replace(before, resource=topic.model_copy(update=completed))
    spec = topic.spec.model_copy(update=completed)
    return replace(before, resource=topic.model_copy(update={"spec": spec}))


def _find_incomparable_paths(sides: AddressView, before: Observed, capabilities: Capabilities) -> frozenset[str]:
    """Return undeclared configs that the platform does not reset (F-R-211), and unreported properties."""
    recorded = sides.last.resource if sides.last is not None else None
    if isinstance(sides.wanted.resource, Cluster) and not capabilities.cluster_properties:
        clusters = (resource for resource in (sides.wanted.resource, recorded) if isinstance(resource, Cluster))
        return frozenset(PROPERTIES + key for cluster in clusters for key in cluster.spec.properties)
    if capabilities.tells_own or not isinstance(before.resource, Topic | MirrorTopic):
        return frozenset()
    declared = read_own_configs(sides.wanted.resource)
    mode = read_storage_mode(declared, capabilities, before)
    created_with = read_own_configs(recorded) if recorded else {}
    undeclared = {*read_own_configs(before.resource), *created_with} - declared.keys()
    left_alone = {
        key for key in undeclared if not can_reset(key, mode, capabilities) and not is_unreported(key, capabilities)
    }
    if declared.get(RECOVERY) != "true" or created_with.get(RECOVERY) == "true":
        left_alone.add(RECOVERY)  # It was for the creation of the topic, and may be removed from its file.
    return frozenset(CONFIGS + key for key in left_alone)


def _find_leftover_configs(sides: AddressView, before: Observed) -> Iterator[Change]:
    if before.topic.filled is None or before.resource.address != sides.address:
        return
    wanted, seen = list_fields(sides.wanted.resource), list_fields(before.resource)
    live_configs = {path: value for path, value in seen.items() if path.startswith(CONFIGS)}
    whole = {CONFIGS + key: value for key, value in before.topic.filled.items()}
    for path in sorted({*live_configs, *whole} - wanted.keys()):
        if live_configs.get(path) != whole.get(path):
            yield Change(path, live_configs.get(path), whole.get(path), drift=True)


def _is_unmounting(topic: Address, situation: Situation) -> bool:
    return any(
        isinstance(seen.resource, Mounting)
        and (get_mounted_topic(seen.resource), seen.resource.spec.state) == (topic, "unmounted")
        and is_in_progress(seen.state)
        and (seen.is_by_hand or address in situation.wanted)
        for address, seen in situation.observed.items()
    )


def _converge_new(
    sides: AddressView, before: Observed, situation: Situation, decision: Decision, reason: Reason
) -> None:
    fresh = AddressView(sides.address, sides.wanted, None, before)
    differing = find_platform_differences(fresh, before, situation)
    if not _refuse_changes(fresh, before, differing.changes, situation, decision):
        decision.actions.append(plan_adoption(fresh, before, differing, reason))
        plan_resource_changes(fresh, before, differing, situation, decision)


def _converge_known(sides: AddressView, before: Observed, situation: Situation, decision: Decision) -> None:
    differing = _drop_added_partitions(sides, find_platform_differences(sides, before, situation), decision)
    decision.drift.extend(differing.drift)
    for held, rule in differing.held:
        message = f"{held.path} is changed in the files, and stays as it is on the cluster: {rule}"
        decision.warn(sides.address, sides.wanted.source, message, "To apply it, take the rule out of ignoreDrift.")
    if _refuse_changes(sides, before, differing.changes, situation, decision):
        return
    if differing.record_changes or (differing.is_stale and not differing.changes):
        decision.actions.append(plan_adoption(sides, before, differing, Reason.RECORD_ONLY))
    plan_resource_changes(sides, before, differing, situation, decision)


def _drop_added_partitions(sides: AddressView, differing: Differences, decision: Decision) -> Differences:
    added = next((item for item in differing.changes if item.path == PARTITIONS and item.drift), None)
    if added is None or not isinstance(added.before, int) or not isinstance(added.after, int):
        return differing
    if added.before < added.after:
        return differing
    message = f"it has {added.before} partitions, and the files still have {added.after}: added partitions stay"
    hint = f"Write it into the files: reconciler drift --accept {sides.address}"
    decision.warn(sides.address, sides.wanted.source, message, hint)
    changes = tuple(item for item in differing.changes if item is not added)
    is_drift = any(item.drift for item in changes)
    reasons = tuple(reason for reason in differing.reasons if is_drift or reason is not Reason.DRIFTED)
    drift = tuple(replace(item, stays=item.path == PARTITIONS) for item in differing.drift)
    return replace(differing, changes=changes, reasons=reasons, drift=drift)


def _refuse_changes(
    sides: AddressView, before: Observed, changes: tuple[Change, ...], situation: Situation, decision: Decision
) -> bool:
    if is_disabling(before):
        decision.waiting.append(UnfinishedTransition(sides.address, before.state or ""))
    capabilities = situation.find_capabilities(cluster_of(sides.address) or "")
    refusals = [
        *check_changes(changes, capabilities),
        *find_tiering_problems(sides.address, before, changes, situation),
    ]
    for message, hint in refusals:
        decision.refuse(sides.address, sides.wanted.source, message, hint, marks=_find_link_marks(sides, changes))
    return bool(refusals)


def _find_link_marks(sides: AddressView, changes: tuple[Change, ...]) -> tuple[FieldMark, ...]:
    if not isinstance(sides.wanted.resource, MirrorLink):
        return ()
    fixed = (change.path for change in changes if change.path in FIXED)
    return sides.wanted.marks or tuple((sides.address, ("spec", path)) for path in fixed)


def _is_supported(path: str, features: frozenset[str]) -> bool:
    feature = LINK_FEATURES.get(path.partition(".")[0])
    return feature is None or feature in features


def _supports_no_path(_path: str) -> bool:
    return False


def _is_quota(path: str) -> bool:
    return path.startswith(QUOTAS)


def decide_cluster(sides: AddressView, situation: Situation, decision: Decision) -> None:
    """Add the actions of a cluster that has the recorded identity."""
    cluster = sides.wanted.resource
    if not isinstance(cluster, Cluster):
        return
    identity = situation.request.identities[cluster.metadata.name]
    if identity is None:
        decision.actions.append(
            Create(
                address=sides.address,
                after=cluster,
                reasons=(Reason.DECLARED,),
                source=sides.wanted.source,
                origins=sides.wanted.origins,
            )
        )
        return
    # Platforms that report only a cluster's identity are compared as declared.
    seen = sides.before or Observed(cluster)
    before = replace(seen, incarnation=identity.cluster_id)
    differing = find_platform_differences(sides, before, situation)
    decision.drift.extend(differing.drift)
    differing = replace(
        differing, record_changes=(*differing.record_changes, *_find_cluster_record_changes(sides, before, differing))
    )
    if sides.last is None:
        decision.actions.append(plan_adoption(sides, before, differing, Reason.ALREADY_EXISTS))
    elif differing.record_changes or (differing.is_stale and not differing.changes):
        decision.actions.append(plan_adoption(sides, before, differing, Reason.RECORD_ONLY))
    if differing.changes:
        decision.actions.append(plan_update(sides, before, differing))


def _find_cluster_record_changes(sides: AddressView, before: Observed, differing: Differences) -> Iterator[Change]:
    if sides.last is None:
        return
    if sides.last.incarnation is None:
        yield Change("incarnation", None, before.incarnation)
    was, want = (list_fields(one.resource).get(OBJECT_STORAGE) for one in (sides.last, sides.wanted))
    if was != want and all(change.path != OBJECT_STORAGE for change in differing.changes):
        yield Change(OBJECT_STORAGE, was, want)
