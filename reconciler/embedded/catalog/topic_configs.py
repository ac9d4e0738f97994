"""Topic configs: keys, inheritance, synced configs, encryption keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from reconciler.embedded.catalog.model import RewriteEntry, TopicEntry
from reconciler.errors import UserError
from reconciler.resources.address import list_levels, split_name
from reconciler.resources.cluster_properties import CONFIG_DEFAULTS
from reconciler.resources.configs import DEFAULT, EMBEDDED_CONFIGS, canonicalize_value, fit_value
from reconciler.resources.mirrors import LinkEntry, MirrorEntry, SourceTopic, check_own_configs, list_synced_configs
from reconciler.resources.tiering_policy import CLUSTER, apply_layer
from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.text import find_similar, format_suggestion

if TYPE_CHECKING:
    from reconciler.embedded.catalog.tables import Catalog, Draft
    from reconciler.resources.kafka_configs import ConfigKey


CONFIGS: Final[Mapping[str, ConfigKey]] = EMBEDDED_CONFIGS


@dataclass(frozen=True, slots=True)
class EffectiveConfig:
    """A topic's config value. `origin` is `topic`, a namespace, `cluster` or `default`."""

    value: str | None
    origin: str


def compute_effective_configs(catalog: Catalog | Draft, full_name: str) -> dict[str, EffectiveConfig]:
    """Return all configs of a topic, inherited and default ones included, sorted."""
    effective = {key: EffectiveConfig(known.default, "default") for key, known in CONFIGS.items()}
    for key, (value, origin) in find_explicit_configs(catalog, full_name).items():
        effective[key] = EffectiveConfig(value, origin)
    return dict(sorted(effective.items()))


def find_explicit_configs(catalog: Catalog | Draft, full_name: str) -> dict[str, tuple[str, str]]:
    """Return configs that the topic, its namespaces or the cluster set: key → (value, origin)."""
    namespace, _ = split_name(full_name)
    topic = catalog.topics.get(full_name)
    values = {
        CONFIG_DEFAULTS[name]: (value, CLUSTER)
        for name, value in catalog.cluster.properties.items()
        if name in CONFIG_DEFAULTS
    }
    if topic is not None:
        apply_layer(values, topic.initial, CLUSTER)
    for tier in list_levels(namespace):
        entry = catalog.namespaces.get(tier)
        if entry is not None:
            apply_layer(values, entry.configs, tier)
    if topic is not None:
        apply_layer(values, topic.configs, "topic")
    return values


def validate_configs(where: str, configs: Mapping[str, str]) -> dict[str, str]:
    """Return configs in canonical form, sorted, without those whose value is `default`."""
    checked = ((key, validate_config_value(where, key, configs[key])) for key in sorted(configs))
    return {key: value for key, value in checked if value is not None}


def merge_configs(where: str, before: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """Apply changes to `before`; `None` removes a config."""
    merged: dict[str, str | None] = {**before, **changes}
    remaining = {key: value for key, value in merged.items() if value is not None}
    return validate_configs(where, remaining)


def validate_config_value(where: str, key: str, value: str) -> str | None:
    """Convert a config value to canonical form; `default` becomes `None`."""
    if key not in CONFIGS:
        hint = format_suggestion(find_similar(key, CONFIGS), otherwise="Correct its name: configs have Kafka's names.")
        raise UserError(f"{where}: there is no config {key!r}", hint=hint)
    if value == DEFAULT:
        return None
    try:
        return canonicalize_value(key, value, CONFIGS)
    except ValueError as error:
        message = f"{where}: {key}: {error}"
        raise UserError(message, hint=f"Its default is {CONFIGS[key].default!r}.") from error


_RETENTION: Final = frozenset({"retention.ms", "retention.bytes"})


def find_synced_configs(catalog: Catalog | Draft, mirror: MirrorEntry) -> tuple[str, ...]:
    """Return the configs that a mirror copies from its source; empty if its link was deleted."""
    synced = (list_synced_configs(link) for link in catalog.links.values() if link.id == mirror.link_id)
    return next(synced, ())


def syncs_start_offsets(catalog: Catalog | Draft, topic: TopicEntry) -> bool:
    """Whether a mirror copies its source's start offsets (F-C-054).

    Its link must sync both retention limits; otherwise the mirror expires records itself (F-C-055).
    """
    mirror = topic.active_mirror
    return mirror is not None and {*find_synced_configs(catalog, mirror)} >= _RETENTION


def find_configs_to_sync(
    catalog: Catalog | Draft, full_name: str, source: SourceTopic, link: LinkEntry
) -> Mapping[str, str | None]:
    """Return the config changes that make a mirror match its source; `None` removes a config.

    A source's default is set explicitly if the mirror would inherit another value (F-C-050). Values that only another
    platform knows are left out.
    """
    inherited = _list_inherited_values(catalog, full_name)
    taken: dict[str, str | None] = {}
    for key in list_synced_configs(link):
        if key in CONFIGS:
            default = CONFIGS[key].default
            pinned = default if inherited.get(key, default) != default else None
            value = source.configs.get(key, pinned)
            taken[key] = None if value is None else fit_value(CONFIGS[key], value)
    return taken


def _list_inherited_values(catalog: Catalog | Draft, full_name: str) -> dict[str, str]:
    properties = catalog.cluster.properties
    values = {CONFIG_DEFAULTS[name]: value for name, value in properties.items() if name in CONFIG_DEFAULTS}
    for tier in list_levels(split_name(full_name)[0]):
        entry = catalog.namespaces.get(tier)
        if entry is not None:
            values.update(entry.configs)
    return values


def check_not_synced(full_name: str, mirror: MirrorEntry, keys: Iterable[str], catalog: Catalog | Draft) -> None:
    """Reject configs that a mirror copies from its source."""
    check_own_configs(full_name, find_synced_configs(catalog, mirror), keys)


# A topic's KMS key is that of the innermost namespace that has one (SSE-KMS; planned by KIP-37).


def find_topic_kms_key(catalog: Catalog | Draft, full_name: str) -> str | None:
    """Return the KMS key of a topic's objects; `None` means the store's default."""
    return find_namespace_kms_key(catalog, split_name(full_name)[0])


def find_namespace_kms_key(catalog: Catalog | Draft, namespace: str) -> str | None:
    """Return the KMS key of a namespace or its nearest parent; `None` if none has one."""
    for tier in reversed(list_levels(namespace)):
        entry = catalog.namespaces.get(tier)
        if entry is not None and entry.kms_key_id is not None:
            return entry.kms_key_id
    return None


def find_topic_kms_keys(catalog: Catalog | Draft, full_names: Iterable[str]) -> dict[str, str | None]:
    """Return topics' KMS keys by topic id."""
    return {catalog.topics[name].id: find_topic_kms_key(catalog, name) for name in full_names}


def mark_key_rewrites(draft: Draft, full_names: Iterable[str], before: Mapping[str, str | None]) -> None:
    """Mark topics for a rewrite whose KMS key differs from `before`."""
    for name in full_names:
        topic_id = draft.topics[name].id
        if find_topic_kms_key(draft, name) != before[topic_id]:
            draft.put_rewrite(topic_id, RewriteEntry(name))
