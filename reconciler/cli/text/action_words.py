"""Texts for planned actions and their reasons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, assert_never

from reconciler.cli.text.amounts import (
    format_change,
    format_changes,
    format_configs,
    format_field_name,
    format_field_value,
    format_inherited_configs,
    format_json,
    is_nested,
)
from reconciler.cli.text.lines import Line, Span, Tone, make_line
from reconciler.cli.text.topics_text import format_time
from reconciler.lifecycles import BY_JOBS, MIRROR, TIERING, UNMOUNT
from reconciler.planning.actions import (
    Action,
    Adopt,
    Change,
    Create,
    Delete,
    Estimate,
    Forget,
    Reason,
    Risk,
    RoleCost,
    RunJob,
    Transition,
    Update,
    Value,
)
from reconciler.planning.fields import CONFIGS, PROPERTIES, list_fields
from reconciler.resources.acls import ACLS, TopicAcl, to_rule_fields
from reconciler.resources.address import kind_of
from reconciler.resources.base import UNLIMITED, format_duration
from reconciler.resources.cluster import Cluster
from reconciler.resources.inventory import Resource
from reconciler.resources.mirror_link import MirrorLink, MirrorLinkSpec, MirrorTopic
from reconciler.resources.mirrors import OffsetStretch, count_offsets
from reconciler.resources.mount import Mounting
from reconciler.resources.namespace import Namespace, NamespaceSpec
from reconciler.resources.tiering_policy import TieringPolicy
from reconciler.resources.topic import Topic
from reconciler.runtime.text import format_bytes, format_count, format_estimate, format_rough_count, pluralize


def _describe_recovery(action: Action) -> str:
    if not isinstance(action, Create):
        return ""
    parameters, estimate = action.parameters, action.estimate
    if "recoverFrom" not in parameters:
        return "to be recovered from object storage, which only the cluster can read"
    partitions = parameters.get("partitions")
    parts = [
        pluralize(partitions, "partition") if isinstance(partitions, int) else "",
        pluralize(estimate.records, "record"),
        format_bytes(estimate.bytes),
    ]
    named = isinstance(action.after, Topic) and action.after.spec.recover_from is not None
    where = "" if named else f" from {parameters.get('recoverFrom')}"
    return f"to be copied{where}: {', '.join(filter(None, parts))}"


def _describe_unknown_size(action: Action) -> str:
    if isinstance(action, Delete):
        return "size unknown"
    if action.estimate.role is not None:
        return ""  # `list_role_notes` says why.
    if action.verb == UNMOUNT.name:
        return "cannot tell how much is to flush"
    if Reason.BECOMES_UNREADABLE in action.reasons:
        return "cannot tell what becomes unreadable"
    return "cannot tell how much expires now"


def _describe_replica_moves(action: Action) -> str:
    estimate = action.estimate
    partitions = pluralize(estimate.partitions, "partition")
    copied = f", about {format_bytes(estimate.replicated)} between brokers" if estimate.replicated else ""
    return f"replicas of {partitions} move{copied}"


def _describe_replacement(action: Action) -> str:
    topic = action.before if isinstance(action, Delete) else action.after if isinstance(action, Create) else None
    location = topic.spec.read_replica_of if isinstance(topic, Topic) else None
    what = "an ordinary topic" if location is None else f"a read replica of {location}"
    if location is None and Reason.SOURCE_KEPT in action.reasons:
        what = "a read replica"  # Printed plans omit the name of the source.
    return f"replaced: it was {what}" if isinstance(action, Delete) else f"in place of what it was: {what}"


def _describe_unreadable(estimate: Estimate) -> str:
    lost = estimate.unreadable
    if not lost:
        return ""
    offsets = pluralize(sum(loss.stop - loss.start for loss in lost), "offset")
    places = pluralize(len(lost), "partition")
    return f"{offsets} of {places} become unreadable, about {format_bytes(sum(loss.bytes for loss in lost))}"


def _sum_expiring_bytes(action: Action) -> int:
    return action.estimate.bytes - sum(loss.bytes for loss in action.estimate.unreadable)


def format_reason(reason: Reason, action: Action) -> str:  # noqa: C901, PLR0912 - one case a reason
    """Format a reason; empty if the action's text says it."""
    match reason:
        case Reason.NO_LONGER_DECLARED:
            return "" if isinstance(action, Delete | Forget) else "no longer declared"
        case Reason.RETENTION_LOWERED | Reason.DELETE_ADDED:
            return (
                ""
                if Reason.UNMEASURED in action.reasons
                else f"about {format_bytes(_sum_expiring_bytes(action))} expire now"
            )
        case Reason.COMPACT_ADDED:
            return "records go that later ones of their keys supersede"
        case Reason.UNMEASURED:
            return _describe_unknown_size(action)
        case Reason.BECOMES_UNREADABLE:
            return _describe_unreadable(action.estimate)
        case Reason.REMOTE_DELETED:
            return f"its remote data goes too: {action.estimate.location}"
        case Reason.REMOTE_KEPT:
            return f"its remote data is kept, recoverable from {action.estimate.location}"
        case Reason.REPLACED:
            return _describe_replacement(action)
        case Reason.SOURCE_KEPT:
            return "its source still has every record"
        case Reason.UPLOADS:
            return f"about {format_bytes(action.estimate.uploads)} to upload"
        case Reason.DRIFTED:
            return "sets drift back"
        case Reason.ADOPTED_DIFFERS:
            return "found here, differs from the files"
        case Reason.FORCED:
            return "its mirrors end with it"
        case Reason.IMPLIED_BY_TIER:
            return "implied by a tier below"
        case Reason.READDRESSED:
            return "under a new address"
        case Reason.CLUSTER_REMOVED:
            return "its cluster is no longer declared"
        case Reason.PARTITIONS_INCREASE:
            return "keys change partitions"
        case Reason.REPLICAS_MOVE:
            return _describe_replica_moves(action)
        case Reason.MISSING if kind_of(action.address) == "topic":
            return "deleted from the cluster; will be created empty"
        case Reason.MISSING | Reason.ALREADY_GONE:
            return "deleted from the cluster"
        case Reason.FIRST_RULE:
            return "until now all principals are allowed; afterwards only those that a rule allows"
        case Reason.LAST_RULE:
            return "without access rules all principals are allowed"
        case Reason.LAST_ALLOWANCE:
            return "no access rule allows anything: all principals are refused"
        case Reason.RECOVERED:
            return _describe_recovery(action)
        case Reason.ONLY_A_PREFIX:
            return "only a prefix until now; destroy removes it and its access rules"
        case Reason.RECREATED:
            text = _RECREATED_TOPIC if kind_of(action.address) == "topic" else _RECREATED
            return f"{text}; the new one stays" if isinstance(action, Forget) else text
        case (
            Reason.DECLARED
            | Reason.CHANGED
            | Reason.ALREADY_EXISTS
            | Reason.MOVED
            | Reason.HOLDS_DATA
            | Reason.DESTROYED
            | Reason.FIRST_COPY
            | Reason.RECORD_ONLY
            | Reason.ROLE_WANTED
            | Reason.BY_COMMAND
        ):
            return ""
        case _:
            assert_never(reason)


