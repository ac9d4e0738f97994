"""Turn a command's orders about mounts into actions, joined into migrations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from reconciler.lifecycles import BY_JOBS, MOUNT, UNMOUNT
from reconciler.planning.actions import Estimate, Reason, Risk, RunJob
from reconciler.planning.diff.mount_changes import describe_expiring_records
from reconciler.planning.situation import as_mirror
from reconciler.resources.address import Address, cluster_of, full_name_of
from reconciler.resources.mount import Mounting
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from reconciler.planning.actions import Action
    from reconciler.planning.diff.converge import Decision
    from reconciler.planning.orders import MountOrder
    from reconciler.planning.situation import Situation


def migrate_topic(order: MountOrder, situation: Situation, decision: Decision) -> None:
    """Add a mount or unmount that does not change the record."""
    refusal = None if order.phase == "finish" else _refuse_migration(order, situation)
    if refusal is not None:
        decision.refuse(order.topic, None, *refusal)
        return
    is_unmount = order.direction == "outbound"
    by_jobs = situation.find_capabilities(cluster_of(order.topic) or "").mountings_by_jobs
    decision.actions.append(
        RunJob(
            address=order.topic,
            job=UNMOUNT.name if is_unmount else MOUNT.name,
            source=order.topic,
            sink=order.topic,
            parameters={
                "topics": {full_name_of(order.topic): order.source.location},
                "phase": order.phase,
                **({"by": BY_JOBS} if by_jobs else {}),
            },
            risk=Risk.DISRUPTIVE if is_unmount and order.phase != "prepare" else Risk.NONE,
            reasons=(Reason.BY_COMMAND,),
            estimate=_sum_estimates(order, situation),
        )
    )
    _warn_of_effects(order, situation, decision)


def join_migrations(actions: Iterable[Action]) -> tuple[Action, ...]:
    """Join a cluster's mounts or unmounts into one migration."""
    migrations: dict[tuple[str | None, str], RunJob] = {}
    others: list[Action] = []
    for action in actions:
        if isinstance(action, RunJob) and _is_joinable_migration(action):
            key = (action.cluster, action.job)
            migrations[key] = _join_two_migrations(migrations[key], action) if key in migrations else action
        else:
            others.append(action)
    return (*others, *migrations.values())


def _is_joinable_migration(action: RunJob) -> bool:
    return action.is_migration and action.blocked is None and action.parameters.get("by") != BY_JOBS


def _join_two_migrations(first: RunJob, other: RunJob) -> RunJob:
    topics = {**_list_topics(first), **_list_topics(other)}
    one, two = first.estimate, other.estimate
    unknown = one.groups is None or two.groups is None
    return replace(
        first,
        parameters={**first.parameters, "topics": topics},
        reasons=tuple(dict.fromkeys((*first.reasons, *other.reasons))),
        estimate=Estimate(
            bytes=one.bytes + two.bytes,
            records=one.records + two.records,
            seconds=one.seconds + two.seconds,
            groups=None if unknown else tuple(sorted({*(one.groups or ()), *(two.groups or ())})),
            uploads=one.uploads + two.uploads,
            partitions=one.partitions + two.partitions,
            no_writes_seconds=one.no_writes_seconds + two.no_writes_seconds,
        ),
    )


def _list_topics(action: RunJob) -> Mapping[str, object]:
    topics = action.parameters["topics"]
    return topics if isinstance(topics, Mapping) else {}


def _refuse_migration(order: MountOrder, situation: Situation) -> tuple[str, str] | None:
    topic, mirror = order.topic, as_mirror(order.topic)
    seen = situation.observed.get(topic)
    if order.direction == "inbound":
        if seen is None and mirror not in situation.observed:
            return None
        hint = "Choose another name with --to, or delete the existing topic first."
        return f"{topic} exists: The topic has already been created", hint
    if mirror in situation.observed:
        ending = situation.name_ending(mirror).capitalize()
        hint = f"{ending} or delete the mirror first; its source can be unmounted where it is."
        return f"{mirror} is a mirror: its records belong to its source", hint
    if seen is None or seen.is_internal:
        return f"{topic} does not exist (Topic does not exists)", "See: reconciler topic list"
    mirrors = situation.mirrors_by_source.get(topic, ())
    if mirrors:
        return (
            f"{topic}: {mirrors[0]} mirrors it, and would have no source",
            f"{situation.name_ending(mirrors[0]).capitalize()} {mirrors[0]} first.",
        )
    return None


def _sum_estimates(order: MountOrder, situation: Situation) -> Estimate:
    seen, stored = situation.observed.get(order.topic), order.source.recoverable
    if stored is not None:
        return Estimate(stored.bytes, stored.records, location=order.source.location, partitions=stored.partitions)
    partitions = seen.resource.spec.partitions if seen is not None and isinstance(seen.resource, Topic) else 0
    return Estimate(location=order.source.location or None, partitions=partitions or 0)


def _warn_of_effects(order: MountOrder, situation: Situation, decision: Decision) -> None:
    stored = order.source.recoverable
    if stored is not None and order.phase != "finish":
        configs = {key: (value, "") for key, value in stored.configs.items()}
        message = describe_expiring_records(configs, stored, situation.request.now_ms)
        if message is not None:
            hint = (
                "If it is to stay, apply a longer retention.ms of the topic before that; a Mounting and a Topic in the "
                "files do both in one apply."
            )
            decision.warn(order.topic, None, message, hint)
    is_unmount = order.direction == "outbound"
    last = situation.recorded.get(Address("mounting/" + order.topic.partition("/")[2]))
    declared = last.resource if last is not None else None
    if isinstance(declared, Mounting):
        is_other, owned = (declared.spec.state == "mounted") is is_unmount, declared.address
    else:
        is_other, owned = is_unmount and order.topic in situation.recorded, order.topic
    if is_other:
        what = "it" if owned == order.topic else owned
        message = (
            f"{what} is managed by this workspace: plans warn about the difference from the files and do not revert it"
        )
        decision.warn(order.topic, None, message, f"To write it into the files: reconciler drift --accept {owned}")
