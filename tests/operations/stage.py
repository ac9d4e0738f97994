"""The stage of tests: clusters, links, mirrors and mounts in a workspace or in memory, orders, and dying processes."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from subprocess import CompletedProcess
from typing import TYPE_CHECKING, Any

from reconciler.applying.events import ActionFailed
from reconciler.embedded.catalog.model import AclEntry
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import ReconcilerError, RetryableError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.clusters.namespaces import change_namespace
from reconciler.operations.clusters.topic_orders import change_topic
from reconciler.operations.drift_patch import AcceptResult, accept
from reconciler.operations.mirrors.mirror_orders import RoleOptions, change_roles
from reconciler.operations.mirrors.mirror_rounds import MirrorOutcome, MirrorRounds
from reconciler.operations.mirrors.mirror_selection import MirrorChoice
from reconciler.operations.plan import PlanResult
from reconciler.operations.run import run_once
from reconciler.operations.state_edit import RecordEdit, state_rm, state_unlock
from reconciler.operations.state_views import state_list
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.link_pass import FinalSync, LinkPass, sync_link_groups, sync_links
from reconciler.operations.steps.link_sides import LinkMemory, LinkOutcome
from reconciler.operations.steps.mirror_copy import Copier
from reconciler.operations.steps.runner import SiteOptions
from reconciler.operations.steps.transitions import TransitionDriver
from reconciler.operations.steps.workspace import open_state
from reconciler.planning.orders import AlterTopicOrder, CreateNamespaceOrder, DeleteNamespaceOrder, MoveTopicsOrder
from reconciler.resources.address import Address
from reconciler.resources.mirror_link import SYNC_MS
from reconciler.state.lockfile import read_lockfile
from tests.embedded.links.linked import LINK as LINK_NAME
from tests.embedded.links.linked import ORDERS, Linked
from tests.embedded.samples import NOW, ids
from tests.engines import here
from tests.processes import ran

if TYPE_CHECKING:
    from conftest import Bench

    from reconciler.objectstore.base import ObjectStore
    from reconciler.operations.mirrors.mirror_rounds import PassResult
    from reconciler.operations.steps.orders import OrderResult
    from reconciler.operations.steps.runner import EmergencyRun
    from reconciler.planning.orders import RoleVerb
    from reconciler.planning.plan import Plan
    from reconciler.providers.embedded.provider import EmbeddedProvider
    from reconciler.resources.mirrors import ObservedLink
    from reconciler.resources.owners import ResourceOwner

# A source, a link and its mirrors; records are written and read past the workspace.

CLUSTER = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: NAME}
spec:
  embedded: {root: "file://.clusters/NAME"}
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {name: shop, cluster: NAME}
"""
STORED_CLUSTER = CLUSTER.replace("---\n", '  objectStorage: "file://bucket"\n---\n')
"""The same, with object storage that clusters share."""
TOPIC = """\
apiVersion: reconciler/v1
kind: Topic
metadata: {name: orders, namespace: shop, cluster: west}
spec: {partitions: 2}
"""
LINK = """\
apiVersion: reconciler/v1
kind: MirrorLink
metadata: {name: dr, cluster: east}
spec:
  source: west
  mode: MODE
  mirrorTopics:
    - source: "shop:orders"
      state: ROLE
"""
SOURCE = "topic/west/shop:orders"
MIRROR = "mirror/east/shop:orders"
COPY = "topic/east/shop:orders"
BACK = "mirror/west/shop:orders"


def opened(bench: Bench, name: str) -> EmbeddedCluster:
    """Open a cluster as some other process would."""
    return EmbeddedCluster.open(DirectoryStore(bench.folder / ".clusters" / name), now_ms=lambda: NOW, new_id=ids())


def produce(bench: Bench, cluster: str, *values: str, partition: int = 0) -> None:
    with opened(bench, cluster).producer() as producer:
        for value in values:
            producer.send(ORDERS, value, partition=partition)


def values(bench: Bench, cluster: str, partition: int = 0) -> list[str]:
    found = opened(bench, cluster).consume(ORDERS)
    return [(one.value or b"").decode() for one in found if one.partition == partition]


def want(bench: Bench, role: str, mode: str = "bidirectional") -> None:
    bench.write("manifests/link.yaml", LINK.replace("ROLE", role).replace("MODE", mode))