_MAX_TEXTS: Final = 8
_RECREATED: Final = "deleted and created again outside the plans of this workspace"
_RECREATED_TOPIC: Final = f"mounted again, or {_RECREATED}"


def list_role_notes(verb: str, mirror: MirrorTopic, estimate: Estimate) -> Iterator[tuple[str, Tone]]:
    """List the effects of a mirror command, worst first."""
    cost = estimate.role
    if cost is None:
        return
    match verb:
        case "failover":
            yield from _list_failover_notes(cost)
        case "truncate-and-restore":
            yield from _list_restore_notes(cost)
        case "reverse-and-start" | "reverse-and-pause":
            name = f"{mirror.source} on {mirror.source_cluster}"
            yield f"producers of {name} are refused from its beginning on", Tone.CHANGE
            yield _describe_first_copy(estimate), Tone.QUIET
        case _:
            yield ", ".join(filter(None, (_describe_first_copy(estimate), format_promotion_timeout(cost)))), Tone.QUIET


def format_lag(estimate: Estimate) -> str:
    """Format a mirror's lag in offsets, and the estimated time to copy it."""
    cost = estimate.role
    if cost is None or cost.unknown is not None:
        return "lag unknown" + (f": {cost.unknown}" if cost is not None else "")
    if not cost.behind:
        return "no records behind now"
    size = [format_bytes(estimate.bytes)] if estimate.bytes else []
    return ", ".join([_format_stretches(cost.behind), *size, format_estimate(estimate.seconds)])


