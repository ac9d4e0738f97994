"""`link list`, `describe`, `create`, `pause`, `resume` and `delete`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from reconciler.errors import BlockedError, ReconcilerError, UsageError, UserError
from reconciler.lifecycles import LinkStatus, MirrorStatus
from reconciler.manifests.models import complaints_of
from reconciler.manifests.positions import values_of
from reconciler.manifests.yaml_documents import parse
from reconciler.operations.clusters.mounts import ask_each, verdict_on
from reconciler.operations.mirrors.mirror_commands import ask_mirrors
from reconciler.operations.mirrors.mirror_selection import MirrorChoice, link_named, warn_of_absent
from reconciler.operations.mirrors.mirror_views import absent_cluster
from reconciler.operations.steps.observe import refuse_another_cluster, stands
from reconciler.operations.steps.recorded import check_state
from reconciler.operations.steps.runner import Emergency, SiteOptions, require_confirmation, verdict_on_each
from reconciler.operations.steps.workspace import Site, clusters_meant
from reconciler.planning.actions import Action, Change, Create, Delete, Reason, Risk, Update
from reconciler.planning.checks.mirror_checks import between, beyond_platform
from reconciler.planning.resolve.limits import beyond
from reconciler.planning.selection import half_at, half_of, has_two_halves
from reconciler.resources.address import Address, address_of, cluster_of, full_name_of, matches
from reconciler.resources.mirror_link import MirrorLink
from reconciler.runtime.text import did_you_mean, nearest_spelling
from reconciler.runtime.threads import side_by_side

if TYPE_CHECKING:
    from reconciler.resources.inventory import Record
    from reconciler.resources.mirrors import LinkSeen
    from reconciler.state.snapshots import Snapshot


LinkVerb: TypeAlias = Literal["pause", "resume", "delete"]

_ANY: Final = "*"
_LIST: Final = "See the links with: reconciler link list"
_PAUSED: Final = "paused"


# Links as their clusters have them, each with its mirrors counted by their states.


@dataclass(frozen=True, slots=True)
class LinkRow:
    """A link, and how many of its mirrors are in which state."""

    cluster: str
    seen: LinkSeen
    mirrors: Mapping[MirrorStatus, int]
    names: tuple[str, ...] = ()
    """Full names of its mirrors that are not stopped."""

    @property
    def address(self) -> Address:
        """What it is called."""
        return address_of("link", self.cluster, self.seen.name)

    @property
    def live(self) -> int:
        """How many of its mirrors are not stopped: while there are some it cannot be deleted (F-C-090)."""
        return sum(count for status, count in self.mirrors.items() if status is not MirrorStatus.STOPPED)

    @property
    def legal(self) -> tuple[LinkVerb, ...]:
        """What may be asked for now."""
        return ("resume" if self.seen.declared.spec.paused else "pause", *(() if self.live else ("delete",)))


@dataclass(frozen=True, slots=True)
class LinkList:
    """Links by cluster and name."""

    rows: tuple[LinkRow, ...]
    lost: Mapping[str, ReconcilerError]
    """Clusters whose links are not known, and why."""

    @property
    def verdict(self) -> ReconcilerError | None:
        """The error to end with, where a cluster could not be read."""
        return verdict_on(self.lost)


def list_links(reach: SiteOptions, clusters: Sequence[str]) -> LinkList:
    """Return the links of clusters, by default of all.

    Raises:
        UserError: A cluster is not in this workspace.
    """
    site = reach.site(is_reader=True)
    names = tuple(sorted({name.removeprefix("cluster/") for name in clusters})) or tuple(sorted(site.clusters))
    for name in names:
        site.providers[name]  # says which there are
    recorded = reach.recorded(site)
    found, lost = ask_each(names, lambda name: _rows(site, name) if stands(site, name, recorded) else ())
    return LinkList(tuple(row for name in sorted(found) for row in found[name]), lost)


def describe_links(reach: SiteOptions, texts: Sequence[str]) -> tuple[LinkRow, ...]:
    """Return the links that addresses and patterns name.

    Raises:
        UserError: One is not there, or a pattern matches nothing.
        RetryableError: A cluster cannot be reached.
    """
    check_links_typed(texts)
    site = reach.site(is_reader=True)
    recorded = reach.recorded(site)
    links = _Links.read(site, texts, lambda name: stands(site, name, recorded))
    return tuple(links.row(address) for address in links.chosen(texts))


def _rows(site: Site, cluster: str) -> tuple[LinkRow, ...]:
    links = site.providers[cluster].links
    mirrors: dict[str, Counter[MirrorStatus]] = {}
    names: dict[str, list[str]] = {}
    for mirror in links.mirrors():
        mirrors.setdefault(mirror.link, Counter())[mirror.status] += 1
        if mirror.status is not MirrorStatus.STOPPED:
            names.setdefault(mirror.link, []).append(mirror.name)
    return tuple(
        LinkRow(cluster, seen, mirrors.get(seen.name, {}), tuple(sorted(names.get(seen.name, ()))))
        for seen in links.links()
    )


# Which links are meant: addresses and patterns, as with mirrors.


def check_links_typed(texts: Sequence[str]) -> None:
    """Refuse what names no link, before anything is opened.

    Raises:
        UsageError: Nothing was named, or one is no address of a link.
    """
    if not texts:
        raise UsageError("no links were named", hint="For example link/east/twin, or 'link/east/*'.")
    for text in texts:
        link_named(text)


@dataclass(frozen=True)
class _Links:
    """The links of the clusters that are meant, by address."""

    rows: Mapping[Address, LinkRow]
    absent: frozenset[str]
    """Clusters that were never made."""
    site: Site

    @classmethod
    def read(cls, site: Site, texts: Sequence[str], is_there: Callable[[str], bool]) -> _Links:
        """Ask as few clusters as addresses and patterns allow, all at once: one may not answer today.

        Raises:
            UserError: A cluster is not known here.
            RetryableError: One cannot be reached.
        """
        names = clusters_meant(site, texts)
        read = side_by_side(lambda name: _rows(site, name) if is_there(name) else None, names, name="links")
        found = dict(zip(names, read, strict=True))
        rows = {row.address: row for each in found.values() for row in each or ()}
        return cls(rows, frozenset(name for name, each in found.items() if each is None), site)

    def chosen(self, texts: Sequence[str]) -> tuple[Address, ...]:
        """Return the addresses that are meant, each once; whether one that was named itself is there is not asked.

        Raises:
            UserError: A pattern matches no link.
        """
        return tuple(dict.fromkeys(each for text in texts for each in self._matching(text)))

    def row(self, address: Address) -> LinkRow:
        """Return a link.

        Raises:
            UserError: It is not there.
        """
        if address in self.rows:
            return self.rows[address]
        cluster = cluster_of(address) or ""
        if cluster in self.absent:
            raise absent_cluster(self.site.clusters[cluster])
        known = ", ".join(sorted(self.rows)) or "none"
        hint = did_you_mean(nearest_spelling(address, self.rows), otherwise=f"Links there: {known}.")
        raise UserError(f"{address}: there is no such link", hint=hint)

    def _matching(self, text: str) -> tuple[Address, ...]:
        if _ANY not in text:
            return (Address(text),)
        found = tuple(address for address in sorted(self.rows) if matches(text, address))
        if not found:
            raise UserError(f"no link matches {text}: nothing was done", hint=_LIST)
        return found


def _read_after(site: Site, names: Sequence[Address], is_there: Callable[[str], bool]) -> _Links | None:
    """Return links as they are once something was done; `None`: they cannot be read, and what was done is known."""
    try:
        return _Links.read(site, names, is_there) if names else None
    except ReconcilerError:
        return None


# What came of asking links, or would.


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkAnswer:
    """What came of asking one link; without an error it is done."""

    address: Address
    before: LinkStatus | None = None
    after: LinkStatus | None = None
    error: ReconcilerError | None = None
    is_left: bool = False
    """It was as the verb would leave it, and named by a pattern alone: nothing was done."""
    row: LinkRow | None = None
    notes: tuple[str, ...] = ()
    """What else there is to know: of the files, of its mirrors, of its other half."""


@dataclass(frozen=True, slots=True)
class LinkAnswers:
    """What came of asking links, in the order in which they were named."""

    verb: str
    each: tuple[LinkAnswer, ...]
    is_rehearsal: bool = False
    """Nothing was done: it says what would be."""

    @property
    def verdict(self) -> ReconcilerError | None:
        """The error to end with, where not all of it was done."""
        errors = [answer.error for answer in self.each]
        return verdict_on_each(self.verb, errors, "links", is_rehearsal=self.is_rehearsal)


@dataclass
class _Asking:
    """One verb asked of some links."""

    emergency: Emergency
    site: Site
    verb: LinkVerb
    is_forced: bool
    texts: Sequence[str]
    ready: dict[Address, LinkRow] = field(default_factory=dict)
    refused: dict[Address, ReconcilerError] = field(default_factory=dict)
    left: dict[Address, LinkRow] = field(default_factory=dict)
    notes: dict[Address, tuple[str, ...]] = field(default_factory=dict)

    def look(self) -> tuple[Address, ...]:
        """See which of them may be asked, and return all that are meant."""
        links = _Links.read(self.site, self.texts, self._is_there)
        if any(_ANY in text for text in self.texts):
            warn_of_absent(self.site, links.absent, lambda: self.emergency.clusters(self.site))
        names = links.chosen(self.texts)
        for address in names:
            try:
                row = links.row(address)
                self.emergency.check(self.site, row.cluster)
                self._check(row)
                self.ready[address] = row
            except ReconcilerError as error:
                found = links.rows.get(address)
                if found is not None and address not in self.texts and self._is_as_wanted(found.seen.declared):
                    self.left[address] = found
                else:
                    self.refused[address] = error
        return names

    def decide(self, snapshot: Snapshot | None) -> list[Action]:
        """Return what is to be done, looked at once more: it may have changed while somebody was asked."""
        record = None if snapshot is None else snapshot.record
        links = _Links.read(self.site, tuple(self.ready), self._is_there)
        actions: list[Action] = []
        for address in tuple(self.ready):
            try:
                row = links.row(address)
                refuse_another_cluster(self.site, row.cluster, snapshot)
                self._check(row)
                self.ready[address] = row
                actions.append(self._action(row, record))
                self.notes[address] = tuple(self._notes(row, record))
            except ReconcilerError as error:
                self.refused[address] = error
                del self.ready[address]
        return actions

    def answers(self, names: Sequence[Address], undone: Mapping[str, ReconcilerError]) -> tuple[LinkAnswer, ...]:
        """Return what came of each."""
        after = _read_after(self.site, tuple(self.ready), self._is_there)
        return tuple(self._answer(address, undone, after) for address in names)

    def rehearsed(self, names: Sequence[Address], record: Record | None) -> tuple[LinkAnswer, ...]:
        """Return what would come of each."""
        return tuple(
            LinkAnswer(
                address=address,
                before=self.ready[address].seen.status,
                row=self.ready[address],
                notes=tuple(self._notes(self.ready[address], record)),
            )
            if address in self.ready
            else self._answer(address, {}, None)
            for address in names
        )

    def _answer(self, address: Address, undone: Mapping[str, ReconcilerError], after: _Links | None) -> LinkAnswer:
        if address in self.left:
            status = self.left[address].seen.status
            return LinkAnswer(address=address, before=status, after=status, is_left=True)
        if address in self.refused:
            return LinkAnswer(address=address, error=self.refused[address])
        row = self.ready[address]
        verb = "delete" if self.verb == "delete" else "update"
        found = None if after is None else after.rows.get(address)
        gone = LinkStatus.ABSENT if after is not None and self.verb == "delete" else None
        return LinkAnswer(
            address=address,
            before=row.seen.status,
            after=gone if found is None else found.seen.status,
            error=undone.get(f"{verb}:{address}"),
            row=row,
            notes=self.notes.get(address, ()),
        )

    def _is_there(self, cluster: str) -> bool:
        return self.site.providers[cluster].identify() is not None

    def _is_as_wanted(self, link: MirrorLink) -> bool:
        """Tell whether the verb would leave a link as it is, or as it was applied last."""
        return self.verb != "delete" and link.spec.paused == (self.verb == "pause")

    def _check(self, row: LinkRow) -> None:
        """Refuse what cannot be asked of a link as it is.

        Raises:
            UserError: It cannot.
        """
        capabilities = self.site.providers[row.cluster].capabilities
        if self.verb != "delete" and _PAUSED not in capabilities.link_features:
            message, _ = beyond(capabilities, "pause a link")
            raise UserError(f"{row.address}: {message}", hint="Pause its mirrors: reconciler mirror pause --link LINK")
        if self._is_as_wanted(row.seen.declared):
            message = f"{row.address} is {'paused already' if self.verb == 'pause' else 'not paused'}"
            raise UserError(message, hint=f"Possible in this state: {', '.join(row.legal)}.")
        if self.verb == "delete" and row.live and not self.is_forced:
            states = ", ".join(f"{count} {status}" for status, count in sorted(row.mirrors.items()))
            message = f"{row.address} has mirrors that are not stopped: {states}"
            hint = (
                f"Promote or fail them over first: reconciler mirror failover --link {row.address}. "
                "--force fails them over, and what they lack is lost."
            )
            raise BlockedError(message, hint=hint)

    def _action(self, row: LinkRow, record: Record | None) -> Action:
        last = None if record is None else record.get(row.address)
        if self.verb == "delete":
            if last is not None and last.protect:
                raise BlockedError(f"{row.address} is protected", hint="Apply once with protect: false.")
            return Delete(
                address=row.address,
                before=row.seen.declared,
                incarnation=row.seen.id,
                risk=Risk.DISRUPTIVE,
                reasons=(Reason.BY_COMMAND,),
            )
        before, paused = row.seen.declared, self.verb == "pause"
        return Update(
            address=row.address,
            before=before,
            after=before.model_copy(update={"spec": before.spec.model_copy(update={_PAUSED: paused})}),
            changes=(Change(_PAUSED, before.spec.paused, paused),),
            risk=Risk.DISRUPTIVE if paused else Risk.NONE,
            reasons=(Reason.BY_COMMAND,),
        )

    def _notes(self, row: LinkRow, record: Record | None) -> Iterator[str]:
        """Yield what else there is to know about one."""
        stopped = row.mirrors.get(MirrorStatus.STOPPED, 0)
        if self.verb == "delete" and stopped:
            yield f"of its {stopped} stopped mirrors the topics stay; where they were copied to is forgotten"
        if self.verb == "delete" and has_two_halves(row.seen.declared):
            half = half_at(row.seen.declared)
            if half not in self.ready:
                yield f"its half on the other cluster stays: reconciler link delete {half}"
        if record is None:
            return
        last = record.get(row.address)
        if last is None:
            yield "no file of this workspace declares it"
        elif not isinstance(last.resource, MirrorLink) or not self._is_as_wanted(last.resource):
            again = "makes it again" if self.verb == "delete" else "sets that back"
            yield f"the files declare it: apply {again}, and reconciler drift --accept {row.address} takes it into them"


def ask_links(
    emergency: Emergency,
    verb: LinkVerb,
    texts: Sequence[str],
    *,
    confirm: Callable[[LinkAnswers], bool] | None = None,
    is_forced: bool = False,
    is_rehearsal: bool = False,
) -> LinkAnswers:
    """Ask a verb of links, and return what came of each; one that fails does not stop the others.

    `confirm` is asked once, and given what would come of each. A rehearsal returns just that, and changes nothing.
    With `is_forced` the mirrors of links that are deleted are failed over first.

    Raises:
        UsageError: What was typed is no link.
        UserError: It was not confirmed, or a pattern matches nothing.
        LeaseError: Someone else is applying.
    """
    check_links_typed(texts)
    site = emergency.open()
    record = emergency.recorded(site)
    asking = _Asking(emergency, site, verb, is_forced, texts)
    names = asking.look()
    foreseen = LinkAnswers(verb, asking.rehearsed(names, record), is_rehearsal=True)
    if is_rehearsal:
        return foreseen
    if asking.ready and confirm is not None:
        require_confirmation(confirm(foreseen))
    if is_forced:
        _fail_over(emergency, asking)
    clusters = {row.cluster for row in asking.ready.values()}
    undone = emergency.carry_out_each(site, clusters, asking.decide) if asking.ready else {}
    return LinkAnswers(verb, asking.answers(names, undone))


def _fail_over(emergency: Emergency, asking: _Asking) -> None:
    """Stop the mirrors of links that are to be deleted; a link of which one cannot be stopped stays."""
    for address, row in tuple(asking.ready.items()):
        if not row.live:
            continue
        answers = ask_mirrors(replace(emergency, command="mirror failover"), "failover", MirrorChoice((), (address,)))
        if (error := answers.verdict) is not None:
            failed = next(each for each in answers.each if each.error is not None)
            message = f"{address} stays: {failed.named.address} could not be failed over: {error.message}"
            asking.refused[address] = UserError(message, hint=error.hint)
            del asking.ready[address]


# `link create`: links made now; the next drift shows what no file says.


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLinks:
    """What is asked of new links; `fields` are others of a MirrorLink's spec, as YAML."""

    source: str
    mode: str = "destination"
    prefix: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)


