"""`drift --accept`: a patch that adapts the manifests to the clusters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final, assert_never, cast

from reconciler.errors import UserError
from reconciler.lifecycles import MirrorStatus, Role
from reconciler.manifests.edit import UneditableError, format_flow_value
from reconciler.manifests.files import Place, build_label
from reconciler.manifests.format import format_text
from reconciler.manifests.load import LoadedWorkspace, find_field_origins
from reconciler.manifests.positions import FieldPath, format_path
from reconciler.operations.drift import (
    DriftItem,
    find_doubtful_actions,
    find_unreadable_error,
    list_drift_items,
    put_doubtful_first,
)
from reconciler.operations.manifest_fields import (
    ODD_LAYOUT,
    ElsewhereError,
    FieldEditError,
    Manifests,
    Spot,
    accept_field,
    describe_edit_by_hand,
    format_configs,
    format_field,
    format_rule,
    make_field_path,
)
from reconciler.operations.plan import PlanDecision, plan_unlocked
from reconciler.operations.steps.invocation import Invocation, Select, combine_errors
from reconciler.operations.steps.workspace import open_work
from reconciler.planning.actions import Transition
from reconciler.planning.diff.mount_changes import DETACHED_AT
from reconciler.planning.diff.moves import MOVED_TO
from reconciler.planning.plan_rows import list_platform_changes
from reconciler.planning.resolve.acting_configs import Inheritance
from reconciler.planning.resolve.mirror_sources import find_current_role, link_of
from reconciler.planning.situation import ALTERED
from reconciler.resources.acls import to_rule_fields
from reconciler.resources.address import (
    Address,
    build_sort_key,
    cluster_of,
    full_name_of,
    kind_of,
    matches_pattern,
    split_name,
)
from reconciler.resources.configs import DEFAULT
from reconciler.resources.mirror_link import MirrorLink, MirrorLinkSpec, MirrorTopic, is_auto_created
from reconciler.resources.namespace import Namespace
from reconciler.resources.tiering_policy import OFF
from reconciler.resources.topic import Topic
from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.text import list_first, to_json_types

if TYPE_CHECKING:
    from reconciler.planning.plan import HeldChange
    from reconciler.resources.inventory import Inventory, Resource
    from reconciler.resources.mount import RemountedTopic
    from reconciler.resources.owners import ResourceOwner


FOLDER: Final = "accepted"
MIRRORS: Final = ("spec", "mirrorTopics")
_ODD: Final = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_STEM: Final = 200


def accept_unmanaged(
    manifests: Manifests, address: Address, inventory: Inventory, inherited: Iterable[str] = ()
) -> None:
    """Add a file with an undeclared resource's manifest, which resets `inherited` configs to defaults.

    Raises `ElsewhereError` without a manifest folder.
    """
    resource = inventory[address].resource
    if not isinstance(resource, Topic | Namespace | MirrorLink):
        link = f": accept link/{resource.cluster}/{resource.link}" if isinstance(resource, MirrorTopic) else ""
        message = f"it has no manifest of its own{link}"
        raise ElsewhereError(message)
    if isinstance(resource, Topic):
        configs = {**dict.fromkeys(inherited, DEFAULT), **resource.spec.configs}
        resource = resource.model_copy(update={"spec": resource.spec.model_copy(update={"configs": configs})})
    manifests.fresh[_choose_free_name(manifests, address)] = format_manifest(address, resource, inventory)


def accept_unmounted(manifests: Manifests, topic: Address) -> None:
    """Add a Mounting for a topic unmounted outside apply."""
    _write_mounting(manifests, topic, "unmounted")


def _write_mounting(manifests: Manifests, topic: Address, state: str, *more: str) -> None:
    namespace, name = split_name(full_name_of(topic))
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), "cluster": cluster_of(topic)}
    lines = ("apiVersion: reconciler/v1", "kind: Mounting", f"metadata: {format_flow_value(metadata)}", "spec:")
    mounting = Address("mounting/" + topic.partition("/")[2])
    text = "".join(f"{line}\n" for line in (*lines, f"  state: {state}", *more))
    manifests.fresh[_choose_free_name(manifests, mounting)] = format_text(text)


def accept_remounted(manifests: Manifests, mounted: RemountedTopic) -> None:
    """Add a Mounting for a topic that a command mounted under another name."""
    if mounted.topic is None:
        message = f"it is mounted as {mounted}, which is not a declared cluster: its manifest belongs there"
        raise ElsewhereError(message)
    _write_mounting(manifests, mounted.topic, "mounted", f'  source: "{mounted.location}"')


def accept_moved(manifests: Manifests, old: Address, new: Address) -> None:
    """Rename a moved topic in the manifest, and add `movedFrom`."""
    written = _list_moved_fields(old, new)
    (spot, *_) = [manifests.find_spot(old, path) for path in written]
    with _translate_uneditable(spot), spot.file.apply_together():
        for path, value in written.items():
            if value is None and spot.get_value(path) is not None:
                spot.file.remove_value(spot.place.number, path)
            elif value is not None and spot.get_value(path) != value:
                spot.file.set_value(spot.place.number, path, value)


def _list_moved_fields(old: Address, new: Address) -> dict[FieldPath, str | None]:
    namespace, name = split_name(full_name_of(new))
    return {
        ("metadata", "name"): name,
        ("metadata", "namespace"): namespace or None,
        ("spec", "movedFrom"): full_name_of(old),
    }


def accept_mirror(manifests: Manifests, mirror: MirrorTopic) -> None:
    """Add a mirror to the manifest of its link."""
    spot = manifests.find_spot(link_of(mirror), MIRRORS)
    try:
        spot.file.append_value(spot.place.number, MIRRORS, build_link_entry(mirror))
    except UneditableError as error:
        raise FieldEditError(spot.place, ODD_LAYOUT) from error


def build_link_entry(mirror: MirrorTopic) -> dict[str, Any]:
    """Return a mirror's entry for the manifest of its link."""
    state = {} if mirror.state == "mirroring" else {"state": mirror.state}
    configs = {"configs": to_json_types(format_configs(mirror.configs))} if mirror.configs else {}
    return {"source": mirror.source, **state, **configs}


