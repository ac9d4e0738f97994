"""Access rules that a link brings to a catalog (`resources/rulesync.py`). Pure, within one commit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from reconciler.embedded.access.rules import changed_rules, namespace_rules
from reconciler.embedded.catalog.lookups import link_named
from reconciler.resources.aclpaths import rule_fields
from reconciler.resources.rulesync import brought
from reconciler.resources.syncs import AccessRules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.embedded.catalog.entries import AclEntry
    from reconciler.embedded.catalog.tables import Catalog, Draft
    from reconciler.resources.syncs import RuleFields

_NONE: Final[RuleFields] = {}


def rules_in(catalog: Catalog) -> AccessRules:
    """Return the access rules of everything in a catalog that has some."""
    return AccessRules(
        {name: rule_fields(namespace_rules(entry.acls)) for name, entry in catalog.topics.items() if entry.acls},
        {name: rule_fields(namespace_rules(entry.acls)) for name, entry in catalog.namespaces.items() if entry.acls},
    )


def bring_rules(draft: Draft, link_name: str, rules: AccessRules) -> int:
    """Give the mirrors of a link, and namespaces that are here, the rules of a source; return how many places changed.

    Raises:
        UserError: There is no such link.
    """
    link = link_named(draft, link_name)
    changed = 0
    for name, topic in list(draft.topics.items()):
        mirror = topic.follows
        if mirror is None or mirror.link_id != link.id:
            continue
        acls, own = _brought(topic.acls, mirror.rules, rules.topics.get(mirror.source, _NONE))
        if (acls, own) != (topic.acls, dict(mirror.rules)):
            changed += acls != topic.acls
            draft.put_topic(name, replace(topic, acls=acls, mirror=replace(mirror, rules=own)))
    kept: dict[str, Mapping[str, tuple[str, ...]]] = {}
    for name in sorted({*rules.namespaces, *link.rules} & draft.namespaces.keys()):
        namespace = draft.namespaces[name]
        acls, own = _brought(namespace.acls, link.rules.get(name, _NONE), rules.namespaces.get(name, _NONE))
        if acls != namespace.acls:
            changed += 1
            draft.put_namespace(name, replace(namespace, acls=acls))
        if own:
            kept[name] = own
    draft.put_link(link_name, replace(link, rules=kept))
    return changed


def _brought(
    entries: tuple[AclEntry, ...], before: RuleFields, wanted: RuleFields
) -> tuple[tuple[AclEntry, ...], dict[str, tuple[str, ...]]]:
    """Return the rules there are to be, and which of them are the link's, by path and operation."""
    changes, own = brought(rule_fields(namespace_rules(entries)), before, wanted)
    return (changed_rules(entries, changes) if changes else entries), own