def create_links(emergency: Emergency, texts: Sequence[str], new: NewLinks) -> LinkAnswers:
    """Make links and, of those that have two, the other halves; return what came of each.

    Raises:
        UsageError: What was typed is no address of a link.
        LeaseError: Someone else is applying.
    """
    check_links_typed(texts)
    for text in texts:
        if _ANY in text:
            raise UsageError(f"{text!r} is a pattern, and no link to be made", hint="Write it as link/east/twin.")
    spec = _spec(new)
    site = emergency.open()
    if not emergency.no_state:
        check_state(site)
    making = _Making(site, tuple(dict.fromkeys(map(Address, texts))), spec)
    making.look(lambda cluster: emergency.check(site, cluster))
    clusters = {action.cluster or "" for each in making.made.values() for action in each}
    undone = emergency.carry_out_each(site, clusters, making.decide) if making.made else {}
    return LinkAnswers("create", making.answers(undone))


@dataclass
class _Making:
    """Links that are to be made with one spec, and what is found of them."""

    site: Site
    names: Sequence[Address]
    spec: Mapping[str, object]
    made: dict[Address, tuple[Create, ...]] = field(default_factory=dict)
    refused: dict[Address, ReconcilerError] = field(default_factory=dict)

    def look(self, check: Callable[[str], None]) -> None:
        """See which can be made, and by what; `check` refuses a cluster in whose place another answers."""
        for address in self.names:
            if address in self.refused:
                continue
            try:
                self.made[address] = tuple(_creates(self.site, _link(address, self.spec), check))
            except ReconcilerError as error:
                self.refused[address] = error
                self.made.pop(address, None)

    def decide(self, snapshot: Snapshot | None) -> list[Action]:
        """Return what makes them, looked at once more; a half that two links share is made once."""
        self.look(lambda cluster: refuse_another_cluster(self.site, cluster, snapshot))
        return list({action.id: action for each in self.made.values() for action in each}.values())

    def answers(self, undone: Mapping[str, ReconcilerError]) -> tuple[LinkAnswer, ...]:
        """Return what came of each."""
        after = _read_after(self.site, tuple(self.made), lambda _name: True)
        return tuple(self._answer(address, undone, after) for address in self.names)

    def _answer(self, address: Address, undone: Mapping[str, ReconcilerError], after: _Links | None) -> LinkAnswer:
        if address in self.refused:
            return LinkAnswer(address=address, error=self.refused[address])
        made = self.made[address]
        errors = [undone[action.id] for action in made if action.id in undone]
        if errors:
            return LinkAnswer(address=address, error=errors[0])
        row = None if after is None else after.rows.get(address)
        also = [f"its half {action.address} was made, too" for action in made if action.address != address]
        undeclared = f"no file declares it: it is left as it is, and reconciler drift --accept {address} writes it"
        return LinkAnswer(
            address=address,
            before=LinkStatus.ABSENT,
            after=None if row is None else row.seen.status,
            row=row,
            notes=(*also, undeclared),
        )


