"""`drift --accept ADDR`: a patch to the manifests that says what the clusters have. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, assert_never

from reconciler.errors import UserError
from reconciler.manifests.editing.scalartext import yaml_text
from reconciler.manifests.editing.textedits import UneditableError
from reconciler.manifests.origins import explain_origin
from reconciler.manifests.problems import path_text
from reconciler.planning.actions import Transition
from reconciler.planning.deciding.mounted import DETACHED_AT
from reconciler.planning.document.rows import moves_of
from reconciler.planning.wanted.commanded import commanded
from reconciler.resources.address import Address, cluster_of, kind_of, matches, rank
from reconciler.resources.configs import DEFAULT
from reconciler.workflow.accepting.fields import accept_field, field_by_hand, place_of
from reconciler.workflow.accepting.fresh import (
    MIRRORS,
    accept_detached,
    accept_made,
    accept_stranger,
    entry_of,
    role_of,
)
from reconciler.workflow.accepting.places import ODD_LAYOUT, ByHandError, ElsewhereError, Manifests
from reconciler.workflow.beginning.opening import open_work
from reconciler.workflow.deciding.decide import decide_unlocked
from reconciler.workflow.deciding.findings import errors_of
from reconciler.workflow.drifting.doubts import doubts, unreadable, without_doubtful
from reconciler.workflow.drifting.sorting import sort_out

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from reconciler.lifecycles.roles import Role
    from reconciler.manifests.findings import Place
    from reconciler.manifests.loading import Loaded
    from reconciler.planning.wanted.commanded import Commanded
    from reconciler.resources.mirrortopic import MirrorTopic
    from reconciler.workflow.accepting.places import Spot
    from reconciler.workflow.beginning.invocation import Invocation, Select
    from reconciler.workflow.deciding.decide import Decided
    from reconciler.workflow.drifting.finding import Found


_OF_FILES: Final = frozenset({"pending", "blocked"})


@dataclass(frozen=True, slots=True)
class Accepted:
    """The patch, which may be empty, and what there is to say of it, one line each."""

    patch: str
    notes: tuple[str, ...]
    left_out: int = 0
    """How much of what the clusters changed the patch cannot say."""


def accept(invocation: Invocation, select: Select, patterns: Sequence[str]) -> Accepted:
    """Return the change to the files after which nothing is planned for what was found at `patterns`.

    Raises:
        UserError: Nothing was found there, or nobody can tell what of it is in doubt.
    """
    work = open_work(invocation, select, is_reader=True)
    decided = decide_unlocked(work)
    unknown = unreadable(work.state, decided.remembered)
    if unknown is not None:
        raise unknown
    doubtful = doubts(work.state, decided.remembered, lambda _address: True)
    return patch_for(work.loaded, decided, patterns, doubtful)


def patch_for(loaded: Loaded, decided: Decided, patterns: Sequence[str], doubtful: Sequence[Found] = ()) -> Accepted:
    """Return the change to what was loaded that accepts what was found at `patterns`; nothing that is in doubt.

    Raises:
        UserError: Nothing was found there.
    """
    accepting = _Accepting(loaded, decided, tuple(patterns))
    accepting.run(without_doubtful(sort_out(decided.plan, _by_command(loaded, decided)), doubtful))
    if not accepting.is_anything_found:
        if decided.plan.errors:
            raise errors_of(decided.plan.errors)
        message = f"nothing differs at {', '.join(patterns)}: there is nothing to accept"
        raise UserError(message, hint="List what differs with: reconciler drift")
    return Accepted(accepting.manifests.patch(), tuple(accepting.notes), accepting.left_out)


def _by_command(loaded: Loaded, decided: Decided) -> tuple[Commanded, ...]:
    return commanded(loaded.desired, decided.recorded, decided.seen.inventory)


class OfFilesError(ElsewhereError):
    """It is no doing of the cluster: a patch that accepts what is there lacks nothing without it."""


@contextmanager
def _or_by_hand(spot: Spot) -> Iterator[None]:
    try:
        yield
    except UneditableError as error:
        raise ByHandError(spot.place, ODD_LAYOUT) from error


class _Accepting:
    """One finding after the other; what cannot be written as a patch becomes a note."""

    def __init__(self, loaded: Loaded, decided: Decided, patterns: tuple[str, ...]) -> None:
        self.manifests = Manifests(loaded)
        self.notes: list[str] = []
        self.is_anything_found = False
        self.left_out = 0
        self._decided = decided
        self._patterns = patterns

    def run(self, findings: Sequence[Found]) -> None:
        known = {found.mirror.address: found for found in _by_command(self.manifests.loaded, self._decided)}
        roles = {address: held for address, held in self._roles(known) if self._is_chosen(address)}
        for mirror, (role, seen) in roles.items():
            self._try(mirror, partial(self._accept_role, mirror, role, seen), partial(self._role_by_hand, mirror, role))
        for address in sorted(filter(self._is_chosen, known), key=rank):
            self._accept_commanded(address, known[address])
        settled = roles.keys() | known.keys()
        for found in findings:
            if self._is_chosen(found.address) and not (found.address in settled and found.kind in _OF_FILES):
                self._try(found.address, partial(self._accept, found), partial(self._by_hand, found))
        self._note_environment()

    def _is_chosen(self, address: Address) -> bool:
        return any(matches(pattern, address) for pattern in self._patterns)

    def _try(self, address: Address, change: Callable[[], None], by_hand: Callable[[Place], str]) -> None:
        self.is_anything_found = True
        try:
            change()
        except OfFilesError as error:
            self._note(f"{address}: {error}")
        except ElsewhereError as error:
            self.left_out += self._note(f"{address}: {error}")
        except ByHandError as error:
            self.left_out += self._note(f"{address}: change by hand: {by_hand(error.place)} ({error})")

    def _note(self, text: str) -> bool:
        """Say it once; tell whether it was not said yet."""
        is_new = text not in self.notes
        self.notes += [text] if is_new else []
        return is_new

    def _by_hand(self, found: Found, place: Place) -> str:
        if not found.path:
            return f"{place} take this document out"
        return field_by_hand(self.manifests.loaded, found.address, found.path, found.observed, place)

    def _role_by_hand(self, mirror: Address, role: Role | None, place: Place) -> str:
        return field_by_hand(self.manifests.loaded, mirror, "state", role, place)

    def _accept(self, found: Found) -> None:
        match found.kind:
            case "drift":
                self._accept_drift(found)
            case "missing" if str(found.observed or "").startswith(DETACHED_AT):
                accept_detached(self.manifests, found.address)
            case "missing":
                self._accept_missing(found.address)
            case "unmanaged" if found.path:
                accept_field(self.manifests, found.address, found.path, found.observed)
            case "unmanaged":
                accept_stranger(self.manifests, found.address, self._decided.seen.inventory)
            case "in doubt":
                message = "a run was interrupted there: `reconciler apply` settles it, then look again"
                raise ElsewhereError(message)
            case "pending" if found.path:
                message = f"the files say {found.path} so already: `reconciler apply` remembers it"
                raise OfFilesError(message)
            case "pending" | "blocked":
                message = "the files changed, not the cluster: apply that, or take it back"
                raise OfFilesError(message)
            case _:
                assert_never(found.kind)

    def _accept_drift(self, found: Found) -> None:
        if found.path == "incarnation":
            message = (
                "somebody deleted it and made another one: no file says which is meant, `reconciler apply` adopts it"
            )
            raise ElsewhereError(message)
        origin = self._origin(found)
        if origin is not None and not self._is_own(found):
            known = explain_origin(self.manifests.loaded, Address(origin)).get(f"spec.{found.path}")
            where = f"{origin} ({known})" if known else origin
            message = f"{found.path} comes from {where}: change it there, or set it on {found.address} by hand"
            raise ElsewhereError(message)
        accept_field(self.manifests, found.address, found.path, found.observed)

    def _is_own(self, found: Found) -> bool:
        place = place_of(found.address, found.path)
        return self.manifests.spot(found.address, place).said(place) is not None

    def _origin(self, found: Found) -> str | None:
        """Return the tier or policy a value comes from."""
        changes = (
            change
            for action in self._decided.plan.actions
            if action.address == found.address
            for change in moves_of(action)
            if change.path == found.path
        )
        change = next(changes, None)
        last = self._decided.recorded.get(found.address)
        origin = change.origin if change is not None else last.origins.get(found.path) if last else None
        return None if origin in {DEFAULT, found.address} else origin

    def _accept_missing(self, address: Address) -> None:
        if self.manifests.is_dropped(address):
            return
        spot = self.manifests.spot(address)
        if spot.within:
            with _or_by_hand(spot):
                spot.file.remove(spot.place.number, spot.within)
        else:
            spot.file.drop(spot.place.number)

    def _accept_commanded(self, mirror: Address, found: Commanded) -> None:
        """Take in what a command did to a mirror besides giving another role to one that the files name."""
        if found.said is None:
            by_hand = partial(self._made_by_hand, found.mirror)
            self._try(mirror, partial(accept_made, self.manifests, found.mirror), by_hand)
        if found.is_peer_paused:
            self.is_anything_found = True
            self._note(f"{mirror}: {found.peer}: no `state` says so, and it stays so")

    def _made_by_hand(self, mirror: MirrorTopic, place: Place) -> str:
        return f"{place} {path_text(MIRRORS)}: {yaml_text(entry_of(mirror))}"

    def _roles(self, known: Mapping[Address, Commanded]) -> Iterator[tuple[Address, tuple[Role | None, str | None]]]:
        """Yield the mirrors whose role is not the one the files want, with theirs, and the state they are in."""
        plan = self._decided.plan
        asked = {action.address for action in plan.actions if isinstance(action, Transition)}
        wrong = asked | {finding.address for finding in plan.errors if finding.address is not None}
        for address in sorted(wrong | known.keys(), key=rank):
            seen = self._decided.seen.inventory.get(address)
            if kind_of(address) != "mirror":
                continue
            if address in known:
                if known[address].said is not None and known[address].is_of_role:
                    yield address, (known[address].mirror.state, None if seen is None else seen.state)
            elif seen is not None:
                yield address, (role_of(seen.state), seen.state)

    def _accept_role(self, mirror: Address, role: Role | None, state: str | None) -> None:
        capabilities = self._decided.seen.capabilities[cluster_of(mirror) or ""]
        if role is None or role not in capabilities.mirror_states:
            message = f"it is {state}, which no `state` of its entry says on this cluster"
            raise ElsewhereError(message)
        spot = self.manifests.spot(mirror, ("state",))
        with _or_by_hand(spot):
            spot.file.set(spot.place.number, (*spot.within, "state"), role)

    def _note_environment(self) -> None:
        environment = self.manifests.loaded.environment
        changed = self.manifests.changed
        if environment is not None and changed:
            files = ", ".join(changed)
            self.notes.append(f"{files}: read by every environment, not by {environment} alone; an overlay would be")
