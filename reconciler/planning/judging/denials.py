"""Access rules where any denial wins: what a rule cannot bring about is told before somebody relies on it (F-K-033)."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING

from reconciler.planning.finding import Finding
from reconciler.resources.address import Address, full_name_of, split_name
from reconciler.resources.namespace import Namespace
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.planning.review import Review
    from reconciler.planning.situation import Situation
    from reconciler.resources.acls import NamespaceAcl, TopicAcl


def check_hosts(acls: tuple[TopicAcl, ...]) -> Iterator[tuple[str, str]]:
    """Yield hosts that no connection comes from: brokers compare addresses, and know neither names nor ranges."""
    for rule in acls:
        if rule.host != "*" and not _is_address(rule.host):
            why = "brokers compare addresses: names and ranges are never met"
            yield (
                f"the rule for {rule.principal} is for host {rule.host}, and {why}",
                "Write one IP address, a rule for each where there are several, or * for all.",
            )


def warnings_of_denials(review: Review) -> Iterator[Finding]:
    """Yield rules that a tier above makes say nothing: denied there, or allowed there already."""
    situation = review.situation
    for address in sorted(situation.wanted):
        resource = situation.wanted[address].resource
        if not isinstance(resource, Topic | Namespace) or not resource.spec.acls:
            continue
        if situation.is_decidable(address) and situation.capabilities(resource.cluster).denies_are_final:
            above = list(_above(address, resource, situation))
            for rule in resource.spec.acls:
                yield from _judged(address, rule, above, situation) if rule.permission == "allow" else ()


@dataclass(frozen=True, slots=True)
class _Above:
    """A rule of a tier, and the name below that tier of what it is about."""

    tier: Address
    rule: NamespaceAcl
    below: str

    def is_about(self, rule: TopicAcl) -> bool:
        """Tell whether it covers all that a nearer rule is about, and whoever that is for."""
        resources = set(getattr(rule, "resources", ("topics",)))
        is_whole = any(
            name == "*" or (name.endswith("*") and self.below.startswith(name[:-1])) or name == self.below
            for name in self.rule.names
        )
        is_who = self.rule.principal in {rule.principal, "User:*"} and self.rule.host in {rule.host, "*"}
        return is_whole and is_who and resources <= set(self.rule.resources)

    def operations(self, rule: TopicAcl) -> tuple[str, ...]:
        """Return which operations of a nearer rule it is about, too."""
        return rule.operations if "all" in self.rule.operations else _shared(rule, self.rule)


def _above(address: Address, resource: Topic | Namespace, situation: Situation) -> Iterator[_Above]:
    full_name = full_name_of(address)
    home = split_name(full_name)[0] if isinstance(resource, Topic) else full_name.rpartition(":")[0]
    for tier in situation.nearest(resource.cluster, home):
        item = situation.wanted.get(tier) or situation.observed.get(tier)
        if item is not None and isinstance(item.resource, Namespace):
            below = full_name[len(full_name_of(tier)) + 1 :]
            for rule in item.resource.spec.acls:
                yield _Above(tier, rule, below)


def _judged(address: Address, rule: TopicAcl, above: list[_Above], situation: Situation) -> Iterator[Finding]:
    source = situation.wanted[address].source
    said = f"allow {rule.principal} {', '.join(rule.operations)}"
    for upper in above:
        operations = upper.operations(rule) if upper.is_about(rule) else ()
        if upper.rule.permission == "deny" and operations:
            yield Finding(
                address,
                source,
                f"{said}: {upper.tier} denies {', '.join(operations)}, and no rule below lifts a denial",
                f"Remove the denial from {upper.tier}, or give those their own rules that it is about.",
            )
            return
    allowing = next((upper for upper in above if _allows_all(upper, rule)), None)
    if allowing is not None:
        yield Finding(
            address,
            source,
            f"{said}: {allowing.tier} allows that already, so this says nothing; what a tier allows only a denial "
            "takes away below it",
            "Remove the rule; to allow less here add one with permission: deny.",
        )


def _allows_all(upper: _Above, rule: TopicAcl) -> bool:
    is_allowing = upper.rule.permission == "allow" and upper.is_about(rule)
    return is_allowing and set(upper.operations(rule)) == set(rule.operations)


def _shared(one: TopicAcl, other: TopicAcl) -> tuple[str, ...]:
    if "all" in one.operations:
        return other.operations
    return tuple(each for each in one.operations if each in other.operations)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