def _spec(new: NewLinks) -> dict[str, object]:
    """Return the spec that was typed.

    Raises:
        UsageError: A value is not YAML.
    """
    spec: dict[str, object] = {"source": new.source, "mode": new.mode, "prefix": new.prefix}
    for key, text in new.fields.items():
        if key == "mirrorTopics":
            hint = "Make mirrors over the link once it is there: reconciler mirror create ADDR --link NAME"
            raise UsageError("--set mirrorTopics: a command makes the link alone", hint=hint)
        parsed = parse(text.encode(), f"--set {key}")
        if parsed.problems or len(parsed.documents) != 1:
            why = parsed.problems[0].message if parsed.problems else "it is not one value"
            raise UsageError(
                f"--set {key}={text}: {why}", hint="Write the value as YAML, for example --set prefix=west."
            )
        spec[key] = parsed.documents[0].as_written
    return spec


def _link(address: Address, spec: Mapping[str, object]) -> MirrorLink:
    """Return the link of an address.

    Raises:
        UserError: A field or the name cannot be; says what can.
    """
    from pydantic import ValidationError  # noqa: PLC0415 - heavy, and loaded by the models anyhow

    content = {
        "apiVersion": "reconciler/v1",
        "kind": "MirrorLink",
        "metadata": {"name": full_name_of(address), "cluster": cluster_of(address)},
        "spec": dict(spec),
    }
    try:
        return MirrorLink.model_validate(values_of(content))
    except ValidationError as error:
        first = next(iter(complaints_of(error, MirrorLink, content)))
        place = ".".join(str(part) for part in first.at if part != "spec")
        message = f"{address}: {place}: {first.message}" if place else f"{address}: {first.message}"
        raise UserError(message, hint=first.hint or "See the fields with: reconciler schema") from error


