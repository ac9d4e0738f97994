"""`mirror create`: mirrors over a link that is there, made now; the next drift shows what the files do not say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.errors import ReconcilerError, UsageError, UserError
from reconciler.manifests.suggestions import did_you_mean
from reconciler.planning.actions import Create, Reason
from reconciler.planning.judging.limits import check_configs
from reconciler.planning.wanted.commandmarks import BY_COMMAND
from reconciler.providers.base import Scope
from reconciler.resources.address import address_of, join_name, split_name
from reconciler.resources.configs import canonical_value
from reconciler.resources.mirrortopic import MirrorTopic
from reconciler.resources.syncedconfigs import SYNCED_BY_DEFAULT
from reconciler.workflow.beginning.identity import refuse_another_cluster
from reconciler.workflow.linking.commands.answers import Answer, Answers
from reconciler.workflow.linking.commands.naming import mirrors_named
from reconciler.workflow.linking.commands.showing import absent_cluster

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reconciler.planning.actions import Action
    from reconciler.resources.mirroring import LinkSeen
    from reconciler.state.snapshots import Snapshot
    from reconciler.workflow.beginning.opening import Site
    from reconciler.workflow.linking.commands.naming import Named
    from reconciler.workflow.running.emergencies import Emergency


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMirrors:
    """What is to be mirrored: over which link, from which topic, and configs of the mirrors' own."""

    link: str
    source: str | None = None
    """Full name on the source; `None`: as the mirror is called, without the prefix of the link."""
    configs: Mapping[str, str]


def create_mirrors(emergency: Emergency, addresses: Sequence[str], new: NewMirrors) -> Answers:
    """Make mirrors, and return what came of each.

    Raises:
        UsageError: An address is none of a mirror, or one source is named for several.
        LeaseError: Someone else is applying.
    """
    names = mirrors_named(addresses)
    if new.source is not None and len(names) > 1:
        raise UsageError("--source-topic is of one mirror", hint="Make them one after the other.")
    site = emergency.open()
    refused: dict[Named, ReconcilerError] = {}
    made: dict[Named, Create] = {}

    def decide(snapshot: Snapshot | None) -> list[Action]:
        for named in names:
            try:
                refuse_another_cluster(site, named.cluster, snapshot)
                made[named] = _create(site, named, new)
            except ReconcilerError as error:
                refused[named] = error
        return list(made.values())

    for named in names:
        try:
            site.providers[named.cluster]  # says which there are
            emergency.check(site, named.cluster)
            _create(site, named, new)
        except ReconcilerError as error:
            refused[named] = error
    names = [named for named in names if named not in refused]
    undone = emergency.carry_out_each(site, {named.cluster for named in names}, decide) if names else {}

    def answer(named: Named) -> Answer:
        if named in refused:
            return Answer(named=named, error=refused[named])
        after = site.providers[named.cluster].links.mirror(named.name).status if not undone else None
        return Answer(named=named, after=after, error=undone.get(made[named].id))

    return Answers("create", tuple(map(answer, mirrors_named(addresses))))


def _create(site: Site, named: Named, new: NewMirrors) -> Create:
    provider = site.providers[named.cluster]
    if provider.identify() is None:
        raise absent_cluster(site.clusters[named.cluster])
    link = _link(provider.links.links(), named, new.link)
    if provider.observe(Scope((named.address, address_of("topic", named.cluster, named.name)))):
        hint = "A mirror is made under a name that is free: delete that topic first, or use a link with a prefix."
        raise UserError(f"{named.address}: topic {named.name} exists", hint=hint)
    source = _source(named, link, new.source)
    declared = link.declared.spec
    synced = SYNCED_BY_DEFAULT if declared.topic_config_sync is None else declared.topic_config_sync.include
    for key in sorted(new.configs.keys() & set(synced)):
        message = f"{named.address}: Cannot set configuration {key} for mirror topic: it is synced from the source"
        raise UserError(message, hint="Set it on the source topic, or leave it out of topicConfigSync.include.")
    configs = _configs(site, named, new.configs)
    if declared.source not in site.clusters:
        message = f"{named.address}: the source of link {link.name}, cluster {declared.source}, is not known here"
        raise UserError(message, hint="Declare it as a Cluster.")
    address = address_of("topic", declared.source, source)
    try:
        taken = site.providers[declared.source].source_topic(address)
    except ReconcilerError as error:
        raise UserError(f"{named.address}: its source {address}: {error.message}", hint=error.hint) from error
    mirror = MirrorTopic(
        cluster=named.cluster,
        link=link.name,
        source_cluster=declared.source,
        source=source,
        name=named.name,
        configs=configs,
        partitions=taken.partitions,
    )
    followed = {key: value for key, value in sorted(taken.configs.items()) if key in synced}
    return Create(
        address=named.address,
        after=mirror,
        parameters={"partitions": taken.partitions, "configs": followed, "incarnation": taken.incarnation},
        reasons=(Reason.DECLARED,),
        origins=BY_COMMAND,
    )


def _link(links: Sequence[LinkSeen], named: Named, name: str) -> LinkSeen:
    by_name = {link.name: link for link in links}
    if name not in by_name:
        known = ", ".join(sorted(by_name)) or "none"
        hint = did_you_mean(name, by_name, otherwise=f"Links there: {known}. Declare one, and apply that first.")
        raise UserError(f"{named.address}: there is no link {name!r} on cluster {named.cluster}", hint=hint)
    return by_name[name]


def _source(named: Named, link: LinkSeen, source: str | None) -> str:
    """Return the full name of the source: the mirror's, without the prefix of the link (F-C-006, F-C-007)."""
    namespace, own = split_name(named.name)
    prefix = link.declared.spec.prefix
    fits = own.startswith(prefix) and own != prefix
    expected = join_name(namespace, own.removeprefix(prefix)) if fits else None
    if expected is None or source not in {None, expected}:
        given = source if source is not None else named.name
        source_namespace, source_own = split_name(given)
        rule = f"the prefix {prefix} and the name of its source" if prefix else "the name of its source"
        message = f"{named.address}: over link {link.name} a mirror has {rule}, in the same namespace"
        hint = f"That of {given} is called mirror/{named.cluster}/{join_name(source_namespace, prefix + source_own)}."
        raise UserError(message, hint=hint)
    return expected


def _configs(site: Site, named: Named, given: Mapping[str, str]) -> dict[str, str]:
    capabilities = site.providers[named.cluster].capabilities
    for message, hint in check_configs(given, capabilities):
        raise UserError(f"{named.address}: {message}", hint=hint)
    configs: dict[str, str] = {}
    for key, value in sorted(given.items()):
        try:
            configs[key] = canonical_value(key, value, capabilities.configs)
        except ValueError as error:
            raise UserError(f"{named.address}: {key}={value}: {error}", hint="Give it a value it can have.") from error
    return configs
