"""Checks of clusters: identity, properties, secrets and object storage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Final

from reconciler.planning.fields import PROPERTIES
from reconciler.planning.plan import FieldMark, PlanFinding, PlanInput
from reconciler.planning.resolve.limits import check_replicas, find_named
from reconciler.resources.address import Address, cluster_address, cluster_of
from reconciler.resources.cluster import Cluster, urls_overlap
from reconciler.resources.cluster_properties import (
    ACCESS_KEY,
    ALIASES,
    AZURE_ACCOUNT,
    AZURE_KEY,
    CREATION_DEFAULTS,
    ENABLED,
    MEANINGLESS,
    SECRET_KEY,
    read_property,
)
from reconciler.runtime.text import format_suggestion

if TYPE_CHECKING:
    from reconciler.planning.situation import Review, Situation, WantedResource
    from reconciler.resources.inventory import (
        ClusterIdentity,
        DeclaredResource,
        Desired,
        Observed,
        ObservedStorage,
        Record,
        Recorded,
    )
    from reconciler.resources.kafka_configs import ConfigKey


def list_declared_clusters(desired: Desired) -> dict[str, Cluster]:
    """Return the declared clusters by name."""
    resources = (declared.resource for address, declared in desired.items() if address.startswith("cluster/"))
    return {resource.metadata.name: resource for resource in resources if isinstance(resource, Cluster)}


def find_trusted_clusters(desired: Desired, request: PlanInput, refused: tuple[PlanFinding, ...]) -> frozenset[str]:
    """Return the declared clusters read without errors."""
    wrong = {cluster_of(finding.address) for finding in refused if finding.address}
    return frozenset(
        name
        for name in list_declared_clusters(desired)
        if name in request.identities and name in request.capabilities and name not in wrong
    )


def check_clusters(desired: Desired, recorded: Record, request: PlanInput) -> Iterator[PlanFinding]:
    """Yield errors about clusters with another identity, overlapping roots, or no declaration."""
    clusters = list_declared_clusters(desired)
    for name in sorted(clusters):
        if name in request.identities:
            address = cluster_address(name)
            yield from _check_identity(desired[address], recorded.get(address), request.identities[name], request)
    yield from _check_overlaps(desired)
    yield from check_undeclared(desired)


def _check_overlaps(desired: Desired) -> Iterator[PlanFinding]:
    """A cluster deletes unknown objects below its root, so roots must not overlap."""
    clusters = list_declared_clusters(desired)
    located = ((name, cluster.spec.root) for name, cluster in sorted(clusters.items()))
    roots = {name: root for name, root in located if root is not None}
    for name in sorted(clusters):
        storage = clusters[name].spec.object_storage
        for other, root in roots.items():
            if storage and storage.endpoint == root.endpoint and urls_overlap(storage.url, root.url):
                address = cluster_address(name)
                what = f"its objectStorage {storage.url} and {root.url}, the root of cluster {other},"
                message = f"{what} are the same location or one contains the other"
                hint = "Give objectStorage a location of its own: a sweep deletes what its own cluster does not name."
                yield PlanFinding(address, desired[address].source, message, hint, exclude_pattern="")


def _check_identity(
    declared: DeclaredResource, last: Recorded | None, identity: ClusterIdentity | None, request: PlanInput
) -> Iterator[PlanFinding]:
    cluster = declared.resource
    if not isinstance(cluster, Cluster):
        return
    name = cluster.metadata.name
    problem: tuple[str, str] | None = None
    if identity is None:
        capabilities = request.capabilities.get(name)
        if last is not None:
            problem = (
                f"cluster {name} is recorded as {last.incarnation or 'there'}, but its location is empty",
                "A recorded cluster is never created again. Check that its location can be reached.",
            )
        elif capabilities is not None and not capabilities.creates_cluster:
            problem = (
                f"cluster {name} does not exist",
                f"A {cluster.spec.provider} cluster cannot be created from here.",
            )
    elif identity.provider != cluster.spec.provider:
        problem = (
            f"cluster {name} is declared as {cluster.spec.provider}, but a {identity.provider} cluster answers",
            "Correct spec.provider, or the connection.",
        )
    elif cluster.spec.cluster_id is not None and cluster.spec.cluster_id != identity.cluster_id:
        problem = (
            f"cluster {name} should be {cluster.spec.cluster_id}, but {identity.cluster_id} answers",
            "Correct spec.clusterId, or the connection: no other cluster is touched.",
        )
    elif last is not None:
        problem = _explain_changed_identity(name, last, identity)
    if problem:
        yield PlanFinding(cluster.address, declared.source, *problem, exclude_pattern=f"*/{name}/*")


def _explain_changed_identity(name: str, last: Recorded, identity: ClusterIdentity) -> tuple[str, str] | None:
    hint = (
        f"If that is on purpose: take {name} and all on it out of the files and apply, which only forgets them; "
        "then declare them again, and the next plan adopts what exists."
    )
    if isinstance(last.resource, Cluster) and last.resource.spec.provider != identity.provider:
        recorded = last.resource.spec.provider
        return f"cluster {name} was {recorded} when it was recorded, and is {identity.provider} now", hint
    if last.incarnation is not None and last.incarnation != identity.cluster_id:
        return f"cluster {name} was {last.incarnation} when it was recorded, but {identity.cluster_id} answers", hint
    return None


def check_undeclared(desired: Desired) -> Iterator[PlanFinding]:
    """Yield an error for each undeclared cluster of declared resources."""
    clusters = list_declared_clusters(desired)
    first: dict[str, Address] = {}
    for address in sorted(desired):
        name = cluster_of(address)
        if name is not None and name not in clusters:
            first.setdefault(name, address)
    for name, address in first.items():
        yield PlanFinding(
            address,
            desired[address].source,
            f"cluster {name} is not declared",
            f"Declare a Cluster named {name}, or correct metadata.cluster.",
        )


_DIRECTORY: Final = "cloud_storage_cache_directory"
_SIZE: Final = "cloud_storage_cache_size"
_PERCENT: Final = "cloud_storage_cache_size_percent"
_RESERVED: Final = "disk_reservation_percent"
_MIN_SHARES: Final = "cloud_storage_upload_ctrl_min_shares"
_MAX_SHARES: Final = "cloud_storage_upload_ctrl_max_shares"
_ALL_PERCENT: Final = 100

_EMBEDDED_PROPERTY: Final = ("a property of an embedded cluster", "Remove it: properties have Redpanda's names.", 0.6)
_BROKER_PROPERTY: Final = (
    "a cluster property that these brokers accept",
    "Remove it: what is read-only is set in a broker's own file, and takes a restart.",
    0.85,
)
"""Noun, hint for unknown names, and similarity of suggestions."""
_DEFAULT_REPLICAS: Final = "default_topic_replications"

PropertyProblem = tuple[str, str, tuple[str, ...]]


def check_properties(situation: Situation) -> Iterator[PlanFinding]:
    """Yield errors about declared cluster properties, if the platform lists its properties."""
    for address in sorted(situation.wanted):
        wanted = situation.wanted[address]
        if isinstance(wanted.resource, Cluster) and situation.can_plan(address):
            capabilities = situation.find_capabilities(wanted.resource.metadata.name)
            yield from find_property_problems(wanted, wanted.resource, capabilities.properties)
            yield from _check_default_replicas(situation, wanted, wanted.resource)


def _check_default_replicas(situation: Situation, wanted: WantedResource, cluster: Cluster) -> Iterator[PlanFinding]:
    """Yield a changed default that no topic can be created with."""
    seen, declared = situation.observed.get(cluster.address), cluster.spec.properties.get(_DEFAULT_REPLICAS, "")
    live = seen.resource.spec.properties if seen is not None and isinstance(seen.resource, Cluster) else {}
    if not declared.isdecimal() or declared == live.get(_DEFAULT_REPLICAS):
        return
    field = PROPERTIES + _DEFAULT_REPLICAS
    capabilities = situation.find_capabilities(cluster.metadata.name)
    for message, hint in check_replicas(int(declared), capabilities, f"spec.{field}"):
        yield PlanFinding(
            cluster.address, wanted.source, f"{field}: {message}", hint, (_mark_property(wanted, _DEFAULT_REPLICAS),)
        )


def find_property_problems(
    wanted: WantedResource, cluster: Cluster, known: Mapping[str, ConfigKey]
) -> Iterator[PlanFinding]:
    """Yield problems of a cluster's declared properties. `known` are those of its platform."""
    if not known:
        return
    properties = cluster.spec.properties
    for message, hint, names in (
        *_find_unknown_properties(properties.keys() - known.keys(), known, has_brokers=cluster.spec.root is None),
        *(_find_contradictions(properties) if ENABLED in known else ()),
        *_check_storage_declared(cluster),
        *(_check_credentials(cluster) if ENABLED in known else ()),
    ):
        marks = tuple(_mark_property(wanted, name) for name in names if name in properties)
        yield PlanFinding(wanted.resource.address, wanted.source, message, hint, marks)


