"""`topic mount` and `topic unmount`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from reconciler.errors import OwnershipLostError, ReconcilerError, UsageError, UserError
from reconciler.lifecycles import is_in_progress
from reconciler.operations.clusters.mounts import (
    ClusterMigration,
    get_storage_url,
    query_clusters,
    read_cluster_names,
    replace_cluster_ids_with_names,
)
from reconciler.operations.steps.observe import absent_cluster_error
from reconciler.operations.steps.orders import OrderResult, OrderRun
from reconciler.operations.steps.workspace import Site, list_possible_clusters
from reconciler.planning.orders import MountOrder
from reconciler.planning.resolve.limits import describe_unsupported
from reconciler.planning.resolve.mount_sources import are_equal_locations
from reconciler.providers.protocol import Scope, require_archives, require_migrations
from reconciler.resources.address import (
    Address,
    address_of,
    check_full_name,
    cluster_address,
    cluster_of,
    full_name_of,
    kind_of,
    matches_pattern,
)
from reconciler.resources.mount import Direction, MountableTopic, MountSource, Phase, RecoverableTopic
from reconciler.resources.topic import Topic
from reconciler.runtime.dataclass import dataclass, field, replace

if TYPE_CHECKING:
    from reconciler.operations.steps.runner import EmergencyRun
    from reconciler.planning.plan import Plan


MountVerb: TypeAlias = Literal["mount", "unmount"]

_ANY: Final = "*"
_SLASHES: Final = 2
"""Slashes in a location."""
_OWNED: Final = {"claimed": "it is being mounted on cluster {} as {}", "mounted": "it is mounted on cluster {} as {}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MountRequest:
    """Arguments of `topic mount` or `topic unmount`."""

    verb: MountVerb
    texts: Sequence[str]
    to: str | None = None
    phase: Phase = "whole"

    @property
    def direction(self) -> Direction:
        """Direction of the migrations."""
        return "inbound" if self.verb == "mount" else "outbound"

    def check_arguments(self) -> None:
        """Reject arguments that do not name topics."""
        if not self.texts:
            hint = "For example topic/west/shop:eu:orders, or 'topic/west/shop:*'."
            raise UsageError("no topics were named", hint=hint)
        for text in self.texts:
            address = Address(text)
            is_whole = _ANY in text or (text.count("/") > 1 and full_name_of(address))
            if kind_of(address) != "topic" or not is_whole:
                raise UsageError(
                    f"{text!r} is not the address of a topic", hint="Write it as topic/west/shop:eu:orders."
                )
        if self.to is None:
            return
        if len(self.texts) > 1 or _ANY in self.texts[0]:
            raise _multiple_rename_error()
        try:
            check_full_name(self.to)
        except ValueError as error:
            raise UsageError(f"--to {self.to!r} is {error}", hint="Example: shop:eu:orders.") from error


def migrate_topics(
    emergency: EmergencyRun,
    request: MountRequest,
    *,
    confirm: Callable[[Plan], bool] | None = None,
    is_dry_run: bool = False,
) -> OrderResult:
    """Mount or unmount topics. A failed topic does not stop the others."""
    request.check_arguments()
    site = emergency.open_site()
    choice = _TopicChoice(emergency, site, request)
    orders = choice.build_orders()
    unknown = [address for address, order in orders.items() if not is_dry_run and not order.source.location]
    earlier = _list_detached_topics(site, unknown)
    result = OrderRun(
        emergency=emergency,
        site=site,
        noun="topics",
        orders=orders,
        refused=choice.refused,
        confirm=confirm,
        is_dry_run=is_dry_run,
    ).execute_orders()
    done = [address for address in orders if not is_dry_run and address not in result.failed]
    locations = {address: orders[address].source.location for address in done}
    locations |= _find_detached_locations(site, [address for address in done if address in unknown], earlier)
    failed = {address: choice.explain_error(orders.get(address), error) for address, error in result.failed.items()}
    return replace(result, failed=failed, states={address: text for address, text in locations.items() if text})


def _list_detached_topics(site: Site, topics: Collection[Address]) -> Mapping[tuple[str, str], Address]:
    """Return original addresses by cluster and location, on the clusters of `topics`."""
    return {
        (cluster, register.location): address_of("topic", cluster, register.full_name)
        for cluster in {cluster_of(topic) or "" for topic in topics}
        for register in require_archives(site.providers[cluster]).list_mountable_topics()
        if register.state == "detached"
    }


def _find_detached_locations(
    site: Site, topics: Collection[Address], earlier: Collection[tuple[str, str]]
) -> Mapping[Address, str]:
    """Return the locations of unmounted topics, by their names or as the only new one on their cluster.

    A topic mounted under another name has its original name in object storage.
    """
    added = {place: name for place, name in _list_detached_topics(site, topics).items() if place not in earlier}
    locations: dict[Address, str] = {}
    for topic in topics:
        others = [other for other in topics if cluster_of(other) == cluster_of(topic)]
        candidates = {place: name for place, name in added.items() if place[0] == cluster_of(topic)}
        named = [place for place, name in candidates.items() if name == topic or len(others) == len(candidates) == 1]
        if len(named) == 1:
            locations[topic] = named[0][1]
    return locations


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    address: Address
    location: str
    register: MountableTopic | None = None
    members: tuple[Address, ...] = ()

    @property
    def is_free(self) -> bool:
        return self.register is None or self.register.state == "detached"

    def is_named_by(self, text: str) -> bool:
        place = address_of("topic", cluster_of(self.address) or "", self.location)
        if matches_pattern(text, self.address) or matches_pattern(text, place):
            return True
        location, is_here = full_name_of(Address(text)), cluster_of(Address(text)) == cluster_of(self.address)
        are_locations = location.count("/") == self.location.count("/") == _SLASHES
        return is_here and are_locations and are_equal_locations(location, self.location)


@dataclass
class _TopicChoice:
    emergency: EmergencyRun
    site: Site
    request: MountRequest
    refused: dict[Address, ReconcilerError] = field(default_factory=dict)

    def build_orders(self) -> dict[Address, MountOrder]:
        chosen = self._drop_partial_migrations(self._choose_candidates())
        if self.request.to is not None:
            if len(chosen) + len(self.refused) > 1:
                raise _multiple_rename_error()
            chosen = {
                name: replace(candidate, address=name)
                for address, candidate in chosen.items()
                for name in [address_of("topic", cluster_of(address) or "", self.request.to)]
            }
        orders: dict[Address, MountOrder] = {}
        for cluster in sorted({cluster_of(address) or "" for address in chosen}):
            candidates = {address: candidate for address, candidate in chosen.items() if cluster_of(address) == cluster}
            orders |= self._build_orders(cluster, candidates)
        return orders

    def explain_error(self, order: MountOrder | None, error: ReconcilerError) -> ReconcilerError:
        if order is None or not isinstance(error, OwnershipLostError):
            return error
        begun = self._find_mount_in_progress(order.source.location, [cluster_of(order.topic) or ""])
        hint = error.hint
        if begun is not None and "cancel" in begun.legal:
            hint = f"Cancel this mount: reconciler mount cancel {begun.migration.id} --cluster {begun.cluster}"
        return OwnershipLostError(replace_cluster_ids_with_names(self.site, error.message), hint=hint)

    def _choose_candidates(self) -> dict[Address, _Candidate]:
        chosen: dict[Address, dict[str, _Candidate]] = {}
        matched: set[str] = set()
        for cluster in self._check_clusters():
            candidates = self._list_candidates(cluster)
            for text in self.request.texts:
                named = [candidate for candidate in candidates if candidate.is_named_by(text)]
                free = [candidate for candidate in named if candidate.is_free]
                if _ANY in text and free:
                    matched.add(text)
                elif _ANY not in text and cluster_of(Address(text)) == cluster and len(free) != 1:
                    free = self._reject_ambiguous(Address(text), free or named)
                for candidate in free:
                    chosen.setdefault(candidate.address, {})[candidate.location] = candidate
        for text in self.request.texts:
            if _ANY in text and text not in matched:
                hint = f"See what exists: reconciler {'mount list' if self.request.verb == 'mount' else 'topic list'}"
                raise UserError(f"no topic matches {text}: nothing was done", hint=hint)
        several = {address: list(places.values()) for address, places in chosen.items() if len(places) > 1}
        self.refused |= {address: self._ambiguous_error(address, candidates) for address, candidates in several.items()}
        return {
            address: candidate
            for address, places in chosen.items()
            if address not in self.refused
            for candidate in places.values()
        }

    def _reject_ambiguous(self, address: Address, candidates: Sequence[_Candidate]) -> list[_Candidate]:
        if self.request.verb == "unmount" and self.request.phase != "finish" and address not in self.refused:
            return [_Candidate(address=address, location="")]
        self.refused.setdefault(address, self._ambiguous_error(address, candidates))
        return []

    def _check_clusters(self) -> Iterator[str]:
        named = {cluster_of(Address(text)) for text in self.request.texts}
        for name in list_possible_clusters(self.site, self.request.texts):
            if name not in named and self.site.clusters[name].spec.object_storage is None:
                continue
            self.emergency.check_answers(self.site, name)
            provider = self.site.providers[name]
            if provider.identify() is None:
                raise absent_cluster_error(self.site.clusters[name])
            if not provider.capabilities.mountings:
                message, hint = describe_unsupported(provider.capabilities, "mount or unmount topics", "mountings")
                raise UserError(f"{cluster_address(name)}: {message}", hint=hint)
            get_storage_url(self.site, name)
            yield name

    def _list_candidates(self, cluster: str) -> list[_Candidate]:
        if self.request.phase == "finish":
            return list(self._find_unfinished_migrations(cluster))
        if self.request.verb == "unmount":
            return list(self._list_attached_topics(cluster))
        return [
            _Candidate(
                address=address_of("topic", cluster, register.full_name), location=register.location, register=register
            )
            for register in require_archives(self.site.providers[cluster]).list_mountable_topics()
        ]

    def _find_unfinished_migrations(self, cluster: str) -> Iterator[_Candidate]:
        for migration in require_migrations(self.site.providers[cluster]).list_unfinished(is_measured=False):
            if migration.direction != self.request.direction or not is_in_progress(migration.state):
                continue
            members = tuple(address_of("topic", cluster, topic.full_name) for topic in migration.topics)
            for address, topic in zip(members, migration.topics, strict=True):
                if topic.mounting is None:
                    yield _Candidate(address=address, location=topic.location, members=members)

    def _list_attached_topics(self, cluster: str) -> Iterator[_Candidate]:
        provider = self.site.providers[cluster]
        patterns = [text for text in self.request.texts if _ANY in text or cluster_of(Address(text)) == cluster]
        by_jobs = require_migrations(provider).job_steps if provider.capabilities.mountings_by_jobs else None
        for address, seen in sorted(provider.observe(Scope(tuple(patterns))).items()):
            if not isinstance(seen.resource, Topic) or kind_of(address) != "topic" or seen.is_internal:
                continue
            if seen.hidden is not None:
                self.refused[address] = seen.hidden
                continue
            place = by_jobs.find_location(full_name_of(address)) if by_jobs is not None else ""
            yield _Candidate(
                address=address, location=seen.topic.legacy.location if seen.topic.legacy is not None else place
            )

    def _drop_partial_migrations(self, chosen: Mapping[Address, _Candidate]) -> dict[Address, _Candidate]:
        verb, whole = self.request.verb, dict(chosen)
        for address, candidate in chosen.items():
            missing = [member for member in candidate.members if member not in chosen]
            if missing:
                members = ", ".join(missing)
                message = f"its {verb} is one migration with {members}, and finishing it moves them together"
                hint = f"Name all of them: reconciler topic {verb} --finish {' '.join(candidate.members)}"
                self.refused[address] = UserError(message, hint=hint, subject=f"{address}: ")
                del whole[address]
        return whole

    def _build_orders(self, cluster: str, chosen: Mapping[Address, _Candidate]) -> dict[Address, MountOrder]:
        provider, request = self.site.providers[cluster], self.request
        sources = {address: MountSource(candidate.location, None) for address, candidate in chosen.items()}
        if request.phase != "finish":
            topics = {full_name_of(address): source.location for address, source in sources.items()}
            for name, error in require_migrations(provider).find_obstacles(request.direction, topics).items():
                address = address_of("topic", cluster, name)
                self.refused[address] = error
                del sources[address]
            if request.verb == "mount":
                locations = {address: source.location for address, source in sources.items()}
                stored = require_archives(provider).find_recovery_sources(locations)
                for address, answer in stored.items():
                    if isinstance(answer, RecoverableTopic):
                        sources[address] = MountSource(sources[address].location, answer)
        return {
            address: MountOrder(topic=address, direction=request.direction, source=source, phase=request.phase)
            for address, source in sorted(sources.items())
        }

    def _ambiguous_error(self, address: Address, candidates: Sequence[_Candidate]) -> ReconcilerError:
        cluster = cluster_of(address) or ""
        if self.request.phase == "finish":
            message = f"no {self.request.verb} of it that a command began is in progress"
            return UserError(message, hint="See those in progress: reconciler mount status", subject=f"{address}: ")
        if not candidates:
            message = "nothing of that name or place can be mounted"
            return UserError(message, hint="List mountable topics with: reconciler mount list", subject=f"{address}: ")
        register = candidates[0].register
        if len(candidates) == 1 and register is not None and not candidates[0].is_free:
            return self._owner_error(address, register)
        places = ", ".join(candidate.location for candidate in candidates)
        place = address_of("topic", cluster, candidates[0].location)
        hint = f"Name the location of the one to mount: {place}. Mount others with --to, under another name."
        message = f"several topics of that name can be mounted: {places}"
        return UserError(message, hint=hint, subject=f"{address}: ")

    def _owner_error(self, address: Address, register: MountableTopic) -> UserError:
        cluster = cluster_of(address) or ""
        identity = self.site.providers[cluster].identify()
        is_here = identity is not None and identity.cluster_id == register.owner
        # Other clusters are queried only if needed, because unreachable ones answer late.
        names = [cluster] if is_here else sorted(self.site.clusters)
        begun = self._find_mount_in_progress(register.location, names) if register.state == "claimed" else None
        owner = read_cluster_names(self.site, names).get(register.owner or "") if begun is None else begun.cluster
        if begun is not None:
            one = f"{begun.migration.id} --cluster {begun.cluster}"
            is_by_hand = all(topic.mounting is None for topic in begun.migration.topics)
            topics = [address_of("topic", begun.cluster, topic.full_name) for topic in begun.migration.topics]
            finish = f"topic mount --finish {' '.join(topics)}"
            hint = f"Continue it: reconciler {finish if is_by_hand else f'mount status {one}'}"
            if "cancel" in begun.legal:
                hint += f". Or cancel it: reconciler mount cancel {one}"
        elif owner is None or register.state == "claimed":
            hint = "Unmount it there: a topic is mounted once."
        elif is_here:
            hint = "It is on that cluster already: a topic is mounted once."
        else:
            hint = f"Unmount it there: reconciler topic unmount {address_of('topic', owner, register.name)}"
        message = _OWNED[register.state].format(owner or register.owner, register.name)
        return UserError(message, hint=hint, subject=f"{address}: ")

    def _find_mount_in_progress(self, location: str, clusters: Iterable[str]) -> ClusterMigration | None:
        names = [name for name in clusters if self.site.clusters[name].spec.object_storage is not None]
        answers, _ = query_clusters(
            names, lambda name: require_migrations(self.site.providers[name]).list_unfinished(is_measured=False)
        )
        for name in sorted(answers):
            for migration in answers[name]:
                is_mount = migration.direction == "inbound" and is_in_progress(migration.state)
                if is_mount and location in {topic.location for topic in migration.topics}:
                    return ClusterMigration(name, migration)
        return None


def _multiple_rename_error() -> UsageError:
    return UsageError("--to takes one topic", hint="Mount them one after the other, or each under its own name.")
