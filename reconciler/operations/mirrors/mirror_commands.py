"""`mirror create`, `pause`, `promote`, `failover` and the other verbs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Final

from reconciler.errors import IncompleteError, ReconcilerError, UsageError, UserError
from reconciler.lifecycles import MIRROR, REVERSAL_SUSPENDED, TWO_SIDED, MirrorStatus
from reconciler.operations.mirrors.mirror_preview import ROLES, Ready, Readying, Verb
from reconciler.operations.mirrors.mirror_selection import Chosen, MirrorChoice, check_typed, chosen
from reconciler.operations.mirrors.mirror_views import (
    Named,
    absent_cluster,
    mirrors_named,
)
from reconciler.operations.steps.observe import refuse_another_cluster
from reconciler.operations.steps.recorded import check_state
from reconciler.operations.steps.runner import Emergency, require_confirmation, verdict_on_each
from reconciler.operations.steps.transitions import halted
from reconciler.planning.actions import NO_COST, Action, Create, Reason, Risk, RunJob, Transition
from reconciler.planning.diff.converge import state_precondition
from reconciler.planning.diff.mirror_changes import CATCH_UP
from reconciler.planning.resolve.limits import check_configs
from reconciler.planning.resolve.mirror_sources import BY_COMMAND, ENDS, peer_of
from reconciler.planning.situation import source_of, topic_of
from reconciler.providers.protocol import Scope
from reconciler.resources.address import Address, address_of, cluster_of, join_name, split_name
from reconciler.resources.configs import canonical_value
from reconciler.resources.mirror_link import SYNCED_BY_DEFAULT, MirrorState, MirrorTopic
from reconciler.resources.mirrors import PROMOTE, RESTORE, REVERSALS, LinkSeen, MirrorSeen
from reconciler.runtime.text import did_you_mean, nearest_spelling
from reconciler.runtime.threads import side_by_side

if TYPE_CHECKING:
    from reconciler.operations.steps.workspace import Site
    from reconciler.resources.inventory import Inventory, Observed, Record
    from reconciler.state.snapshots import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of asking one mirror; without an error it is done."""

    named: Named
    before: MirrorStatus | None = None
    after: MirrorStatus | None = None
    error: ReconcilerError | None = None
    ready: Ready | None = None
    is_left: bool = False
    """It was as the verb would leave it, and named by a pattern or a link alone: nothing was done."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What came of asking mirrors, in the order in which they were named."""

    verb: str
    each: tuple[Answer, ...]
    is_rehearsal: bool = False
    """Nothing was done: it says what would be."""

    @property
    def failed(self) -> int:
        """How many were refused or failed."""
        return sum(answer.error is not None for answer in self.each)

    @property
    def left(self) -> int:
        """How many were left as they are."""
        return sum(answer.is_left for answer in self.each)

    @property
    def verdict(self) -> ReconcilerError | None:
        """The error to end with, where not all of it was done."""
        errors = [answer.error for answer in self.each]
        return verdict_on_each(self.verb, errors, "mirrors", is_rehearsal=self.is_rehearsal)


# `mirror pause`, `promote`, `failover` …: a verb asked of mirrors now. One that fails does not stop the others.


_ROLES_OF_ENTRY: Final[Mapping[str, MirrorState]] = {
    **ROLES,
    "pause": "reversed",
    "resume": "reversed",
    "reverse-and-start": "mirroring",
    "reverse-and-pause": "paused",
    "truncate-and-restore": "reversed",
}
"""The role of the entry on the other cluster, where a mirror lives in its place since their roles were swapped."""
_FEW: Final = 8
"""More mirrors of a cluster than these are read with all others of it, by one request."""
_RISKS: Final = {"resume": Risk.NONE, PROMOTE: Risk.IRREVERSIBLE, "failover": Risk.DATA_LOSS, RESTORE: Risk.DATA_LOSS}