def _find_unknown_properties(
    names: AbstractSet[str], known: Mapping[str, ConfigKey], *, has_brokers: bool
) -> Iterator[PropertyProblem]:
    what, hint, likeness = _BROKER_PROPERTY if has_brokers else _EMBEDDED_PROPERTY
    for name in sorted(names):
        if not has_brokers and name in MEANINGLESS:
            why, mend = MEANINGLESS[name]
            yield f"{PROPERTIES}{name} has no meaning on an embedded cluster: {why}", mend, (name,)
            continue
        near = find_named(name, dict(sorted(known.items())), likeness)
        yield f"{PROPERTIES}{name} is not {what}", format_suggestion(near, otherwise=hint), (name,)


def _find_contradictions(properties: Mapping[str, str]) -> Iterator[PropertyProblem]:
    def number(name: str) -> float:
        return float(read_property(properties, name) or 0)

    for names in ALIASES:
        first, second = (properties.get(name) for name in names)
        if first is not None and second is not None and first != second:
            yield f"{' and '.join(names)} are two names of one property", "Keep one of the two.", names
    directory = properties.get(_DIRECTORY)
    if directory is not None and not directory.startswith("/"):
        message = f"{directory!r} is not a full path: every process would have its own cache"
        yield message, "Begin it with a slash.", (_DIRECTORY,)
    if not number(_SIZE) and not number(_PERCENT):
        message = "the cache has no limit at all: neither by bytes nor by percent"
        yield message, f"Set {_SIZE} or {_PERCENT}.", (_SIZE, _PERCENT)
    if number(_PERCENT) + number(_RESERVED) > _ALL_PERCENT:
        message = f"cache ({number(_PERCENT):g} %) and reservation ({number(_RESERVED):g} %) are more than the disk"
        yield message, "Lower one of the two: what they leave is for local data.", (_PERCENT, _RESERVED)
    if number(_MIN_SHARES) > number(_MAX_SHARES):
        yield f"{_MIN_SHARES} is above {_MAX_SHARES}", "Lower this one, or raise the other.", (_MIN_SHARES, _MAX_SHARES)


