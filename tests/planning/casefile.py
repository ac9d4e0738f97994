"""Planning cases as data: reads `tests/cases/*.yaml` and compares a plan with what the case expects.

A case names what is desired, recorded and observed, what planning is given, and the plan. Clusters named under
`clusters` (default: west) are declared, recorded and there, with object storage as `has_storage` says. What a case does
not say is not compared, except that there are no errors, no warnings, nothing waiting and nothing unmanaged but what it
names. A platform with `cluster_properties: embedded` has those of an embedded cluster; one of a case that says
`has_links` can do all there is with them. `facts` are those a case shows.

Files named `kafka*.yaml` are about Kafka clusters: `KAFKA` says what those can do, `lacks` under `given` what not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from reconciler.errors import NotAuthorizedError, UserError
from reconciler.lifecycles import ROLES
from reconciler.planning.actions import RoleCost
from reconciler.planning.fields import ALL_LINK_FEATURES
from reconciler.planning.orders import (
    AlterLinkOrder,
    AlterNamespaceOrder,
    AlterTopicOrder,
    CreateLinkOrder,
    CreateMirrorOrder,
    CreateNamespaceOrder,
    CreateTopicOrder,
    DeleteLinkOrder,
    DeleteMirrorOrder,
    DeleteNamespaceOrder,
    DeleteTopicOrder,
    ForgetOrder,
    MountOrder,
    MoveTopicsOrder,
    Order,
    PauseLinkOrder,
    ReaddressOrder,
    RoleOrder,
    TrimTopicOrder,
)
from reconciler.planning.plan import Base, Plan, PlanInput, PlanOptions, PlanSource, Selection
from reconciler.planning.plan_rows import collect_parameters, list_changes
from reconciler.planning.planner import list_topics_to_measure
from reconciler.providers.redpanda.capabilities import SHADOW_LINKS
from reconciler.resources.acls import AccessBinding, NamespaceAcl
from reconciler.resources.address import Address
from reconciler.resources.cluster_properties import EMBEDDED_PROPERTIES
from reconciler.resources.configs import EMBEDDED_CONFIGS, STORAGE_MODE
from reconciler.resources.inventory import AccessControl, Capabilities, ClusterIdentity, MirrorSupport, Observed
from reconciler.resources.kafka_configs import KAFKA_CONFIGS, KAFKA_INTERNAL, build_kafka_catalog
from reconciler.resources.measures import Measure, Measures, TieredPartition, TopicReaders, UndeletableError
from reconciler.resources.mirrors import NEVER_FETCHED, DivergedPartition, Position
from reconciler.resources.mount import MountSource, RecoverableTopic, StoredTopics
from reconciler.resources.owners import Owners, ResourceOwner
from reconciler.resources.redpanda_configs import REDPANDA_INTERNAL, redpanda_configs
from reconciler.resources.workspace import Guards
from reconciler.runtime.text import to_json_types
from tests.planning.short import declared, observed, recorded, resource
from tests.planning.world import World

FOLDER = Path(__file__).parent.parent / "cases"
TODAY = date(2026, 6, 1)
NOW_MS = 1_780_272_000_000

PARTS: dict[str, tuple[str, str]] = {
    "links_by_jobs": ("mirrors", "by_jobs"),
    "mirror_states": ("mirrors", "roles"),
    "link_features": ("mirrors", "features"),
    "mirrors_read_only": ("mirrors", "read_only"),
    "max_links": ("mirrors", "max_links"),
    "acl_hosts_are_addresses": ("access", "hosts_are_addresses"),
    "denies_are_final": ("access", "denies_are_final"),
    "open_without_acls": ("access", "is_open"),
    "principal": ("access", "principal"),
    "write_rules": ("access", "write_rules"),
}

EMBEDDED: dict[str, Any] = {
    "platform": "embedded",
    "links_by_jobs": True,
    "mirror_states": frozenset({"mirroring"}),
    "link_features": frozenset({"prefix", "mirror-configs"}),
    "topic_move": True,
    "quotas": True,
    "inherits_configs": True,
    "creates_cluster": True,
    "configs": EMBEDDED_CONFIGS,
}

KAFKA: dict[str, Any] = {
    "platform": "kafka",
    "namespaces_are_rules": True,
    "tiering": True,
    "tiering_words": "kip-405",
    "links_by_jobs": True,
    "mirror_states": frozenset(ROLES),
    "link_features": ALL_LINK_FEATURES | {"bidirectional-mode", "mode-change"},
    "mirrors_read_only": False,
    "acls": True,
    "acl_hosts_are_addresses": True,
    "denies_are_final": True,
    "open_without_acls": False,
    "quotas": True,
    "keeps_quotas": False,
    "cluster_properties": True,
    "replication_moves": True,
    "copy_move": True,
    "mountings": True,
    "mountings_by_jobs": True,
    "replication_factors": range(1, 4),
    "internal_topics": KAFKA_INTERNAL,
    "configs": build_kafka_catalog(KAFKA_CONFIGS, "4.3"),
}

REDPANDA: dict[str, Any] = {
    "platform": "redpanda",
    "namespaces_are_rules": True,
    "tiering": True,
    "untiering": True,
    "tells_own": False,
    "acls": True,
    "quotas": True,
    "keeps_quotas": False,
    "cluster_properties": True,
    "mountings": True,
    "recovery": True,
    "replication_factors": range(1, 6, 2),
    "configs": redpanda_configs((), (26, 1)),
    "defaults": {"remote.read": "false", "remote.write": "false", STORAGE_MODE: "unset"},
    "object_storage": "s3://topics",
    "links_by_jobs": SHADOW_LINKS.by_jobs,
    "mirror_states": SHADOW_LINKS.roles,
    "link_features": SHADOW_LINKS.features,
    "max_links": SHADOW_LINKS.max_links,
    "internal_topics": REDPANDA_INTERNAL,
}

_LISTS = {"listed", "replication_factors"}
"""Capabilities that are lists; other lists of a case are sets."""

_CONNECTIONS: dict[str, dict[str, Any]] = {
    "embedded": {},
    "kafka": {"provider": "kafka", "embedded": None, "kafka": {"bootstrapServers": ["broker-1:9092"]}},
    "redpanda": {
        "provider": "redpanda",
        "embedded": None,
        "redpanda": {"bootstrapServers": ["broker-1:9092"], "adminUrls": ["http://broker-1:9644"]},
    },
}
"""How the clusters of a case are reached, by platform."""

_STORAGE: dict[str | bool | None, dict[str, Any]] = {
    None: {},
    True: {"objectStorage": "memory://topics"},
    "enabled": {"objectStorage": "memory://topics", "properties": {"cloud_storage_enabled": "true"}},
}
"""What `has_storage` of a case says of the object storage of its clusters."""

_LINKS: dict[str, Any] = {
    "mirror_states": list(ROLES),
    "link_features": [*ALL_LINK_FEATURES, "bidirectional-mode", "source-mode"],
}
"""What a platform can do with links where a case says `has_links`."""


@dataclass(frozen=True)
class Case:
    """One document of a case file."""

    name: str
    row: dict[str, Any]

    @property
    def world(self) -> World:
        row = self.row
        names = row.get("clusters", ["west"])
        how = {**_CONNECTIONS[row.get("platform", "embedded")], **_STORAGE[row.get("has_storage")]}
        standing = [{"cluster": name, **how} for name in names]
        desired = [*standing, *row.get("desired", [])] if row.get("declares_clusters", True) else row.get("desired", [])
        return World(
            desired=dict(declared(item) for item in desired),
            recorded=dict(recorded(item) for item in [*standing, *row.get("recorded", [])]),
            observed=_owned(row, dict(observed(item) for item in [*standing, *row.get("observed", [])])),
            given=_given(
                self._said,
                row.get("platform", "embedded"),
                [item["cluster"] for item in desired if "cluster" in item],
                names,
            ),
            measures=_measures(self._said),
        )

    @property
    def _said(self) -> dict[str, Any]:
        said = self.row.get("given", {})
        links = _LINKS if self.row.get("has_links") else {}
        return {**said, "capabilities": {**links, **said.get("capabilities", {})}}


def cases(folder: Path = FOLDER) -> list[Case]:
    """Return every case of every file of a folder, in order."""
    found: list[Case] = []
    for path in sorted(folder.glob("*.yaml")):
        rows = [row for row in yaml.load_all(path.read_bytes(), yaml.CSafeLoader) if row]
        platform = path.stem.partition("_")[0]
        if platform in _CONNECTIONS:
            rows = [{"platform": platform, **row} for row in rows]
        found += [Case(f"{path.stem}-{place}", row) for place, row in enumerate(rows, 1)]
    return found


def differences(case: Case, plan: Plan) -> list[str]:
    """Return where a plan is not what its case expects, as lines."""
    row = case.row
    wrong: list[str] = []
    expected = [{"id": item} if isinstance(item, str) else item for item in row["plan"]]
    ids, wanted = [action.id for action in plan.actions], [item["id"] for item in expected]
    if ids != wanted:
        return [f"actions are {ids}, not {wanted}; errors: {[error.message for error in plan.errors]}"]
    for action, item in zip(plan.actions, expected, strict=True):
        said = {
            "changes": {change.path: to_json_types([change.before, change.after]) for change in list_changes(action)},
            "drift": [change.path for change in list_changes(action) if change.drift],
            "risk": action.risk.value,
            "reasons": [reason.value for reason in action.reasons],
            "blocked": action.blocked.guard if action.blocked else None,
            "allow": action.blocked.allow if action.blocked else None,
            "message": action.blocked.message if action.blocked else None,
            "instead": action.blocked.instead if action.blocked else None,
            "grant": action.granted_by,
            "after": list(action.depends_on),
            "wave": action.wave,
            "bytes": action.estimate.bytes,
            "uploads": action.estimate.uploads,
            "records": action.estimate.records,
            "groups": action.estimate.groups and list(action.estimate.groups),
            "location": action.estimate.location,
            "partitions": action.estimate.partitions,
            "replicated": action.estimate.replicated,
            "no_writes_seconds": action.estimate.no_writes_seconds,
            "unreadable": [
                [lost.topic, lost.partition, lost.start, lost.stop, lost.bytes] for lost in action.estimate.unreadable
            ],
            **_role_cost(action.estimate.role),
            "origins": dict(action.origins),
            "parameters": collect_parameters(action),
            "role": getattr(getattr(action, "after", None), "state", None),
        }
        defaults = {"blocked": None} if "blocked" not in item else {}
        wrong += [
            f"{action.id}: {key} is {said[key]!r}, not {value!r}"
            for key, value in {**defaults, **item}.items()
            if key != "id" and said[key] != value
        ]
    found = [
        f"{item.address} {item.path} {item.recorded} {item.observed}{f' (from {item.origin})' if item.origin else ''}"
        for item in plan.drift
    ]
    if "drift" in row and found != row["drift"]:
        wrong.append(f"drift is {found}, not {row['drift']}")
    wrong += _texts("errors", [f"{item.address}: {item.message}. {item.hint}" for item in plan.errors], row)
    wrong += _texts("warnings", [f"{item.address}: {item.message}. {item.hint}" for item in plan.warnings], row)
    if list(plan.unmanaged) != row.get("unmanaged", []):
        wrong.append(f"unmanaged is {list(plan.unmanaged)}")
    waiting = [f"{item.address} {item.state}" for item in plan.waiting]
    if waiting != row.get("waiting", []):
        wrong.append(f"waiting is {waiting}")
    if "unmeasured" in row:
        world = case.world
        unmeasured = [address for address in list_topics_to_measure(world.draft()) if address not in world.measures]
        if unmeasured != row["unmeasured"]:
            wrong.append(f"unmeasured is {unmeasured}")
    return wrong


ME = ResourceOwner.create("shop", None, "lineage", "s3://bucket/shop")


def _owned(row: dict[str, Any], inventory: dict[Address, Observed]) -> dict[Address, Observed]:
    """Let a cluster (`owned_on`, by default west) say which workspaces own what: `owners`, by key."""
    said: dict[str, str] = row.get("owners", {})
    if not said and "owners_unknown" not in row:
        return inventory
    address = Address(f"cluster/{row.get('owned_on', 'west')}")
    others = {name: ResourceOwner.create(name, None, name, f"s3://bucket/{name}") for name in said.values()}
    owners = Owners({**others, "shop": ME}, said, row.get("owners_unknown"))
    return {
        **inventory,
        address: replace(inventory[address], cluster=replace(inventory[address].cluster, owners=owners)),
    }


def _role_cost(cost: RoleCost | None) -> dict[str, Any]:
    if cost is None:
        cost = RoleCost()
    return {
        "lost": [[each.partition, each.start, each.stop] for each in cost.lost],
        "behind": [[each.partition, each.start, each.stop] for each in cost.behind],
        "unknown": cost.unknown,
        "fetched": [list(each) for each in cost.fetched],
        "set_back": None if cost.groups_set_back is None else list(cost.groups_set_back),
        "timeout_ms": cost.timeout_ms,
    }


def _position(
    end: int, start: int = 0, of: str | None = None, fetched: int = NEVER_FETCHED, **epochs: list[list[int]]
) -> Position:
    """Read where a partition stands: `of` and `of_epochs` are those of the topic that was copied."""
    own, copied = (tuple((epoch, at) for epoch, at in epochs.get(name, ())) for name in ("epochs", "of_epochs"))
    return Position(start, end, own, of, copied, fetched)


def _hidden() -> NotAuthorizedError:
    return NotAuthorizedError("User:x may not describe it", hint="Ask.")


def _recovery(problem: str | None = None, **said: Any) -> RecoverableTopic | UserError:
    return RecoverableTopic(full_name="a", **said) if problem is None else UserError(problem, hint="Look there.")


def _mount(
    location: str = "", problem: str | None = None, unmounts: str | None = None, **said: Any
) -> MountSource | UserError:
    if problem is not None:
        return UserError(problem, hint="Look there.")
    if unmounts is not None:
        return MountSource(location, None, Address(unmounts))
    return MountSource(location, RecoverableTopic(location, "a", **{"partitions": 1, **said}))


def _readers(
    starts: dict[int, list[int]], groups: dict[str, Any] | None = None, mirrors: dict[str, Any] | None = None
) -> TopicReaders:
    copied = {Address(mirror): at for mirror, at in (mirrors or {}).items()}
    return TopicReaders({number: (start, end) for number, (start, end) in starts.items()}, groups, copied)


def _write_rule(said: str) -> AccessBinding:
    """Return a rule as a case says it: `allow User:app write on orders*`."""
    permission, principal, operation, _, name = said.split()
    is_prefix = name.endswith("*") and name != "*"
    return AccessBinding("topics", name.removesuffix("*") or "*", is_prefix, principal, "*", operation, permission)


def _texts(what: str, found: list[str], row: dict[str, Any]) -> list[str]:
    expected = row.get(what, [])
    matched = len(found) == len(expected) and all(part in text for part, text in zip(expected, found, strict=True))
    return [] if matched else [f"{what} are {found}, not {expected}"]


def capable(limits: dict[str, Any]) -> Capabilities:
    """Return capabilities from fields in one row, those of mirrors and of access as cases call them."""
    parts: dict[str, dict[str, Any]] = {"mirrors": {}, "access": {}}
    for field, value in limits.items():
        part, name = PARTS.get(field, ("", field))
        parts.setdefault(part, {})[name] = value
    mirrors, access = MirrorSupport(**parts["mirrors"]), AccessControl(**parts["access"])
    return Capabilities(**parts[""], mirrors=mirrors, access=access)


def _given(row: dict[str, Any], platform: str, declared_names: list[str], standing: list[str]) -> PlanInput:
    unread = row.get("unread", [])
    names = [name for name in dict.fromkeys([*standing, *declared_names]) if name not in unread]
    identities: dict[str, ClusterIdentity | None] = {
        name: ClusterIdentity(platform, f"{name}-id") if name in standing else None for name in names
    }
    for name, said in row.get("identities", {}).items():
        identities[name] = ClusterIdentity(*said) if said else None
    limits = row.get("capabilities", {})
    usual = {"kafka": KAFKA, "redpanda": REDPANDA}.get(platform, EMBEDDED)
    sets = {key: frozenset(value) for key, value in limits.items() if isinstance(value, list) and key not in _LISTS}
    if "version" in limits:
        configs = build_kafka_catalog(limits.get("listed", KAFKA_CONFIGS), limits["version"])
        limits = {key: value for key, value in limits.items() if key not in {"version", "listed"}} | {
            "configs": configs
        }
    if limits.get("cluster_properties") == "embedded":
        limits = {**limits, "cluster_properties": True, "tiering": True, "properties": EMBEDDED_PROPERTIES}
    if "write_rules" in limits:
        sets["write_rules"] = frozenset(map(_write_rule, limits["write_rules"]))
    capabilities = capable({**usual, **limits, **sets})
    changed = row.get("changed_files")
    return PlanInput(
        workspace="shop",
        capabilities=dict.fromkeys(names, capabilities),
        identities=identities,
        hidden={address: _hidden() for address in row.get("hidden", ())},
        today=TODAY,
        now_ms=NOW_MS,
        guards=Guards.model_validate(row.get("guards", {})),
        selection=Selection(
            targets=tuple(row.get("targets", ())),
            excludes=tuple(row.get("excludes", ())),
            labels=tuple(row.get("labels", {}).items()),
            changed_files=tuple(changed) if changed is not None else None,
            allow=tuple(row.get("allow", ())),
        ),
        stored=StoredTopics(
            recoveries={Address(address): _recovery(**said) for address, said in row.get("recoveries", {}).items()},
            mounts={Address(address): _mount(**said) for address, said in row.get("mounts", {}).items()},
            detached={Address(address): location for address, location in row.get("detached", {}).items()},
        ),
        groups=row.get("groups", {}),
        lost=row.get("lost", {}),
        me=ME,
        base=Base("lineage", 7, "0" * 64),
        source=PlanSource(tool="0.1.0"),
        options=PlanOptions(
            is_destroy=row.get("destroy", False),
            include_adopted=row.get("include_adopted", False),
            is_only_drift=row.get("only_drift", False),
        ),
        orders=tuple(_add_readers(_order(**said), row.get("trimmed", {})) for said in row.get("orders", ())),
        has_state=row.get("has_state", True),
    )


_ORDERS: dict[str, type[Any]] = {
    "forget": ForgetOrder,
    "readdress": ReaddressOrder,
    "create_namespace": CreateNamespaceOrder,
    "alter_namespace": AlterNamespaceOrder,
    "delete_namespace": DeleteNamespaceOrder,
    "move_topics": MoveTopicsOrder,
    "create_topic": CreateTopicOrder,
    "alter_topic": AlterTopicOrder,
    "delete_topic": DeleteTopicOrder,
    "trim_topic": TrimTopicOrder,
    "create_link": CreateLinkOrder,
    "alter_link": AlterLinkOrder,
    "pause_link": PauseLinkOrder,
    "delete_link": DeleteLinkOrder,
    "mount": MountOrder,
    "role": RoleOrder,
    "create_mirror": CreateMirrorOrder,
    "delete_mirror": DeleteMirrorOrder,
}


def _order(order: str, **said: Any) -> Order:
    """Read an order as a case says it: its kind, and its fields."""
    if order == "mount":
        found, location = said.pop("found", None), said.pop("location")
        said["source"] = MountSource(location, None if found is None else RecoverableTopic(location, "a", **found))
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in said.items()}
    for name in fields.keys() & {"acls", "removed_acls"}:
        fields[name] = tuple(map(NamespaceAcl.model_validate, fields[name]))
    if "resource" in fields:
        fields["resource"] = resource(fields["resource"])
    made: Order = _ORDERS[order](**fields)
    return made


def _add_readers(order: Order, trimmed: dict[str, Any]) -> Order:
    if not isinstance(order, TrimTopicOrder) or order.topic not in trimmed:
        return order
    return replace(order, readers=_readers(**trimmed[order.topic]))


def _measures(row: dict[str, Any]) -> Measures:
    return {
        address: Measure(
            said["bytes"],
            said["records"],
            tuple(said.get("groups", ())),
            tuple((NOW_MS - int(age), size) for age, size in said.get("ages", ())),
            said.get("local_only", 0),
            tuple(TieredPartition(*lying) for lying in said.get("tiered", ())),
            {number: _position(**at) for number, at in said.get("positions", {}).items()},
            said.get("committed"),
            None if "diverged" not in said else tuple(DivergedPartition(**each) for each in said["diverged"]),
            said.get("newest_ms"),
            refusal=UndeletableError(said["undeletable"], hint="") if "undeletable" in said else None,
        )
        for address, said in row.get("measures", {}).items()
    }
