"""Config keys of resources: known to their cluster's platform, and said in one form, by policy or by key."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from reconciler.manifests.suggestions import did_you_mean, one_of
from reconciler.resources.address import Address, cluster_address, cluster_of
from reconciler.resources.base import Complaint
from reconciler.resources.cluster import Cluster
from reconciler.resources.configs import EMBEDDED_CONFIGS, KAFKA_CONFIGS, ConfigKey
from reconciler.resources.mirrorlink import MirrorLink
from reconciler.resources.tieringconfigs import POLICY_KEYS
from reconciler.resources.tieringpolicy import TieringPolicy, TieringPolicySpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from reconciler.manifests.findings import Findings
    from reconciler.manifests.gathering import Gathering
    from reconciler.manifests.positions import Path
    from reconciler.resources.namespace import Namespace
    from reconciler.resources.topic import Topic

CATALOGS: Final[Mapping[str, Mapping[str, ConfigKey]]] = MappingProxyType(
    {"embedded": EMBEDDED_CONFIGS, "kafka": KAFKA_CONFIGS}
)
"""Provider → its config keys. Other platforms have keys of their own, judged at plan."""


def check_configs(resource: Topic | Namespace | MirrorLink, gathering: Gathering, findings: Findings) -> None:
    """Complain about keys the platform does not know, and about keys its tiering policy says as well."""
    catalog = _catalog_of(resource.cluster, gathering)
    for path, configs in _configs(resource):
        if catalog is not None and not configs.keys() <= catalog.keys():
            places = gathering.places[resource.address]
            findings.complain_all(places, (_unknown(key, path, catalog) for key in configs if key not in catalog))
    match resource:
        case MirrorLink():
            pass
        case _ if resource.spec.configs:
            _check_words(resource, gathering, findings)
            if resource.spec.tiering_policy is not None:
                _check_forms(resource, resource.spec.tiering_policy, gathering, findings)
        case _:
            pass


def check_unread(gathering: Gathering, findings: Findings) -> None:
    """Complain about unknown keys of documents that are wrong elsewhere too, so that one run says everything."""
    for address, (places, keys) in gathering.unread.items():
        catalog = _catalog_of(cluster_of(address) or "", gathering)
        if catalog is not None:
            path = ("spec", "configs")
            findings.complain_all(places, (_unknown(key, path, catalog) for key in keys if key not in catalog))


def _catalog_of(cluster: str, gathering: Gathering) -> Mapping[str, ConfigKey] | None:
    declared = gathering.desired.get(cluster_address(cluster))
    if declared is None or not isinstance(declared.resource, Cluster):
        return None
    return CATALOGS.get(declared.resource.spec.provider)


def _configs(resource: Topic | Namespace | MirrorLink) -> Iterator[tuple[Path, Mapping[str, str]]]:
    match resource:
        case MirrorLink():
            for position, mirror in enumerate(resource.spec.mirror_topics):
                yield ("spec", "mirrorTopics", position, "configs"), mirror.configs
        case _:
            yield ("spec", "configs"), resource.spec.configs


def _unknown(key: str, path: Path, catalog: Mapping[str, ConfigKey]) -> Complaint:
    hint = did_you_mean(key, catalog, otherwise=f"Known are, for example: {one_of(catalog)}")
    return Complaint("this platform has no such config", hint, (*path, key))


def _check_words(resource: Topic | Namespace, gathering: Gathering, findings: Findings) -> None:
    """Complain where both platforms' words say one thing: nobody could tell which of them was meant."""
    configs = resource.spec.configs
    told: set[str] = set()
    for ours, *theirs in POLICY_KEYS.values():
        for word in theirs if ours in configs else ():
            if word in configs and word not in told:
                told.add(word)
                places = gathering.places[resource.address]
                line = findings.spot(places, ("spec", "configs", ours))[1].line
                message = f"says what {ours} on line {line} says"
                hint = "Keep one of the two: they are words of two platforms for the same"
                findings.complain(places, Complaint(message, hint, ("spec", "configs", word)))


def _check_forms(resource: Topic | Namespace, policy: str, gathering: Gathering, findings: Findings) -> None:
    declared = gathering.desired.get(Address(f"policy/{policy}"))
    if declared is None or not isinstance(declared.resource, TieringPolicy):
        return
    places = gathering.places[resource.address]
    told: set[str] = set()
    for field, keys in POLICY_KEYS.items():
        if not says(declared.resource.spec, field):
            continue
        for key in keys:
            if key in resource.spec.configs and key not in told:
                told.add(key)
                line = findings.spot(places, ("spec", "tieringPolicy"))[1].line
                message = f"is said twice: here, and by the tieringPolicy {policy} on line {line}"
                hint = "Keep one form; a key written here wins over a policy of a tier above"
                findings.complain(places, Complaint(message, hint, ("spec", "configs", key)))


def says(spec: TieringPolicySpec, field: str) -> bool:
    """Tell whether a policy says something about a field of `POLICY_KEYS`."""
    value: Any = spec
    for part in field.split("."):
        value = getattr(value, part) if value is not None else None
    # `retain` is what happens anyway: a policy that does not mention it does not say it.
    return value is not None and (field, value) != ("on_disable", "retain")