def _check_storage_declared(cluster: Cluster) -> Iterator[PropertyProblem]:
    if cluster.spec.object_storage is not None:
        return
    for name in (ENABLED, *CREATION_DEFAULTS):
        if cluster.spec.properties.get(name) == "true":
            yield f"{name} is true, and there is no object storage", "Declare objectStorage, or remove it.", (name,)


_PAIRS: Final = ((ACCESS_KEY, SECRET_KEY, "s3"), (AZURE_ACCOUNT, AZURE_KEY, "az"))


def _check_credentials(cluster: Cluster) -> Iterator[PropertyProblem]:
    properties, storage = cluster.spec.properties, cluster.spec.object_storage
    for first, second, scheme in _PAIRS:
        set_names = [name for name in (first, second) if name in properties]
        url = None if storage is None else storage.url
        if set_names and url is None:
            yield (
                f"{set_names[0]} is set, and there is no object storage",
                "Declare objectStorage, or remove it.",
                (set_names[0],),
            )
        elif set_names and url is not None and not url.startswith(f"{scheme}://"):
            message = f"{set_names[0]} is for {scheme}:// locations, and objectStorage is {url}"
            hint = "Remove it: keys of this storage are looked for where the tools of its cloud look."
            yield message, hint, (set_names[0],)
        elif len(set_names) == 1:
            other = second if set_names[0] == first else first
            yield f"{set_names[0]} is set without {other}", "Set both, or none.", (set_names[0],)


def _mark_property(wanted: WantedResource, name: str) -> FieldMark:
    place = wanted.origins.get(PROPERTIES + name)
    address = wanted.resource.address
    if place is None or "." not in place:
        return address, ("spec", "properties", name)
    return address, ("spec", *place.split("."))


HINT = "Use SASL_SSL and https. Where the network is safe, write `allowPlaintextPasswords: true` next to `protocol`."


