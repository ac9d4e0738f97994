"""Tiering states of topics (KIP-950), and cluster-wide settings.

`update_tiering` changes a topic's state in the commit that changes its configs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from reconciler.archives.location import TopicLocation, TopicTiering
from reconciler.archives.topic_manifest import TopicManifest
from reconciler.embedded.catalog.model import TieringEntry, TopicEntry
from reconciler.embedded.catalog.tables import Catalog, Draft, check_not_migrating
from reconciler.embedded.catalog.topic_configs import CONFIGS, find_explicit_configs
from reconciler.errors import UserError
from reconciler.lifecycles import TIERING, TieringState
from reconciler.resources.cluster_properties import (
    ALIASES,
    EMBEDDED_PROPERTIES,
    ENABLED,
    MEANINGLESS,
    UPLOADS,
    read_manifest_page_bytes,
    read_property,
)
from reconciler.resources.configs import DEFAULT, canonicalize_value
from reconciler.resources.mount import drop_origins
from reconciler.resources.tiering_policy import SWITCHES, read_disable_policy, read_switches, read_targets
from reconciler.runtime.text import find_similar, format_suggestion

_TRUE: Final = "true"


def find_tiering(catalog: Catalog | Draft, full_name: str, cluster_id: str) -> TopicTiering | None:
    """Return a topic's current tiering; `None` if never tiered."""
    topic = catalog.topics[full_name]
    if topic.tiering is None:
        return None
    configs, properties = find_explicit_configs(catalog, full_name), catalog.cluster.properties
    switches, state = read_switches(configs), TieringState(topic.tiering.state)
    is_on = catalog.cluster.storage_id is not None and read_property(properties, ENABLED) == _TRUE
    is_kept = state is not TieringState.ENABLED and topic.tiering.policy == "retain"
    is_uploading = is_on and read_property(properties, UPLOADS) == _TRUE and state is TieringState.ENABLED
    interval_s = read_property(properties, "cloud_storage_segment_max_upload_interval_sec")
    return TopicTiering(
        get_topic_location(full_name, topic, cluster_id),
        state,
        topic.tiering.epoch,
        topic.tiering.policy,
        uploads=is_uploading and switches.write,
        serves=is_on and (is_kept or (state is TieringState.ENABLED and switches.read)),
        targets=read_targets(configs),
        max_interval_ms=None if interval_s is None else int(interval_s) * 1000,
        spill_bytes=read_manifest_page_bytes(properties),
    )


def hides_remote_records(catalog: Catalog | Draft, full_name: str) -> bool:
    """Whether readers see only the local tier of a topic (F-R-040)."""
    topic = catalog.topics.get(full_name)
    if topic is not None and topic.replica is not None:
        return read_property(catalog.cluster.properties, ENABLED) != _TRUE
    if topic is None or topic.tiering is None:
        return False
    tiering = find_tiering(catalog, full_name, "")
    return tiering is not None and not tiering.serves


def get_topic_location(full_name: str, topic: TopicEntry, cluster_id: str) -> TopicLocation:
    """Return the location of a topic's objects in object storage."""
    name, made_by = topic.origin or (full_name, cluster_id)
    return TopicLocation(name, made_by, topic.revision)


def build_topic_manifest(catalog: Catalog, full_name: str, cluster_id: str) -> TopicManifest:
    """Return the content of a topic's `topic.json`."""
    topic = catalog.topics[full_name]
    return TopicManifest(
        get_topic_location(full_name, topic, cluster_id),
        cluster_id,
        catalog.serial,
        full_name,
        topic.partitions,
        topic.replication_factor,
        topic.configs,
        drop_origins(find_explicit_configs(catalog, full_name)),
        topic.initial,
        0 if topic.tiering is None else topic.tiering.epoch,
    )


def find_read_location(full_name: str, topic: TopicEntry, cluster_id: str) -> TopicLocation:
    """Return the location to read a topic from; for a read replica, its source's."""
    if topic.replica is not None:
        return TopicLocation.parse(topic.replica.location)
    return get_topic_location(full_name, topic, cluster_id)


def find_location_to_delete(catalog: Catalog | Draft, full_name: str, cluster_id: str) -> str | None:
    """Return the remote location to delete with a topic; `None` if its objects stay.

    Objects of an incomplete recovery are deleted. Others are deleted if `remote.delete` is true, and the topic writes
    and reads remotely or its disabling deletes remote data (F-R-008 to F-R-010).
    """
    topic = catalog.topics[full_name]
    if topic.tiering is None:
        return None
    if topic.recovering is not None:
        return str(get_topic_location(full_name, topic, cluster_id))
    configs = find_explicit_configs(catalog, full_name)
    deletes = configs["remote.delete"][0] if "remote.delete" in configs else CONFIGS["remote.delete"].default
    switches = read_switches(configs)
    is_emptied = topic.tiering.state != TieringState.ENABLED and topic.tiering.policy == "delete"
    if deletes != _TRUE or not ((switches.write and switches.read) or is_emptied):
        return None
    return str(get_topic_location(full_name, topic, cluster_id))


def update_tiering(draft: Draft, full_names: Iterable[str], *, or_else: Callable[[], object]) -> None:
    """Change topics' tiering states to match their configs; each transition increases the epoch (F-K-056).

    If one transition is refused, no state changes, and `or_else` undoes the caller's changes.
    """
    full_names = [name for name in full_names if draft.topics[name].replica is None]
    try:
        moved = {
            name: _compute_tiering(name, draft.topics[name].tiering, find_explicit_configs(draft, name))
            for name in full_names
        }
    except UserError:
        or_else()
        raise
    held = next(
        (name for name, after in moved.items() if after != draft.topics[name].tiering and draft.topics[name].hold), None
    )
    if held is not None:
        or_else()
        check_not_migrating(held, draft.topics[held], "to switch its tiering")
    for full_name, after in moved.items():
        draft.put_topic(full_name, replace(draft.topics[full_name], tiering=after))