def _describe_first_copy(estimate: Estimate) -> str:
    is_behind = estimate.role is not None and bool(estimate.role.behind)
    return f"to be copied first: {format_lag(estimate)}" if is_behind else format_lag(estimate)


def format_promotion_timeout(cost: RoleCost | None) -> str:
    """Format a promotion's timeout without progress; empty if unlimited."""
    if cost is None or cost.timeout_ms in {None, UNLIMITED}:
        return ""
    return f"stops if the lag does not shrink for {format_duration(cost.timeout_ms)}"


def _list_failover_notes(cost: RoleCost) -> Iterator[tuple[str, Tone]]:
    if cost.unknown is not None:
        yield f"cannot tell how much is lost: {cost.unknown}", Tone.DANGER
        if cost.fetched:
            last = [
                f"{offset} of partition {part}" if offset >= 0 else f"nothing of partition {part}"
                for part, offset in cost.fetched
            ]
            yield f"last source fetch offset: {_join_first(last)}", Tone.QUIET
    elif cost.lost:
        time = "" if cost.lost_ms is None else f", {cost.lost_ms / 1000:,.1f} s"
        yield f"{_format_stretches(cost.lost)}{time} lost as of now, which only its source has", Tone.DANGER
    else:
        yield (
            "0 offsets lost as of now: it has all that its source has, but not what is written there until then",
            Tone.QUIET,
        )


def _list_restore_notes(cost: RoleCost) -> Iterator[tuple[str, Tone]]:
    if cost.unknown is not None:
        yield f"cannot tell what is cut off: {cost.unknown}", Tone.DANGER
        return
    if cost.records is not None:
        yield from _list_failback_notes(cost)
        return
    if not cost.lost:
        yield "0 offsets cut off as of now: it has nothing that its mirror has not", Tone.QUIET
        return
    yield (
        f"{_format_stretches(cost.lost, has_starts=True)} deleted permanently, which its new source does not have",
        Tone.DANGER,
    )
    yield from _list_group_notes(cost)


def _list_failback_notes(cost: RoleCost) -> Iterator[tuple[str, Tone]]:
    if not cost.records:
        yield "nothing diverged as of now: only what is new is copied back", Tone.QUIET
        return
    parts = _join_first(
        f"partition {stretch.partition} from offset {stretch.start} on" for stretch in (*cost.lost, *cost.kept)
    )
    since = "" if cost.since_ms is None else f" since {format_time(cost.since_ms)}"
    diverged = f"{pluralize(cost.records, 'record')}{since} ({parts}) never reached its mirror"
    if cost.kept_in is not None:
        yield f"{diverged}: kept in {cost.kept_in}", Tone.CHANGE
    else:
        yield f"{diverged}: lost permanently", Tone.DANGER
    afresh = pluralize(len(cost.copied_afresh), "partition")
    yield (
        (
            f"emptied and copied again, because brokers do not truncate logs: {afresh} "
            f"({_join_first(map(str, cost.copied_afresh))})"
        ),
        Tone.CHANGE,
    )
    yield from _list_group_notes(cost)


