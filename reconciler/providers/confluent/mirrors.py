"""Changes of cluster links and mirror topics. A verb is sent once, and is done when its state is seen (F-C-203)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from reconciler.errors import (
    IncompleteError,
    NotFoundError,
    ReconcilerError,
    StalePlanError,
    UnansweredError,
    UserError,
)
from reconciler.lifecycles import MirrorStatus
from reconciler.planning.actions import ControlAction, Create, Delete, Transition, Update
from reconciler.providers.brokers.admin_requests import PLATFORM, unsupported_error
from reconciler.providers.confluent.client import POLLS
from reconciler.providers.confluent.links import STOPPED, ClusterLink, ConfluentSite, MirrorRow
from reconciler.providers.models import apply_declared_changes, convert_changes, to_declared_link
from reconciler.providers.protocol import CompletedAction, FailedAction, Outcome
from reconciler.resources.address import full_name_of
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic
from reconciler.runtime.retry import Tries

if TYPE_CHECKING:
    from reconciler.planning.actions import Change
    from reconciler.providers.confluent.client import RestClient
    from reconciler.resources.mirrors import LinkEntry

T = TypeVar("T")
R = TypeVar("R")

_NAMES_AT_ONCE: Final = 100
"""Mirrors per verb; no limit is documented (confluent.md, 12)."""
_AT_ONCE: Final = 8
_STALLED_S: Final = 120.0
"""Seconds in which no mirror of a batch gets on, after which its verb is no longer awaited."""
_UNANSWERED_S: Final = 15.0
"""Seconds in which a verb without an answer must show."""
_M = MirrorStatus
_RUNNING: Final = frozenset({_M.ACTIVE, _M.SOURCE_UNAVAILABLE, _M.LINK_PAUSED, _M.LINK_FAILED})
_RESTORING: Final = frozenset({_M.PENDING_SETUP_FOR_RESTORE, _M.PENDING_RESTORE})
_REVERSING: Final = frozenset({_M.PENDING_SYNCHRONIZE, _M.PENDING_STOPPED, _M.STOPPED})


@dataclass(frozen=True, slots=True)
class _Verb:
    """A verb of mirrors."""

    path: str
    ends: frozenset[MirrorStatus]
    """States in which it is done."""
    through: frozenset[MirrorStatus] = frozenset()
    """States on the way: the verb was requested before, and is awaited only."""


_VERBS: Final[Mapping[str, _Verb]] = {
    "pause": _Verb("pause", frozenset({_M.PAUSED})),
    "resume": _Verb("resume", _RUNNING | {_M.PENDING_SYNCHRONIZE}),
    "promote": _Verb("promote", frozenset({_M.STOPPED}), frozenset({_M.PENDING_STOPPED})),
    "failover": _Verb("failover", frozenset({_M.STOPPED})),
    "reverse-and-start": _Verb("reverse-and-start-mirror", frozenset({_M.STOPPED}), _REVERSING),
    "reverse-and-pause": _Verb("reverse-and-pause-mirror", frozenset({_M.STOPPED}), _REVERSING),
    "truncate-and-restore": _Verb("truncate-and-restore", _RUNNING, _RESTORING),
}


@dataclass
class LinkBatch:
    """Applies actions about links and mirrors to one cluster."""

    site: ConfluentSite
    may_go_on: Callable[[], None]
    results: dict[str, str | ReconcilerError | None] = field(default_factory=dict)
    """Id of the changed object, or the error, by the action's id."""

    def apply(self, actions: Sequence[ControlAction]) -> Iterator[Outcome]:
        """Yield the outcome of each action. Idempotent."""
        verbs: dict[str, dict[str, Transition]] = {}
        created: dict[str, Create] = {}
        deleted: dict[str, Delete] = {}
        others: list[ControlAction] = []
        for action in actions:
            name = self.site.naming.to_physical(full_name_of(action.address))
            match action:
                case Transition():
                    verbs.setdefault(action.verb, {})[name] = action
                case Create(after=MirrorTopic()):
                    created[name] = action
                case Delete(before=MirrorTopic()):
                    deleted[name] = action
                case _:
                    others.append(action)
        for verb, named in verbs.items():
            self._try(named.values(), partial(self._request_verb, verb, named))
        self._try(deleted.values(), partial(self._delete_mirrors, deleted))
        for action in sorted(others, key=lambda action: not isinstance(action, Delete)):
            self._try([action], partial(self._change, action))
        self._try(created.values(), partial(self._create_mirrors, created))
        for action in actions:
            result = self.results[action.id]
            if isinstance(result, ReconcilerError):
                yield FailedAction(action.id, result)
            else:
                yield CompletedAction(action.id, result, self._find_topic_name(action))

    def _try(self, actions: Iterable[ControlAction], change: Callable[[], None]) -> None:
        """Run a change; its error is that of all its actions without a result."""
        try:
            change()
        except ReconcilerError as error:
            self.results |= {action.id: error for action in actions if action.id not in self.results}

    def _find_topic_name(self, action: ControlAction) -> str | None:
        is_mirror = isinstance(action, Transition) or isinstance(getattr(action, "after", None), MirrorTopic)
        return self.site.naming.to_physical(full_name_of(action.address)) if is_mirror else None

    @property
    def _rest(self) -> RestClient:
        return self.site.reader.rest

    def _suggest_errors(self, link: str) -> str:
        return f"See what the link reports: reconciler mirror errors link/{self.site.cluster}/{link}"

    # Links

    def _change(self, action: ControlAction) -> None:
        match action:
            case Create(after=MirrorLink() as link):
                self.results[action.id] = self._create_link(link)
            case Update(after=MirrorLink() as link):
                self.results[action.id] = self._update_link(link.metadata.name, action.changes)
            case Update(after=MirrorTopic()):
                self.results[action.id] = self._update_mirror(action)
            case Delete(before=MirrorLink() as link):
                self._delete_link(link.metadata.name, action.incarnation)
                self.results[action.id] = None
            case _:
                raise unsupported_error(action)

    def _create_link(self, link: MirrorLink) -> str:
        name, options = link.metadata.name, self.site.reader.options
        body = options.build(link.spec)
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
        entry: LinkEntry = self.site.reader.build_entry(link)
        declared = apply_declared_changes(entry.declared, changes)
        spec = MirrorLink.model_validate(
            {
                "metadata": {"name": name, "cluster": self.site.cluster},
                "spec": {**declared, "source": entry.source_cluster},
            }
        ).spec
        alterations = [*options.change(link.configs, spec, changes), *options.rotate(link.configs, spec)]
        if alterations:
            self.may_go_on()
            self._rest.alter_link(name, alterations)
        return link.id

    def _delete_link(self, name: str, link_id: str | None) -> None:
        link = self.site.reader.find_link(name)
        if link is None:
            return
        if link_id not in {None, link.id}:
            raise StalePlanError(f"link {name} was deleted and created again since the plan", hint="Plan again.")
        self.may_go_on()
        try:
            self._rest.change("DELETE", "links", name, doing=f"delete link {name}", is_repeatable=True)
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

    def _find_ids(self, names: Collection[str]) -> dict[str, str]:
        return {name: topic.id for name, topic in self.site.read_topics(sorted(names)).items()}

    def _create_mirrors(self, actions: Mapping[str, Create]) -> None:
        """Create mirrors in parallel, and wait until all are listed. `actions`: by name."""
        existing = self._read_mirrors()
        new = []
        for name, action in actions.items():
            if name not in existing:
                new.append(name)
            elif not _is_same(action, existing[name], self.site):
                message = f"topic {name} exists, and mirrors another topic"
                self.results[action.id] = UserError(message, hint="It was created after the plan: plan again.")
        if new:
            self.may_go_on()
        errors = _run(lambda name: self._create_mirror(name, actions[name]), new)
        self.results |= {actions[name].id: error for name, error in zip(new, errors, strict=True) if error is not None}
        waiting = {name for name, action in actions.items() if action.id not in self.results}
        seen = self._wait_for_mirrors(waiting)
        ids = self._find_ids(seen) if seen else {}
        for name in waiting:
            if name in ids:
                self.results[actions[name].id] = ids[name]
            else:
                message = f"it was created, and is not listed as a mirror after {_STALLED_S:.0f} s"
                self.results[actions[name].id] = IncompleteError(message, hint="Run the same command again.")

    def _create_mirror(self, name: str, action: Create) -> ReconcilerError | None:
        mirror = action.after
        assert isinstance(mirror, MirrorTopic)  # noqa: S101 - only these are created here
        body = {
            "source_topic_name": self.site.naming.to_physical(mirror.source),
            "mirror_topic_name": name,
            "configs": [{"name": key, "value": value} for key, value in sorted(mirror.configs.items())],
        }
        try:
            self._rest.change("POST", "links", mirror.link, "mirrors", doing=f"create mirror {name}", content=body)
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
        """Delete the topics of mirrors, and wait until the mirrors are gone. `actions`: by name."""
        topics = self.site.read_topics(sorted(actions))
        left = set()
        for name, action in actions.items():
            if name not in topics:
                self.results[action.id] = None
            elif action.incarnation not in {None, topics[name].id}:
                message = f"topic {self.site.naming.to_full_name(name)} was deleted and created again since the plan"
                self.results[action.id] = StalePlanError(message, hint="Plan again.")
            else:
                left.add(name)
        names = sorted(left)
        if names:
            self.may_go_on()
        for name, error in zip(names, _run(self._delete_topic, names), strict=True):
            if error is not None:
                self.results[actions[name].id] = error
                left.discard(name)
        tries = Tries(POLLS, within_s=_STALLED_S)
        while left and (left := left & self._read_mirrors().keys() | left & self._find_ids(left).keys()):
            if tries.has_ended:
                late = IncompleteError(f"it is still there {tries.elapsed_s:.0f} s later", hint="Run it again.")
                self.results |= {actions[name].id: late for name in left}
                break
            tries.wait()
        for action in actions.values():
            self.results.setdefault(action.id, None)

    def _delete_topic(self, name: str) -> ReconcilerError | None:
        try:
            self._rest.change("DELETE", "topics", name, doing=f"delete mirror {name}", is_repeatable=True)
        except NotFoundError:
            return None
        except ReconcilerError as error:
            return error
        return None

    def _read_mirrors(self) -> dict[str, MirrorRow]:
        return {row.name: row for row in self.site.reader.list_mirrors()}

    # Verbs

    def _request_verb(self, word: str, actions: Mapping[str, Transition]) -> None:
        """Request a verb for mirrors, and wait until each has reached its end. `actions`: by name."""
        verb, rows = _VERBS[word], self._read_mirrors()
        waiting: dict[str, Transition] = {}
        by_link: dict[str, list[str]] = {}
        for name, action in actions.items():
            row = rows.get(name)
            link = row.link if row is not None else _link_of(action) if word == "truncate-and-restore" else None
            if link is None:
                message = f"topic {self.site.naming.to_full_name(name)} is not mirrored"
                missing = NotFoundError(message, hint="See the mirrors with: reconciler mirror list")
                self.results[action.id] = missing
                continue
            waiting[name] = action
            if row is None or row.status not in verb.ends | verb.through:
                by_link.setdefault(link, []).append(name)
        lost: set[str] = set()
        for link, names in sorted(by_link.items()):
            for begin in range(0, len(names), _NAMES_AT_ONCE):
                some = names[begin:][:_NAMES_AT_ONCE]
                self.may_go_on()
                refused = self._send_verb(link, verb, some, lost)
                self.results |= {waiting.pop(name).id: error for name, error in refused.items()}
        self._await_verb(word, waiting, lost)

    def _send_verb(self, link: str, verb: _Verb, names: Sequence[str], lost: set[str]) -> dict[str, ReconcilerError]:
        """Send a verb once; return the errors by name. Names without an answer are added to `lost`."""
        try:
            answers = self._rest.request_verb(link, verb.path, names)
        except UnansweredError:
            lost.update(names)
            return {}
        except ReconcilerError as error:
            return dict.fromkeys(names, error)
        lost.update(set(names) - answers.keys())
        return {name: answer for name, answer in answers.items() if isinstance(answer, ReconcilerError)}

    def _await_verb(self, word: str, waiting: dict[str, Transition], lost: Collection[str]) -> None:
        """Read all mirrors once a round until each has reached its end, or nothing gets on any more."""
        verb, done, mark = _VERBS[word], dict[str, Transition](), None
        tries, unanswered = Tries(POLLS, within_s=_STALLED_S), Tries(POLLS, within_s=_UNANSWERED_S)
        while waiting:
            rows = self._read_mirrors()
            for name in [*waiting]:
                row = rows.get(name)
                if row is not None and row.status in verb.ends:
                    done[name] = waiting.pop(name)
                elif row is not None and row.status is _M.FAILED and word != "failover":
                    self.results[waiting.pop(name).id] = self._explain_wait(word, row, "it has failed")
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
        ids = self._find_ids(done) if done else {}
        self.results |= {action.id: ids.get(name) for name, action in done.items()}

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


def _link_of(action: Transition) -> str | None:
    return action.after.link if isinstance(action.after, MirrorTopic) else None


def _is_same(action: Create, row: MirrorRow, site: ConfluentSite) -> bool:
    mirror = action.after
    if not isinstance(mirror, MirrorTopic) or row.state == STOPPED:
        return False
    return (row.link, row.source) == (mirror.link, site.naming.to_physical(mirror.source))


def _run(do: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Run `do` in parallel, and return the results in order."""
    if len(items) <= 1:
        return [do(item) for item in items]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(do, items))