def find_plaintext_fields(cluster: Cluster) -> Iterator[tuple[str, str]]:
    """Yield each field that sends a password or token unencrypted, with the problem."""
    security, where = cluster.spec.connection.find_security(), f"spec.{cluster.spec.provider}.security"
    if security is None or security.mechanism in {None, "GSSAPI"} or security.allow_plaintext_passwords:
        return
    if security.protocol == "SASL_PLAINTEXT":
        yield f"{where}.protocol", "SASL_PLAINTEXT sends passwords over a connection without encryption"
    url = security.token_endpoint_url or ""
    if security.client_secret is not None and url.lower().startswith("http://"):
        yield f"{where}.tokenEndpointUrl", f"{url} would send tokens without encryption"


def check_plaintext(desired: Desired) -> Iterator[PlanFinding]:
    """Yield declared clusters that send passwords unencrypted."""
    for address, declared in sorted(desired.items()):
        if isinstance(declared.resource, Cluster):
            yield from _find_plaintext(address, declared.source, declared.resource)


def _find_plaintext(address: Address, source: str, cluster: Cluster) -> Iterator[PlanFinding]:
    for field, message in find_plaintext_fields(cluster):
        path = tuple(field.removeprefix("spec.").split("."))
        yield PlanFinding(address, source, message, HINT, ((address, ("spec", *path)),))


def check_storage(cluster: Cluster, seen: Observed | None, last: Recorded | None) -> Iterator[tuple[str, str]]:
    """Yield message and hint if the cluster does not use the declared object storage."""
    if seen is None or seen.cluster.storage is None:
        return
    problem = seen.cluster.storage.problem
    if problem is not None:
        yield f"its objectStorage cannot be used: {problem.message}", problem.hint
        return
    moved = explain_moved_storage(cluster, seen) or _explain_lost_storage(cluster, seen.cluster.storage, last)
    if moved is not None:
        yield moved


def _explain_lost_storage(cluster: Cluster, storage: ObservedStorage, last: Recorded | None) -> tuple[str, str] | None:
    declared = cluster.spec.object_storage
    before = last.resource.spec.object_storage if last and isinstance(last.resource, Cluster) else None
    if declared is None or before is None or before.url != declared.url:
        return None
    if storage.bound is None or storage.declared == storage.bound:
        return None
    what = "nothing is there" if storage.declared is None else f"object storage {storage.declared} is there"
    message = f"it is bound to object storage {storage.bound} at {declared.url}, but {what}"
    hint = (
        "Bring it back, for example by mounting it. "
        "If it is lost: take objectStorage out of the files and apply, then declare it again."
    )
    return message, hint


def explain_moved_storage(cluster: Cluster, seen: Observed) -> tuple[str, str] | None:
    """Return message and hint if topics have records in another storage than the declared one."""
    storage, declared = seen.cluster.storage, cluster.spec.object_storage
    if storage is None or storage.problem is not None or not storage.tiered:
        return None
    if storage.bound is None or storage.declared == storage.bound:
        return None
    first, *others = storage.tiered
    named = f"topic {first}" + (f" and {len(others)} more" if others else "")
    if declared is None:
        what = "it has no objectStorage any more"
    elif storage.declared is None:
        what = f"{declared.url} holds nothing of it"
    else:
        what = f"{declared.url} is object storage {storage.declared}"
    return (
        f"{what}, and {named} has records in object storage {storage.bound}",
        "Set objectStorage back: topics do not move between buckets.",
    )


def warnings_of_overrides(review: Review) -> Iterator[PlanFinding]:
    """Warn about declared properties that a broker's own setting overrides."""
    situation = review.situation
    for name in sorted(situation.clusters):
        address = cluster_address(name)
        seen, declared = situation.observed.get(address), situation.wanted.get(address)
        if seen is None or declared is None or not situation.can_plan(address):
            continue
        properties = declared.resource.spec.properties if isinstance(declared.resource, Cluster) else {}
        for key, broker, value in seen.cluster.overrides:
            declared_value = properties.get(key)
            if declared_value is not None and declared_value != value:
                message = f"broker {broker} sets {key} to {value} for itself, so {declared_value} has no effect there"
                command = f"--alter --entity-type brokers --entity-name {broker} --delete-config {key}"
                hint = f"Remove the override with: kafka-configs.sh --bootstrap-server HOST:PORT {command}"
                marks = ((address, ("spec", "properties", key)),)
                yield PlanFinding(address, declared.source, message, hint, marks, concerns_drift=True)