def _list_group_notes(cost: RoleCost) -> Iterator[tuple[str, Tone]]:
    if cost.groups_set_back is None:
        yield "cannot tell which groups are set back", Tone.CHANGE
    elif cost.groups_set_back:
        groups = cost.groups_set_back
        verb = "is" if len(groups) == 1 else "are"
        yield f"{pluralize(len(groups), 'group')} {verb} set back to there ({_join_first(groups)})", Tone.CHANGE


def _format_stretches(stretches: Sequence[OffsetStretch], *, has_starts: bool = False) -> str:
    parts = [
        f"{format_count(part.length)} of partition {part.partition}{f' from {part.start} on' if has_starts else ''}"
        for part in stretches
    ]
    return f"{pluralize(count_offsets(stretches), 'offset')} ({_join_first(parts)})"


def _join_first(texts: Iterable[str]) -> str:
    all_of_it = list(texts)
    more = f", and {pluralize(len(all_of_it) - _MAX_TEXTS, 'more', 'more')}" if len(all_of_it) > _MAX_TEXTS else ""
    return ", ".join(all_of_it[:_MAX_TEXTS]) + more


_MAX_GROUPS = 3


def format_mount_headline(action: Transition, mounting: Mounting) -> str:
    """Format a mount's source and name, or an unmount's destination."""
    if _is_unmount(action):
        to = action.estimate.location
        return f"unmount {mounting.topic_name}{f' to {to}' if to else ''}"
    alias = f" as {mounting.spec.as_}" if mounting.spec.as_ else ""
    return f"mount {_find_location(action, mounting)}{alias}"


def _list_engine(estimate: Estimate) -> Iterator[str]:
    if estimate.engine:
        yield estimate.engine


def _format_migration(action: RunJob) -> list[str]:
    topics = action.parameters["topics"]
    places = {str(name): str(place) for name, place in topics.items()} if isinstance(topics, Mapping) else {}
    way = "to" if _is_unmount(action) else "from"
    lines = [f"{way} {place}" if place else "" for place in places.values()]
    phase = {"prepare": "prepare only", "finish": "finish"}.get(str(action.parameters["phase"]), "")
    if len(places) == 1:
        return [" ".join(filter(None, (phase, *lines)))]
    named = [f"{name} {place}".rstrip() for name, place in zip(places, lines, strict=True)]
    return [", ".join(filter(None, (phase, f"{pluralize(len(places), 'topic')} as one migration"))), *named]


def list_mount_notes(action: Transition | RunJob) -> Iterator[str]:
    """List a migration's bytes to flush, time without writes, and readers."""
    estimate, is_copied = action.estimate, action.parameters.get("by") == BY_JOBS
    if not _is_unmount(action):
        if estimate.partitions:
            yield f"{_describe_size(estimate)} come back, {'copied and compared' if is_copied else '0 bytes copied'}"
            yield from _list_engine(estimate)
        return
    if is_copied:
        yield (
            "archived, compared, then deleted"
            if is_unmeasured(action)
            else f"{format_bytes(estimate.bytes)} to archive"
        )
        yield from _list_engine(estimate)
    elif estimate.location is None and not is_unmeasured(action):  # Redpanda reports neither
        yield "cannot tell how much is to flush"
    elif not is_unmeasured(action):
        yield f"{format_bytes(estimate.uploads)} to flush"
        if estimate.no_writes_seconds:
            yield f"{format_estimate(estimate.no_writes_seconds)} without writes"
    yield _name_readers(estimate)


def is_unmeasured(action: Action) -> bool:
    """Return whether the topic's size is unknown."""
    return Reason.UNMEASURED in action.reasons


