"""`topic mount` and `unmount` on a cluster that does it itself, and on one where jobs do: the same comes of both."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from reconciler.cli.text.lines import to_plain_text
from reconciler.cli.text.mounts_text import format_cancellation
from reconciler.errors import BlockedError, PartialError, UsageError, UserError
from reconciler.operations.clusters.consume import ProduceOptions, produce
from reconciler.operations.clusters.mount_orders import MountRequest, migrate_topics
from reconciler.operations.clusters.mounts import change_migration, list_mounts, read_mount_status
from reconciler.operations.state_edit import state_unlock
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.orders import OrderResult
from reconciler.operations.steps.runner import SiteOptions, Stop
from reconciler.operations.steps.workspace import open_state, open_work
from reconciler.records.log import OffsetRange
from reconciler.resources.address import address_of, full_name_of
from reconciler.state.lockfile import read_lockfile
from tests.processes import ran

if TYPE_CHECKING:
    from conftest import Bench

    from tests.operations.kafka.hibernated import Site

EMBEDDED: Final = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: cold}
spec:
  embedded: {root: "file://.clusters/cold"}
  objectStorage: "file://bucket"
  properties: {cloud_storage_enabled: true}
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {name: shop, cluster: cold}
"""
TOPICS: Final = """\
apiVersion: reconciler/v1
kind: Topic
metadata: {{name: {name}, namespace: {prefix}, cluster: {cluster}}}
spec: {{partitions: 2, replicationFactor: 1, configs: {{retention.ms: -1{configs}}}}}
"""
MOUNTED: Final = """\
apiVersion: reconciler/v1
kind: Mounting
metadata: {{name: {name}, namespace: {prefix}, cluster: {cluster}}}
spec: {{state: mounted}}
"""
TIERED: Final = ", remote.write: true, remote.read: true"


@dataclass
class Home:
    """A cluster with two topics, and what is done there."""

    bench: Bench
    cluster: str
    prefix: str

    def address(self, name: str) -> str:
        return f"topic/{self.cluster}/{self.prefix}:{name}"

    def write(self, name: str, *values: str) -> None:
        path = self.bench.folder / "values.jsonl"
        path.write_text("".join(f'"{value}"\n' for value in values))
        options = ProduceOptions(input=path)
        produce(
            SiteOptions(invocation=self.bench.invocation, select=Select()),
            self.address(name),
            options,
            stdin=io.BytesIO(),
            report=lambda *_done: None,
        )

    def read(self, name: str) -> list[str]:
        provider = open_work(self.bench.invocation, Select()).providers[self.cluster]
        log = provider.open_log(address_of("topic", self.cluster, f"{self.prefix}:{name}"))
        rows = [
            row["value"]
            for number, at in log.read_bounds().items()
            for batch in log.read(number, OffsetRange(at.start, at.stable))
            for row in batch.to_pylist()
        ]
        return sorted(value.decode().strip('"') for value in rows)

    def names(self) -> list[str]:
        found = open_work(self.bench.invocation, Select()).providers[self.cluster].read_overview().topics
        return sorted(each.address for each in found if f"/{self.prefix}:" in each.address)

    def asked(self, verb: str, *texts: str, phase: str = "whole", to: str | None = None) -> OrderResult:
        request = MountRequest(verb=verb, texts=texts, to=to, phase=phase)  # type: ignore[arg-type]  # words of it
        return migrate_topics(self.bench.acting(f"topic {verb}"), request, confirm=lambda _plan: True)

    def done(self, verb: str, *texts: str, phase: str = "whole", to: str | None = None) -> OrderResult:
        result = self.asked(verb, *texts, phase=phase, to=to)
        assert result.verdict is None, result.verdict
        return result

    @property
    def reach(self) -> SiteOptions:
        return SiteOptions(invocation=self.bench.invocation, select=Select())

    def listed(self, *states: str) -> list[tuple[str, str]]:
        rows = list_mounts(self.reach, (self.cluster,), states).rows
        return [(row.name.rpartition(":")[2], row.state) for row in rows if row.name.startswith(f"{self.prefix}:")]

    def killed(self, module: str, name: str, nth: int, *typed: str) -> None:
        """Type a command in a process of its own that is killed after the nth call of a function; free its lease."""
        done = ran(_DYING, module, name, str(nth), *typed, "--workspace", str(self.bench.folder))
        assert done.returncode == -9, (done.stdout, done.stderr)
        site = open_state(self.bench.invocation, Select())
        held = read_lockfile(site.state, owner=site.owner)
        if held is not None and held.lockfile.lease is not None:
            run = held.lockfile.lease.run
            state_unlock(self.bench.invocation, Select(), run, confirm=lambda _line: True, stop=self.bench.stop)