@dataclass
class _Asking:
    """One verb asked of some mirrors."""

    emergency: Emergency
    site: Site
    verb: Verb
    timeout_ms: int | None
    keeps_diverged: bool = False
    over: Mapping[Named, frozenset[str]] = field(default_factory=dict)
    """Of topics that are restored, the links that were named."""
    ready: dict[Named, Ready] = field(default_factory=dict)
    refused: dict[Named, ReconcilerError] = field(default_factory=dict)
    left: dict[Named, MirrorStatus] = field(default_factory=dict)
    """Those that a pattern or a link names and that are as the verb would leave them."""

    def look(self, chosen: Chosen) -> None:
        """See which of them may be asked, and what that costs; side by side, for each is a look at two clusters."""
        self.over = chosen.over
        readying = self._readying(chosen.names)
        for named, found in self._looked(readying, chosen.names):
            if isinstance(found, Ready):
                self.ready[named] = found
            elif named in chosen.found and (status := readying.is_as_wanted(named)) is not None:
                self.left[named] = status
            else:
                self.refused[named] = found
        if self.verb in REVERSALS:
            self._refuse_rivals()
        self._add_lost_times()
        if self.verb == RESTORE and self.ready:
            self._add_followers()

    def decide(self, snapshot: Snapshot | None) -> list[Action]:
        """Return what is to be done, looked at once more: it may have changed while somebody was asked."""
        actions: list[Action] = []
        record = None if snapshot is None else snapshot.record
        names = tuple(self.ready)
        observed, unseen = self._observed(names)
        for named, found in self._looked(self._readying(names), names):
            try:
                if not isinstance(found, Ready):
                    raise found
                if named.cluster in unseen:
                    raise unseen[named.cluster]
                refuse_another_cluster(self.site, named.cluster, snapshot)
                self.ready[named] = ready = self._as_shown(found)
                actions += self._actions(ready, record, observed)
            except ReconcilerError as error:
                self.refused[named] = error
                del self.ready[named]
        return actions

    def _as_shown(self, found: Ready) -> Ready:
        """Return a mirror as it is now, with what was shown of its cost: a restore cuts off no more than that."""
        shown = self.ready[found.named]
        estimate = shown.estimate if self.verb == RESTORE else found.estimate
        return replace(found, lost_ms=shown.lost_ms, estimate=estimate)

    def _readying(self, names: Sequence[Named]) -> Readying:
        by_cluster: dict[str, set[str]] = {}
        for named in names:
            by_cluster.setdefault(named.cluster, set()).add(named.name)
        many = {cluster: frozenset(its) for cluster, its in by_cluster.items() if len(its) > _FEW}
        return Readying(self.site, self.verb, self.timeout_ms, self.keeps_diverged, many, self.over)

    def _looked(self, readying: Readying, names: Sequence[Named]) -> Iterator[tuple[Named, Ready | ReconcilerError]]:
        def look(named: Named) -> Ready | ReconcilerError:
            try:
                self.site.providers[named.cluster]  # says which there are
                readying.memo.get(("check", named.cluster), lambda: self.emergency.check(self.site, named.cluster))
                return readying.ready(named)
            except ReconcilerError as error:
                return error

        return zip(names, side_by_side(look, names, name="mirrors"), strict=True)

    def _observed(self, names: Sequence[Named]) -> tuple[Inventory, Mapping[str, ReconcilerError]]:
        """Return what is there of mirrors, by one look at each cluster; and why some clusters say nothing."""
        wanted: dict[str, list[Address]] = {}
        for named in names:
            mirror = self.ready[named].mirror
            wanted.setdefault(mirror.cluster, []).extend((mirror.address, topic_of(mirror)))
        found: dict[Address, Observed] = {}
        unseen: dict[str, ReconcilerError] = {}
        for cluster, addresses in wanted.items():
            try:
                found |= self.site.providers[cluster].observe(Scope(tuple(addresses)))
            except ReconcilerError as error:
                unseen[cluster] = error
        return found, unseen

    def _refuse_rivals(self) -> None:
        """Refuse to reverse several mirrors of one source: it can become the mirror of one."""
        by_source: dict[Address, list[Named]] = {}
        for named, ready in self.ready.items():
            by_source.setdefault(source_of(ready.mirror), []).append(named)
        for source, rivals in by_source.items():
            if len(rivals) == 1:
                continue
            each = ", ".join(named.address for named in rivals)
            message = f"{each} have one source, {source}: it can become the mirror of only one of them"
            for named in rivals:
                error = UserError(message, hint=f"Reverse one of them: reconciler mirror reverse {named.address}")
                self.refused[named] = error
                del self.ready[named]

    def _add_lost_times(self) -> None:
        """Say by how much time mirrors lag that lose records by a failover: one look at each side's sizes."""
        lagging = {
            named: ready for named, ready in self.ready.items() if self.verb == "failover" and ready.lost_records
        }
        topics = [
            address for ready in lagging.values() for address in (topic_of(ready.mirror), source_of(ready.mirror))
        ]
        newest: dict[Address, int | None] = {}
        for cluster in sorted({cluster_of(address) or "" for address in topics}):
            with suppress(ReconcilerError):  # only told: an emergency does without
                its = [address for address in topics if cluster_of(address) == cluster]
                found = self.site.providers[cluster].measure(its)
                newest |= {address: measure.newest_ms for address, measure in found.items()}
        for named, ready in lagging.items():
            here, there = newest.get(topic_of(ready.mirror)), newest.get(source_of(ready.mirror))
            if here is not None and there is not None:
                self.ready[named] = replace(ready, lost_ms=max(0, there - here))

    def _add_followers(self) -> None:
        """Name the other mirrors of topics that are cut: what they have beyond the cut no longer has a source."""

        def look(cluster: str) -> Sequence[MirrorSeen]:
            try:
                provider = self.site.providers[cluster]
                return provider.links.mirrors() if provider.identify() is not None else ()
            except ReconcilerError:
                return ()  # only told: a restore does without clusters that are away

        mirrors = side_by_side(look, sorted(self.site.clusters), name="mirrors")
        for named, ready in self.ready.items():
            followers = [
                address_of("mirror", mirror.cluster, mirror.name)
                for mirror in chain.from_iterable(mirrors)
                if (mirror.source_cluster, mirror.source) == (named.cluster, named.name)
                and mirror.status is not MirrorStatus.STOPPED
            ]
            self.ready[named] = replace(ready, followers=tuple(followers))

    def answers(self, names: Sequence[Named], undone: Mapping[str, ReconcilerError]) -> tuple[Answer, ...]:
        """Return what came of each of them."""
        after = self._readying(tuple(self.ready))
        return tuple(self._answer(named, undone, after) for named in names)

    def rehearsed(self, names: Sequence[Named]) -> tuple[Answer, ...]:
        """Return what would come of each of them."""
        return tuple(
            Answer(named=named, before=self.ready[named].status, ready=self.ready[named])
            if named in self.ready
            else self._answer(named, {}, self._readying(()))
            for named in names
        )

    def _answer(self, named: Named, undone: Mapping[str, ReconcilerError], after: Readying) -> Answer:
        if named in self.left:
            return Answer(named=named, before=self.left[named], after=self.left[named], is_left=True)
        if named in self.refused:
            return Answer(named=named, error=self.refused[named])
        ready = self.ready[named]
        address = ready.mirror.address
        error = undone.get(f"{CATCH_UP}:{address}") or undone.get(f"{self.verb}:{address}")
        if isinstance(error, IncompleteError) and self.emergency.stop.is_requested and self.verb in TWO_SIDED:
            error = halted(self.site.providers, address) or error
        return Answer(named=named, before=ready.status, after=after.status_of(named), error=error, ready=ready)

    def _actions(self, ready: Ready, record: Record | None, observed: Inventory) -> list[Action]:
        mirror, address = ready.mirror, ready.mirror.address
        before = observed.get(address) or observed.get(topic_of(mirror))
        last = None if record is None else record.get(address)
        # A topic that is restored may have been the mirror of another one before.
        follows = {"state": mirror.state, "link": mirror.link, "source_cluster": mirror.source_cluster}
        follows["source"] = mirror.source
        if before is not None and isinstance(before.resource, MirrorTopic):
            mirror = before.resource.model_copy(update=follows)
        if last is not None and isinstance(last.resource, MirrorTopic):
            mirror = last.resource.model_copy(update=follows)
        if record is not None:
            _check_owned(mirror, record)
        entry = peer_of(mirror).address if last is None and record and peer_of(mirror).address in record else None
        is_suspended = self.verb == "resume" and mirror.state == "reversed"
        end = MIRROR.step(ready.status, self.verb, condition=REVERSAL_SUSPENDED if is_suspended else "")
        asked = Transition(
            address=address,
            machine=MIRROR.name,
            verb=self.verb,
            from_state=ready.status.value,
            to_state=ENDS.get(self.verb, end).value,
            after=mirror,
            parameters={
                **({} if entry is None else {"entry": entry, "role": _ROLES_OF_ENTRY[self.verb]}),
                **({} if ready.diverged is None else {"diverged": ready.diverged}),
            },
            risk=_RISKS.get(self.verb, Risk.DISRUPTIVE),
            reasons=(Reason.BY_COMMAND,),
            precondition="" if before is None else state_precondition(address, before),
            estimate=NO_COST if self.verb == PROMOTE else ready.estimate,
        )
        if self.verb != PROMOTE:
            return [asked]
        waiting = RunJob(
            address=address,
            job=CATCH_UP,
            source=source_of(mirror),
            sink=topic_of(mirror),
            parameters={} if self.timeout_ms is None else {"timeout_ms": self.timeout_ms},
            reasons=(Reason.ROLE_WANTED,),
            estimate=ready.estimate,
        )
        return [waiting, replace(asked, depends_on=(waiting.id,))]


