"""Models of links, mirrors and changed fields that all providers share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import StalePlanError, UserError
from reconciler.planning.actions import SEALED, Change, Value
from reconciler.planning.fields import is_equal_value
from reconciler.resources.acls import ACLS
from reconciler.resources.base import KEPT, OnCluster
from reconciler.resources.mirror_link import MirrorLink, MirrorLinkSpec, MirrorTopic
from reconciler.resources.mirrors import (
    LinkEntry,
    MirrorEntry,
    NamedObjects,
    ObservedLink,
    ObservedMirror,
    SourceTopic,
    Trouble,
    compute_link_status,
    compute_mirror_status,
    find_status_start,
    list_synced_configs,
    set_end_offsets,
    set_link_trouble,
    set_mirror_trouble,
    set_task_trouble,
    stamp_trouble,
)
from reconciler.runtime.dataclass import dataclass, field, replace

if TYPE_CHECKING:
    from reconciler.lifecycles import LinkStatus
    from reconciler.resources.address import Address
    from reconciler.resources.kafka_configs import ConfigKey


NO_CATALOG: Final[Mapping[str, ConfigKey]] = MappingProxyType({})
_NOT_KEPT: Final = frozenset({"mirrorTopics", "movedFrom"})


class MirrorEntries(ABC):
    """Changes to entries of links and mirrors, which subclasses store on their platform."""

    @abstractmethod
    def read_mirror(self, full_name: str) -> ObservedMirror:
        """Return a mirror; raise if the topic is none."""

    @abstractmethod
    def change_mirror(self, full_name: str, decide: Callable[[MirrorEntry], MirrorEntry]) -> None:
        """Replace a mirror's entry. `decide` is called again after a concurrent change."""

    @abstractmethod
    def change_link(self, name: str, decide: Callable[[LinkEntry], LinkEntry]) -> None:
        """Replace a link's entry. `decide` is called again after a concurrent change."""

    @abstractmethod
    def now_ms(self) -> int:
        """Return the current time in ms."""

    def record_end_offsets(self, full_name: str, *, operation: str, ends: Mapping[int, int]) -> ObservedMirror:
        """Record the end offsets of a mirror's operation, once."""
        self.change_mirror(full_name, lambda entry: set_end_offsets(full_name, entry, operation, ends))
        return self.read_mirror(full_name)

    def record_trouble(
        self, full_name: str, trouble: Trouble | None, *, fails: bool = False, operation: str | None = None
    ) -> None:
        """Record why a mirror cannot fetch or continue."""
        entry_trouble = stamp_trouble(trouble, self.now_ms())
        self.change_mirror(
            full_name, lambda entry: set_mirror_trouble(entry, entry_trouble, fails=fails, operation=operation)
        )

    def record_link_trouble(self, link: str, status: LinkStatus, trouble: Trouble | None) -> None:
        """Record whether a link can reach its source."""
        entry_trouble = stamp_trouble(trouble, self.now_ms())
        self.change_link(link, lambda entry: set_link_trouble(entry, status, entry_trouble))

    def record_task_trouble(self, link: str, task: str, trouble: Trouble | None) -> None:
        """Record the trouble of a link's task."""
        entry_trouble = stamp_trouble(trouble, self.now_ms())
        self.change_link(link, lambda entry: set_task_trouble(entry, task, entry_trouble))


def to_observed_mirror(
    cluster: str, full_name: str, topic: tuple[str, int], of: tuple[str, LinkEntry | None], mirror: MirrorEntry
) -> ObservedMirror:
    """Return a mirror as plans observe it.

    `topic` is its id and number of partitions, `of` its link's name and entry (`None` if deleted).
    """
    link_name, link = of
    return ObservedMirror(
        cluster,
        full_name,
        topic[0],
        link_name,
        "" if link is None else link.source_cluster,
        mirror.source,
        compute_mirror_status(mirror, link),
        topic[1],
        find_status_start(mirror, link),
        mirror.source_topic_id,
        mirror.operation,
        mirror.trouble,
        mirror.stopped_by,
        mirror.is_automatic,
        mirror.first_copy_done,
        mirror.begins,
        mirror.is_untouched,
    )


def already_exists_error(full_name: str) -> UserError:
    """Return the error for a new topic whose name already exists."""
    message = f"topic {full_name} exists and differs from what was to be created"
    return UserError(message, hint="It was created after the plan: plan again.")


def no_storage_error() -> UserError:
    """Return the error of a cluster without object storage."""
    return UserError("there is no object storage", hint="Declare objectStorage on the Cluster.")


def to_declared_link(name: str, cluster: str, entry: LinkEntry) -> MirrorLink:
    """Return a link as declared, without its mirrors.

    Raises:
        UserError: Its source is declared under this cluster's name.
    """
    spec = MirrorLinkSpec.model_validate(entry.declared, context=KEPT)
    if spec.source == cluster:
        message = (
            f"link {name} of cluster {cluster} was declared elsewhere, where {spec.source} is the name of its source"
        )
        hint = "A link keeps the name of its source: use the same cluster names in every workspace."
        raise UserError(message, hint=hint)
    return MirrorLink(metadata=OnCluster(name=name, cluster=cluster), spec=spec)