_DYING: Final = """
import importlib, os, signal, sys
from reconciler.cli.main import main

module, name, nth, *typed = sys.argv[1:]
owner = importlib.import_module(module)
*above, last = name.split(".")
for part in above:
    owner = getattr(owner, part)
step, calls = getattr(owner, last), []

def stepping(*given, **named):
    done = step(*given, **named)
    calls.append(name)
    if len(calls) == int(nth):
        os.kill(os.getpid(), signal.SIGKILL)
    return done

setattr(owner, last, stepping)
sys.exit(main(typed))
"""


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.thorough)])
def home(request: pytest.FixtureRequest, bench: Bench) -> Home:
    """Both topics with two records each."""
    if request.param == "kafka":
        site: Site = request.getfixturevalue("site")
        found = Home(site.bench, "live", site.prefix)
    else:
        for name in ("west", "orders"):
            (bench.folder / f"manifests/{name}.yaml").unlink()
        bench.write("manifests/cold.yaml", EMBEDDED)
        found = Home(bench, "cold", "shop")
    configs = TIERED if request.param == "embedded" else ""
    for name in ("carts", "clicks"):
        text = TOPICS.format(name=name, prefix=found.prefix, cluster=found.cluster, configs=configs)
        found.bench.write(f"manifests/{name}.yaml", text)
    assert found.bench.apply().verdict is None
    for name in ("carts", "clicks"):
        found.write(name, f"{name}-1", f"{name}-2")
    return found


@pytest.mark.fact("F-R-102", "F-R-103", "F-R-109", "F-R-113", "F-R-114", "F-R-116")
def test_topics_of_a_pattern_go_and_come_back_one_under_another_name(home: Home) -> None:
    places = home.done("unmount", home.address("c*")).states
    assert list(places) == [home.address("carts"), home.address("clicks")]
    assert home.listed("mountable") == [("carts", "mountable"), ("clicks", "mountable")]
    rows = {row.name: row.location for row in list_mounts(home.reach, (home.cluster,), ("mountable",)).rows}
    assert rows == {full_name_of(address): place for address, place in places.items()}
    assert all(re.fullmatch(rf"{name}/[0-9a-f-]{{36}}/\d+", place) for name, place in rows.items())
    assert not {home.address("carts"), home.address("clicks")} & set(home.names())
    held = [finding.message for finding in home.bench.plan().plan.warnings]
    assert len(held) == 2
    assert all("it is detached at" in message for message in held)
    home.done("mount", home.address("carts"), to=f"{home.prefix}:old-carts")
    home.done("mount", f"topic/{home.cluster}/{places[address_of('topic', home.cluster, f'{home.prefix}:clicks')]}")
    assert (home.read("old-carts"), home.read("clicks")) == (["carts-1", "carts-2"], ["clicks-1", "clicks-2"])
    home.write("old-carts", "carts-3")
    assert home.read("old-carts") == ["carts-1", "carts-2", "carts-3"]


