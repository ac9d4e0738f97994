"""Links and mirrors in the catalog."""

from __future__ import annotations

from collections.abc import Mapping

from reconciler.embedded.catalog.mirror_moves import convert_stopped_mirrors, find_mirror_link
from reconciler.embedded.catalog.model import Json, TopicEntry
from reconciler.embedded.catalog.tables import (
    Catalog,
    Draft,
    TopicCounts,
    check_name_free,
    check_name_unreserved,
    check_quotas,
    get_link,
    get_topic,
)
from reconciler.embedded.catalog.tiering_state import update_tiering
from reconciler.embedded.catalog.topic_configs import (
    check_not_synced,
    find_configs_to_sync,
    find_explicit_configs,
    merge_configs,
    validate_configs,
)
from reconciler.embedded.catalog.topics import check_partition_growth, list_initial_configs
from reconciler.errors import UserError
from reconciler.resources.mirrors import (
    LinkEntry,
    MirrorEntry,
    SourceTopic,
    alter_link_entry,
    check_mirror_name,
    check_same_source,
    check_unused,
    create_link_entry,
)
from reconciler.runtime.dataclass import dataclass, field, replace


def create_link(draft: Draft, name: str, entry: LinkEntry) -> None:
    """Create a link; an equal one may exist."""
    existing = draft.links.get(name)
    after = create_link_entry(name, existing, entry)
    if after is not existing:
        draft.put_link(name, after)


def alter_link(draft: Draft, name: str, declared: Json) -> None:
    """Replace a link's declaration."""
    draft.put_link(name, alter_link_entry(name, get_link(draft, name), declared))


def delete_link(draft: Draft, name: str) -> bool:
    """Delete a link, and turn its stopped mirrors into ordinary topics; return whether it existed.

    Raises:
        BlockedError: A mirror that is not stopped uses it.
    """
    entry = draft.links.get(name)
    if entry is None:
        return False
    check_unused(name, list_link_mirrors(draft, entry).items())
    convert_stopped_mirrors(draft, entry)
    draft.put_link(name, None)
    return True


def list_link_mirrors(catalog: Catalog | Draft, link: LinkEntry) -> dict[str, MirrorEntry]:
    """Return a link's active mirrors by full name, sorted."""
    return {
        name: topic.mirror
        for name, topic in sorted(catalog.topics.items())
        if topic.mirror is not None and topic.mirror.link_id == link.id
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorShape:
    """Declaration of a mirror; `source` is its source topic's full name."""

    link: str
    source: str
    configs: Mapping[str, str] = field(default_factory=dict)
    is_automatic: bool = False


def create_mirror(
    draft: Draft, full_name: str, shape: MirrorShape, of: SourceTopic, *, topic_id: str, now_ms: int = 0
) -> None:
    """Create a mirror with its source's partitions and synced configs."""
    link = get_link(draft, shape.link)
    check_mirror_name(full_name, shape.source, (shape.link, link))
    check_name_free(draft, full_name)
    check_name_unreserved(draft, full_name)
    check_quotas(draft.namespaces, draft.count_below, full_name, TopicCounts(1, of.partitions))
    mirror = MirrorEntry(link.id, shape.source, of.incarnation, since_ms=now_ms, is_automatic=shape.is_automatic)
    check_not_synced(full_name, mirror, shape.configs, draft)
    taken = {key: value for key, value in find_configs_to_sync(draft, full_name, of, link).items() if value is not None}
    entry = TopicEntry(
        topic_id,
        of.partitions,
        draft.assign_revision(),
        configs=validate_configs(f"mirror {full_name}", {**shape.configs, **taken}),
        mirror=mirror,
        initial=list_initial_configs(draft),
    )
    draft.put_topic(full_name, entry)
    update_tiering(draft, [full_name], or_else=lambda: draft.put_topic(full_name, None))


def update_mirror(draft: Draft, full_name: str, source: SourceTopic) -> None:
    """Copy partitions and synced configs from a mirror's source.

    Raises:
        SourceChangedError: The source was deleted and created again.
    """
    entry = get_topic(draft, full_name)
    mirror = entry.active_mirror
    if mirror is None:
        raise UserError(f"topic {full_name} is not a mirror", hint="Only mirrors follow a source.")
    check_same_source(full_name, mirror, source)
    named_link = find_mirror_link(draft, mirror)
    changes = {} if named_link is None else find_configs_to_sync(draft, full_name, source, named_link[1])
    news = {key: value for key, value in changes.items() if entry.configs.get(key) != value}
    source_topic_id = source.incarnation or mirror.source_topic_id
    if not news and (entry.partitions, mirror.source_topic_id) == (source.partitions, source_topic_id):
        return
    check_partition_growth(full_name, entry.partitions, source.partitions)
    check_quotas(draft.namespaces, draft.count_below, full_name, TopicCounts(0, source.partitions - entry.partitions))
    configs = merge_configs(f"mirror {full_name}", entry.configs, news) if news else entry.configs
    after = replace(mirror, source_topic_id=source_topic_id)
    draft.put_topic(full_name, replace(entry, partitions=source.partitions, configs=configs, mirror=after))


def describe_source_topic(catalog: Catalog, full_name: str) -> SourceTopic:
    """Return the topic properties that mirrors copy."""
    topic = get_topic(catalog, full_name)
    configs = {key: value for key, (value, _) in find_explicit_configs(catalog, full_name).items()}
    return SourceTopic(partitions=topic.partitions, incarnation=topic.id, configs=configs)


def mark_first_copy_complete(draft: Draft, topic_id: str) -> None:
    """Record that a mirror reached the end that its source had when the mirror was created."""
    for name, entry in draft.topics.items():
        if entry.id == topic_id and entry.mirror is not None:
            draft.put_topic(name, replace(entry, mirror=replace(entry.mirror, first_copy_done=True)))
            return