def format_manifest(address: Address, resource: Topic | Namespace | MirrorLink, inventory: Inventory) -> str:
    """Return a resource's manifest in canonical form."""
    spec = dict(build_spec(resource, inventory))
    metadata = build_metadata(address, resource)
    lines = ["apiVersion: reconciler/v1", f"kind: {resource.kind}", f"metadata: {format_flow_value(metadata)}"]
    if spec:
        lines += ["spec:", *(f"  {key}: {format_flow_value(value)}" for key, value in spec.items())]
    return format_text("".join(f"{line}\n" for line in lines))


def build_metadata(address: Address, resource: Topic | Namespace | MirrorLink) -> dict[str, Any]:
    """Return `metadata` for a resource's manifest."""
    namespace, name = split_name(full_name_of(address))
    if isinstance(resource, Namespace):
        return {"name": resource.metadata.name, "cluster": resource.cluster}
    return {"name": name, **({"namespace": namespace} if namespace else {}), "cluster": resource.cluster}


def _find_role(mirror: MirrorTopic, inventory: Inventory) -> Role | None:
    is_stopped = inventory[mirror.address].state == MirrorStatus.STOPPED
    return find_current_role(mirror, inventory) or ("promoted" if is_stopped else None)


def build_spec(resource: Resource, inventory: Inventory) -> Iterator[tuple[str, Any]]:
    """Yield the fields of `spec` in canonical order."""
    if isinstance(resource, Topic):
        spec = resource.spec
        if spec.read_replica_of is not None:
            yield "readReplicaOf", spec.read_replica_of
        elif spec.partitions is not None:
            yield "partitions", spec.partitions
        if spec.replication_factor is not None and spec.read_replica_of is None:
            yield "replicationFactor", spec.replication_factor
        if spec.recover_from is not None:
            yield "recoverFrom", spec.recover_from
        yield from _build_common_fields(resource)
        if spec.protect is not None:
            yield "protect", spec.protect
    elif isinstance(resource, Namespace):
        yield from _build_common_fields(resource)
        if resource.spec.quotas is not None:
            quotas = resource.spec.quotas.to_json()
            yield "quotas", {key: format_field(f"quotas.{key}", value) for key, value in quotas.items()}
        if resource.spec.encryption is not None:
            yield "encryption", resource.spec.encryption.to_json()
    elif isinstance(resource, MirrorLink):
        yield from _build_link_fields(resource)
        mirrors = [build_link_entry(mirror) for mirror in resource.mirrors()] or [
            dict(_build_mirror_fields(inventory, address)) for address in _list_declared_mirrors(resource, inventory)
        ]
        if mirrors:
            yield "mirrorTopics", mirrors


