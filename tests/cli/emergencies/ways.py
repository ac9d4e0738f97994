"""The ways in which a command reaches its clusters when files, state or workspace are gone, and what each command does.

Commands are typed and clusters are read: nothing here depends on how a command is carried out.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from reconciler.embedded.catalog.model import HoldEntry
from tests.cli.sample_workspaces import CLICKS, ORDERS, Shop, Twins

Bench: TypeAlias = "Twins | Shop"
Command: TypeAlias = Sequence[str]

LINK: Final = "link/east/twin"
SOURCE: Final = "topic/west/shop:orders"


# Each breaks something of the workspace, and returns the options that do without it.


def whole(_bench: Bench) -> Command:
    return ()


def broken_files(bench: Bench) -> Command:
    """Make a manifest unreadable; the state is named."""
    (bench.folder / "manifests" / "all.yaml").write_text("kind: [")
    return ("--state", f"file://{bench.folder}/.state")


def no_workspace(bench: Bench) -> Command:
    (bench.folder / "reconciler.yaml").unlink()
    shutil.rmtree(bench.folder / "manifests")
    return ("--state", f"file://{bench.folder}/.state")


def no_state(bench: Bench) -> Command:
    (bench.folder / ".state").rename(bench.folder / ".lost-state")
    return ("--no-state",)


def damaged_state(bench: Bench) -> Command:
    lockfile = next(path for path in (bench.folder / ".state").iterdir() if path.is_file())
    lockfile.write_text("{")
    return ("--no-state",)


def named_clusters(bench: Bench) -> Command:
    """Lose workspace and state; the clusters are named by a file that declares them."""
    root = 'embedded: {root: "file://.clusters/%s"}, objectStorage: {url: "file://.bucket"}'
    manifest = "apiVersion: reconciler/v1\nkind: Cluster\nmetadata: {name: %s}\nspec: {" + root + "}\n"
    (bench.folder / "clusters.yaml").write_text("---\n".join(manifest % (name, name) for name in ("west", "east")))
    no_workspace(bench)
    no_state(bench)
    return ("--no-state", "--cluster", "clusters.yaml")


WAYS: Final[tuple[Callable[[Bench], Command], ...]] = (whole, broken_files, no_workspace, no_state, damaged_state)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A command, what was done before it, and what the cluster shows of it before and after."""

    name: str
    typed: Command
    shows: Callable[[Bench], object]
    before: object
    after: object
    prepare: tuple[Command, ...] = ()


def stage(cluster: str, name: str) -> Callable[[Bench], str | None]:
    """Read the state that a cluster keeps of a mirror; `None`: the topic mirrors nothing or does not exist."""

    def read(bench: Bench) -> str | None:
        topic = bench.cluster(cluster).catalog.read().topics.get(name)
        return None if topic is None or topic.mirror is None else topic.mirror.state

    return read


def config(cluster: str, name: str, key: str) -> Callable[[Bench], str | None]:
    return lambda bench: bench.cluster(cluster).catalog.read().topics[name].configs.get(key)


def topics(cluster: str) -> Callable[[Bench], list[str]]:
    return lambda bench: sorted(bench.cluster(cluster).catalog.read().topics)


def namespaces(cluster: str) -> Callable[[Bench], list[str]]:
    return lambda bench: sorted(name for name in bench.cluster(cluster).catalog.read().namespaces if name)


def links(cluster: str) -> Callable[[Bench], dict[str, bool]]:
    """Read the links of a cluster, each with whether it is paused."""
    return lambda bench: {
        name: bool(entry.declared.get("paused"))
        for name, entry in sorted(bench.cluster(cluster).catalog.read().links.items())
    }


_ORDERS: Final = stage("east", "shop:orders")
_BACK: Final = stage("west", "shop:orders")
_RESTORED: Final = "mirror/west/shop:orders"
_FAILOVER: Final = ("mirror", "failover", ORDERS, "--yes")