def ask_mirrors(  # noqa: PLR0913 - each is an option of a verb, and has a default
    emergency: Emergency,
    verb: Verb,
    choice: MirrorChoice,
    *,
    confirm: Callable[[Answers], bool] | None = None,
    timeout_ms: int | None = None,
    is_rehearsal: bool = False,
    keeps_diverged: bool = False,
) -> Answers:
    """Ask a verb of mirrors, and return what came of each.

    `confirm` is asked once, and given what would come of each, where at least one may be asked. A rehearsal returns
    just that, takes no lease and changes nothing. `keeps_diverged`: a restore keeps what only original sources have.

    Raises:
        UsageError: An address is none of a mirror.
        UserError: It was not confirmed, or a pattern matches nothing.
        LeaseError: Someone else is applying.
    """
    check_typed(choice)
    asking = _Asking(emergency, emergency.open(), verb, timeout_ms, keeps_diverged)
    if not emergency.no_state:
        check_state(asking.site)
    which = chosen(asking.site, choice, verb, lambda: emergency.clusters(asking.site))
    asking.look(which)
    foreseen = Answers(verb, asking.rehearsed(which.names), is_rehearsal=True)
    if is_rehearsal:
        return foreseen
    if asking.ready and confirm is not None:
        require_confirmation(confirm(foreseen))
    clusters = {named.cluster for named in asking.ready}
    undone = emergency.carry_out_each(asking.site, clusters, asking.decide) if asking.ready else {}
    return Answers(verb, asking.answers(which.names, undone))