def _name_readers(estimate: Estimate) -> str:
    groups = estimate.groups
    if groups is None:
        return "its readers are unknown"
    if not groups:
        return "no group is reading it"
    names = ", ".join(groups[:_MAX_GROUPS]) + (" …" if len(groups) > _MAX_GROUPS else "")
    return f"{pluralize(len(groups), 'group')} {'is' if len(groups) == 1 else 'are'} reading it ({names})"


def format_mounts(done: Iterable[Action], most: int) -> Iterator[Line]:
    """Format at most `most` mounted and unmounted topics."""
    moved = [action for action in done if isinstance(action, Transition) and isinstance(action.after, Mounting)]
    for action in moved[:most]:
        yield make_line(Span("✓ ", Tone.ADD), f"{action.address}: {_describe_mount(action)}")
    if len(moved) > most:
        yield make_line(Span(f"  and {len(moved) - most} more", Tone.QUIET))


def _describe_mount(action: Transition) -> str:
    mounting = action.after
    if not isinstance(mounting, Mounting):
        return action.to_state
    location = _find_location(action, mounting)
    if _is_unmount(action):  # Redpanda chooses the location only while it unmounts.
        return f"detached at {location}" if "/" in location else "detached; reconciler mount list shows its location"
    return f"mounted from {location} as {mounting.topic_name}"


def _find_location(action: Transition, mounting: Mounting) -> str:
    return (
        action.estimate.location or mounting.spec.source or str(action.parameters.get("source") or mounting.full_name)
    )


def _describe_size(estimate: Estimate) -> str:
    records = f"{format_rough_count(estimate.records)} record{'' if estimate.records == 1 else 's'}"
    return f"{pluralize(estimate.partitions, 'partition')}, {records}, {format_bytes(estimate.bytes)}"


def _is_unmount(action: Transition | RunJob) -> bool:
    return action.verb == UNMOUNT.name


_MAX_VALUES = 3


def choose_action_mark(action: Action) -> tuple[str, Tone]:
    """Choose the sign and tone of an action."""
    match action:
        case Create():
            return "+", Tone.ADD
        case Update():
            return ("±", Tone.DANGER) if action.risk is Risk.IRREVERSIBLE else ("~", Tone.CHANGE)
        case Delete():
            return "-", Tone.REMOVE
        case Adopt():
            return "=", Tone.ADD
        case Forget():
            return "≠", Tone.QUIET
        case Transition():
            return "»", Tone.MOVE
        case RunJob():
            return "▶", Tone.MOVE
        case _:
            assert_never(action)


def name_action(action: Action) -> str:
    """Return the address, with a job's name before it."""
    match action:
        case RunJob():
            return f"{action.job} {action.address}"
        case Create() | Update() | Delete() | Adopt() | Forget() | Transition():
            return action.address
        case _:
            assert_never(action)


def format_headline(action: Action) -> str:
    """Format an action's effect in one line."""
    match action:
        case Create():
            return summarize_resource(action.after)
        case Update():
            return ", ".join(format_change(change) for change in action.changes)
        case Delete():
            return "delete"
        case Adopt():
            return _describe_adoption(action)
        case Forget():
            return "forget, leave it alone"
        case Transition():
            return _describe_transition(action)
        case RunJob(job="catch-up"):
            return ", ".join(
                filter(None, ("until it has caught up with its source", format_promotion_timeout(action.estimate.role)))
            )
        case RunJob() if action.is_migration:
            return ", ".join(_format_migration(action))
        case RunJob():
            return format_amount(action.estimate)
        case _:
            assert_never(action)


def list_headlines(action: Action) -> list[str]:
    """Format an action's effect, with a line per change inside a list."""
    if isinstance(action, Create):
        return [summarize_resource(action.after), *list_details(action.after)]
    if isinstance(action, Update):
        return _format_changes(action.changes)
    if isinstance(action, Adopt) and action.changes:
        first, *more = _format_changes(action.changes)
        return [f"remembered: {first}", *more]
    if isinstance(action, Transition) and action.machine == TIERING.name:
        return [_describe_tiering_switch(action), *_format_changes(action.changes)]
    if isinstance(action, RunJob) and action.is_migration:
        return _format_migration(action)
    return [format_headline(action)]