def to_observed_link(name: str, cluster: str, entry: LinkEntry) -> ObservedLink:
    """Return a link as plans observe it. Raises the errors of `to_declared_link`."""
    return ObservedLink(
        to_declared_link(name, cluster, entry),
        entry.id,
        compute_link_status(entry),
        entry.trouble,
        dict(sorted(entry.tasks.items())),
        entry.source_cluster_id,
    )


def to_declared_mirror(
    cluster: str, full_name: str, mirror: MirrorEntry, of: NamedObjects, configs: Mapping[str, str], partitions: int
) -> MirrorTopic:
    """Return a mirror with its own configs, without those synced from its source."""
    link_name, link = of
    synced = frozenset(list_synced_configs(link))
    return MirrorTopic(
        cluster=cluster,
        link=link_name,
        source_cluster=link.source_cluster,
        source=mirror.source,
        name=full_name,
        configs={key: value for key, value in configs.items() if key not in synced},
        partitions=partitions,
    )


def to_link_entry(link: MirrorLink, link_id: str) -> LinkEntry:
    """Return a new link's entry: its spec without mirrors."""
    declared = {key: value for key, value in link.spec.to_json().items() if key not in _NOT_KEPT}
    return LinkEntry(link_id, link.spec.source, declared)


def read_planned_source(address: Address, parameters: Mapping[str, Any]) -> SourceTopic:
    """Return a new mirror's source from the plan's parameters."""
    partitions = parameters.get("partitions")
    if not isinstance(partitions, int):
        raise UserError(f"{address}: how many partitions its source has is not known", hint="Plan again.")
    taken: dict[str, str] = dict(parameters.get("configs") or {})
    return SourceTopic(partitions=partitions, incarnation=parameters.get("incarnation"), configs=taken)


def apply_declared_changes(declared: Mapping[str, Any], changes: Sequence[Change]) -> dict[str, Any]:
    """Return a link's stored spec with changes applied. `None` removes a field, and then empty parents."""
    after = dict(declared)
    for change in changes:
        name, _, rest = change.path.partition(".")
        if rest:
            after[name] = apply_declared_changes(after.get(name) or {}, [replace(change, path=rest)])
        else:
            after[name] = list(change.after) if isinstance(change.after, tuple) else change.after
        if after[name] is None or after[name] == {}:
            del after[name]
    return after


CONFIGS: Final = "configs."
QUOTAS: Final = "quotas."
ENCRYPTION: Final = "encryption.kmsKeyId"


@dataclass(frozen=True, slots=True)
class FieldChanges:
    """Changed fields of a topic, namespace or mirror; `None` resets a value."""

    configs: Mapping[str, str | None]
    partitions: int | None = None
    replication_factor: int | None = None
    quotas: Mapping[str, int | None] = field(default_factory=dict)
    keys: tuple[str | None, ...] = ()
    """New encryption key, if it changes."""
    rules: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    """Operations of access rules by path; `None` removes a rule."""


def convert_changes(address: Address, changes: Sequence[Change], *, platform: str) -> FieldChanges:
    """Convert changes of a topic, namespace or mirror.

    Raises:
        UserError: The platform cannot change a field.
    """
    configs: dict[str, str | None] = {}
    numbers: dict[str, int] = {}
    quotas: dict[str, int | None] = {}
    keys: tuple[str | None, ...] = ()
    rules: dict[str, tuple[str, ...] | None] = {}
    for change in changes:
        match change.path, change.after:
            case str(path), str() | None as value if path.startswith(CONFIGS):
                configs[path.removeprefix(CONFIGS)] = value
            case ("partitions" | "replicationFactor") as path, int(number):
                numbers[path] = number
            case str(path), int() | None as limit if path.startswith(QUOTAS):
                quotas[path.removeprefix(QUOTAS)] = limit
            case "encryption.kmsKeyId", str() | None as key:
                keys = (key,)
            case str(path), tuple() | None as operations if path.startswith(ACLS):
                rules[path] = None if operations is None else tuple(map(str, operations))
            case str(path), None if path == SEALED:
                continue  # The provider has removed the seal before.
            case path, _:
                message = f"{address}: {platform} of this version cannot change {path}"
                raise UserError(message, hint="Set it back in the files, and plan again.")
    return FieldChanges(configs, numbers.get("partitions"), numbers.get("replicationFactor"), quotas, keys, rules)


def check_unchanged(
    address: Address,
    changes: Sequence[Change],
    current: Mapping[str, Value],
    catalog: Mapping[str, ConfigKey] = NO_CATALOG,
) -> None:
    """Reject changes to values that differ from plan time, unless they equal the planned value.

    Configs in `catalog` are compared by meaning.

    Raises:
        StalePlanError: A value has changed.
    """
    for change in changes:
        current_value = current.get(change.path)
        if not any(
            is_equal_value(change.path, current_value, accepted_value, catalog)
            for accepted_value in (change.before, change.after)
        ):
            now, before = ("unset" if value is None else repr(value) for value in (current_value, change.before))
            message = f"{address}: {change.path} is {now} now, not {before}"
            raise StalePlanError(message, hint="It was changed after the plan read it: plan again.")