def mirroring(bench: Bench, mode: str = "bidirectional") -> Bench:
    """Return the bench with ten records on `west`, mirrored to `east`."""
    for name in ("west", "east"):
        bench.write(f"manifests/{name}.yaml", CLUSTER.replace("NAME", name))
    bench.write("manifests/orders.yaml", TOPIC)
    bench = bench.with_(environ=dict(os.environ))
    assert bench.apply().verdict is None
    produce(bench, "west", *(f"a{number}" for number in range(5)))
    produce(bench, "west", *(f"b{number}" for number in range(5)), partition=1)
    want(bench, "mirroring", mode)
    assert bench.apply().verdict is None
    assert planned(bench) == []
    return bench


def planned(bench: Bench) -> list[str]:
    """Return what a plan would do; it has no errors."""
    plan = bench.plan().plan
    assert not plan.errors, plan.errors
    return [action.id for action in plan.actions]


def waiting(bench: Bench) -> list[tuple[str, str]]:
    return [(each.address, each.state) for each in bench.plan().plan.waiting]


def upkeep(bench: Bench, *only: str) -> PassResult:
    return run_once(
        SiteOptions(invocation=bench.invocation, select=Select()),
        only=only,
        report=bench.events.append,
        stop=bench.stop,
    )


def status(bench: Bench, cluster: str = "east") -> str:
    """Return the state a mirror keeps; an ordinary topic has none."""
    mirror = opened(bench, cluster).catalog.read().topics[ORDERS].mirror
    return "" if mirror is None else mirror.state


def take_in(bench: Bench, pattern: str = "*") -> AcceptResult:
    """Apply the patch that accepts what is there, as git does."""
    accepted = accept(bench.invocation, Select(), (pattern,))
    subprocess.run(["git", "apply", "-"], input=accepted.patch.encode(), cwd=bench.folder, check=True)
    return accepted


def lose(bench: Bench, cluster: str = "west") -> None:
    (bench.folder / ".clusters" / cluster).rename(bench.folder / f"lost-{cluster}")


# One source with two mirrors, over links that go both ways.

WEST, EAST, NORTH = BACK, MIRROR, MIRROR.replace("east", "north")


def link_half(bench: Bench, name: str, here: str, role: str, **given: str) -> None:
    """Declare a link with one mirror: of `orders` of `west`, over both ways, unless something else is said."""
    text = LINK.replace("name: dr, cluster: east", f"name: {name}, cluster: {here}").replace("ROLE", role)
    text = text.replace("source: west", f"source: {given.get('source', 'west')}")
    text = text.replace("MODE", given.get("mode", "bidirectional")).replace(ORDERS, given.get("of", ORDERS))
    bench.write(f"manifests/link-{name}.yaml", text)


def roles(bench: Bench, east: str, north: str) -> None:
    link_half(bench, "a", "east", east)
    link_half(bench, "b", "north", north)


def fan(bench: Bench) -> Bench:
    """Return the bench with `orders` of five records on `west`, mirrored to `east` and `north`."""
    for name in ("west", "east", "north"):
        bench.write(f"manifests/{name}.yaml", CLUSTER.replace("NAME", name))
    (bench.folder / "manifests/orders.yaml").unlink()
    bench.write("manifests/west-orders.yaml", topic("orders", "west", partitions=1, configs="{}"))
    roles(bench, "mirroring", "mirroring")
    bench = bench.with_(environ=dict(os.environ))
    assert bench.apply().verdict is None
    produce(bench, "west", *(f"a{number}" for number in range(5)))
    upkeep(bench, "mirror")
    return bench


def ask(
    bench: Bench, verb: RoleVerb, *addresses: str, links: tuple[str, ...] = (), is_dry_run: bool = False
) -> OrderResult:
    """Apply a verb to mirrors, as its command does."""
    return give_roles(bench.acting(f"mirror {verb}"), verb, *addresses, links=links, is_dry_run=is_dry_run)


def refusals(result: OrderResult) -> list[str]:
    return [f"{error.message}. {error.hint}" for error in result.failed.values()]


def role(bench: Bench, cluster: str) -> str:
    """Return the state and the source of a mirror: `ACTIVE of west`; an ordinary topic has none."""
    catalog = opened(bench, cluster).catalog.read()
    mirror = catalog.topics[ORDERS].mirror
    if mirror is None:
        return ""
    source = next(link.source_cluster for link in catalog.links.values() if link.id == mirror.link_id)
    return f"{mirror.state} of {source}"


# Clusters that share object storage, whose topics are mounted and unmounted.

TIERED = "{remote.write: true, remote.read: true}"


def cluster(name: str, bucket: str | None = "bucket", *, more: str = "") -> str:
    storage = "" if bucket is None else f'  objectStorage: "file://{bucket}"\n'
    return f"""\
apiVersion: reconciler/v1
kind: Cluster
metadata: {{name: {name}}}
spec:
  embedded: {{root: "file://.clusters/{name}"}}
{storage}{more}---
apiVersion: reconciler/v1
kind: Namespace
metadata: {{name: shop, cluster: {name}}}
"""