def _check_owned(mirror: MirrorTopic, record: Record) -> None:
    """Refuse to write down what became of a mirror that is none of this workspace's, nor any of its link's."""
    peer = peer_of(mirror)
    links = (address_of("link", each.cluster, each.link) for each in (mirror, peer))
    if not {mirror.address, topic_of(mirror), peer.address, *links} & record.keys():
        message = f"{mirror.address} is not owned by this workspace, nor is its link"
        raise UserError(message, hint="Declare the link, or do it without remembering that: --no-state")


# `mirror create`: mirrors over a link that is there, made now; the next drift shows what the files do not say.


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMirrors:
    """What is to be mirrored: over which link, from which topic, and configs of the mirrors' own."""

    link: str
    source: str | None = None
    """Full name on the source; `None`: as the mirror is called, without the prefix of the link."""
    configs: Mapping[str, str]


def create_mirrors(emergency: Emergency, addresses: Sequence[str], new: NewMirrors) -> Answers:
    """Make mirrors, and return what came of each.

    Raises:
        UsageError: An address is none of a mirror, or one source is named for several.
        LeaseError: Someone else is applying.
    """
    names = mirrors_named(addresses)
    if new.source is not None and len(names) > 1:
        raise UsageError("--source-topic is of one mirror", hint="Make them one after the other.")
    site = emergency.open()
    refused: dict[Named, ReconcilerError] = {}
    made: dict[Named, Create] = {}

    def decide(snapshot: Snapshot | None) -> list[Action]:
        for named in names:
            try:
                refuse_another_cluster(site, named.cluster, snapshot)
                made[named] = _create(site, named, new)
            except ReconcilerError as error:
                refused[named] = error
        return list(made.values())

    for named in names:
        try:
            site.providers[named.cluster]  # says which there are
            emergency.check(site, named.cluster)
            _create(site, named, new)
        except ReconcilerError as error:
            refused[named] = error
    names = [named for named in names if named not in refused]
    undone = emergency.carry_out_each(site, {named.cluster for named in names}, decide) if names else {}

    def answer(named: Named) -> Answer:
        if named in refused:
            return Answer(named=named, error=refused[named])
        after: MirrorStatus | None = None
        with suppress(ReconcilerError):  # only told: it is made, or `undone` says why not
            after = site.providers[named.cluster].links.mirror(named.name).status
        return Answer(named=named, after=after, error=undone.get(made[named].id))

    return Answers("create", tuple(map(answer, mirrors_named(addresses))))