def _build_common_fields(resource: Topic | Namespace) -> Iterator[tuple[str, Any]]:
    if resource.spec.configs:
        yield "configs", format_configs(resource.spec.configs)
    if resource.spec.tiering_policy is not None:
        yield "tieringPolicy", resource.spec.tiering_policy
    if resource.spec.acls:
        rules = to_rule_fields(resource.spec.acls)
        yield "acls", [format_rule(path, operations) for path, operations in rules.items()]


def _build_link_fields(link: MirrorLink) -> Iterator[tuple[str, Any]]:
    fields = link.spec.to_json()
    usual = MirrorLinkSpec(source=link.spec.source).to_json()
    for key, value in fields.items():
        if key == "source" or (key not in {"mirrorTopics", "movedFrom"} and value != usual.get(key)):
            yield key, format_field(key, value)


def _list_declared_mirrors(link: MirrorLink, inventory: Inventory) -> Iterable[Address]:
    making = link.spec.auto_create
    filters = making.filters if making is not None and making.enabled else ()
    for address in sorted(inventory):
        resource = inventory[address].resource
        is_its = isinstance(resource, MirrorTopic) and link_of(resource) == link.address
        if isinstance(resource, MirrorTopic) and is_its and not is_auto_created(filters, resource.source):
            yield address


def _build_mirror_fields(inventory: Inventory, address: Address) -> Iterator[tuple[str, Any]]:
    seen = inventory[address]
    if isinstance(seen.resource, MirrorTopic):
        role = _find_role(seen.resource, inventory) or "mirroring"
        yield from build_link_entry(seen.resource.model_copy(update={"state": role})).items()


def _choose_free_name(manifests: Manifests, address: Address) -> str:
    folder = _find_manifest_folder(manifests.loaded)
    kind, cluster = kind_of(address), address.split("/")[1]
    stem = _ODD.sub("-", f"{kind}-{cluster}-{full_name_of(address)}")[:_MAX_STEM].strip("-.")
    number = 1
    while True:
        name = f"{stem}.yaml" if number == 1 else f"{stem}-{number}.yaml"
        path = str(PurePosixPath(folder) / FOLDER / name)
        if path not in manifests.fresh and not (manifests.loaded.folder / path).exists():
            return path
        number += 1


def _find_manifest_folder(loaded: LoadedWorkspace) -> str:
    workspace = loaded.folder.resolve()
    for listed in loaded.workspace.spec.manifests:
        path = (loaded.folder / listed).resolve()
        # Symbolic links may lead outside the workspace, which is never patched.
        if path.is_relative_to(workspace) and path.is_dir():
            return build_label(path, workspace)
    message = "no folder of this workspace is listed in spec.manifests: list one, or write its manifest by hand"
    raise ElsewhereError(message)


