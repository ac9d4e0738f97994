"""`mirror pause`, `promote`, `failover` …: a verb asked of mirrors now. One that fails does not stop the others."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from reconciler.errors import IncompleteError, ReconcilerError, UserError
from reconciler.lifecycles.mirror import MIRROR, REVERSAL_SUSPENDED, TWO_SIDED, MirrorStatus
from reconciler.planning.actions import Reason, Risk, RunJob, Transition
from reconciler.planning.deciding.decision import state_precondition
from reconciler.planning.deciding.mirrors import CATCH_UP
from reconciler.planning.estimates import NO_COST
from reconciler.planning.situation import source_of, topic_of
from reconciler.planning.wanted.commandmarks import origins_by_command
from reconciler.planning.wanted.ways import ENDS, peer_of
from reconciler.providers.base import Scope
from reconciler.resources.address import address_of
from reconciler.resources.mirrortopic import MirrorTopic
from reconciler.state.lockfile import read_lockfile
from reconciler.workflow.beginning.identity import refuse_another_cluster
from reconciler.workflow.linking.commands.answers import Answer, Answers
from reconciler.workflow.linking.commands.naming import Named, mirrors_named
from reconciler.workflow.linking.commands.readying import ROLES, Readying
from reconciler.workflow.linking.transitions.driving import PROMOTE, RESTORE, REVERSALS
from reconciler.workflow.linking.transitions.halting import halted
from reconciler.workflow.running.emergencies import require_confirmation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from reconciler.planning.actions import Action
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Record, Recorded
    from reconciler.resources.mirrortopic import MirrorState
    from reconciler.state.snapshots import Snapshot
    from reconciler.workflow.beginning.opening import Site
    from reconciler.workflow.linking.commands.readying import Ready, Verb
    from reconciler.workflow.running.emergencies import Emergency

_ROLES_OF_ENTRY: Final[Mapping[str, MirrorState]] = {
    **ROLES,
    "pause": "reversed",
    "resume": "reversed",
    "reverse-and-start": "mirroring",
    "reverse-and-pause": "paused",
    "truncate-and-restore": "reversed",
}
"""The role of the entry on the other cluster, where a mirror lives in its place since their roles were swapped."""
_RISKS: Final = {"resume": Risk.NONE, PROMOTE: Risk.IRREVERSIBLE, "failover": Risk.DATA_LOSS, RESTORE: Risk.DATA_LOSS}


@dataclass
class _Asking:
    """One verb asked of some mirrors."""

    emergency: Emergency
    site: Site
    verb: Verb
    timeout_ms: int | None
    ready: dict[Named, Ready] = field(default_factory=dict)
    refused: dict[Named, ReconcilerError] = field(default_factory=dict)

    def look(self, names: Sequence[Named]) -> None:
        """See which of them may be asked, and what that costs."""
        for named in names:
            try:
                self.ready[named] = self._looked(named)
            except ReconcilerError as error:
                self.refused[named] = error

    def decide(self, snapshot: Snapshot | None) -> list[Action]:
        """Return what is to be done, looked at once more: it may have changed while somebody was asked."""
        actions: list[Action] = []
        for named in list(self.ready):
            try:
                refuse_another_cluster(self.site, named.cluster, snapshot)
                self.ready[named] = ready = self._looked(named)
                actions += self._actions(ready, None if snapshot is None else snapshot.record)
            except ReconcilerError as error:
                self.refused[named] = error
                del self.ready[named]
        return actions

    def answer(self, named: Named, undone: Mapping[str, ReconcilerError]) -> Answer:
        """Return what came of one of them."""
        if named in self.refused:
            return Answer(named=named, error=self.refused[named])
        ready = self.ready[named]
        address = ready.mirror.address
        error = undone.get(f"{CATCH_UP}:{address}") or undone.get(f"{self.verb}:{address}")
        if isinstance(error, IncompleteError) and self.emergency.stop.is_requested and self.verb in TWO_SIDED:
            error = halted(self.site.providers, address) or error
        return Answer(named=named, before=ready.status, after=self._after(named), error=error, ready=ready)

    def _after(self, named: Named) -> MirrorStatus | None:
        try:
            return self.site.providers[named.cluster].links.mirror(named.name).status
        except ReconcilerError:
            return None  # What was done is known; how it is now is one look more, and only told.

    def _looked(self, named: Named) -> Ready:
        self.site.providers[named.cluster]  # says which there are
        self.emergency.check(self.site, named.cluster)
        return Readying(self.site, self.verb, self.timeout_ms).ready(named)

    def _origins(self, last: Recorded | None, role: MirrorState) -> Mapping[str, str]:
        return origins_by_command(last, role, is_peer_paused=self.verb == "reverse-and-pause")

    def _origins_of(self, entry: Address, record: Record | None) -> Mapping[str, str]:
        last = (record or {}).get(entry)
        return origins_by_command(last, _ROLES_OF_ENTRY[self.verb], is_peer_paused=self.verb == "pause")

    def _actions(self, ready: Ready, record: Record | None) -> list[Action]:
        mirror, address = ready.mirror, ready.mirror.address
        observed = self.site.providers[mirror.cluster].observe(Scope((address, topic_of(mirror))))
        before = observed.get(address) or observed.get(topic_of(mirror))
        last = None if record is None else record.get(address)
        if before is not None and isinstance(before.resource, MirrorTopic):
            mirror = before.resource.model_copy(update={"state": mirror.state})
        if last is not None and isinstance(last.resource, MirrorTopic):
            mirror = last.resource.model_copy(update={"state": mirror.state})
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
            parameters={} if entry is None else {"entry": entry, "role": _ROLES_OF_ENTRY[self.verb]},
            risk=_RISKS.get(self.verb, Risk.DISRUPTIVE),
            reasons=(Reason.ROLE_WANTED,),
            origins=self._origins(last, mirror.state) if entry is None else self._origins_of(entry, record),
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


def ask_mirrors(
    emergency: Emergency,
    verb: Verb,
    addresses: Sequence[str],
    *,
    confirm: Callable[[Sequence[Ready]], bool] | None = None,
    timeout_ms: int | None = None,
) -> Answers:
    """Ask a verb of mirrors, and return what came of each; `confirm` is asked once, about those it is legal for.

    Raises:
        UsageError: An address is none of a mirror.
        UserError: It was not confirmed.
        LeaseError: Someone else is applying.
    """
    names = mirrors_named(addresses)
    asking = _Asking(emergency, emergency.open(), verb, timeout_ms)
    if not emergency.no_state:
        _check_state(asking.site)
    asking.look(names)
    if asking.ready and confirm is not None:
        require_confirmation(confirm(tuple(asking.ready.values())))
    clusters = {named.cluster for named in asking.ready}
    undone = emergency.carry_out_each(asking.site, clusters, asking.decide) if asking.ready else {}
    return Answers(verb, tuple(asking.answer(named, undone) for named in names))


def _check_state(site: Site) -> None:
    """Refuse to make a state where one was lost: nothing would be known of what is asked about."""
    if read_lockfile(site.state) is None:
        message = f"there is no state at {site.state.url}"
        hint = "Bring it back; or do it now, without remembering it: --no-state. Nothing was written."
        raise UserError(message, hint=hint)


def is_dangerous(verb: Verb) -> bool:
    """Tell whether a verb interrupts or loses something that no other verb gives back."""
    return verb in {"failover", PROMOTE, RESTORE, *REVERSALS}


def _check_owned(mirror: MirrorTopic, record: Record) -> None:
    """Refuse to write down what became of a mirror that is none of this workspace's, nor any of its link's."""
    peer = peer_of(mirror)
    links = (address_of("link", each.cluster, each.link) for each in (mirror, peer))
    if not {mirror.address, topic_of(mirror), peer.address, *links} & record.keys():
        message = f"{mirror.address} is not owned by this workspace, nor is its link"
        raise UserError(message, hint="Declare the link, or do it without remembering that: --no-state")