OF_MIRRORS: Final = (
    Case(name="pause", typed=("mirror", "pause", ORDERS), shows=_ORDERS, before="ACTIVE", after="PAUSED"),
    Case(
        name="resume",
        prepare=(("mirror", "pause", ORDERS),),
        typed=("mirror", "resume", ORDERS),
        shows=_ORDERS,
        before="PAUSED",
        after="ACTIVE",
    ),
    Case(name="promote", typed=("mirror", "promote", ORDERS, "--yes"), shows=_ORDERS, before="ACTIVE", after="STOPPED"),
    Case(name="failover", typed=_FAILOVER, shows=_ORDERS, before="ACTIVE", after="STOPPED"),
    Case(
        name="failover of a paused mirror",
        prepare=(("mirror", "pause", ORDERS),),
        typed=_FAILOVER,
        shows=_ORDERS,
        before="PAUSED",
        after="STOPPED",
    ),
    Case(name="reverse", typed=("mirror", "reverse", ORDERS, "--yes"), shows=_BACK, before=None, after="ACTIVE"),
    Case(
        name="reverse and pause",
        typed=("mirror", "reverse", ORDERS, "--pause", "--yes"),
        shows=_BACK,
        before=None,
        after="PAUSED",
    ),
    Case(
        name="restore",
        prepare=(_FAILOVER,),
        typed=("mirror", "restore", _RESTORED, "--yes"),
        shows=_BACK,
        before=None,
        after="ACTIVE",
    ),
    Case(
        name="create",
        typed=("mirror", "create", "mirror/east/shop:views", "--link", "twin"),
        shows=stage("east", "shop:views"),
        before=None,
        after="ACTIVE",
    ),
)

OF_LINKS: Final = (
    Case(
        name="pause", typed=("link", "pause", LINK), shows=links("east"), before={"twin": False}, after={"twin": True}
    ),
    Case(
        name="resume",
        prepare=(("link", "pause", LINK),),
        typed=("link", "resume", LINK),
        shows=links("east"),
        before={"twin": True},
        after={"twin": False},
    ),
    Case(
        name="create",
        typed=("link", "create", "link/east/rescue", "--source", "west", "--prefix", "w."),
        shows=links("east"),
        before={"twin": False},
        after={"rescue": False, "twin": False},
    ),
    Case(
        name="delete",
        typed=("link", "delete", LINK, "--force", "--yes"),
        shows=lambda bench: (links("east")(bench), _ORDERS(bench), "shop:orders" in topics("east")(bench)),
        before=({"twin": False}, "ACTIVE", True),
        after=({}, None, True),
    ),
)

OF_TOPICS: Final = (
    Case(
        name="set a config",
        typed=("topic", "alter", SOURCE, "--set", "retention.ms=8d", "--yes"),
        shows=config("west", "shop:orders", "retention.ms"),
        before=None,
        after="691200000",
    ),
    Case(
        name="reset a config",
        prepare=(("topic", "alter", SOURCE, "--set", "retention.ms=8d", "--yes"),),
        typed=("topic", "alter", SOURCE, "--delete", "retention.ms", "--yes"),
        shows=config("west", "shop:orders", "retention.ms"),
        before="691200000",
        after=None,
    ),
    Case(
        name="create",
        typed=("topic", "create", "topic/west/shop:rescue", "--partitions", "3"),
        shows=lambda bench: "shop:rescue" in topics("west")(bench),
        before=False,
        after=True,
    ),
    Case(
        name="delete",
        typed=("topic", "delete", "topic/west/shop:views", "--allow", "delete:topic/west/shop:views", "--yes"),
        shows=lambda bench: "shop:views" in topics("west")(bench),
        before=True,
        after=False,
    ),
    Case(
        name="trim",
        typed=("topic", "trim", SOURCE, "--before", "1", "--allow", f"trim:{SOURCE}", "--yes"),
        shows=lambda bench: [
            at.start for _, at in sorted(bench.cluster("west").log("shop:orders").read_bounds().items())
        ],
        before=[0, 0],
        after=[1, 1],
    ),
    Case(
        name="add partitions",
        typed=("topic", "alter", SOURCE, "--partitions", "5", "--yes"),
        shows=lambda bench: bench.cluster("west").catalog.read().topics["shop:orders"].partitions,
        before=2,
        after=5,
    ),
)