def _format_changes(changes: Sequence[Change]) -> list[str]:
    ordered = sorted(changes, key=lambda change: is_nested(change.before, change.after))
    return [text for change in ordered for text in format_changes(change)]


def summarize_resource(resource: Resource) -> str:
    """Format a resource's main properties."""
    match resource:
        case Topic():
            return _summarize_topic(resource)
        case Namespace():
            return _summarize_namespace(resource.spec)
        case Cluster():
            root = resource.spec.root
            where = "" if root is None else f" at {root.url}"
            return _join_nonempty(
                f"{resource.spec.provider}{where}", format_configs(resource.spec.properties, PROPERTIES)
            )
        case Mounting():
            return f"{resource.spec.state} {resource.spec.source or ''}".rstrip()
        case MirrorLink():
            prefix = f", prefix {resource.spec.prefix}" if resource.spec.prefix else ""
            return f"from {resource.spec.source}{prefix}"
        case MirrorTopic():
            denied = f", acl deny {', '.join(resource.denied)}: write" if resource.denied else ""
            return _join_nonempty(
                f"mirror of {resource.source_cluster}/{resource.source}{denied}", format_configs(resource.configs)
            )
        case TieringPolicy():
            return "policy"
        case _:
            assert_never(resource)


def list_details(resource: Resource) -> list[str]:
    """List fields that `summarize_resource` omits or counts."""
    fields = list_fields(resource)
    if isinstance(resource, MirrorLink):
        usual = MirrorLinkSpec(source=resource.spec.source, prefix=resource.spec.prefix)
        defaults = list_fields(resource.model_copy(update={"spec": usual}))
        return [
            text for path, value in fields.items() if defaults.get(path) != value for text in _format_field(path, value)
        ]
    groups = ([path for path in sorted(fields) if path.startswith(group)] for group in (CONFIGS, PROPERTIES, ACLS))
    return [
        text
        for paths in groups
        if len(paths) > _MAX_VALUES
        for path in paths
        for text in _format_field(path, fields[path])
    ]


def _format_field(path: str, value: Value) -> Iterator[str]:
    name = format_field_name(path)
    if path.startswith(ACLS):
        yield f"{name}: {format_field_value(path, value)}"
    elif isinstance(value, tuple) and is_nested(value, ()):
        yield from (f"{name} {format_json(item)}" for item in value)
    else:
        yield f"{name} {format_field_value(path, value)}"


def format_note(action: Action) -> str:
    """Format an action's risk, reasons and costs."""
    says = [text for reason in action.reasons if (text := format_reason(reason, action))]
    if (isinstance(action, RunJob) and action.is_migration) or (
        isinstance(action, Transition) and isinstance(action.after, Mounting)
    ):
        says += list_mount_notes(action)
    if isinstance(action, Transition) and isinstance(action.after, MirrorTopic):
        says += [role_note for role_note, _ in list_role_notes(action.verb, action.after, action.estimate)]
    if isinstance(action, RunJob) and action.estimate.role is not None:
        says.append(format_lag(action.estimate))
    if isinstance(action, Forget) and action.estimate.location:
        return f"its records stay in object storage: {action.estimate.location}"
    if isinstance(action, Delete):
        says = [text for text in (_format_size(action.estimate), _count_readers(action.estimate)) if text] + says
        return ", ".join(says)
    risk = {
        Risk.NONE: "",
        Risk.DISRUPTIVE: "disruptive",
        Risk.IRREVERSIBLE: "irreversible",
        Risk.DATA_LOSS: "data loss",
    }[action.risk]
    return ": ".join(part for part in (risk, ", ".join(says)) if part)


