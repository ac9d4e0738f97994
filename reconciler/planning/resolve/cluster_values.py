"""Desired values of clusters, and clusters that a plan does not need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from reconciler.planning.fields import PROPERTIES
from reconciler.planning.plan import PlanFinding
from reconciler.planning.resolve.mirror_sources import find_held_role
from reconciler.planning.situation import Review, WantedResource
from reconciler.resources.address import cluster_address
from reconciler.resources.cluster import TIERING_PROPERTIES, Cluster
from reconciler.resources.cluster_properties import ENABLED
from reconciler.resources.configs import DEFAULT, canonicalize_value, explain_refused_value
from reconciler.resources.mirror_link import MirrorLink
from reconciler.runtime.dataclass import dataclass, field

if TYPE_CHECKING:
    from reconciler.resources.inventory import Desired, Inventory, Observed, Record
    from reconciler.resources.kafka_configs import ConfigKey


_INTERVAL: Final = "upload.maxInterval"
_SECOND_MS: Final = 1000


Problem: TypeAlias = tuple[str, str, tuple[tuple[str, ...], ...]]
"""Message, hint, and paths of the fields."""


@dataclass(slots=True)
class _CompiledProperties:
    properties: dict[str, str] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def compile_cluster(
    cluster: Cluster, source: str, catalog: Mapping[str, ConfigKey]
) -> tuple[WantedResource, list[PlanFinding]]:
    """Return a cluster with `tiering` as properties, and findings about invalid values.

    Declared object storage enables tiered storage unless `properties` disable it.
    """
    made = _compile_properties(cluster, catalog)
    findings = [
        PlanFinding(cluster.address, source, message, hint, tuple((cluster.address, path) for path in fields))
        for message, hint, fields in made.problems
    ]
    changed = cluster.spec.model_copy(update={"properties": made.properties, "tiering": None})
    return WantedResource(cluster.model_copy(update={"spec": changed}), source, made.origins), findings


def _compile_properties(cluster: Cluster, catalog: Mapping[str, ConfigKey]) -> _CompiledProperties:
    made = _CompiledProperties()
    written = dict(cluster.spec.properties)
    for place, name, value in _compile_tiering(cluster):
        if name in written:
            made.problems.append(
                (
                    f"{name} is set twice in one document: in properties, and by {place}",
                    "Keep one of the two.",
                    (("spec", "properties", name), ("spec", *place.split("."))),
                )
            )
        else:
            written[name] = value
            made.origins[PROPERTIES + name] = place
    if cluster.spec.object_storage is not None and ENABLED in catalog and ENABLED not in written:
        written[ENABLED] = "true"
        made.origins[PROPERTIES + ENABLED] = "objectStorage"
    for name, value in sorted(written.items()):
        _set_property(name, value, catalog, made)
    return made


def _set_property(name: str, value: str, catalog: Mapping[str, ConfigKey], made: _CompiledProperties) -> None:
    if value == DEFAULT:
        made.origins[PROPERTIES + name] = DEFAULT
        return
    if not value.strip():
        message = f"properties.{name} is empty: an empty value does not reset it"
        made.problems.append((message, "Leave it out, or write default.", (("spec", "properties", name),)))
        return
    try:
        made.properties[name] = canonicalize_value(name, value, catalog)
    except ValueError as error:
        place = made.origins.get(PROPERTIES + name)
        where = f"{place} ({name})" if place else f"properties.{name}"
        at = ("spec", *place.split(".")) if place else ("spec", "properties", name)
        made.problems.append((f"{where}: {explain_refused_value(value, error)}", "Correct it, or remove it.", (at,)))


def _compile_tiering(cluster: Cluster) -> Iterator[tuple[str, str, str]]:
    if cluster.spec.tiering is None:
        return
    tiering = cluster.spec.tiering.to_json()
    for place, name in TIERING_PROPERTIES.items():
        block, _, last = place.partition(".")
        value = (tiering.get(block) or {}).get(last)
        if value is not None:
            yield f"tiering.{place}", name, _format_property(value, _SECOND_MS if place == _INTERVAL else 1)


def _format_property(value: object, unit: int) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value // unit if value % unit == 0 else value / unit)
        case _:
            return str(value)


def is_one_storage(one: Cluster, seen_one: Observed | None, other: Cluster, seen_other: Observed | None) -> bool:
    """Return whether storages are equal, by id, or by URL and endpoint if an id is unknown."""
    storage, other_storage = one.spec.object_storage, other.spec.object_storage
    if storage is None or other_storage is None:
        return False
    ids = tuple(
        seen.cluster.storage.declared if seen and seen.cluster.storage else None for seen in (seen_one, seen_other)
    )
    if None not in ids:
        return ids[0] == ids[1]
    return (storage.url.rstrip("/"), storage.endpoint) == (other_storage.url.rstrip("/"), other_storage.endpoint)


def find_abandoned_sources(desired: Desired, recorded: Record, observed: Inventory) -> frozenset[str]:
    """Return the source clusters of failed-over mirrors, which the plan need not read."""
    links = (declared.resource for declared in desired.values() if isinstance(declared.resource, MirrorLink))
    return frozenset(
        mirror.source_cluster
        for link in links
        for mirror in link.mirrors()
        if (find_held_role(mirror, recorded.get(mirror.address), observed) or mirror.state) == "failed-over"
    )


def warnings_of_lost(review: Review) -> Iterator[PlanFinding]:
    """Warn about unreadable clusters."""
    situation = review.situation
    for cluster, why in sorted(situation.request.lost.items()):
        wanted = situation.wanted.get(cluster_address(cluster))
        cause = why.removeprefix(f"cluster {cluster}: ")
        yield PlanFinding(
            cluster_address(cluster),
            wanted.source if wanted is not None else None,
            f"cluster {cluster} cannot be read, and nothing on it is planned: {cause}",
            "Plan again once it answers."
            if cluster in situation.request.selection.left_out
            else "What fails over from it needs nothing of it. Plan again once it answers.",
        )
