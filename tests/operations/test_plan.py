from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.errors import BlockedError, PendingError, RetryableError, UsageError, UserError
from reconciler.manifests.positions import ManifestError
from reconciler.operations.plan import parse_fail_on
from reconciler.operations.show import show_plan
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.observe import unreachable_clusters_error
from reconciler.planning.plan_rows import encode_plan

if TYPE_CHECKING:
    from conftest import Bench

EAST = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: east}
spec:
  embedded: {root: "file://.clusters/east"}
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: clicks, cluster: east}
spec: {partitions: 1}
"""


def ids(planned: object) -> list[str]:
    return [action.id for action in planned.plan.actions]  # type: ignore[attr-defined]  # a Planned


def test_a_plan_reads_and_writes_nothing(bench: Bench) -> None:
    before = sorted(bench.folder.rglob("*"))
    planned = bench.plan()
    assert ids(planned) == ["create:cluster/west", "create:namespace/west/shop", "create:topic/west/shop:orders"]
    assert planned.plan.base is None
    assert sorted(bench.folder.rglob("*")) == before


def test_after_apply_nothing_is_left_to_plan(applied: Bench) -> None:
    planned = applied.plan()
    assert planned.plan.is_empty
    assert planned.verdict(parse_fail_on(["changes,blocked"])) is None
    assert (planned.header.topics, planned.header.clusters, planned.header.serial) == (1, 1, 1)


def test_the_same_workspace_gives_the_same_bytes_twice(bench: Bench) -> None:
    first, second = bench.plan(), bench.plan()
    assert encode_plan(first.plan) == encode_plan(second.plan)


def test_a_plan_for_nothing_imports_neither_arrow_nor_spark(applied: Bench) -> None:
    program = (
        "import sys, time; from pathlib import Path;"
        "from reconciler.operations.steps.invocation import Invocation, Select;"
        "from reconciler.operations.plan import plan;"
        f"here = Invocation(cwd=Path({str(applied.folder)!r}), environ={{}}, now_ms=lambda: time.time_ns() // 10**6,"
        " new_id=lambda: '', new_run=lambda: '', tool='0.1.0', who='anna');"
        "assert plan(here, Select()).plan.is_empty;"
        "print(sorted({'pyarrow', 'numpy', 'pyspark', 'boto3'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_changes_pend_and_blocks_are_told_only_where_asked_for(applied: Bench) -> None:
    applied.write("manifests/clicks.yaml", EAST)
    pending = applied.plan()
    assert pending.verdict() is None
    assert isinstance(pending.verdict(parse_fail_on(["changes,blocked"])), PendingError)

    (applied.folder / "manifests/orders.yaml").unlink()
    blocked = applied.plan()
    assert blocked.verdict() is None
    assert isinstance(blocked.verdict(parse_fail_on(["changes,blocked"])), BlockedError)


def test_a_saved_plan_holds_its_options_and_shows_without_any_cluster(bench: Bench) -> None:
    select = Select(targets=("topic/west/shop:orders",), allow=("delete:topic/west/*",))
    bench.plan(select, out=Path("p.json"))
    for name in ("manifests/west.yaml", "manifests/orders.yaml", "reconciler.yaml"):
        (bench.folder / name).unlink()
    document = show_plan(bench.folder / "p.json")
    assert document.options == {"allow": ["delete:topic/west/*"], "target": ["topic/west/shop:orders"]}
    assert str(bench.folder) not in json.dumps(document.options)


def test_a_target_takes_along_what_it_depends_on(bench: Bench) -> None:
    bench.write("manifests/clicks.yaml", EAST)
    planned = bench.plan(Select(targets=("topic/west/shop:orders",)))
    assert ids(planned) == ["create:cluster/west", "create:namespace/west/shop", "create:topic/west/shop:orders"]


def test_a_cluster_that_cannot_be_read_is_named_with_the_way_to_go_on_without(applied: Bench) -> None:
    applied.write("manifests/clicks.yaml", EAST)
    applied.apply()
    (applied.folder / ".clusters/east").rename(applied.folder / "elsewhere")
    found = applied.plan()
    assert found.plan.is_empty
    verdict = found.verdict()
    assert verdict is not None
    assert verdict.message.startswith("cannot read cluster east: ")
    assert "--exclude '*/east/*'" in verdict.hint
    planned = applied.plan(Select(excludes=("*/east/*",)))
    assert planned.plan.is_empty
    assert planned.header.clusters == 1


def test_a_cluster_that_cannot_be_read_is_named_once() -> None:
    error = unreachable_clusters_error({"west": RetryableError("cluster west: connecting: refused", hint="Start it.")})
    assert error.message == "cannot read cluster west: connecting: refused"
    assert error.hint == "Start it. To continue without: --exclude '*/west/*'"


def test_each_hint_about_clusters_that_cannot_be_read_is_a_sentence() -> None:
    errors = {name: RetryableError("gone", hint=f"Start {name}, or correct it") for name in ("east", "west")}
    hint = "Start east, or correct it. Start west, or correct it"
    assert unreachable_clusters_error(errors, can_exclude=False).hint == hint
    assert unreachable_clusters_error(errors).hint.startswith(f"{hint}. To continue without: ")


def test_a_recorded_cluster_that_is_gone_is_never_made_anew(applied: Bench) -> None:
    (applied.folder / ".clusters/west").rename(applied.folder / "elsewhere")
    with pytest.raises(RetryableError, match="recorded"):
        applied.apply()
    assert not (applied.folder / ".clusters/west").exists()


def test_all_clusters_that_cannot_be_read_are_named_at_once(applied: Bench) -> None:
    applied.write("manifests/clicks.yaml", EAST)
    applied.apply()
    (applied.folder / ".clusters").rename(applied.folder / "elsewhere")
    with pytest.raises(RetryableError, match="cannot read clusters east, west"):
        applied.plan()


def test_a_cluster_whose_secret_is_not_set_is_named_and_can_be_left_out(bench: Bench) -> None:
    bench.write(
        "manifests/north.yaml",
        "apiVersion: reconciler/v1\nkind: Cluster\nmetadata: {name: north}\n"
        "spec: {provider: confluent, confluent: {restEndpoint: 'https://north', clusterId: lkc-1, "
        "apiKey: '${env:RECONCILER_KEY}', apiSecret: '${env:RECONCILER_SECRET}'}}\n",
    )
    with pytest.raises(UserError, match="north: the environment variable RECONCILER_KEY is not set"):
        bench.plan()
    assert ids(bench.plan(Select(excludes=("*/north/*",))))[0] == "create:cluster/west"


def test_options_that_say_nothing_are_refused(bench: Bench) -> None:
    for select in (Select(labels=("team",)), Select(allow=("topic/west/orders",)), Select(variables=("x",))):
        with pytest.raises(UsageError):
            bench.plan(select)


def test_an_empty_folder_is_said(bench: Bench) -> None:
    for path in (bench.folder / "manifests").iterdir():
        path.unlink()
    with pytest.raises(ManifestError, match=r"manifests: .*holds no"):
        bench.plan()


def test_no_workspace_is_said(bench: Bench) -> None:
    (bench.folder / "reconciler.yaml").unlink()
    with pytest.raises(UserError, match=r"no reconciler\.yaml"):
        bench.plan()


def test_a_plan_that_cannot_be_written_is_said(bench: Bench) -> None:
    with pytest.raises(UserError, match="cannot write the plan"):
        bench.plan(out=Path("no/such/folder/p.json"))


def test_a_pipeline_is_warned_of_local_state(bench: Bench) -> None:
    bench.with_(environ={"CI": "true"}).plan()
    assert ["local folder" in line for line in bench.warned] == [True]


def test_the_workspace_is_found_from_below_and_by_name(
    applied: Bench, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert applied.with_(cwd=applied.folder / "manifests").plan().plan.is_empty
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    assert applied.with_(cwd=elsewhere, workspace=applied.folder).plan().plan.is_empty


def test_an_environment_has_a_state_of_its_own(applied: Bench) -> None:
    applied.write("overlays/prod/values.yaml", "{}\n")
    applied.write(
        "overlays/prod/west.yaml",
        "apiVersion: reconciler/v1\nkind: Cluster\nmetadata: {name: west}\n"
        'spec: {embedded: {root: "file://.clusters/prod"}}\n',
    )
    prod = Select(environment="prod")
    assert len(applied.plan(prod).plan.actions) == 3
    applied.apply(prod)
    assert (applied.folder / ".reconciler/env/prod/lockfile.json").exists()
    assert applied.plan(prod).plan.is_empty
    assert applied.plan().plan.is_empty
