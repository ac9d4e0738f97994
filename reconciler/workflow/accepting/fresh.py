"""What is on a cluster and nobody declares, as a new manifest."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from reconciler.lifecycles.mirror import MirrorStatus
from reconciler.lifecycles.roles import ROLES, Held, Role, towards
from reconciler.manifests.editing.scalartext import yaml_text
from reconciler.manifests.editing.textedits import UneditableError
from reconciler.manifests.files import label_of
from reconciler.manifests.fmt import format_text
from reconciler.planning.canonical import plain
from reconciler.planning.wanted.sources import link_of
from reconciler.resources.aclpaths import rule_fields
from reconciler.resources.address import Address, cluster_of, full_name_of, kind_of, split_name
from reconciler.resources.mirrorlink import MirrorLink, MirrorLinkSpec, MirrorTopic
from reconciler.resources.namespace import Namespace
from reconciler.resources.topic import Topic
from reconciler.workflow.accepting.fields import written_rule
from reconciler.workflow.accepting.places import ODD_LAYOUT, ByHandError, ElsewhereError
from reconciler.workflow.accepting.values import written_configs, written_field

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from reconciler.manifests.loading import Loaded
    from reconciler.resources.inventory import Inventory
    from reconciler.resources.kinds import Resource
    from reconciler.workflow.accepting.places import Manifests

FOLDER: Final = "accepted"
MIRRORS: Final = ("spec", "mirrorTopics")
_ODD: Final = re.compile(r"[^A-Za-z0-9._-]+")


def accept_stranger(manifests: Manifests, address: Address, inventory: Inventory) -> None:
    """Write a manifest for something nobody declares, into a file of its own.

    Raises:
        ElsewhereError: It has no manifest of its own, or there is no folder for it.
    """
    resource = inventory[address].resource
    if not isinstance(resource, Topic | Namespace | MirrorLink):
        link = f": accept link/{resource.cluster}/{resource.link}" if isinstance(resource, MirrorTopic) else ""
        message = f"it has no manifest of its own{link}"
        raise ElsewhereError(message)
    manifests.fresh[_free_name(manifests, address)] = manifest_text(address, resource, inventory)


def accept_detached(manifests: Manifests, topic: Address) -> None:
    """Write a Mounting for a topic that somebody unmounted; its own manifest stays, understood to be detached.

    Raises:
        ElsewhereError: There is no folder for it.
    """
    namespace, name = split_name(full_name_of(topic))
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), "cluster": cluster_of(topic)}
    lines = ("apiVersion: reconciler/v1", "kind: Mounting", f"metadata: {yaml_text(metadata)}", "spec:")
    mounting = Address("mounting/" + topic.partition("/")[2])
    text = "".join(f"{line}\n" for line in (*lines, "  state: unmounted"))
    manifests.fresh[_free_name(manifests, mounting)] = format_text(text)


def accept_made(manifests: Manifests, mirror: MirrorTopic) -> None:
    """Name a mirror, as it is, in its link.

    Raises:
        ElsewhereError: The link says its mirrors elsewhere.
        ByHandError: Its document is laid out so that no patch is safe.
    """
    spot = manifests.spot(link_of(mirror), MIRRORS)
    try:
        spot.file.append(spot.place.number, MIRRORS, entry_of(mirror))
    except UneditableError as error:
        raise ByHandError(spot.place, ODD_LAYOUT) from error


def entry_of(mirror: MirrorTopic) -> dict[str, Any]:
    """Return a mirror as its link names it."""
    state = {} if mirror.state == "mirroring" else {"state": mirror.state}
    configs = {"configs": plain(written_configs(mirror.configs))} if mirror.configs else {}
    return {"source": mirror.source, **state, **configs}


def manifest_text(address: Address, resource: Topic | Namespace | MirrorLink, inventory: Inventory) -> str:
    """Return what is there as the manifest that would declare it, in canonical form."""
    spec = dict(spec_of(resource, inventory))
    metadata = metadata_of(address, resource)
    lines = ["apiVersion: reconciler/v1", f"kind: {resource.kind}", f"metadata: {yaml_text(metadata)}"]
    if spec:
        lines += ["spec:", *(f"  {key}: {yaml_text(value)}" for key, value in spec.items())]
    return format_text("".join(f"{line}\n" for line in lines))


def metadata_of(address: Address, resource: Topic | Namespace | MirrorLink) -> dict[str, Any]:
    """Return what tells one resource from another, as a manifest says it."""
    namespace, name = split_name(full_name_of(address))
    if isinstance(resource, Namespace):
        return {"name": resource.metadata.name, "cluster": resource.cluster}
    return {"name": name, **({"namespace": namespace} if namespace else {}), "cluster": resource.cluster}


def role_of(state: str | None) -> Role | None:
    """Return the role that a mirror in a state has, as a manifest names it; `None` where it is on its way."""
    try:
        status = MirrorStatus(state or MirrorStatus.ACTIVE)
    except ValueError:
        return None
    return next((role for role in ROLES if isinstance(towards(role, status), Held)), None)


def spec_of(resource: Resource, inventory: Inventory) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a manifest's spec and what each says, in the order they are written in."""
    if isinstance(resource, Topic):
        spec = resource.spec
        yield "partitions", spec.partitions
        if spec.replication_factor is not None:
            yield "replicationFactor", spec.replication_factor
        if spec.recover_from is not None:
            yield "recoverFrom", spec.recover_from
        yield from _shared(resource)
        if spec.protect is not None:
            yield "protect", spec.protect
    elif isinstance(resource, Namespace):
        yield from _shared(resource)
        if resource.spec.quotas is not None:
            said = resource.spec.quotas.to_json()
            yield "quotas", {key: written_field(f"quotas.{key}", value) for key, value in said.items()}
        if resource.spec.encryption is not None:
            yield "encryption", resource.spec.encryption.to_json()
    elif isinstance(resource, MirrorLink):
        yield from _link(resource)
        mirrors = [dict(_mirror(inventory, address)) for address in _mirrors_of(resource, inventory)]
        if mirrors:
            yield "mirrorTopics", mirrors