_KINDS_OF_FILES: Final = frozenset({"pending", "blocked"})


@dataclass(frozen=True, slots=True)
class AcceptResult:
    """A patch of the manifests, possibly empty, and notes."""

    patch: str
    notes: tuple[str, ...]
    left_out: int = 0
    """Changes that no patch can express."""


def accept(invocation: Invocation, select: Select, patterns: Sequence[str]) -> AcceptResult:
    """Return a patch that accepts the differences of `patterns`."""
    work = open_work(invocation, select, is_reader=True)
    decided = plan_unlocked(work)
    unknown = find_unreadable_error(work.state, decided.remembered)
    if unknown is not None:
        raise unknown
    doubtful = find_doubtful_actions(work.state, decided.remembered, lambda _address: True)
    return build_patch(work.loaded, decided, patterns, doubtful)


def build_patch(
    loaded: LoadedWorkspace, decided: PlanDecision, patterns: Sequence[str], doubtful: Sequence[DriftItem] = ()
) -> AcceptResult:
    """Return a patch that accepts the differences of `patterns`, except at doubtful addresses."""
    accepting = _PatchBuilder(loaded, decided, tuple(patterns))
    accepting.run(put_doubtful_first(list_drift_items(decided.plan), doubtful))
    if not accepting.is_anything_found:
        if decided.plan.errors:
            raise combine_errors(decided.plan.errors)
        message = f"nothing differs at {', '.join(patterns)}: there is nothing to accept"
        raise UserError(message, hint="List what differs with: reconciler drift")
    return AcceptResult(accepting.manifests.build_patch(), tuple(accepting.notes), accepting.left_out)


class FilesDifferError(ElsewhereError):
    """The files, not the cluster, changed, so no edit can accept the difference."""


@contextmanager
def _translate_uneditable(spot: Spot) -> Iterator[None]:
    try:
        yield
    except UneditableError as error:
        raise FieldEditError(spot.place, ODD_LAYOUT) from error


