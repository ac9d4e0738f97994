"""Topics that were found as topics of ours: named, their configs in canonical form, or a word on why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from reconciler.manifests.importing.found import Lost
from reconciler.manifests.problems import path_text
from reconciler.manifests.sentences import complaints_of
from reconciler.manifests.suggestions import did_you_mean, one_of
from reconciler.resources.configs import canonical_value, refused_value
from reconciler.resources.kafkaconfigs import KAFKA_CONFIGS, PASSING
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from reconciler.manifests.importing.found import FoundTopic, Place
    from reconciler.manifests.importing.targets import Target

_INTERNAL: Final = frozenset(
    {
        "__cluster_metadata",
        "__consumer_offsets",
        "__reconciler",
        "__remote_log_metadata",
        "__share_group_state",
        "__transaction_state",
    }
)
_GONE: Final = {
    "message.format.version": "Kafka 4.0 has it no more: brokers know one format of records",
    "message.downconversion.enable": "Kafka 4.0 has it no more: brokers convert for nobody",
}


def named_topics(found: Iterable[FoundTopic], lost: list[Lost]) -> dict[str, FoundTopic]:
    """Return topics by their names; of several of one name the first is taken, the others are told."""
    topics: dict[str, FoundTopic] = {}
    for topic in found:
        first = topics.setdefault(topic.name, topic)
        if first is not topic:
            why = f"a topic of this name is declared already, at {first.place}; this one is left out"
            hint = "" if _is_same(first, topic) else "They say different things: keep the one that is right."
            lost.append(Lost(topic.place, _subject(topic), "", why, hint))
    return topics


def composed_topic(found: FoundTopic, target: Target, acls: list[dict[str, Any]], lost: list[Lost]) -> Topic | None:
    """Return a topic by its flat name, or `None` where it cannot be declared; `lost` is told what and why."""
    if why := _why_not(found):
        lost.append(Lost(found.place, _subject(found), "", *why))
        return None
    several = found.replication_factor if found.replication_factor and found.replication_factor > 0 else None
    content = {
        "metadata": {"name": found.name, "cluster": target.name, "labels": dict(found.labels)},
        "spec": {
            "partitions": found.partitions,
            "replicationFactor": several,
            "configs": dict(_configs(found, target, lost)),
            "acls": acls,
        },
    }
    try:
        return Topic.model_validate(content)
    except ValidationError as error:
        lost += [
            Lost(found.place, _subject(found), path_text(each.at), each.message, each.hint)
            for each in complaints_of(error, Topic, content)
        ]
        return None


def _why_not(found: FoundTopic) -> tuple[str, str] | None:
    if not found.name:
        return "it has no name", ""
    if found.name in _INTERNAL:
        return "it is Kafka's own, and never managed", ""
    if found.partitions is not None and found.partitions < 1:
        why = f"{found.partitions} is no number of partitions, so it is left out: the broker's default would decide"
        return why, "Say how many it has and import again, or export the cluster itself."
    if found.partitions is None:
        why = "how many partitions it has is not said, so it is left out: the broker's default would decide"
        return why, "Say it there and import again, or export the cluster itself."
    return None


def _configs(found: FoundTopic, target: Target, lost: list[Lost]) -> Iterator[tuple[str, str]]:
    catalog = target.catalog
    for key, said in sorted(found.configs.items()):
        if said.value is None:
            continue
        if key in PASSING:
            why = "throttles a reassignment while it lasts, and is nothing to declare"
            lost.append(Lost(said.place, _subject(found), key, why, is_left_out=False))
            continue
        if catalog is not None and key not in catalog:
            lost.append(_unknown(key, found, said.place, target))
            continue
        try:
            yield key, canonical_value(key, _plain(said.value), catalog or KAFKA_CONFIGS)
        except ValueError as error:
            why = refused_value(str(said.value), error)
            lost.append(Lost(said.place, _subject(found), key, why, "Correct it there, or write it into the manifest."))


def _unknown(key: str, found: FoundTopic, place: Place, target: Target) -> Lost:
    catalog = target.catalog or {}
    why = _GONE.get(key, f"{target.provider} has no such config of topics")
    hint = "" if key in _GONE else did_you_mean(key, catalog, otherwise=f"Known are, for example: {one_of(catalog)}")
    return Lost(place, _subject(found), key, why, hint, is_left_out=key not in _GONE)


def _plain(value: Any) -> Any:
    """Return a whole number as one: others' files say 6.048e+08."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _subject(found: FoundTopic) -> str:
    return f"topic {found.name}".strip()


def _is_same(one: FoundTopic, other: FoundTopic) -> bool:
    def plain(topic: FoundTopic) -> tuple[Any, ...]:
        configs = {key: str(said.value) for key, said in topic.configs.items()}
        return topic.partitions, topic.replication_factor, configs, dict(topic.labels)

    return plain(one) == plain(other)