def _shared(resource: Topic | Namespace) -> Iterator[tuple[str, Any]]:
    if resource.spec.configs:
        yield "configs", written_configs(resource.spec.configs)
    if resource.spec.tiering_policy is not None:
        yield "tieringPolicy", resource.spec.tiering_policy
    if resource.spec.acls:
        rules = rule_fields(resource.spec.acls)
        yield "acls", [written_rule(path, operations) for path, operations in rules.items()]


def _link(link: MirrorLink) -> Iterator[tuple[str, Any]]:
    said = link.spec.to_json()
    usual = MirrorLinkSpec(source=link.spec.source).to_json()
    for key, value in said.items():
        if key == "source" or (key not in {"mirrorTopics", "movedFrom"} and value != usual.get(key)):
            yield key, written_field(key, value)


def _mirrors_of(link: MirrorLink, inventory: Inventory) -> Iterable[Address]:
    for address in sorted(inventory):
        resource = inventory[address].resource
        is_its = isinstance(resource, MirrorTopic) and (resource.cluster, resource.link) == (
            link.cluster,
            link.metadata.name,
        )
        if is_its and link.spec.auto_create is None:
            yield address


def _mirror(inventory: Inventory, address: Address) -> Iterator[tuple[str, Any]]:
    seen = inventory[address]
    if isinstance(seen.resource, MirrorTopic):
        role = role_of(seen.state) or "mirroring"
        yield from entry_of(seen.resource.model_copy(update={"state": role})).items()


def _free_name(manifests: Manifests, address: Address) -> str:
    """Return the name of a file that is not there yet, below the first folder that manifests are read from."""
    folder = _manifest_folder(manifests.loaded)
    kind, cluster = kind_of(address), address.split("/")[1]
    stem = _ODD.sub("-", f"{kind}-{cluster}-{full_name_of(address)}").strip("-.")
    number = 1
    while True:
        name = f"{stem}.yaml" if number == 1 else f"{stem}-{number}.yaml"
        path = str(PurePosixPath(folder) / FOLDER / name)
        if path not in manifests.fresh and not (manifests.loaded.folder / path).exists():
            return path
        number += 1


def _manifest_folder(loaded: Loaded) -> str:
    workspace = loaded.folder.resolve()
    for listed in loaded.workspace.spec.manifests:
        path = (loaded.folder / listed).resolve()  # through a link nothing is patched
        if path.is_relative_to(workspace) and path.is_dir():
            return label_of(path, workspace)
    message = "no folder of this workspace is listed in spec.manifests: list one, or write its manifest by hand"
    raise ElsewhereError(message)