@pytest.mark.fact("F-R-106", "F-R-114", "F-R-119")
def test_what_is_prepared_is_served_until_it_is_finished(home: Home) -> None:
    home.done("unmount", home.address("carts"), phase="prepare")
    (found,) = read_mount_status(home.reach, cluster=home.cluster).migrations
    assert (found.migration.state, found.migration.topics[0].mounting) == ("prepared", None)
    assert read_mount_status(home.reach, found.migration.id, home.cluster).migrations == (found,)
    assert f"reconciler topic unmount --finish {home.address('carts')}" in found.migration.waits[0]
    assert home.listed("prepared") == [("carts", "unmounting")]
    home.write("carts", "late")
    assert home.read("carts") == ["carts-1", "carts-2", "late"]
    again = home.asked("unmount", home.address("carts"))
    assert "is undergoing data migration" in str(again.verdict)
    home.done("unmount", home.address("carts"), phase="finish")
    assert home.listed("mountable") == [("carts", "mountable")]
    home.done("mount", home.address("carts"), phase="prepare")
    assert home.listed("mountable") == []
    (back,) = read_mount_status(home.reach, cluster=home.cluster).migrations
    assert [found.migration.direction, back.migration.direction] == ["outbound", "inbound"]
    with pytest.raises(UserError, match="has no record on cluster"):
        read_mount_status(home.reach, back.migration.id + 100, home.cluster)
    home.done("mount", home.address("*"), phase="finish")
    assert home.read("carts") == ["carts-1", "carts-2", "late"]
    home.write("carts", "new")
    assert (home.read("carts")[-1], read_mount_status(home.reach).migrations) == ("new", ())


@pytest.mark.fact("F-R-120", "F-R-123")
def test_what_was_prepared_can_be_cancelled(home: Home) -> None:
    home.done("unmount", home.address("carts"), phase="prepare")
    (found,) = read_mount_status(home.reach, cluster=home.cluster).migrations
    stop = Stop()
    after = change_migration(
        home.reach, found.migration.id, "cancel", home.cluster, confirm=lambda _one: True, stop=stop
    )
    is_kept = bool(read_mount_status(home.reach, cluster=home.cluster).migrations)
    assert ("reconciler mount delete" in to_plain_text(format_cancellation(after))) is is_kept
    home.write("carts", "after")
    assert home.read("carts") == ["after", "carts-1", "carts-2"]
    assert home.bench.plan().plan.errors == ()
    with pytest.raises(UserError, match="no unmount of it that a command began is in progress"):
        raise home.asked("unmount", home.address("carts"), phase="finish").verdict or AssertionError


@pytest.mark.fact("F-R-120")
def test_a_mount_that_was_prepared_can_be_cancelled(home: Home) -> None:
    home.done("unmount", home.address("carts"))
    home.done("mount", home.address("carts"), phase="prepare")
    (found,) = read_mount_status(home.reach, cluster=home.cluster).migrations
    assert found.migration.state == {"live": "executed", "cold": "prepared"}[home.cluster]
    stop = Stop()
    change_migration(home.reach, found.migration.id, "cancel", home.cluster, confirm=lambda _one: True, stop=stop)
    assert (home.listed("mountable"), home.address("carts") in home.names()) == ([("carts", "mountable")], False)
    home.done("mount", home.address("carts"))
    assert home.read("carts") == ["carts-1", "carts-2"]


@pytest.mark.fact("F-R-112")
def test_mounting_twice_names_the_cluster_and_what_ends_the_mount_that_is_under_way(home: Home) -> None:
    home.done("unmount", home.address("carts"))
    home.done("mount", home.address("carts"), phase="prepare")
    if home.cluster == "live":  # An embedded cluster claims a topic once it is told to go on.
        (found,) = read_mount_status(home.reach, cluster=home.cluster).migrations
        taken = home.asked("mount", home.address("carts")).verdict
        assert isinstance(taken, UserError)
        assert f"it is being mounted on cluster {home.cluster} as {home.prefix}:carts" in taken.message
        assert taken.hint == (
            f"Continue it: reconciler topic mount --finish {home.address('carts')}. "
            f"Or cancel it: reconciler mount cancel {found.migration.id} --cluster {home.cluster}"
        )
    home.done("mount", home.address("carts"), phase="finish")
    held = home.asked("mount", home.address("carts")).verdict
    assert isinstance(held, UserError)
    assert f"it is mounted on cluster {home.cluster} as {home.prefix}:carts" in held.message
    assert held.hint == "It is on that cluster already: a topic is mounted once."


