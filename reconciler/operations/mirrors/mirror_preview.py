"""What a verb would do to a mirror as it is: whether that is legal, what it needs, and what is lost by it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from reconciler.errors import NotAuthorizedError, ReconcilerError, RetryableError, UserError
from reconciler.lifecycles import MIRROR, REVERSAL_SUSPENDED, TWO_SIDED, MirrorStatus
from reconciler.operations.mirrors.mirror_views import (
    Named,
    PartitionLag,
    Standing,
    absent_cluster,
    another_cluster,
    ask_source,
    find_mirror,
    lags_between,
    legal_verbs,
    legal_words,
    source_standing,
)
from reconciler.operations.steps.observe import committed_of
from reconciler.operations.steps.transitions import (
    UNDER_WAY,
    Side,
    check_sides,
    check_source_ends,
    cuts,
    is_both_ways,
    stopped_mirrors,
)
from reconciler.planning.actions import NO_COST, Estimate
from reconciler.planning.checks.mirror_checks import (
    away,
    cost_of_catching_up,
    cost_of_failback,
    cost_of_failover,
    cost_of_restore,
    estimate_of,
)
from reconciler.providers.protocol import LinksOfCluster, Provider, Scope
from reconciler.resources.address import Address, address_of
from reconciler.resources.mirror_link import MirrorState, MirrorTopic
from reconciler.resources.mirrors import (
    PROMOTE,
    RESTORE,
    REVERSALS,
    Diverged,
    LinkSeen,
    MirrorSeen,
    Positions,
    WithDiverged,
)
from reconciler.runtime.threads import Memo

if TYPE_CHECKING:
    from reconciler.operations.steps.workspace import Site
    from reconciler.resources.measures import Measure


Verb: TypeAlias = Literal[
    "pause", "resume", "promote", "failover", "reverse-and-start", "reverse-and-pause", "truncate-and-restore"
]

ROLES: Final[Mapping[str, MirrorState]] = {
    "pause": "paused",
    "resume": "mirroring",
    "promote": "promoted",
    "failover": "failed-over",
    "reverse-and-start": "reversed",
    "reverse-and-pause": "reversed",
    "truncate-and-restore": "mirroring",
}
"""What a mirror is after a verb, in the words of the files."""
LOSING: Final = frozenset({"failover", RESTORE})
"""The verbs that lose records."""
ENDS_IN: Final[Mapping[str, MirrorStatus]] = {
    "pause": MirrorStatus.PAUSED,
    "resume": MirrorStatus.ACTIVE,
    "failover": MirrorStatus.STOPPED,
    PROMOTE: MirrorStatus.STOPPED,
}
"""The state in which a verb has nothing left to do."""
_GOES_ON: Final = "What is under way goes on with: reconciler run --once --only mirror"


@dataclass(frozen=True, slots=True)
class CutPartition:
    """Where a partition is cut, and how many offsets lie from there on: they are lost."""

    partition: int
    offset: int
    lost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A mirror of which a verb may be asked, as it is now."""

    named: Named
    verb: Verb
    mirror: MirrorTopic
    """With the role it has after that."""
    status: MirrorStatus
    lags: tuple[PartitionLag, ...] = ()
    """How far it is behind: by a failover this is lost, a promotion and a reversal wait for it."""
    cuts: tuple[CutPartition, ...] = ()
    """What a restore cuts off."""
    estimate: Estimate = NO_COST
    """What it costs, as a plan says it."""
    diverged: WithDiverged | None = None
    """What a restore does with records that only the original source has; `None`: it cuts them off."""
    lost_ms: int | None = None
    """By a failover: how much older its newest record is than that of its source; `None`: we cannot tell."""
    followers: tuple[Address, ...] = ()
    """Of a restore: other mirrors of the topic that is cut, on clusters that answer."""

    @property
    def lost_records(self) -> int | None:
        """How many offsets a failover or a restore loses; `None`: none by what it asks, or we cannot tell."""
        cost = self.estimate.role
        if cost is not None and cost.records is not None and self.verb in LOSING:
            return cost.records if cost.lost else 0
        return cost.lost_offsets if cost is not None and self.verb in LOSING else None

    @property
    def address(self) -> Address:
        """What it is called."""
        return self.named.address