def _create(site: Site, named: Named, new: NewMirrors) -> Create:
    provider = site.providers[named.cluster]
    if provider.identify() is None:
        raise absent_cluster(site.clusters[named.cluster])
    link = _link(provider.links.links(), named, new.link)
    if provider.observe(Scope((named.address, address_of("topic", named.cluster, named.name)))):
        hint = "A mirror is made under a name that is free: delete that topic first, or use a link with a prefix."
        raise UserError(f"{named.address}: topic {named.name} exists", hint=hint)
    source = _source(named, link, new.source)
    declared = link.declared.spec
    synced = SYNCED_BY_DEFAULT if declared.topic_config_sync is None else declared.topic_config_sync.include
    for key in sorted(new.configs.keys() & set(synced)):
        message = f"{named.address}: Cannot set configuration {key} for mirror topic: it is synced from the source"
        raise UserError(message, hint="Set it on the source topic, or leave it out of topicConfigSync.include.")
    configs = _configs(site, named, new.configs)
    if declared.source not in site.clusters:
        message = f"{named.address}: the source of link {link.name}, cluster {declared.source}, is not known here"
        raise UserError(message, hint="Declare it as a Cluster.")
    address = address_of("topic", declared.source, source)
    try:
        taken = site.providers[declared.source].source_topic(address)
    except ReconcilerError as error:
        raise UserError(f"{named.address}: its source {address}: {error.message}", hint=error.hint) from error
    mirror = MirrorTopic(
        cluster=named.cluster,
        link=link.name,
        source_cluster=declared.source,
        source=source,
        name=named.name,
        configs=configs,
        partitions=taken.partitions,
    )
    followed = {key: value for key, value in sorted(taken.configs.items()) if key in synced}
    return Create(
        address=named.address,
        after=mirror,
        parameters={"partitions": taken.partitions, "configs": followed, "incarnation": taken.incarnation},
        reasons=(Reason.DECLARED,),
        origins=BY_COMMAND,
    )


def _link(links: Sequence[LinkSeen], named: Named, name: str) -> LinkSeen:
    by_name = {link.name: link for link in links}
    if name not in by_name:
        known = ", ".join(sorted(by_name)) or "none"
        otherwise = f"Links there: {known}. Declare one, and apply that first."
        hint = did_you_mean(nearest_spelling(name, by_name), otherwise=otherwise)
        raise UserError(f"{named.address}: there is no link {name!r} on cluster {named.cluster}", hint=hint)
    return by_name[name]


def _source(named: Named, link: LinkSeen, source: str | None) -> str:
    """Return the full name of the source: the mirror's, without the prefix of the link (F-C-006, F-C-007)."""
    namespace, own = split_name(named.name)
    prefix = link.declared.spec.prefix
    fits = own.startswith(prefix) and own != prefix
    expected = join_name(namespace, own.removeprefix(prefix)) if fits else None
    if expected is None or source not in {None, expected}:
        given = source if source is not None else named.name
        source_namespace, source_own = split_name(given)
        rule = f"the prefix {prefix} and the name of its source" if prefix else "the name of its source"
        message = f"{named.address}: over link {link.name} a mirror has {rule}, in the same namespace"
        hint = f"That of {given} is called mirror/{named.cluster}/{join_name(source_namespace, prefix + source_own)}."
        raise UserError(message, hint=hint)
    return expected


def _configs(site: Site, named: Named, given: Mapping[str, str]) -> dict[str, str]:
    capabilities = site.providers[named.cluster].capabilities
    for message, hint in check_configs(given, capabilities):
        raise UserError(f"{named.address}: {message}", hint=hint)
    configs: dict[str, str] = {}
    for key, value in sorted(given.items()):
        try:
            configs[key] = canonical_value(key, value, capabilities.configs)
        except ValueError as error:
            raise UserError(f"{named.address}: {key}={value}: {error}", hint="Give it a value it can have.") from error
    return configs