@pytest.mark.fact("F-R-117")
def test_one_that_cannot_go_stops_no_other_and_a_pattern_of_none_is_an_error(home: Home) -> None:
    configs = TIERED if home.cluster == "cold" else ""
    kept = TOPICS.format(name="kept", prefix=home.prefix, cluster=home.cluster, configs=configs)
    home.bench.write("manifests/kept.yaml", kept.replace("spec: {", "spec: {protect: true, "))
    assert home.bench.apply().verdict is None
    result = home.asked("unmount", home.address("kept"), home.address("carts"), home.address("nix"))
    assert isinstance(result.verdict, PartialError)
    errors = {address.rpartition(":")[2]: error for address, error in result.failed.items()}
    assert errors.keys() == {"kept", "nix"}
    assert isinstance(errors["kept"], BlockedError)
    assert "does not exist" in str(errors["nix"])
    assert home.listed("mountable") == [("carts", "mountable")]
    with pytest.raises(UserError, match=r"no topic matches .*none.*: nothing was done"):
        home.asked("unmount", home.address("clicks"), home.address("none*"))
    with pytest.raises(UsageError, match="--to takes one topic"):
        home.asked("mount", home.address("carts"), home.address("clicks"), to="other")
    taken = home.asked("mount", home.address("carts"), to=f"{home.prefix}:clicks")
    assert "The topic has already been created" in str(taken.verdict)
    assert home.read("clicks") == ["clicks-1", "clicks-2"]


def test_a_dry_run_plans_what_would_go_and_changes_nothing(home: Home) -> None:
    before = home.names()
    request = MountRequest(verb="unmount", texts=(home.address("c*"),))
    result = migrate_topics(home.bench.acting("topic unmount"), request, is_dry_run=True)
    estimates = [action.estimate for action in result.plan.actions]
    assert [sum(each.partitions for each in estimates), sum(each.records for each in estimates)] == [4, 4]
    assert (home.names(), home.listed(), read_mount_status(home.reach).migrations) == (before, [], ())


_KILLED = {
    "cold": ("reconciler.embedded.mounts.outbound", "OutboundSteps._seal_heads", 1),
    "live": ("reconciler.operations.steps.mount_jobs", "Unmount._archive_and_cut_over", 1),
}


@pytest.mark.thorough
def test_one_whose_finish_is_killed_goes_on_where_it_was(home: Home) -> None:
    home.done("unmount", home.address("carts"), phase="prepare")
    home.write("carts", "late")
    module, name, nth = _KILLED[home.cluster]
    home.killed(module, name, nth, "topic", "unmount", "--finish", home.address("carts"), "--yes")
    if home.cluster == "live":  # On an embedded cluster `run` continues it.
        (found,) = read_mount_status(home.reach, cluster=home.cluster).migrations
        assert found.migration.waits[-1].endswith("its brokers refuse every record until it is deleted")
        home.bench.write("manifests/kept.yaml", MOUNTED.format(name="carts", prefix=home.prefix, cluster=home.cluster))
        (refused,) = home.bench.plan().plan.errors
        assert f"To let it end: reconciler topic unmount --finish {home.address('carts')}." in refused.hint
        (home.bench.folder / "manifests/kept.yaml").unlink()
    home.done("unmount", home.address("carts"), phase="finish")
    assert home.listed("mountable") == [("carts", "mountable")]
    home.done("mount", home.address("carts"))
    assert home.read("carts") == ["carts-1", "carts-2", "late"]