@dataclass(frozen=True)
class Readying:
    """Looks at mirrors of which a verb is to be asked."""

    site: Site
    verb: Verb
    timeout_ms: int | None = None
    """How long a promotion waits for lag that does not shrink; `None`: as its link says."""
    keeps_diverged: bool = False
    """Whether a restore keeps what only the original source has, whatever its link says."""
    many: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Clusters of which so many mirrors are looked at that they are read together, and these."""
    over: Mapping[Named, frozenset[str]] = field(default_factory=dict)
    """Of topics that are restored, the links of the mirrors that may be meant; any, where it is not there."""
    memo: Memo = field(default_factory=Memo)
    """What was asked by this look: what many mirrors share is asked once."""

    def ready(self, named: Named) -> Ready:
        """Return what there is to be done, and what it costs.

        Raises:
            UserError: There is no such mirror, the verb is not legal in its state, or the other cluster is not there.
        """
        provider = self.site.providers[named.cluster]
        if self.memo.get(("identity", named.cluster), provider.identify) is None:
            raise absent_cluster(self.site.clusters[named.cluster])
        self._check_platform(named)
        if self.verb == RESTORE:
            return self._restorable(named)
        seen = self._seen(named)
        self._check_legal(named, seen)
        if self.verb in TWO_SIDED:
            self._check_source(named, seen.source_cluster, seen.link)
        if self.verb in REVERSALS:
            self._check_sides(named, seen.link, seen.source_cluster)
            check_source_ends(self.site.providers, seen)
        ready = Ready(named=named, verb=self.verb, mirror=self._mirror(seen), status=seen.status)
        return self._with_cost(ready, seen) if self.verb in {"failover", *TWO_SIDED} else ready

    def _seen(self, named: Named) -> MirrorSeen:
        links = self.site.providers[named.cluster].links
        if named.cluster in self.many:
            every = self._every(named.cluster)
            if named.name in every:
                return every[named.name]
        return find_mirror(links, named)

    def _every(self, cluster: str) -> Mapping[str, MirrorSeen]:
        links = self.site.providers[cluster].links
        return self.memo.get(("mirrors", cluster), lambda: {each.name: each for each in links.mirrors()})

    def _positions(self, seen: MirrorSeen) -> Positions:
        links = self.site.providers[seen.cluster].links
        names = self.many.get(seen.cluster)
        found = self.memo.get(("own", seen.cluster), lambda: _together(links, names)) if names else {}
        return found[seen.name] if seen.name in found else links.positions(seen.name)

    def _ask_source(self, provider: Provider, seen: MirrorSeen) -> Standing:
        """Return where a source stands; the sources of many mirrors are asked together."""
        if seen.cluster not in self.many:
            return ask_source(provider, seen)
        key = "sources", seen.cluster, seen.source_cluster
        found = self.memo.get(key, lambda: self._sources(provider, seen.cluster, seen.source_cluster))
        return found[seen.source] if seen.source in found else ask_source(provider, seen)

    def _sources(self, provider: Provider, cluster: str, source: str) -> Mapping[str, Standing]:
        every = self._every(cluster)
        names = {
            every[name].source
            for name in self.many[cluster]
            if name in every and every[name].source_cluster == source and every[name].status is not MirrorStatus.STOPPED
        }
        observed = provider.observe(Scope(tuple(address_of("topic", source, name) for name in sorted(names))))
        ids = {name: seen.incarnation for name in names if (seen := observed.get(address_of("topic", source, name)))}
        there = _together(provider.links, ids)
        return {name: Standing(ids[name], positions) for name, positions in there.items()}

    def _links(self, cluster: str) -> Sequence[LinkSeen]:
        return self.memo.get(("links", cluster), self.site.providers[cluster].links.links)

    def _check_platform(self, named: Named) -> None:
        """Refuse at once what mirrors of this platform cannot do.

        Raises:
            UserError: They cannot.
        """
        capabilities = self.site.providers[named.cluster].capabilities
        if self.verb not in {*REVERSALS, RESTORE} or "reversed" in capabilities.mirror_states:
            return
        what = "restored" if self.verb == RESTORE else "reversed"
        platform = capabilities.platform.capitalize()
        message = f"{named.address} cannot be {what}: a {platform} cluster cannot make a topic read-only"
        raise UserError(message, hint="Promote or fail over, and link the other way.")

    def _with_cost(self, ready: Ready, seen: MirrorSeen) -> Ready:
        """Add how far it is behind, and what that costs: lost by a failover, copied first by the others."""
        own = self._positions(seen)
        there = source_standing(self.site, seen, self.memo, self._ask_source)
        if isinstance(there, str):
            return replace(ready, lags=lags_between(own, {}), estimate=estimate_of(away(own, there), None))
        name = f"{seen.source} on {seen.source_cluster}"
        if self.verb == "failover":
            cost = cost_of_failover(own, there.positions, there.topic_id, name)
        else:
            cost = cost_of_catching_up(own, there.positions, there.topic_id, name, self._patience_ms(seen))
        lags = lags_between(own, {} if cost.unknown is not None else there.positions)
        return replace(ready, lags=lags, estimate=estimate_of(cost, self._measured(seen) if cost.behind else None))

    def _patience_ms(self, seen: MirrorSeen) -> int | None:
        if self.verb != PROMOTE:
            return None
        links = self._links(seen.cluster)
        own = next((link.declared.spec.retry_timeout for link in links if link.name == seen.link), None)
        return own if self.timeout_ms is None else self.timeout_ms

    def _measured(self, seen: MirrorSeen) -> Measure | None:
        source = address_of("topic", seen.source_cluster, seen.source)
        return self.site.providers[seen.source_cluster].measure([source]).get(source)

    def _restorable(self, named: Named) -> Ready:
        links = self.site.providers[named.cluster].links
        positions = links.positions(named.name)
        own = next(iter(links.mirrors(name=named.name)), None)
        status = MirrorStatus.REGULAR if own is None else own.status
        try:
            self._check_step(named, status, "", None if own is None else own.link)
        except UserError as error:
            if own is not None:
                error.hint = f"{error.hint} {_asked_of_source(own)}"
            raise
        peer = self._peer(named, own)
        self._check_sides(named, peer.link, peer.cluster)
        mirror = MirrorTopic(
            cluster=named.cluster,
            link=peer.link,
            source_cluster=peer.cluster,
            source=peer.name,
            name=named.name,
            state=ROLES[RESTORE],
            partitions=peer.partitions,
        )
        at = cuts(self.site.providers, named.cluster, named.name, peer)
        committed = committed_of(self.site.providers[named.cluster], named.name)
        diverged = links.diverged(named.name, at)
        wanted: WithDiverged | None = None
        if diverged is None:
            self._check_keeps(named)
            cost = cost_of_restore(positions, at, committed)
        else:
            declared = next((link.declared.spec for link in links.links() if link.name == peer.link), None)
            keeps = self.keeps_diverged or (declared is not None and bool(declared.keep_diverged))
            cost = cost_of_failback(diverged, committed, named.name, keeps=keeps)
            wanted = _with_diverged(diverged, keeps=keeps)
        return Ready(
            named=named,
            verb=self.verb,
            mirror=mirror,
            status=status,
            cuts=tuple(
                CutPartition(part, cut, sum(each.length for each in cost.lost if each.partition == part))
                for part, cut in sorted(at.items())
            ),
            estimate=estimate_of(cost, None),
            diverged=wanted,
        )

    def _peer(self, named: Named, own: MirrorSeen | None) -> MirrorSeen:
        """Return the stopped mirror that a topic is restored from; `own` is the topic where it was a mirror itself.

        Raises:
            UserError: There is none that it could be restored from, several, or its cluster is not there.
        """
        over = self.over.get(named)
        stopped = stopped_mirrors(self.site.providers, named.cluster, named.name, over)
        if not stopped.found:  # It may be on a cluster that is not there.
            for link in self._links(named.cluster):
                if is_both_ways(link) and (over is None or link.name in over):
                    self._check_source(named, link.declared.spec.source, link.name)
        try:
            peer = stopped.only()
        except UserError as error:
            if not stopped.found:
                self._check_links(named, own)
            if own is not None and len(stopped.found) <= 1:
                other = address_of("mirror", own.source_cluster, own.source)
                way = f"reconciler mirror restore {other}"
                error.hint = f"{error.hint} {named.address} is the mirror that stopped: {way}"
            raise
        self._check_source(named, peer.cluster, peer.link)
        return peer

    def _check_links(self, named: Named, own: MirrorSeen | None) -> None:
        """Refuse what cannot be restored for the link alone: of a stopped mirror, or of what has stopped mirrors."""
        if own is not None:
            self._check_sides(named, own.link, own.source_cluster)
            return
        over = self.over.get(named)
        for cluster in sorted(self.site.clusters):
            with suppress(RetryableError, NotAuthorizedError):
                for mirror in self.site.providers[cluster].links.mirrors(source=named.name):
                    is_of_it = mirror.source_cluster == named.cluster and mirror.status is MirrorStatus.STOPPED
                    if is_of_it and (over is None or mirror.link in over):
                        self._check_sides(named, mirror.link, cluster)

    def _check_keeps(self, named: Named) -> None:
        if self.keeps_diverged:
            message = f"{named.address}: --keep-diverged is for Kafka clusters: an embedded one cuts its log"
            raise UserError(message, hint="Copy what is shown to be cut off elsewhere first: reconciler topic consume.")

    def is_as_wanted(self, named: Named) -> MirrorStatus | None:
        """Return the state of a mirror that is as the verb would leave it; `None`: it is not, or that is not known."""
        status = self.status_of(named)
        return status if status is not None and status is ENDS_IN.get(self.verb) else None

    def status_of(self, named: Named) -> MirrorStatus | None:
        """Return the state of a mirror, where that can be told."""
        try:
            return self._seen(named).status
        except ReconcilerError:
            return None  # What was done is known; how it is now is one look more, and only told.

    def _check_legal(self, named: Named, seen: MirrorSeen) -> None:
        is_suspended = seen.status is MirrorStatus.PAUSED and seen.operation is not None
        if is_suspended and self.verb == PROMOTE:
            message = f"{named.address} is PAUSED: cannot promote while a reversal is suspended"
            raise UserError(message, hint="Possible in this state: resume, failover.")
        condition = REVERSAL_SUSPENDED if is_suspended and self.verb == "resume" else ""
        self._check_step(named, seen.status, condition, seen.link)

    def _check_step(self, named: Named, status: MirrorStatus, condition: str, link: str | None) -> None:
        try:
            MIRROR.step(status, self.verb, condition=condition)
        except UserError as error:
            said = error.message.removeprefix("mirror: ")
            roles = self.site.providers[named.cluster].capabilities.mirror_states
            over = next((each for each in self._links(named.cluster) if each.name == link), None)
            legal = legal_words(legal_verbs(status, roles, over))
            hint = f"Possible in this state: {legal}." if legal else error.hint
            hint = f"{hint} {_GOES_ON}" if status in UNDER_WAY else hint
            raise UserError(f"{named.address} is {status}: {said}", hint=hint) from error

    def _check_sides(self, named: Named, link: str, other: str) -> None:
        """Refuse what the link cannot do: mirrors change roles over one that goes both ways, without prefixes."""
        done = "restored" if self.verb == RESTORE else "reversed"
        here, there = (Side(cluster, self._links(cluster)) for cluster in (named.cluster, other))
        check_sides(f"{named.address} cannot be {done}", link, here, there)

    def _check_source(self, named: Named, source: str, link: str) -> None:
        """Refuse at once what needs both clusters, where the other is not there."""
        message = f"{named.address}: {self.verb} needs both clusters, and {source}"
        way = "Fail over: reconciler mirror failover works without it." if self.verb != RESTORE else "Try again then."
        if source not in self.site.clusters:
            raise UserError(f"{message} is not known here", hint=f"Declare it as a Cluster. {way}")
        try:
            identity = self.memo.get(("identity", source), self.site.providers[source].identify)
        except ReconcilerError as error:
            raise UserError(f"{message} does not answer: {error.message}", hint=way) from error
        if identity is None:
            raise UserError(f"{message} is not there", hint=way)
        pair = named.cluster, link
        other = self.memo.get(("another", *pair), lambda: another_cluster(self.site, *pair))
        if other is not None:
            raise UserError(f"{message} is another cluster now, {other}", hint=f"Correct where {source} is. {way}")

    def _mirror(self, seen: MirrorSeen) -> MirrorTopic:
        is_suspended = self.verb == "resume" and seen.operation is not None
        return MirrorTopic(
            cluster=seen.cluster,
            link=seen.link,
            source_cluster=seen.source_cluster,
            source=seen.source,
            name=seen.name,
            state="reversed" if is_suspended else ROLES[self.verb],
            partitions=seen.partitions,
        )


def _together(links: LinksOfCluster, names: Collection[str]) -> Mapping[str, Positions]:
    """Return positions of several topics; none if one of them cannot be read: each is then read alone and may fail."""
    try:
        return links.positions_of(names)
    except UserError:
        return {}


def _asked_of_source(mirror: MirrorSeen) -> str:
    source = address_of("mirror", mirror.source_cluster, mirror.source)
    return f"Once it has stopped, its original source is what can be restored: reconciler mirror restore {source}"


def _with_diverged(found: Sequence[Diverged], *, keeps: bool) -> WithDiverged:
    """Return what a restore is to do with what was found; where nothing was, it refuses what may come meanwhile."""
    if not found:
        return "refuse"
    return "keep" if keeps else "drop"
