"""What each action is called on paper. Every reader is complete: a new action is an error here until it has words."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from reconciler.cli.render.amounts import about, bytes_text, counted, rough_count
from reconciler.cli.render.leaves import is_nested
from reconciler.cli.render.lines import Tone
from reconciler.cli.render.mounting_moves import mount_headline, mount_notes
from reconciler.cli.render.reasons import reason_text
from reconciler.cli.render.role_costs import lag_text, patience_text, role_notes
from reconciler.cli.render.values import change_text, change_texts, configs_text, field_name, value_text
from reconciler.lifecycles.mirror import MIRROR
from reconciler.lifecycles.tiering import TIERING
from reconciler.planning.actions import Action, Adopt, Create, Delete, Forget, Risk, RunJob, Transition, Update
from reconciler.planning.estimates import Estimate
from reconciler.resources.aclpaths import rule_fields
from reconciler.resources.cluster import Cluster
from reconciler.resources.kinds import Resource
from reconciler.resources.mirrorlink import MirrorLink
from reconciler.resources.mirrortopic import MirrorTopic
from reconciler.resources.mounting import Mounting
from reconciler.resources.namespace import Namespace, NamespaceSpec
from reconciler.resources.tieringpolicy import TieringPolicy
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.planning.actions import Change
    from reconciler.resources.acls import TopicAcl

_FEW = 3


def mark(action: Action) -> tuple[str, Tone]:
    """Return the sign before an action, and its tone."""
    match action:
        case Create():
            return "+", Tone.ADD
        case Update():
            return ("±", Tone.DANGER) if action.risk is Risk.IRREVERSIBLE else ("~", Tone.CHANGE)
        case Delete():
            return "✗", Tone.REMOVE
        case Adopt():
            return "=", Tone.ADD
        case Forget():
            return "-", Tone.QUIET
        case Transition():
            return "»", Tone.MOVE
        case RunJob():
            return "▶", Tone.MOVE
        case _:
            assert_never(action)


def title(action: Action) -> str:
    """Return the name of an action's line: its address, for a job also which job."""
    match action:
        case RunJob():
            return f"{action.job} {action.address}"
        case Create() | Update() | Delete() | Adopt() | Forget() | Transition():
            return action.address
        case _:
            assert_never(action)


def headline(action: Action) -> str:
    """Return what an action does, in a few words."""
    match action:
        case Create():
            return summary(action.after)
        case Update():
            return ", ".join(change_text(change) for change in action.changes)
        case Delete():
            return "delete"
        case Adopt():
            return _adoption(action)
        case Forget():
            return "forget, leave it alone"
        case Transition():
            return _move(action)
        case RunJob(job="catch-up"):
            return ", ".join(
                filter(None, ("until nothing lags behind its source", patience_text(action.estimate.role)))
            )
        case RunJob():
            return amount(action.estimate)
        case _:
            assert_never(action)


def headlines(action: Action) -> list[str]:
    """Return what an action does for people, with a line for each value that moves inside a list."""
    if isinstance(action, Update):
        return _moves(action.changes)
    if isinstance(action, Adopt) and action.changes:
        first, *more = _moves(action.changes)
        return [f"remembered: {first}", *more]
    return [headline(action)]


def _moves(changes: Sequence[Change]) -> list[str]:
    nested = [change for change in changes if is_nested(change.before, change.after)]
    others = ", ".join(change_text(change) for change in changes if change not in nested)
    return [*([others] if others or not nested else []), *(text for change in nested for text in change_texts(change))]


def summary(resource: Resource) -> str:
    """Return what is particular about a resource."""
    match resource:
        case Topic():
            return _topic(resource)
        case Namespace():
            return _namespace(resource.spec)
        case Cluster():
            root = f" at {resource.spec.embedded.root.url}" if resource.spec.embedded else ""
            return f"{resource.spec.provider}{root}"
        case Mounting():
            return f"{resource.spec.state} {resource.spec.source or ''}".rstrip()
        case MirrorLink():
            # Its mirrors have lines of their own.
            prefix = f", prefix {resource.spec.prefix}" if resource.spec.prefix else ""
            return f"from {resource.spec.source}{prefix}"
        case MirrorTopic():
            return f"mirror of {resource.source_cluster}/{resource.source}"
        case TieringPolicy():
            return "policy"
        case _:
            assert_never(resource)


