"""What manifests name must be declared, as far as that can be judged without asking a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.manifests.configwords import check_configs, check_unread
from reconciler.manifests.suggestions import did_you_mean, one_of
from reconciler.resources.address import Address, cluster_address, tiers_of
from reconciler.resources.base import Complaint
from reconciler.resources.mirrorlink import MirrorLink
from reconciler.resources.mounting import Mounting
from reconciler.resources.namespace import Namespace
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from reconciler.manifests.findings import Findings, Place
    from reconciler.manifests.gathering import Gathering
    from reconciler.manifests.positions import Path

_CLUSTER: Final = ("metadata", "cluster")
_NAMESPACE: Final = ("metadata", "namespace")
_POLICY: Final = ("spec", "tieringPolicy")


def check_references(gathering: Gathering, findings: Findings) -> None:
    """Complain about clusters, policies and config keys that are not known; warn about namespaces not seen here."""
    references = _References(gathering, findings)
    for address, declared in gathering.desired.items():
        places = gathering.places[address]
        match declared.resource:
            case Topic() as topic:
                references.cluster(topic.cluster, places, _CLUSTER)
                references.namespace(topic.cluster, topic.metadata.namespace, places, _NAMESPACE)
                references.policy(topic.spec.tiering_policy, places)
                check_configs(topic, gathering, findings)
            case Namespace() as namespace:
                references.cluster(namespace.cluster, places, _CLUSTER)
                references.policy(namespace.spec.tiering_policy, places)
                check_configs(namespace, gathering, findings)
            case Mounting() as mounting:
                references.cluster(mounting.cluster, places, _CLUSTER)
                references.namespace(mounting.cluster, mounting.metadata.namespace, places, _NAMESPACE)
            case MirrorLink() as link:
                references.cluster(link.cluster, places, _CLUSTER)
                references.cluster(link.spec.source, places, ("spec", "source"))
                check_configs(link, gathering, findings)
            case _:
                pass  # clusters and policies name nothing
    check_unread(gathering, findings)
    references.warn_of_unseen()


class _References:
    """What is declared, and the namespaces that were named and not seen."""

    def __init__(self, gathering: Gathering, findings: Findings) -> None:
        self._declared = gathering.declared
        self._findings = findings
        self._namespaces = _namespaces(gathering)
        self._unseen: dict[tuple[str, str], tuple[tuple[Place, ...], Path]] = {}
        self._times: dict[tuple[str, str], int] = {}

    def cluster(self, name: str, places: tuple[Place, ...], at: Path) -> None:
        """Complain unless a cluster is declared."""
        if cluster_address(name) not in self._declared:
            known = self._names("cluster/")
            otherwise = f"Declare it with `kind: Cluster`; declared are: {one_of(known)}"
            hint = did_you_mean(name, known, otherwise=otherwise)
            self._findings.complain(places, Complaint(f"there is no cluster {name} in this workspace", hint, at))

    def policy(self, name: str | None, places: tuple[Place, ...]) -> None:
        """Complain unless a policy that is used is declared."""
        if name is not None and Address(f"policy/{name}") not in self._declared:
            known = self._names("policy/")
            otherwise = f"Declare it with `kind: TieringPolicy`; declared are: {one_of(known)}"
            hint = did_you_mean(name, known, otherwise=otherwise)
            self._findings.complain(places, Complaint(f"there is no tiering policy {name}", hint, _POLICY))

    def namespace(self, cluster: str, name: str, places: tuple[Place, ...], at: Path) -> None:
        """Remember a namespace that is used and not declared: it may be on the cluster."""
        if name and (cluster, name) not in self._namespaces:
            self._unseen.setdefault((cluster, name), (places, at))
            self._times[cluster, name] = self._times.get((cluster, name), 0) + 1

    def warn_of_unseen(self) -> None:
        """Warn once of each namespace that was used and not declared."""
        for (cluster, name), (places, at) in sorted(self._unseen.items()):
            times = self._times[cluster, name]
            use = "is used here" if times == 1 else f"is used here and {times - 1} more times"
            message = f"the namespace {name} of {cluster} {use}, and no manifest declares it"
            hint = "Declare it with `kind: Namespace`; `plan` refuses one that is not on the cluster either"
            self._findings.warn(places, Complaint(message, hint, at))

    def _names(self, prefix: str) -> list[str]:
        return [address.removeprefix(prefix) for address in self._declared if address.startswith(prefix)]


def _namespaces(gathering: Gathering) -> set[tuple[str, str]]:
    """Return every declared namespace and every tier above one: declaring it makes them all."""
    found: set[tuple[str, str]] = set()
    for address in gathering.declared:
        kind, _, rest = address.partition("/")
        if kind == "namespace":
            cluster, _, name = rest.partition("/")
            found |= {(cluster, tier) for tier in tiers_of(name)}
    return found