def _creates(site: Site, link: MirrorLink, check: Callable[[str], None]) -> Iterator[Create]:
    """Yield what makes a link: it, and its other half where it has one that is not there.

    Raises:
        UserError: It cannot be made, or `check` refuses one of its clusters.
    """
    halves = (link, *_half(link))
    for each in halves:
        site.providers[each.cluster]  # says which there are
        check(each.cluster)
        capabilities = site.providers[each.cluster].capabilities
        for message, hint in beyond_platform(each, capabilities):
            raise UserError(f"{link.address}: {message}", hint=hint)
    _check_ends(site, link)
    there = {each.cluster: {seen.name: seen for seen in site.providers[each.cluster].links.links()} for each in halves}
    is_half_made = any(each.metadata.name not in there[each.cluster] for each in halves)
    for each in halves:
        _check_prefix(each, there[each.cluster].values())
        seen = there[each.cluster].get(each.metadata.name)
        if seen is None:
            yield Create(address=each.address, after=each, reasons=(Reason.BY_COMMAND,))
        elif each is link and is_half_made and seen.declared.spec == each.spec:
            continue  # The other half could not be made when it was.
        elif each is link or (seen.declared.spec.source, seen.declared.spec.mode) != (each.spec.source, each.spec.mode):
            half = "" if each is link else f"its half {each.address}: "
            message = f"{link.address}: {half}A cluster link already exists with the provided link name"
            raise UserError(message, hint=f"See it with: reconciler link describe {each.address}")