def note(action: Action) -> str:
    """Return what an action costs, or why it is planned where that is not plain from the line."""
    says = [text for reason in action.reasons if (text := reason_text(reason, action))]
    if isinstance(action, Transition) and isinstance(action.after, Mounting):
        says += mount_notes(action)
    if isinstance(action, Transition) and isinstance(action.after, MirrorTopic):
        says += [said for said, _ in role_notes(action.verb, action.after, action.estimate)]
    if isinstance(action, RunJob) and action.estimate.role is not None:
        says.append(lag_text(action.estimate))
    if isinstance(action, Forget) and action.estimate.location:
        return f"its records stay in object storage: {action.estimate.location}"
    if isinstance(action, Delete):
        says = [text for text in (_size(action.estimate), _readers(action.estimate)) if text] + says
        return ", ".join(says)
    risk = {
        Risk.NONE: "",
        Risk.DISRUPTIVE: "disruptive",
        Risk.IRREVERSIBLE: "irreversible",
        Risk.DATA_LOSS: "data loss",
    }[action.risk]
    return ": ".join(part for part in (risk, ", ".join(says)) if part)


def amount(estimate: Estimate) -> str:
    """Return what a job moves: `4.1 M records, 1.2 GiB, about 2 min`."""
    parts = [f"{rough_count(estimate.records)} record{'' if estimate.records == 1 else 's'}"]
    if estimate.bytes:
        parts.append(bytes_text(estimate.bytes))
    return ", ".join([*parts, about(estimate.seconds)])


def _topic(topic: Topic) -> str:
    parts = []
    if topic.spec.partitions is not None:
        parts.append(counted(topic.spec.partitions, "partition"))
    if topic.spec.replication_factor is not None:
        parts.append(f"replication {topic.spec.replication_factor}")
    if topic.spec.recover_from is not None:
        parts.append(f"recovered from {topic.spec.recover_from}")
    if topic.spec.configs:
        parts.append(configs_text(topic.spec.configs))
    if topic.spec.acls:
        parts.append(acls_text(topic.spec.acls))
    return ", ".join(parts)


def _namespace(spec: NamespaceSpec) -> str:
    parts = [configs_text(spec.configs), acls_text(spec.acls)]
    if spec.quotas is not None:
        limits = {f"quotas.{name}": limit for name, limit in spec.quotas.model_dump().items() if limit is not None}
        parts += [f"{path} {value_text(path, limit)}" for path, limit in limits.items()]
    if spec.encryption is not None:
        parts.append(f"encrypted under {spec.encryption.kms_key_id}")
    return ", ".join(part for part in parts if part)


def acls_text(acls: Sequence[TopicAcl]) -> str:
    """Return access rules where they are few, else their number."""
    rules = rule_fields(acls)
    if len(rules) > _FEW:
        return counted(len(rules), "access rule")
    return ", ".join(f"{field_name(path)}: {value_text(path, rules[path])}" for path in sorted(rules))


def _adoption(action: Adopt) -> str:
    if action.changes:
        return f"remembered: {', '.join(change_text(change) for change in action.changes)}"
    return f"adopt, was {action.moved_from}" if action.moved_from else "adopt as it is"


def _move(action: Transition) -> str:
    if isinstance(action.after, Mounting):
        return mount_headline(action, action.after)
    if action.machine == TIERING.name:
        return f"{_switched(action)}: {', '.join(change_text(change) for change in action.changes)}"
    if action.machine == MIRROR.name:
        entry = action.parameters.get("entry")
        return f"{action.verb}: {action.from_state} → {action.to_state}{f', for {entry}' if entry else ''}"
    parameters = "".join(f", {key} {value_text(key, action.parameters[key])}" for key in sorted(action.parameters))
    return f"{action.verb}: {action.from_state} → {action.to_state}{parameters}"


def _switched(action: Transition) -> str:
    """Return what becomes of the tiering of a topic, and of its data in object storage."""
    if action.verb == "enable-tiering":
        return "tiering on again"
    is_deleted = action.parameters.get("policy") == "delete"
    return f"tiering off, remote data {'deleted' if is_deleted else 'kept'}"


def _size(estimate: Estimate) -> str:
    return bytes_text(estimate.bytes) if estimate.bytes else ""


def _readers(estimate: Estimate) -> str:
    if estimate.groups is None:
        return "who is reading it cannot be told"
    groups = len(estimate.groups)
    return f"{counted(groups, 'group')} {'is' if groups == 1 else 'are'} reading it" if groups else ""
