"""Changes of cluster links and mirror topics. A verb is sent once, and is done when its state is seen (F-C-203)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from reconciler.errors import (
    IncompleteError,
    NotFoundError,
    ReconcilerError,
    StalePlanError,
    UnansweredError,
    UserError,
)
from reconciler.lifecycles import MirrorStatus
from reconciler.planning.actions import ControlAction, Create, Delete, Reason, Transition, Update
from reconciler.providers.brokers.admin_requests import PLATFORM
from reconciler.providers.brokers.links.native_links import NativeLinkBatch
from reconciler.providers.confluent.client import POLLS
from reconciler.providers.confluent.links import (
    NAMES_AT_ONCE,
    STOPPED,
    ClusterLink,
    ConfluentSite,
    LinkReader,
    MirrorRow,
    parse_truncation,
)
from reconciler.providers.models import apply_declared_changes, convert_changes, to_declared_link
from reconciler.resources.address import address_of, full_name_of
from reconciler.resources.measures import check_approved
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic
from reconciler.resources.mirrors import FAILOVER, RESTORE, REVERSALS, REVERSE_AND_PAUSE, REVERSE_AND_START
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.retry import Tries
from reconciler.runtime.text import pluralize
from reconciler.runtime.threads import map_in_parallel

if TYPE_CHECKING:
    from reconciler.planning.actions import Change
    from reconciler.providers.confluent.client import Json, RestClient

_STALLED_S: Final = 120.0
"""Seconds in which no mirror of a batch gets on, after which its verb is no longer awaited."""
_UNANSWERED_S: Final = 15.0
"""Seconds in which a verb without an answer must show."""
_M = MirrorStatus
_RUNNING: Final = frozenset({_M.ACTIVE, _M.SOURCE_UNAVAILABLE, _M.LINK_PAUSED, _M.LINK_FAILED})


@dataclass(frozen=True, slots=True)
class _Verb:
    """A verb of mirrors, and the states by which its progress is known."""

    ends: frozenset[MirrorStatus]
    """States in which it is done."""
    through: frozenset[MirrorStatus] = frozenset()
    """States on the way: the verb was requested before, and is awaited only."""
    fails: frozenset[MirrorStatus] = frozenset({_M.FAILED})
    """States from which it does not get to an end."""


_REVERSAL: Final = _Verb(frozenset({_M.STOPPED}), frozenset({_M.PENDING_SYNCHRONIZE, _M.PENDING_STOPPED}))
_VERBS: Final[Mapping[str, _Verb]] = {
    "pause": _Verb(frozenset({_M.PAUSED})),
    "resume": _Verb(_RUNNING),
    "promote": _Verb(frozenset({_M.STOPPED}), frozenset({_M.PENDING_STOPPED})),
    FAILOVER: _Verb(frozenset({_M.STOPPED}), fails=frozenset()),
    REVERSE_AND_START: _REVERSAL,
    REVERSE_AND_PAUSE: _REVERSAL,
    RESTORE: _Verb(_RUNNING, frozenset({_M.PENDING_SETUP_FOR_RESTORE, _M.PENDING_RESTORE})),
}
_OTHER_SIDE: Final = _Verb(
    _RUNNING | {_M.PAUSED}, frozenset({_M.PENDING_MIRROR}), fails=frozenset({_M.STOPPED, _M.FAILED})
)
"""A reversal on the cluster of the former source."""


@dataclass
class LinkBatch(NativeLinkBatch):
    """Applies actions about cluster links and mirror topics to one cluster."""

    site: ConfluentSite

    @property
    def _rest(self) -> RestClient:
        return self.site.reader.rest

    def _change(self, action: ControlAction) -> None:
        if isinstance(action, Update) and isinstance(action.after, MirrorTopic):
            self.results[action.id] = self._update_mirror(action)
        elif isinstance(action, Delete) and Reason.FORCED in action.reasons:
            self._delete_link(full_name_of(action.address), action.incarnation, force=True)
            self.results[action.id] = None
        else:
            super()._change(action)

    # Links

    def _create_link(self, link: MirrorLink, *, is_source_half: bool) -> str:
        name, options = link.metadata.name, self.site.reader.options
        body = options.build_source_half(link.spec) if is_source_half else options.build(link.spec)
        existing = self.site.reader.find_link(name)
        if existing is None:
            try:
                self.may_go_on()
                doing = f"create link {name}"
                self._rest.change("POST", "links", doing=doing, content=body, link_name=name)
            except UnansweredError:
                if self.site.reader.find_link(name) is None:
                    raise
            existing = self._wait_for_link(name)
        declared = to_declared_link(name, self.site.cluster, self.site.reader.build_entry(existing))
        if options.build_configs(declared.spec) != options.build_configs(link.spec):
            message = f"link {name} exists, and differs from what was to be created"
            raise UserError(message, hint="It was created after the plan: plan again.")
        return existing.id

    def _wait_for_link(self, name: str) -> ClusterLink:
        tries = Tries(POLLS, within_s=_STALLED_S)
        while (link := self.site.reader.find_link(name)) is None:
            if tries.has_ended:
                message = f"link {name} was created, and cannot be read after {tries.elapsed_s:.0f} s"
                raise IncompleteError(message, hint="Run the same command again.")
            tries.wait()
        return link

    def _require_link(self, name: str) -> ClusterLink:
        link = self.site.reader.find_link(name)
        if link is None:
            message = f"cluster {self.site.cluster} has no link {name}"
            raise NotFoundError(message, hint="It was deleted after the plan read it: plan again.")
        return link

    def _update_link(self, name: str, changes: Sequence[Change]) -> str:
        link, options = self._require_link(name), self.site.reader.options
        entry = self.site.reader.build_entry(link)
        after = replace(entry, declared=apply_declared_changes(entry.declared, changes))
        spec = to_declared_link(name, self.site.cluster, after).spec
        alterations = [*options.change(link.configs, spec, changes), *options.rotate(link.configs, spec)]
        if alterations:
            self.may_go_on()
            self._rest.alter_link(name, alterations)
        return link.id

    def _delete_link(self, name: str, link_id: str | None, *, force: bool = False) -> None:
        link = self.site.reader.find_link(name)
        if link is None:
            return
        if link_id not in {None, link.id}:
            raise StalePlanError(f"link {name} was deleted and created again since the plan", hint="Plan again.")
        self.may_go_on()
        try:
            query = {"force": True} if force else {}
            self._rest.change("DELETE", "links", name, doing=f"delete link {name}", is_repeatable=True, **query)
        except NotFoundError:
            return
        tries = Tries(POLLS, within_s=_STALLED_S)
        while self.site.reader.find_link(name) is not None:
            if tries.has_ended:
                message = f"link {name} is still being deleted after {tries.elapsed_s:.0f} s"
                raise IncompleteError(message, hint="Run the same command again.")
            tries.wait()

    # Mirrors

    def _update_mirror(self, action: Update) -> str | None:
        name = self.site.naming.to_physical(full_name_of(action.address))
        wanted = convert_changes(action.address, action.changes, platform=PLATFORM)
        rows = [
            {"name": key, "operation": "DELETE"} if value is None else {"name": key, "value": value}
            for key, value in wanted.configs.items()
        ]
        if rows:
            self.may_go_on()
            place, doing = ("topics", name, "configs:alter"), f"change configs of {name}"
            self._rest.change("POST", *place, doing=doing, content={"data": rows}, is_repeatable=True)
        return self._find_ids([name]).get(name)

    def _create_mirrors(self, link: str, actions: Mapping[str, Create]) -> None:
        """Create mirrors in parallel, and wait until all are listed."""
        existing = self._read_mirrors()
        new = []
        for name, action in actions.items():
            if name not in existing:
                new.append(name)
            elif not _is_same(action, existing[name], link, self.site):
                message = f"topic {name} exists, and mirrors another topic"
                self.results[action.id] = UserError(message, hint="It was created after the plan: plan again.")
        if new:
            self.may_go_on()
        errors = list(map_in_parallel(lambda name: self._create_mirror(link, name, actions[name]), new, name="mirror"))
        self.results |= {actions[name].id: error for name, error in zip(new, errors, strict=True) if error is not None}
        waiting = {name for name, action in actions.items() if action.id not in self.results}
        seen = self._wait_for_mirrors(waiting)
        ids = self._find_ids(seen)
        for name in waiting:
            if name in ids:
                self.results[actions[name].id] = ids[name]
            else:
                message = f"it was created, and is not listed as a mirror after {_STALLED_S:.0f} s"
                self.results[actions[name].id] = IncompleteError(message, hint="Run the same command again.")

    def _create_mirror(self, link: str, name: str, action: Create) -> ReconcilerError | None:
        mirror = action.after
        assert isinstance(mirror, MirrorTopic)  # noqa: S101 - only these are created here
        body = {
            "source_topic_name": self.site.naming.to_physical(mirror.source),
            "mirror_topic_name": name,
            "configs": [{"name": key, "value": value} for key, value in sorted(mirror.configs.items())],
        }
        try:
            self._rest.change("POST", "links", link, "mirrors", doing=f"create mirror {name}", content=body)
        except UnansweredError:
            return None  # The list shows whether it was done.
        except ReconcilerError as error:
            return error
        return None

    def _wait_for_mirrors(self, names: Collection[str]) -> Collection[str]:
        tries, missing = Tries(POLLS, within_s=_STALLED_S), set(names)
        while missing:
            listed = missing & self._read_mirrors().keys()
            missing -= listed
            if listed:
                tries = Tries(POLLS, within_s=_STALLED_S)
            elif tries.has_ended:
                break
            if missing:
                tries.wait()
        return set(names) - missing

    def _delete_mirrors(self, actions: Mapping[str, Delete]) -> None:
        """Delete the topics of mirrors in parallel, and wait until the mirrors are gone."""
        names = sorted(self._select_existing(actions))
        if names:
            self.may_go_on()
        errors = zip(names, map_in_parallel(self._delete_topic, names, name="mirror"), strict=True)
        self.results |= {actions[name].id: error for name, error in errors}
        left = {name for name in names if self.results[actions[name].id] is None}
        tries = Tries(POLLS, within_s=_STALLED_S)
        while left and (left := left & (self._read_mirrors().keys() | self._find_ids(left).keys())):
            if tries.has_ended:
                message = f"it is still there {tries.elapsed_s:.0f} s later"
                late = IncompleteError(message, hint="Run the same command again.")
                self.results |= {actions[name].id: late for name in left}
                break
            tries.wait()

    def _delete_topic(self, name: str) -> ReconcilerError | None:
        try:
            self._rest.change("DELETE", "topics", name, doing=f"delete mirror {name}", is_repeatable=True)
        except NotFoundError:
            return None
        except ReconcilerError as error:
            return error
        return None

    def _read_mirrors(self) -> dict[str, MirrorRow]:
        return _by_name(self.site.reader)

    # Verbs

    def _request_verb(self, word: str, actions: Mapping[str, Transition]) -> None:
        """Request a verb for mirrors, and wait until each has reached its end."""
        suspended = {name: action for name, action in actions.items() if _is_suspended_reversal(action)}
        self._carry_out(word, _REVERSAL, suspended)
        self._carry_out(word, _VERBS[word], {name: actions[name] for name in actions.keys() - suspended.keys()})
        if word in REVERSALS or suspended:
            self._await_other_side(actions if word in REVERSALS else suspended)

    def _carry_out(self, word: str, verb: _Verb, actions: Mapping[str, Transition]) -> None:
        if not actions:
            return
        rows = self._read_mirrors()
        waiting: dict[str, Transition] = {}
        by_link: dict[str, list[str]] = {}
        for name, action in actions.items():
            row = rows.get(name)
            if row is None and word != RESTORE:
                message = f"topic {self.site.naming.to_full_name(name)} is not mirrored"
                missing = NotFoundError(message, hint="See the mirrors with: reconciler mirror list")
                self.results[action.id] = missing
                continue
            waiting[name] = action
            if row is None or row.status not in verb.ends | verb.through:
                by_link.setdefault(_get_mirror(action).link, []).append(name)
        lost: set[str] = set()
        for link, names in sorted(by_link.items()):
            for begin in range(0, len(names), NAMES_AT_ONCE):
                some = self._check_restores(link, {name: waiting[name] for name in names[begin:][:NAMES_AT_ONCE]})
                self.may_go_on()
                refused = self._send_verb(link, word, some, lost) if some else {}
                self.results |= {waiting[name].id: error for name, error in refused.items()}
        waiting = {name: action for name, action in waiting.items() if action.id not in self.results}
        done = self._await_verb(word, verb, waiting, lost, self._read_mirrors)
        ids = self._find_ids(done)
        self.results |= {action.id: ids.get(name) for name, action in done.items()}

    def _check_restores(self, link: str, actions: Mapping[str, Transition]) -> list[str]:
        """Return the names; without those whose restore would truncate more than the plan showed."""
        approved = {
            name: cost.lost
            for name, action in actions.items()
            if action.verb == RESTORE and (cost := action.estimate.role) is not None and cost.unknown is None
        }
        previews = self.site.reader.preview_verb(RESTORE, link, approved) if approved else {}
        for name, lost in previews.items():
            mirror = _get_mirror(actions[name])
            sides = (mirror.cluster, mirror.name), (mirror.source_cluster, link)
            try:
                if isinstance(lost, ReconcilerError):
                    raise lost
                check_approved(*sides, lost, approved[name])
            except ReconcilerError as error:
                self.results[actions[name].id] = error
        return [name for name, action in actions.items() if action.id not in self.results]

    def _send_verb(self, link: str, word: str, names: Sequence[str], lost: set[str]) -> dict[str, ReconcilerError]:
        """Send a verb once; return the errors by name. Names without an answer are added to `lost`."""
        try:
            answers = self._rest.request_verb(link, word, names)
        except UnansweredError:
            lost.update(names)
            return {}
        except ReconcilerError as error:
            return dict.fromkeys(names, error)
        lost.update(set(names) - answers.keys())
        for name, answer in answers.items():
            if not isinstance(answer, ReconcilerError):
                self._report_truncation(name, answer)
        return {name: answer for name, answer in answers.items() if isinstance(answer, ReconcilerError)}

    def _report_truncation(self, name: str, answer: Json) -> None:
        cuts = [
            f"{pluralize(stretch.length, 'record')} of partition {stretch.partition} from offset {stretch.start:,} on"
            for stretch in parse_truncation(answer)
        ]
        if cuts:
            full_name = self.site.naming.to_full_name(name)
            address = address_of("topic", self.site.cluster, full_name)
            self.site.reader.options.edge.warn(f"{address}: the restore deletes {', '.join(cuts)}")

    def _await_other_side(self, actions: Mapping[str, Transition]) -> None:
        """Wait until the former sources of reversed mirrors are mirrors."""
        by_cluster: dict[str, dict[str, Transition]] = {}
        for action in actions.values():
            mirror = _get_mirror(action)
            if not isinstance(self.results[action.id], ReconcilerError):
                source = self.site.naming.to_physical(mirror.source)
                by_cluster.setdefault(mirror.source_cluster, {})[source] = action
        for cluster, waiting in by_cluster.items():
            other = self.site.reader.open_other(cluster)
            self._await_verb(f"reversal on cluster {cluster}", _OTHER_SIDE, waiting, (), partial(_by_name, other))

    def _await_verb(
        self,
        word: str,
        verb: _Verb,
        waiting: Mapping[str, Transition],
        lost: Collection[str],
        read_rows: Callable[[], Mapping[str, MirrorRow]],
    ) -> dict[str, Transition]:
        """Read all mirrors once a round until each has reached its end, or nothing gets on any more.

        Returns the finished actions by name; the others get errors as results.
        """
        waiting, done, mark = dict(waiting), dict[str, Transition](), None
        tries, unanswered = Tries(POLLS, within_s=_STALLED_S), Tries(POLLS, within_s=_UNANSWERED_S)
        while waiting:
            rows = read_rows()
            for name in [*waiting]:
                row = rows.get(name)
                if row is not None and row.status in verb.ends:
                    done[name] = waiting.pop(name)
                elif row is not None and row.status in verb.fails:
                    what = "it has failed" if row.status is _M.FAILED else "it was stopped in the meantime"
                    self.results[waiting.pop(name).id] = self._explain_wait(word, row, what)
                elif name in lost and unanswered.has_ended and (row is None or row.status not in verb.through):
                    message = f"the answer to {word} was lost, and it does not show"
                    self.results[waiting.pop(name).id] = UnansweredError(message, hint="Run the same command again.")
            progress = sorted((name, row.state, row.lag) for name, row in rows.items() if name in waiting)
            if progress != mark:
                tries, mark = Tries(POLLS, within_s=_STALLED_S), progress
            elif tries.has_ended:
                for name, action in waiting.items():
                    late = f"nothing has changed for {tries.elapsed_s:.0f} s"
                    self.results[action.id] = self._explain_wait(word, rows.get(name), late)
                break
            if waiting:
                self.may_go_on()
                tries.wait()
        return done

    def _explain_wait(self, word: str, row: MirrorRow | None, what: str) -> ReconcilerError:
        """Return the error of a verb that does not end, with what the platform reports of the transition."""
        if row is None:
            return IncompleteError(f"{word}: {what}", hint="Run the same command again.")
        try:
            query = {"include_state_transition_errors": True}
            row = MirrorRow.from_json(self._rest.read("links", row.link, "mirrors", row.name, **query))
        except ReconcilerError:
            pass  # The list is known.
        reasons = "; ".join(row.transition_errors) or (row.error if row.error not in {"", "NO_ERROR"} else "")
        message = f"{word}: {what}, it is {row.state}{f': {reasons}' if reasons else ''}"
        return IncompleteError(message, hint=self._suggest_errors(row.link))


def _by_name(reader: LinkReader) -> dict[str, MirrorRow]:
    return {row.name: row for row in reader.list_mirrors()}


def _get_mirror(action: Transition) -> MirrorTopic:
    assert isinstance(action.after, MirrorTopic)  # noqa: S101 - only these are in a batch of links
    return action.after


def _is_suspended_reversal(action: Transition) -> bool:
    """Return whether an action resumes a reversal that was paused."""
    return action.verb == "resume" and action.to_state == _M.PENDING_SYNCHRONIZE


def _is_same(action: Create, row: MirrorRow, link: str, site: ConfluentSite) -> bool:
    mirror = action.after
    if not isinstance(mirror, MirrorTopic) or row.state == STOPPED:
        return False
    return (row.link, row.source) == (link, site.naming.to_physical(mirror.source))