def check_not_disabling(full_name: str, topic: TopicEntry, changes: Iterable[str]) -> None:
    """Reject changes of tiering configs during a recovery or disabling (F-K-054)."""
    state = None if topic.tiering is None else topic.tiering.state
    changed = sorted(SWITCHES.intersection(changes))
    if topic.recovering is not None and changed:
        message = f"topic {full_name}: {changed[0]} cannot change: it is being recovered from {topic.recovering}"
        raise UserError(message, hint="`run` finishes it; then try again.")
    if state == TieringState.DISABLING and changed:
        message = f"topic {full_name}: {changed[0]} cannot change: its tiering is being switched off"
        raise UserError(
            f"{message} (TIERED_STORAGE_DISABLEMENT_IN_PROGRESS)", hint="`run` finishes it; then try again."
        )


def list_disabling_topics(catalog: Catalog | Draft) -> list[str]:
    """Return topics whose tiering is being disabled, sorted."""
    states = ((name, topic.tiering) for name, topic in catalog.topics.items())
    return sorted(name for name, tiering in states if tiering is not None and tiering.state == TieringState.DISABLING)


def finish_disabling(draft: Draft, topic_id: str, epoch: int) -> None:
    """Mark the disabling begun under `epoch` as complete (F-K-062); do nothing under another epoch."""
    for full_name in list_disabling_topics(draft):
        topic = draft.topics[full_name]
        if topic.id == topic_id and topic.tiering is not None and topic.tiering.epoch == epoch:
            state = TIERING.follow_automatic_move(TieringState(topic.tiering.state), TieringState.DISABLED)
            draft.put_topic(
                full_name, replace(topic, tiering=replace(topic.tiering, state=str(state), epoch=epoch + 1))
            )


def _compute_tiering(
    full_name: str, before: TieringEntry | None, configs: Mapping[str, tuple[str, str]]
) -> TieringEntry | None:
    is_off = read_switches(configs).is_off
    if before is None:
        return None if is_off else TieringEntry(str(TIERING.initial), 1)
    state = TieringState(before.state)
    if is_off != (state is TieringState.ENABLED):
        return before
    verb = "disable-tiering" if is_off else "enable-tiering"
    try:
        after = TIERING.apply_verb(state, verb)
    except UserError as error:
        message = f"topic {full_name}: {error.message} (TIERED_STORAGE_DISABLEMENT_IN_PROGRESS)"
        raise UserError(message, hint="`run` finishes it; then try again.") from error
    policy = read_disable_policy(configs) if is_off else before.policy
    if policy not in CONFIGS["remote.log.disable.policy"].values:
        message = f"topic {full_name}: {policy!r} is not a disable policy (INVALID_REQUEST)"
        raise UserError(message, hint="It is retain or delete.")
    return TieringEntry(str(after), before.epoch + 1, policy)


def alter_cluster(draft: Draft, changes: Mapping[str, str | None]) -> None:
    """Set cluster properties; `None` or `default` resets one (F-R-014)."""
    merged: dict[str, str | None] = dict(draft.cluster.properties)
    for name, value in changes.items():
        merged[name] = None if value is None or value == DEFAULT else _check_property(name, value)
    properties = {name: value for name, value in sorted(merged.items()) if value is not None}
    for names in ALIASES:
        if len({properties[name] for name in names if name in properties}) > 1:
            message = f"{' and '.join(names)} are two names of one property, with different values"
            raise UserError(message, hint="Set one of the two.")
    draft.put_cluster(replace(draft.cluster, properties=properties))


def bind_storage(draft: Draft, storage_id: str) -> None:
    """Bind the cluster to an object storage; reject a change while topics have remote records."""
    bound = draft.cluster.storage_id
    if bound == storage_id:
        return
    tiered = list_tiered_topics(draft)
    if bound is not None and tiered:
        message = f"the cluster is bound to object storage {bound}, and {tiered[0]} has records there"
        raise UserError(message, hint="Set objectStorage back: topics do not move between buckets.")
    draft.put_cluster(replace(draft.cluster, storage_id=storage_id))


def list_tiered_topics(catalog: Catalog | Draft) -> list[str]:
    """Return the names of topics with remote objects, including deleted topics, sorted."""
    topics = catalog.topics.items()
    existing = (name for name, topic in topics if topic.tiering is not None or topic.replica is not None)
    going = (entry.name for entry in catalog.deletions.values() if entry.location is not None)
    return sorted({*existing, *going})


def _check_property(name: str, value: str) -> str:
    if name in MEANINGLESS:
        why, hint = MEANINGLESS[name]
        raise UserError(f"cluster property {name} has no meaning on an embedded cluster: {why}", hint=hint)
    if name not in EMBEDDED_PROPERTIES:
        near = find_similar(name, EMBEDDED_PROPERTIES)
        hint = format_suggestion(near, otherwise="Correct its name: properties have Redpanda's names.")
        raise UserError(f"there is no cluster property {name!r}", hint=hint)
    if not value.strip():
        message = f"cluster property {name} is empty: an empty value does not reset it"
        raise UserError(message, hint="Leave it out, or write default.")
    try:
        return canonicalize_value(name, value, EMBEDDED_PROPERTIES)
    except ValueError as error:
        raise UserError(f"cluster property {name}: {error}", hint="Leave it out, or write default.") from error
