"""Actions about links and mirrors carried out: those of one link at once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from reconciler.errors import ReconcilerError, StalePlanError, UserError
from reconciler.planning.actions import Create, Delete, Transition, Update
from reconciler.providers.base import Done, Failed
from reconciler.providers.changes import moved
from reconciler.providers.kafka.changing.asked import PLATFORM, cannot
from reconciler.providers.kafka.ledger import writer_of
from reconciler.providers.kafka.linking.changing import Changing
from reconciler.providers.kafka.linking.configuring import synced_keys
from reconciler.providers.kafka.linking.making import Making, New
from reconciler.providers.kafka.linking.states import link_changes, states_of
from reconciler.providers.kafka.metadata import own_values
from reconciler.providers.linkmodels import declared_after, link_entry, source_taken
from reconciler.resources.address import full_name_of
from reconciler.resources.linkfilters import with_filters
from reconciler.resources.linkrules import check_own, check_synced
from reconciler.resources.mirrorlink import MirrorLink, MirrorTopic
from reconciler.resources.mirrorstates import ONE_SIDED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from reconciler.planning.actions import ControlAction
    from reconciler.providers.base import Outcome
    from reconciler.providers.kafka.ledger import Changes, Entries
    from reconciler.providers.kafka.linking.site import Site
    from reconciler.resources.linkentries import Json, LinkEntry

_FIRST: Final = (Delete, Transition)


def carried_out(site: Site, actions: Sequence[ControlAction], may_go_on: Callable[[], None]) -> Iterator[Outcome]:
    """Do actions about links and mirrors and yield one outcome each; what was done before is done once.

    Raises:
        LeaseError: By `may_go_on`; what was begun is finished by whoever comes next.
    """
    carrying = _Carrying(site, may_go_on)
    ordered = sorted(actions, key=lambda action: not isinstance(action, _FIRST))
    found: dict[str, str | ReconcilerError | None] = {}
    found |= carrying.transitions([each for each in ordered if isinstance(each, Transition)])
    for action in ordered:
        if action.id not in found and not (isinstance(action, Create) and isinstance(action.after, MirrorTopic)):
            try:
                found[action.id] = carrying.one(action)
            except ReconcilerError as error:
                found[action.id] = error
    found |= carrying.mirrors([each for each in ordered if isinstance(each, Create) and each.id not in found])
    for action in actions:
        outcome = found[action.id]
        if isinstance(outcome, ReconcilerError):
            yield Failed(action.id, outcome)
        else:
            yield Done(action.id, outcome, _physical(site, action))


def _physical(site: Site, action: ControlAction) -> str | None:
    is_mirror = isinstance(action, Transition) or isinstance(getattr(action, "after", None), MirrorTopic)
    return site.naming.physical(full_name_of(action.address)) if is_mirror else None


class _Carrying:
    def __init__(self, site: Site, may_go_on: Callable[[], None]) -> None:
        self._site, self._may_go_on = site, may_go_on

    def transitions(self, asked: Sequence[Transition]) -> dict[str, str | ReconcilerError]:
        """Pause, resume and fail over mirrors; what needs both clusters is driven by who knows both."""
        found: dict[str, str | ReconcilerError] = {}
        of = {kept.name: kept.link for kept in self._site.states().mirrors.values()} if asked else {}
        for verb in sorted({action.verb for action in asked}):
            some = {full_name_of(action.address): action for action in asked if action.verb == verb}
            if verb not in ONE_SIDED:
                found |= {action.id: cannot(action) for action in some.values()}
                continue
            known = {name: of[name] for name in some if name in of}
            outcomes = Changing(self._site, self._may_go_on).ask_once(known, verb)
            for name, action in some.items():
                message = f"topic {name} is not mirrored"
                missing = UserError(message, hint="See the mirrors with: reconciler mirror list")
                found[action.id] = outcomes.get(name, missing)
        return found

    def mirrors(self, asked: Sequence[Create]) -> dict[str, str | ReconcilerError]:
        """Make mirrors, those of one link at once."""
        found: dict[str, str | ReconcilerError] = {}
        by_link: dict[str, dict[str, tuple[Create, New]]] = {}
        for action in asked:
            mirror = action.after
            assert isinstance(mirror, MirrorTopic)  # noqa: S101 - the rest was done before
            try:
                new = New(mirror.source, source_taken(mirror.address, action.parameters), mirror.configs)
            except ReconcilerError as error:
                found[action.id] = error
            else:
                by_link.setdefault(mirror.link, {})[mirror.name] = (action, new)
        for link, some in by_link.items():
            made = self._made(link, {name: new for name, (_, new) in some.items()})
            found |= {action.id: made[name] for name, (action, _) in some.items()}
        return found

    def _made(self, link: str, wanted: dict[str, New]) -> dict[str, str | ReconcilerError]:
        try:
            return Making(self._site, self._may_go_on).make(link, wanted)
        except ReconcilerError as error:
            return dict.fromkeys(wanted, error)

    def one(self, action: ControlAction) -> str | None:
        """Do one action that is about a link, changes a mirror, or deletes one; return what it leaves."""
        match action:
            case Create(after=MirrorLink() as link):
                return self._make_link(link)
            case Update(after=MirrorLink() as link):
                name = link.metadata.name
                return self._change_link(name, lambda here: self._altered(name, here, action)).id
            case Update(after=MirrorTopic() as mirror):
                return self._configure(mirror, action)
            case Delete(before=MirrorLink() as link):
                self._delete_link(link.metadata.name, action.incarnation)
                return None
            case Delete(before=MirrorTopic() as mirror):
                Making(self._site, self._may_go_on).delete(mirror.link, mirror.name, action.incarnation)
                return None
            case _:
                raise cannot(action)

    def _make_link(self, link: MirrorLink) -> str:
        """Make a link. One that is there and asks for the same is left alone."""
        name = link.metadata.name
        new = link_entry(link, self._site.new_id())
        check_synced(name, new)
        declared = with_filters(name, new.declared)

        def decide(entries: Entries) -> Changes:
            there = states_of(entries).links.get(name)
            if there is None:
                return link_changes(name, _with(new, declared))
            if (there.source_cluster, there.declared) != (new.source_cluster, declared):
                raise UserError(f"link {name} exists and differs", hint="Change it instead of creating it.")
            return {}

        self._may_go_on()
        return states_of(self._site.ledger.change(writer_of(name), decide)).links[name].id

    def _altered(self, name: str, here: LinkEntry, action: Update) -> LinkEntry:
        after = _with(here, with_filters(name, declared_after(here.declared, action.changes)))
        check_synced(name, after)
        return after

    def _change_link(self, name: str, of: Callable[[LinkEntry], LinkEntry]) -> LinkEntry:
        return Changing(self._site, self._may_go_on).change_link(name, of)

    def _delete_link(self, name: str, link_id: str | None) -> None:
        there = self._site.states().links.get(name)
        if there is not None and link_id not in {None, there.id}:
            raise StalePlanError(f"link {name} was deleted and made anew since it was looked at", hint="Plan again.")
        Making(self._site, self._may_go_on).delete_link(name)

    def _configure(self, mirror: MirrorTopic, action: Update) -> str:
        """Change a mirror's own configs."""
        topic, seen = self._site.topic(mirror.name)
        states = self._site.states()
        kept = states.mirror(topic, mirror.name, None if seen is None else seen.id)
        wanted = moved(action.address, action.changes, platform=PLATFORM)
        link = states.link(kept.link)
        check_own(mirror.name, synced_keys(link), wanted.configs)
        partitions = 0 if seen is None else len(seen.replicas)
        ((_, configs),) = self._site.client.configs([topic])
        own = {} if isinstance(configs, int) else own_values(configs)
        self._site.shape(mirror.name, (partitions, own), (partitions, wanted.configs), self._may_go_on)
        return kept.topic_id or ""


def _with(link: LinkEntry, declared: Json) -> LinkEntry:

    return replace(link, declared=declared)