def _half(link: MirrorLink) -> Iterator[MirrorLink]:
    if has_two_halves(link) and isinstance(half := half_of(link, "").resource, MirrorLink):
        yield half


def _check_ends(site: Site, link: MirrorLink) -> None:
    """Refuse a link whose clusters are not there, or are one.

    Raises:
        UserError: They are not, or are.
    """
    name, source = link.cluster, link.spec.source
    if source not in site.clusters:
        known = did_you_mean(nearest_spelling(source, site.clusters), otherwise="Declare it as a Cluster.")
        raise UserError(f"{link.address}: its source, cluster {source}, is not known here", hint=known)
    here = site.providers[name].identify()
    try:
        there = site.providers[source].identify()
    except ReconcilerError as error:
        message = f"{link.address}: its source, cluster {source}, does not answer: {error.message}"
        raise UserError(message, hint=error.hint) from error
    for cluster, identity in ((name, here), (source, there)):
        if identity is None:
            raise absent_cluster(site.clusters[cluster])
    if here is not None and there is not None and (wrong := between(link, here, there)) is not None:
        message, hint = wrong
        raise UserError(f"{link.address}: {message}", hint=hint)


def _check_prefix(link: MirrorLink, there: Iterable[LinkSeen]) -> None:
    prefix = link.spec.prefix
    other = next((seen for seen in there if prefix and seen.declared.spec.prefix == prefix), None)
    if other is not None and other.name != link.metadata.name:
        message = f"{link.address}: prefix already exists: link {other.name} has {prefix!r}, too"
        raise UserError(message, hint="Each link of a cluster has a prefix of its own: choose another.")