OF_NAMESPACES: Final = (
    Case(
        name="set a config and an access rule",
        typed=(
            *("namespace", "alter", "west", "shop", "--set", "retention.ms=8d"),
            *("--acl", "{principal: User:a, operations: [read]}", "--yes"),
        ),
        shows=lambda bench: (
            bench.cluster("west").catalog.read().namespaces["shop"].configs.get("retention.ms"),
            len(bench.cluster("west").catalog.read().namespaces["shop"].acls),
        ),
        before=(None, 0),
        after=("691200000", 1),
    ),
    Case(
        name="create",
        typed=("namespace", "create", "west", "store"),
        shows=namespaces("west"),
        before=["shop"],
        after=["shop", "store"],
    ),
    Case(
        name="move",
        prepare=(("namespace", "create", "west", "store"),),
        typed=("namespace", "move", "west", "shop", "store", "--topic", "views"),
        shows=topics("west"),
        before=["shop:clicks", "shop:orders", "shop:views"],
        after=["shop:clicks", "shop:orders", "store:views"],
    ),
    Case(
        name="delete",
        typed=(
            *("namespace", "delete", "east", "shop", "--yes", "--recursive"),
            *("--allow", "delete:topic/east/shop:*", "--allow", "delete:mirror/east/shop:*"),
        ),
        prepare=(("mirror", "failover", ORDERS, CLICKS, "--yes"),),
        shows=lambda bench: (namespaces("east")(bench), topics("east")(bench)),
        before=(["shop"], ["shop:clicks", "shop:orders", "shop:plain"]),
        after=([], []),
    ),
)

_TOPIC: Final = "topic/west/shop:orders"
_BOTH: Final[Callable[[Bench], object]] = lambda bench: (topics("west")(bench), topics("east")(bench))  # noqa: E731

OF_MOUNTS: Final = (
    Case(
        name="unmount",
        typed=("topic", "unmount", _TOPIC, "--yes"),
        shows=_BOTH,
        before=(["shop:orders"], []),
        after=([], []),
    ),
    Case(
        name="unmount what was prepared",
        prepare=(("topic", "unmount", _TOPIC, "--prepare", "--yes"),),
        typed=("topic", "unmount", _TOPIC, "--finish", "--yes"),
        shows=_BOTH,
        before=(["shop:orders"], []),
        after=([], []),
    ),
    Case(
        name="mount",
        prepare=(("topic", "unmount", _TOPIC, "--yes"),),
        typed=("topic", "mount", "topic/east/shop:orders", "--yes"),
        shows=_BOTH,
        before=([], []),
        after=([], ["shop:orders"]),
    ),
    Case(
        name="cancel",
        prepare=(("topic", "unmount", _TOPIC, "--prepare", "--yes"),),
        typed=("mount", "cancel", "2", "--cluster", "west", "--yes"),
        shows=lambda bench: (topics("west")(bench), bench.cluster("west").catalog.read().topics["shop:orders"].hold),
        before=(["shop:orders"], HoldEntry(2)),
        after=(["shop:orders"], None),
    ),
    Case(
        name="delete the record",
        prepare=(("topic", "unmount", _TOPIC, "--prepare", "--yes"), ("mount", "cancel", "2", "--yes")),
        typed=("mount", "delete", "2", "--cluster", "west", "--yes"),
        shows=lambda bench: sorted(bench.cluster("west").catalog.read().migrations),
        before=["2"],
        after=[],
    ),
)