def format_amount(estimate: Estimate) -> str:
    """Format a job's size: `4.1 M records, 1.2 GiB, about 2 min`."""
    parts = [f"{format_rough_count(estimate.records)} record{'' if estimate.records == 1 else 's'}"]
    if estimate.bytes:
        parts.append(format_bytes(estimate.bytes))
    return ", ".join([*parts, format_estimate(estimate.seconds), *([estimate.engine] if estimate.engine else [])])


def _summarize_topic(topic: Topic) -> str:
    parts = []
    if topic.spec.partitions is not None:
        parts.append(pluralize(topic.spec.partitions, "partition"))
    if topic.spec.replication_factor is not None:
        parts.append(f"replication {topic.spec.replication_factor}")
    if topic.spec.read_replica_of is not None:
        parts.append(f"read replica of {topic.spec.read_replica_of}")
    if topic.spec.recover_from is not None:
        parts.append(f"recovered from {topic.spec.recover_from}")
    if topic.spec.configs:
        parts.append(format_configs(topic.spec.configs))
    if topic.spec.acls:
        parts.append(format_acls(topic.spec.acls))
    if topic.spec.protect:
        parts.append("protected")
    return ", ".join(parts)


def _summarize_namespace(spec: NamespaceSpec) -> str:
    parts = [format_configs(spec.configs), format_acls(spec.acls)]
    if spec.quotas is not None:
        limits = {f"quotas.{name}": limit for name, limit in spec.quotas.model_dump().items() if limit is not None}
        parts += [f"{path} {format_field_value(path, limit)}" for path, limit in limits.items()]
    if spec.encryption is not None:
        parts.append(f"encrypted under {spec.encryption.kms_key_id}")
    return _join_nonempty(*parts)


def _join_nonempty(*parts: str) -> str:
    return ", ".join(filter(None, parts))


def format_acls(acls: Sequence[TopicAcl]) -> str:
    """Format access rules, or their number if there are many."""
    rules = to_rule_fields(acls)
    if len(rules) > _MAX_VALUES:
        return pluralize(len(rules), "access rule")
    return ", ".join(f"{format_field_name(path)}: {format_field_value(path, rules[path])}" for path in sorted(rules))


def _describe_adoption(action: Adopt) -> str:
    if action.changes:
        return f"remembered: {', '.join(format_change(change) for change in action.changes)}"
    return f"adopt, was {action.moved_from}" if action.moved_from else "adopt as it is"


def _describe_transition(action: Transition) -> str:
    if isinstance(action.after, Mounting):
        return format_mount_headline(action, action.after)
    if action.machine == TIERING.name:
        return f"{_describe_tiering_switch(action)}: {', '.join(format_change(change) for change in action.changes)}"
    if action.machine == MIRROR.name:
        entry = action.parameters.get("entry")
        return f"{action.verb}: {action.from_state} → {action.to_state}{f', for {entry}' if entry else ''}"
    parameters = "".join(
        f", {key} {format_field_value(key, action.parameters[key])}" for key in sorted(action.parameters)
    )
    return (
        f"{action.verb}: {action.from_state} → {action.to_state}{parameters}{format_inherited_configs(action.changes)}"
    )


def _describe_tiering_switch(action: Transition) -> str:
    if action.verb == "enable-tiering":
        return "tiering on again"
    is_deleted = action.parameters.get("policy") == "delete"
    return f"tiering off, remote data {'deleted' if is_deleted else 'kept'}"


def _format_size(estimate: Estimate) -> str:
    if not estimate.records:
        return format_bytes(estimate.bytes) if estimate.bytes else ""
    records = f"{format_rough_count(estimate.records)} record{'' if estimate.records == 1 else 's'}"
    return f"{records}, {format_bytes(estimate.bytes)}"


def _count_readers(estimate: Estimate) -> str:
    if estimate.groups is None:
        return "its readers are unknown"
    groups = len(estimate.groups)
    return f"{pluralize(groups, 'group')} {'is' if groups == 1 else 'are'} reading it" if groups else ""