def topic(name: str, where: str, *, partitions: int = 2, configs: str = TIERED, more: str = "") -> str:
    return f"""\
apiVersion: reconciler/v1
kind: Topic
metadata: {{name: {name}, namespace: shop, cluster: {where}}}
spec: {{partitions: {partitions}, configs: {configs}{more}}}
"""


def mounting(name: str, where: str, state: str, *, namespace: str = "shop", more: str = "") -> str:
    return f"""\
apiVersion: reconciler/v1
kind: Mounting
metadata: {{name: {name}, namespace: "{namespace}", cluster: {where}}}
spec: {{state: {state}{more}}}
"""


def link(where: str, source: str) -> str:
    return f"""\
apiVersion: reconciler/v1
kind: MirrorLink
metadata: {{name: from-{source}, cluster: {where}}}
spec: {{source: {source}, mirrorTopics: [{{source: "shop:orders"}}]}}
"""


@dataclass
class MountShop:
    """Two clusters on one bucket, and a tiered topic of west with records."""

    bench: Bench

    def opened(self, name: str, bucket: str = "bucket") -> EmbeddedCluster:
        folder = self.bench.folder
        root, storage = DirectoryStore(folder / ".clusters" / name), DirectoryStore(folder / bucket)
        return EmbeddedCluster.open(root, now_ms=lambda: NOW, new_id=ids(), storage=storage)

    def say(self, **files: str | None) -> None:
        """Write documents, one file each; `None` takes one away."""
        for name, text in files.items():
            path = self.bench.folder / "manifests" / f"{name}.yaml"
            if text is None:
                path.unlink()
            else:
                self.bench.write(f"manifests/{name}.yaml", text)

    def apply(self, **files: str | None) -> None:
        self.say(**files)
        applied = self.bench.apply()
        failed = [str(event.error) for event in self.bench.events if isinstance(event, ActionFailed)]
        assert applied.verdict is None, (applied.verdict, failed)
        assert ids_of(self.bench.plan()) == []

    def location(self, name: str = "shop:orders", where: str = "west") -> str:
        opened = self.opened(where)
        entry = opened.topics()[name]
        topic, made_by = entry.origin or (name, opened.cluster_id)
        return f"{topic}/{made_by}/{entry.revision}"

    def serial(self) -> int:
        return state_list(self.bench.invocation, Select()).serial

    def forget(self, address: str) -> None:
        bench = self.bench
        surgery = RecordEdit(
            invocation=bench.invocation, select=Select(), command="state rm", lock_timeout_s=5.0, stop=bench.stop
        )
        state_rm(surgery, [address], recursive=False, confirm=lambda _going: True)

    def values(self, name: str = "shop:orders", where: str = "west") -> list[bytes | None]:
        return sorted(each.value or b"" for each in self.opened(where).consume(name))


def ids_of(planned: PlanResult) -> list[str]:
    assert planned.plan.errors == ()
    return [action.id for action in planned.plan.actions]


def errors_of(planned: PlanResult) -> list[str]:
    return [f"{each.source} {each.address}: {each.message}. {each.hint}" for each in planned.plan.errors]


def location_of(planned: PlanResult, action: str) -> str:
    found = next(each for each in planned.plan.actions if each.id == action)
    return str(found.parameters["source"])  # type: ignore[union-attr]  # a transition


# Passes over the links of clusters in memory, by one process that remembers, and a source that can be lost.


ALL = [{"name": "*"}]
MINUTE = 60_000


class Refusing:
    """A store that says one thing, whatever it is asked."""

    url = "memory://west"
    can_encrypt = False

    def __init__(self, error: ReconcilerError | None = None) -> None:
        self.error = error or RetryableError("memory://west does not answer", hint="Try again.")

    def __getattr__(self, name: str) -> Any:
        def refuse(*_given: Any, **_named: Any) -> Any:
            raise self.error

        return refuse


