"""Access rules that a link brings to a Kafka cluster.

What is the link's is in the ledger before it is bound, and as long as it may be: no rule is left that nobody knows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from reconciler.providers.kafka.acls import create_bindings, delete_bindings, read_bindings
from reconciler.providers.kafka.faults import of_code
from reconciler.providers.kafka.ledger import writer_of
from reconciler.providers.kafka.linking.states import link_changes, mirror_changes, states_of
from reconciler.providers.kafka.permitting import bindings_of_namespace, bindings_of_topic, placed
from reconciler.resources.aclpaths import rule_at, rule_fields
from reconciler.resources.rulesync import brought
from reconciler.resources.syncs import AccessRules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.providers.kafka.ledger import Changes, Entries, Key
    from reconciler.providers.kafka.linking.site import Site
    from reconciler.providers.kafka.linking.states import States
    from reconciler.providers.kafka.metadata import TopicSeen
    from reconciler.resources.bindings import Binding
    from reconciler.resources.syncs import RuleFields

_NONE: Final[RuleFields] = {}


def rules(site: Site) -> AccessRules:
    """Return the access rules of topics and of known namespaces, in two requests.

    Raises:
        NotAuthorizedError: Whoever acts may not see them.
    """
    return _rules(site, site.seen())


def _rules(site: Site, topics: Mapping[str, TopicSeen]) -> AccessRules:
    bindings, code = read_bindings(site.client)
    if code:
        raise of_code(code, "access rules cannot be read", what=f"cluster {site.cluster}")
    found = placed(bindings, site.naming, topics.keys())
    return AccessRules(
        {name: rule_fields(acls) for name, acls in found.topics.items()},
        {name: rule_fields(acls) for name, acls in found.namespaces.items()},
    )


@dataclass(frozen=True, slots=True)
class _Place:
    """A mirror, by the name its broker gives it, or a namespace: what changes there, and what is the link's then."""

    name: str
    is_namespace: bool
    changes: Mapping[str, tuple[str, ...] | None]
    there: RuleFields
    before: RuleFields
    own: Mapping[str, tuple[str, ...]]


def bring_rules(site: Site, link: str, wanted: AccessRules) -> int:
    """Give the mirrors of a link, and namespaces that are known here, the rules of a source; return how many changed.

    Raises:
        UserError: There is no such link.
    """
    topics = site.seen()
    states = site.states().live({name: seen.id for name, seen in topics.items()})
    places = _places(site, states, link, wanted, _rules(site, topics))
    if not any(each.changes or each.own != each.before for each in places):
        return 0
    site.ledger.change(writer_of(link), lambda entries: _kept(entries, link, places, is_done=False))
    binds, unbinds = (_bound(site, places, is_new=is_new) for is_new in (True, False))
    _check(create_bindings(site.client, sorted(binds - unbinds)) if binds - unbinds else [], site)
    _check(delete_bindings(site.client, sorted(unbinds - binds)) if unbinds - binds else [], site)
    site.ledger.change(writer_of(link), lambda entries: _kept(entries, link, places, is_done=True))
    return sum(bool(each.changes) for each in places)


def _places(site: Site, states: States, link: str, wanted: AccessRules, here: AccessRules) -> list[_Place]:
    found = []
    for topic, kept in states.of(link):
        if kept.follows:
            there, before = here.topics.get(kept.name, _NONE), kept.entry.rules
            changes, own = brought(there, before, wanted.topics.get(kept.entry.source, _NONE))
            found.append(_Place(topic, False, changes, there, before, own))  # noqa: FBT003 - it has a name there
    known, of_link = set(site.naming.prefixes.values()), states.link(link).rules
    for name in sorted({*wanted.namespaces, *of_link} & known):
        there, before = here.namespaces.get(name, _NONE), of_link.get(name, _NONE)
        changes, own = brought(there, before, wanted.namespaces.get(name, _NONE))
        found.append(_Place(name, True, changes, there, before, own))  # noqa: FBT003 - as above
    return found


def _bound(site: Site, places: list[_Place], *, is_new: bool) -> set[Binding]:
    """Return the bindings of what changes, as they are to be, or as they are."""
    found: set[Binding] = set()
    for each in places:
        for path, after in each.changes.items():
            operations = after if is_new else each.there.get(path)
            if operations and each.is_namespace:
                found.update(bindings_of_namespace(site.naming.prefix(each.name), [rule_at(path, operations)]))
            elif operations:
                found.update(bindings_of_topic(each.name, [rule_at(path, operations)]))
    return found


def _kept(entries: Entries, link: str, places: list[_Place], *, is_done: bool) -> Changes:
    """Return what is noted of places: what is the link's; until it is bound, what was the link's, too."""
    states = states_of(entries)
    changes: dict[Key, Mapping[str, object] | None] = {}
    of_link = dict(states.link(link).rules)
    for each in places:
        own = dict(each.own) if is_done else _both(each.before, each.own)
        kept = states.mirrors.get(each.name)
        if each.is_namespace:
            of_link.pop(each.name, None)
            if own:
                of_link[each.name] = own
        elif kept is not None and kept.entry.rules != own:
            changes |= mirror_changes(each.name, replace(kept, entry=replace(kept.entry, rules=own)))
    if of_link != states.link(link).rules:
        changes |= link_changes(link, replace(states.link(link), rules=of_link))
    return changes


def _both(before: RuleFields, own: RuleFields) -> dict[str, tuple[str, ...]]:
    paths = sorted({*before, *own})
    return {path: tuple(sorted({*before.get(path, ()), *own.get(path, ())})) for path in paths}


def _check(answers: list[tuple[int, str]], site: Site) -> None:
    for code, message in answers:
        if code:
            raise of_code(code, message, what=f"access rules of cluster {site.cluster}")
