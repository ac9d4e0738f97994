"""What holds others goes only with them: namespaces with their topics, links with their mirrors, sources last."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from reconciler.planning.actions import Delete, Forget
from reconciler.planning.deciding.moved import moved_from
from reconciler.planning.estimates import Block
from reconciler.planning.finding import Finding
from reconciler.planning.ordering.mounting import unmounted_by
from reconciler.planning.situation import IMPLIED, is_live, mirror_at
from reconciler.resources.address import Address, address_of, cluster_of, full_name_of, kind_of, split_name, tiers_of
from reconciler.resources.mirrorlink import MirrorLink, MirrorTopic
from reconciler.resources.mounting import Mounting

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reconciler.planning.actions import Action
    from reconciler.planning.situation import Situation


class Holding:
    """Judges deletes of what holds other things, after those have been judged themselves."""

    def __init__(self, actions: Sequence[Action], situation: Situation) -> None:
        self._actions = actions
        self._situation = situation
        self._deletes = {action.address: action for action in actions if isinstance(action, Delete)}
        self._forgotten = {action.address for action in actions if isinstance(action, Forget)}
        going = [action for action in actions if action.blocked is None]
        self._moved = {moved_from(action) for action in going}
        self._detached = {unmounted_by(action) for action in going}
        self.errors: list[Finding] = []

    def judged(self) -> tuple[Action, ...]:
        """Return the actions; holders that have to stay are blocked, or forgotten where they were only implied.

        Links whose mirrors go on are refused: they lose their delete and are found in `errors`.
        """
        if not self._deletes:
            return tuple(self._actions)
        inside = self._inside()
        judged = tuple(self._judge(action, inside.get(action.address, ())) for action in self._actions)
        refused = {finding.address for finding in self.errors}
        return tuple(action for action in judged if not (isinstance(action, Delete) and action.address in refused))

    def _judge(self, action: Action, inside: Sequence[Address]) -> Action:
        if not isinstance(action, Delete) or not inside:
            return action
        kind = kind_of(action.address)
        staying = [address for address in inside if address not in self._deletes]
        is_for_good = kind in {"topic", "mirror"} and bool(staying)  # Nobody is told to allow what stays refused.
        if action.blocked and not (is_for_good and action.blocked.allow):
            return action
        if kind == "namespace" and staying and self._may_stay(action.address):
            return Forget(address=action.address, reasons=action.reasons)
        if kind in {"topic", "mirror"}:
            message = f"{_some(inside)} mirrors it: promote or remove the mirror first"
            return replace(action, blocked=Block("mirrored", message, None))
        if kind == "link" and not self._situation.given.is_destroy:
            self._refuse_link(action, inside)
            return action
        if staying:
            message = f"it holds {_some(staying)}, which stays"
            return replace(action, blocked=Block("not_empty", message, None))
        message = f"it holds {_some(inside)}, whose delete is blocked"
        return replace(action, blocked=Block("not_empty", message, None, self._instead(inside)))

    def _instead(self, inside: Sequence[Address]) -> str | None:
        """Return what to declare for the first of what it holds that can be kept."""
        blocks = (self._deletes[address].blocked for address in inside)
        return next((block.instead for block in blocks if block is not None and block.instead), None)

    def _refuse_link(self, action: Delete, mirrors: Sequence[Address]) -> None:
        allow = " ".join(f"--allow delete:{mirror}" for mirror in mirrors)
        message = f"it is no longer declared, but {_some(mirrors)} is not stopped"
        hint = f"Declare the link again and promote or fail over its mirrors; or delete them too: {allow}"
        strange = [mirror for mirror in mirrors if mirror not in self._situation.recorded]
        if strange:
            hint = (
                f"Declare the link again. {_some(strange)} has no entry of its own: "
                f"`reconciler mirror failover {strange[0]}` stops it"
            )
        self.errors.append(Finding(action.address, action.source, message, hint))

    def _may_stay(self, address: Address) -> bool:
        """Tell whether nobody asked for this namespace to go: it was only implied, or all that is ours goes."""
        return IMPLIED in self._situation.recorded[address].origins or self._situation.given.is_destroy

    def _inside(self) -> dict[Address, list[Address]]:
        """Return, by what is to be deleted, what in it stays: not deleted, or only blocked."""
        found: dict[Address, list[Address]] = {}
        # What is to be made in it keeps a namespace as much as what is there.
        for address in sorted({*self._situation.observed, *self._situation.wanted}):
            if self._goes(address):
                continue
            seen = self._situation.observed.get(address)
            is_stopped = seen is not None and not is_live(seen) and kind_of(address) == "mirror"
            for holder in self._holders(address):
                if not self._is_kept_by(holder, address) or (is_stopped and kind_of(holder) == "link"):
                    continue
                if holder in self._deletes:
                    found.setdefault(holder, []).append(address)
        for source, mirrors in self._situation.mirrored.items():
            staying = [mirror for mirror in mirrors if not self._goes(mirror)]
            # A mirror that is mirrored on is a source, too.
            for deleted in (source, mirror_at(source)):
                if deleted in self._deletes and staying:
                    found[deleted] = staying
        return found

    def _is_kept_by(self, holder: Address, address: Address) -> bool:
        """Tell whether something that stays keeps what it lies in: rules on a prefix are kept by what is ours alone."""
        capabilities = self._situation.given.capabilities.get(cluster_of(holder) or "")
        if kind_of(holder) != "namespace" or capabilities is None or not capabilities.namespaces_are_rules:
            return True
        if self._situation.given.is_destroy:
            return False
        is_ours = address in self._situation.recorded and address not in self._forgotten
        return is_ours or address in self._situation.wanted

    def _goes(self, address: Address) -> bool:
        delete = self._deletes.get(address)
        if delete is None and kind_of(address) == "mirror":
            twin = self._deletes.get(Address("topic/" + address.partition("/")[2]))
            delete = twin if twin is not None and isinstance(twin.before, MirrorTopic) else None
        is_taken = address in self._moved or address in self._detached or self._is_asleep(address)
        return is_taken or (delete is not None and delete.blocked is None)

    def _is_asleep(self, address: Address) -> bool:
        """Tell whether it is a mounting whose topic is not to be here: that needs no namespace to lie in."""
        wanted = self._situation.wanted.get(address)
        resource = wanted.resource if wanted is not None else None
        return isinstance(resource, Mounting) and resource.spec.state == "unmounted"

    def _holders(self, address: Address) -> Iterator[Address]:
        kind, cluster = kind_of(address), cluster_of(address)
        if cluster is None or kind in {"cluster", "link"}:
            return
        full_name = full_name_of(address)
        tiers = tiers_of(full_name)[:-1] if kind == "namespace" else tiers_of(split_name(full_name)[0])
        yield from (address_of("namespace", cluster, tier) for tier in tiers)
        item = self._situation.observed.get(address) or self._situation.wanted[address]
        resource = item.resource
        if isinstance(resource, MirrorTopic):
            yield address_of("link", cluster, resource.link)
            yield from self._half_of(resource)

    def _half_of(self, mirror: MirrorTopic) -> Iterator[Address]:
        """Yield the half of a mirror's link on the other cluster: neither goes without the other."""
        half = address_of("link", mirror.source_cluster, mirror.link)
        seen = self._situation.observed.get(half)
        link = seen.resource if seen is not None else None
        if isinstance(link, MirrorLink) and link.spec.mode != "destination" and link.spec.source == mirror.cluster:
            yield half


def _some(addresses: Sequence[Address]) -> str:
    first = ", ".join(addresses[:3])
    return first if len(addresses) <= 3 else f"{first} and {len(addresses) - 3} more"  # noqa: PLR2004 - as many as fit a line