class _PatchBuilder:
    def __init__(self, loaded: LoadedWorkspace, decided: PlanDecision, patterns: tuple[str, ...]) -> None:
        self.manifests = Manifests(loaded)
        self.notes: list[str] = []
        self.is_anything_found = False
        self.left_out = 0
        self._decided = decided
        self._patterns = patterns
        self._inheritance = Inheritance(loaded.desired, decided.seen.inventory)
        self._owned: dict[ResourceOwner, list[Address]] = {}

    def run(self, findings: Sequence[DriftItem]) -> None:
        chosen = [held for held in self._decided.plan.held if self._is_chosen(held.address)]
        for held in chosen:
            self._try_change(held.address, partial(self._accept_held, held), partial(self._describe_held_by_hand, held))
        settled = {held.address for held in chosen}
        for mirror in sorted(filter(self._is_chosen, self._find_differing_mirrors() - settled), key=build_sort_key):
            settled.add(mirror)
            seen = self._decided.seen.inventory[mirror].resource
            role = _find_role(seen, self._decided.seen.inventory) if isinstance(seen, MirrorTopic) else None
            self._try_change(
                mirror, partial(self._accept_role, mirror, role), partial(self._describe_role_by_hand, mirror, role)
            )
        for item in findings:
            is_settled = item.address in settled and (item.kind in _KINDS_OF_FILES or item.path == "state")
            if self._is_chosen(item.address) and not is_settled:
                self._try_change(item.address, partial(self._accept_item, item), partial(self._describe_by_hand, item))
        for owner, addresses in self._owned.items():
            self._add_note(f"{list_first(addresses, 3)}: left out, owned by {owner}")
        self._note_environment()

    def _is_chosen(self, address: Address) -> bool:
        return any(matches_pattern(pattern, address) for pattern in self._patterns)

    def _try_change(self, address: Address, change: Callable[[], None], by_hand: Callable[[Place], str]) -> None:
        self.is_anything_found = True
        try:
            change()
        except FilesDifferError as error:
            self._add_note(f"{address}: {error}")
        except ElsewhereError as error:
            self.left_out += self._add_note(f"{address}: {error}")
        except FieldEditError as error:
            self.left_out += self._add_note(f"{address}: change by hand: {by_hand(error.place)} ({error})")

    def _add_note(self, text: str) -> bool:
        is_new = text not in self.notes
        self.notes += [text] if is_new else []
        return is_new

    def _describe_by_hand(self, item: DriftItem, place: Place) -> str:
        if not item.path:
            return f"{place} take this document out"
        return describe_edit_by_hand(self.manifests.loaded, item.address, item.path, item.observed, place)

    def _describe_role_by_hand(self, mirror: Address, role: Role | None, place: Place) -> str:
        return describe_edit_by_hand(self.manifests.loaded, mirror, "state", role, place)

    def _accept_item(self, item: DriftItem) -> None:
        match item.kind:
            case "drift":
                self._accept_drift(item)
            case "missing":
                self._accept_missing(item.address)
            case "unmanaged" if item.owner is not None:
                self._owned.setdefault(item.owner, []).append(item.address)
            case "unmanaged":
                inventory = self._decided.seen.inventory
                accept_unmanaged(self.manifests, item.address, inventory, self._list_inherited_configs(item.address))
            case "in doubt":
                message = "a run was interrupted there: `reconciler apply` settles it, then look again"
                raise ElsewhereError(message)
            case "pending" if item.path:
                message = f"the files already have {item.path}: `reconciler apply` records it"
                raise FilesDifferError(message)
            case "pending" | "blocked":
                message = "the files changed, not the cluster: apply that, or take it back"
                raise FilesDifferError(message)
            case _:
                assert_never(item.kind)

    def _list_inherited_configs(self, address: Address) -> Iterable[str]:
        seen = self._decided.seen
        resource, capabilities = seen.inventory[address].resource, seen.capabilities.get(cluster_of(address) or "")
        if not isinstance(resource, Topic) or capabilities is None:
            return ()
        return (key for key in self._inheritance.above(resource, capabilities) if key != OFF)

    def _accept_drift(self, item: DriftItem) -> None:
        if item.path == "incarnation":
            self._accept_recreated(item.address)
            return
        origin = self._find_origin(item)
        if origin is not None and not self._sets_own_value(item):
            known = find_field_origins(self.manifests.loaded, Address(origin)).get(f"spec.{item.path}")
            where = f"{origin} ({known})" if known else origin
            message = f"{item.path} comes from {where}: change it there, or set it on {item.address} by hand"
            raise ElsewhereError(message)
        capabilities = self._decided.seen.capabilities.get(cluster_of(item.address) or "")
        operations = capabilities.access.operations if capabilities is not None else {}
        accept_field(self.manifests, item.address, item.path, item.observed, operations)

    def _accept_recreated(self, address: Address) -> None:
        """Accept only the partition count, which apply cannot reduce."""
        errors = [finding.message for finding in self._decided.plan.errors if finding.address == address]
        more = self._find_larger_count(address) if errors else None
        if more is not None:
            accept_field(self.manifests, address, "partitions", more)
        elif errors:
            message = f"it was deleted and created again outside reconciler, and cannot be adopted: {errors[0]}"
            raise ElsewhereError(message)
        message = "it was deleted and created again outside reconciler; `reconciler apply` adopts the new one"
        raise ElsewhereError(message) if more is None else FilesDifferError(message)

    def _find_larger_count(self, address: Address) -> int | None:
        seen, declared = self._decided.seen.inventory.get(address), self.manifests.loaded.desired.get(address)
        if seen is None or declared is None:
            return None
        observed, wanted = (item.resource for item in (seen, declared))
        if not isinstance(observed, Topic) or not isinstance(wanted, Topic):
            return None
        observed_count, declared_count = observed.spec.partitions, wanted.spec.partitions
        return (
            observed_count
            if observed_count is not None and declared_count is not None and observed_count > declared_count
            else None
        )

    def _sets_own_value(self, item: DriftItem) -> bool:
        place = make_field_path(item.address, item.path)
        return self.manifests.find_spot(item.address, place).get_value(place) is not None

    def _find_origin(self, item: DriftItem) -> str | None:
        changes = (
            change
            for action in self._decided.plan.actions
            if action.address == item.address
            for change in list_platform_changes(action)
            if change.path == item.path
        )
        change = next(changes, None)
        if change is not None and change.after is None:
            return None
        last = self._decided.recorded.get(item.address)
        origin = change.origin if change is not None else last.origins.get(item.path) if last else None
        return None if origin in {DEFAULT, ALTERED, item.address} else origin

    def _accept_missing(self, address: Address) -> None:
        if self.manifests.is_dropped(address):
            return
        spot = self.manifests.find_spot(address)
        if spot.within:
            with _translate_uneditable(spot):
                spot.file.remove_value(spot.place.number, spot.within)
        else:
            spot.file.remove_document(spot.place.number)

    def _accept_held(self, held: HeldChange) -> None:
        address, now = held.address, held.current
        if held.mirror is not None:
            accept_mirror(self.manifests, held.mirror)
        elif not now:
            raise FilesDifferError(f"{held.message}: no `state` in a manifest declares that")
        elif kind_of(address) == "mirror":
            self._accept_role(address, cast("Role", now))
        elif kind_of(address) == "mounting":
            accept_field(self.manifests, address, "state", now)
        elif now.startswith(MOVED_TO):
            accept_moved(self.manifests, address, Address(now.removeprefix(MOVED_TO)))
        elif now.startswith(DETACHED_AT):
            accept_unmounted(self.manifests, address)
        else:
            accept_remounted(self.manifests, self._decided.mounted_elsewhere[address])
            self._accept_missing(address)

    def _describe_held_by_hand(self, held: HeldChange, place: Place) -> str:
        if held.mirror is not None:
            return f"{place} {format_path(MIRRORS)}: {format_flow_value(build_link_entry(held.mirror))}"
        if held.current.startswith(MOVED_TO):
            fields = _list_moved_fields(held.address, Address(held.current.removeprefix(MOVED_TO)))
            lines = (f"{format_path(path)}: {format_flow_value(value or '')}" for path, value in fields.items())
            return f"{place} {', '.join(lines)}"
        return describe_edit_by_hand(self.manifests.loaded, held.address, "state", held.current, place)

    def _find_differing_mirrors(self) -> set[Address]:
        plan = self._decided.plan
        changed_addresses = {action.address for action in plan.actions if isinstance(action, Transition)}
        wrong = changed_addresses | {finding.address for finding in plan.errors if finding.address is not None}
        return {mirror for mirror in wrong if kind_of(mirror) == "mirror" and mirror in self._decided.seen.inventory}

    def _accept_role(self, mirror: Address, role: Role | None) -> None:
        capabilities = self._decided.seen.capabilities[cluster_of(mirror) or ""]
        if role is None or role not in capabilities.mirrors.roles:
            seen = self._decided.seen.inventory.get(mirror)
            message = f"it is {seen.state if seen else role}, which its entry cannot declare as `state` on this cluster"
            raise ElsewhereError(message)
        spot = self.manifests.find_spot(mirror, ("state",))
        with _translate_uneditable(spot):
            spot.file.set_value(spot.place.number, (*spot.within, "state"), role)

    def _note_environment(self) -> None:
        environment = self.manifests.loaded.environment
        changed = self.manifests.changed
        if environment is not None and changed:
            files = ", ".join(changed)
            self.notes.append(f"{files}: read by every environment, not by {environment} alone; an overlay would be")