@dataclass
class Runner:
    """Does passes over `linked`, as one long-running process does; `over` are other stores for some clusters."""

    linked: Linked
    pace: LinkMemory = field(default_factory=LinkMemory)
    over: dict[str, Any] = field(default_factory=dict)
    interval_ms: int = SYNC_MS
    """How much time goes by before each pass: by default so much that all tasks are due that say nothing else."""
    owners: dict[str, ResourceOwner] = field(default_factory=dict)
    """Other workspaces that own links, by the name of the link."""

    def __call__(self, cluster: str = "east") -> LinkOutcome:
        (done,) = self.all(cluster)
        return done

    def all(self, cluster: str = "east") -> list[LinkOutcome]:
        """Do a pass over all links of a cluster, without copying anything in between."""
        self.later(self.interval_ms)
        driver, clock = self.driver(), self.linked.clock
        over = LinkPass(cluster, driver.providers, self.pace, clock, self.owners)
        done = list(sync_links(over, driver))
        due = {one.link for one in done if one.are_groups_due}
        late = {one.link: one for one in sync_link_groups(over, due)}
        return [_with(one, late.get(one.link)) for one in done]

    def driver(self) -> TransitionDriver:
        """Return what drives transitions, with the last sync as it is in earnest."""
        providers = {name: self.provider(name) for name in self.linked.stores}
        return TransitionDriver(providers, self.linked.copy, FinalSync(providers), self.linked.new_id)

    def provider(self, name: str) -> EmbeddedProvider:
        return replace(self.linked, stores={**self.linked.stores, **self.over}).provider(name)

    def link(self, cluster: str = "east", name: str = LINK_NAME) -> ObservedLink:
        """Return a link as its destination has it."""
        return next(link for link in self.linked.provider(cluster).links.list_links() if link.name == name)

    def later(self, ms: int) -> None:
        self.linked.clock.now_ms += ms

    def serial(self, cluster: str = "east") -> int:
        """Return how many commits a cluster's catalog has seen."""
        return self.linked.cluster(cluster).catalog.read().serial


def _with(one: LinkOutcome, late: LinkOutcome | None) -> LinkOutcome:
    if late is None:
        return one
    return replace(one, done={**one.done, **late.done}, errors={**one.errors, **late.errors})


READER = f"User:link-{LINK_NAME}"


def runner(**spec: Any) -> Runner:
    """Return `west` with topic `shop:orders` and a link to `east`, as it is declared; nothing is mirrored yet."""
    linked = Linked()
    linked.west.create_topic(ORDERS)
    linked.cluster("east")
    linked.link("east", "west", **{"mode": "destination", **spec})
    return Runner(linked)


def denied(operation: str = "read", principal: str = READER) -> AclEntry:
    """Return a rule that denies something to the link."""
    return AclEntry(principal, "deny", (operation,))


@dataclass
class Counting:
    """A store that counts the requests to it, by kind; a listing counts by pages of a thousand."""

    inner: Any
    calls: Counter[str] = field(default_factory=Counter)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if name not in {"get", "get_range", "put", "swap", "copy_from", "delete"}:
            return found

        def counted(*given: Any, **named: Any) -> Any:
            self.calls[name] += 1
            return found(*given, **named)

        return counted

    def list(self, prefix: str) -> Any:
        listed = list(self.inner.list(prefix))
        self.calls["list"] += max(1, -(-len(listed) // 1000))
        return iter(listed)


def counting(stores: dict[str, ObjectStore]) -> Mapping[str, Counter[str]]:
    for name, store in stores.items():
        stores[name] = Counting(store.inner if isinstance(store, Counting) else store)
    return {name: store.calls for name, store in stores.items() if isinstance(store, Counting)}


# Rounds over linked clusters in memory, each as a process of its own would do them; nobody starts Spark.


def copier(linked: Linked, **options: Any) -> Copier:
    return Copier({name: linked.provider(name) for name in linked.stores}, here(**options))


def rounds(linked: Linked, **options: Any) -> MirrorRounds:
    """Return rounds as a new process has them."""
    return MirrorRounds(copier(linked, **options), linked.clock)


def once(
    linked: Linked, *clusters: str, is_wanted: Callable[[Address], bool] = lambda _address: True
) -> dict[str, MirrorOutcome]:
    """Do one round in a process of its own, and return what came of each mirror."""
    done = rounds(linked).run_round(clusters or tuple(linked.stores), is_wanted)
    return {one.address: one for one in done.synced}


# Processes that die, or are asked to stop, at a step of a cluster.

DYING = """
import os, signal, sys, time, uuid
from pathlib import Path
from reconciler.embedded.link_side import ClusterLinks
from reconciler.operations.apply import ApplyOptions, Hooks, apply
from reconciler.operations.steps.invocation import Invocation, Select
from reconciler.operations.steps.runner import Stop
from reconciler.providers.models import MirrorEntries

folder, step, when, *allow = sys.argv[1:]
owner = ClusterLinks if hasattr(ClusterLinks, step) else MirrorEntries
whole = getattr(owner, step)

def dying(*given, **named):
    if when == "after":
        whole(*given, **named)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(owner, step, dying)
here = Invocation(cwd=Path(folder), environ=dict(os.environ), now_ms=lambda: time.time_ns() // 10**6,
    new_id=lambda: str(uuid.uuid4()), new_run=lambda: "the-dead-run", tool="0.1.0", who="bob@laptop")
select = Select(allow=tuple(allow))
apply(here, select, ApplyOptions(yes=True), Hooks(lambda _: True, lambda _: None, Stop()))
"""


def die(shop: Bench, step: str, when: str, *allow: str) -> None:
    """Apply in a process of its own that is killed before or after a step of a cluster, and free its lease."""
    done = ran(DYING, str(shop.folder), step, when, *allow)
    assert done.returncode == -9, done.stderr
    state_unlock(shop.invocation, Select(), "the-dead-run", confirm=lambda _line: True, stop=shop.stop)


ASKING = """
import os, signal, sys
from queue import SimpleQueue
from reconciler.cli.main import main
from reconciler.embedded.link_side import ClusterLinks
from reconciler.operations.steps.runner import Stop
from reconciler.providers.models import MirrorEntries

step, when, number, *typed = sys.argv[1:]
owner = ClusterLinks if hasattr(ClusterLinks, step) else MirrorEntries
whole, request = getattr(owner, step), Stop.request
heard = SimpleQueue()

def requested(stop):
    done = request(stop)
    heard.put(None)
    return done

Stop.request = requested

def dying(*given, **named):
    setattr(owner, step, whole)
    done = whole(*given, **named) if when == "after" else None
    os.kill(os.getpid(), int(number))
    heard.get(timeout=30)  # handlers run in another thread: nothing goes on before they have
    return done if when == "after" else whole(*given, **named)

setattr(owner, step, dying)
sys.exit(main(typed))
"""


COMMANDS = {"reverse-and-start": "reverse", "truncate-and-restore": "restore", "promote": "promote"}


def asked(shop: Bench, by: signal.Signals, step: str, when: str, *typed: str) -> CompletedProcess[str]:
    """Type a command that is sent a signal before or after a step of a cluster."""
    return ran(ASKING, step, when, str(by.value), *typed, cwd=shop.folder)


def die_asking(shop: Bench, step: str, when: str, verb: str, address: str) -> None:
    """Ask a verb by its command, which is killed, and free its lease."""
    done = asked(shop, signal.SIGKILL, step, when, "mirror", COMMANDS[verb], address, "--yes")
    assert done.returncode == -9, done.stderr
    site = open_state(shop.invocation, Select())
    held = read_lockfile(site.state, owner=site.owner)
    assert held is not None
    state_unlock(shop.invocation, Select(), held.lockfile.lease.run, confirm=lambda _line: True, stop=shop.stop)


# Orders with usual options.


def agree(_plan: Plan) -> bool:
    return True


def done(result: OrderResult) -> OrderResult:
    if result.verdict is not None:
        raise result.verdict
    return result


def create_namespace(acting: EmergencyRun, cluster: str, name: str, configs: Mapping[str, str]) -> OrderResult:
    return done(change_namespace(acting, CreateNamespaceOrder(cluster, name, configs)))


def delete_namespace(
    acting: EmergencyRun,
    cluster: str,
    name: str,
    *,
    recursive: bool = False,
    confirm: Callable[[Plan], bool] = agree,
    allow: Sequence[str] = (),
) -> OrderResult:
    order = DeleteNamespaceOrder(cluster, name, recursive)
    return done(change_namespace(acting, order, confirm=confirm, allow=allow))


def move_topics(
    acting: EmergencyRun, cluster: str, source: str, target: str, topics: Sequence[str], *, allow: Sequence[str] = ()
) -> OrderResult:
    order = MoveTopicsOrder(cluster, source, target, tuple(topics))
    return done(change_namespace(acting, order, allow=allow))


def alter_topic(
    acting: EmergencyRun,
    address: str,
    set_: Mapping[str, str],
    delete: Sequence[str] = (),
    *,
    confirm: Callable[[Plan], bool] = agree,
) -> OrderResult:
    order = AlterTopicOrder(Address(address), {**dict.fromkeys(delete), **set_})
    return done(change_topic(acting, order, confirm=confirm))


def give_roles(
    acting: EmergencyRun,
    verb: RoleVerb,
    *mirrors: str,
    links: Sequence[str] = (),
    confirm: Callable[[Plan], bool] = agree,
    is_dry_run: bool = False,
) -> OrderResult:
    """Apply a verb to mirrors; what is refused stays in the result."""
    choice = MirrorChoice(mirrors, links)
    return change_roles(acting, verb, choice, confirm=confirm, options=RoleOptions(is_dry_run=is_dry_run))
