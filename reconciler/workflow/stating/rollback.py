"""`state rollback-plan`: a plan back to what was applied as an earlier state, with the guards of every plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.errors import UserError
from reconciler.manifests.loading import Loaded
from reconciler.manifests.problems import Problem
from reconciler.manifests.variables import Values
from reconciler.planning.document.saved import to_document
from reconciler.resources.cluster import Cluster
from reconciler.resources.inventory import Declared
from reconciler.resources.topic import Topic
from reconciler.workflow.beginning.files import load_workspace_file
from reconciler.workflow.beginning.opening import Work, open_state
from reconciler.workflow.deciding.decide import decide_unlocked
from reconciler.workflow.deciding.saved import to_options
from reconciler.workflow.plan import Planned, show_decided, write_plan
from reconciler.workflow.stating.diff import read_current, state_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from reconciler.resources.inventory import Desired, Record, Recorded
    from reconciler.resources.kinds import Resource
    from reconciler.workflow.beginning.invocation import Invocation, Select


def rollback_plan(invocation: Invocation, select: Select, serial: int, *, out: Path | None = None) -> Planned:
    """Plan back to what was applied as state `serial`; with `out` also write the plan there, for `apply FILE`.

    Raises:
        UserError: That state is not kept, damaged, or the empty one.
    """
    started_ms = invocation.now_ms()
    work = open_rollback(invocation, select, serial, is_reader=True)
    planned = show_decided(work, decide_unlocked(work), started_ms)
    if out is not None:
        options = to_options(select, cwd=invocation.cwd, folder=work.folder)
        write_plan(invocation.cwd / out, to_document(planned.plan, options))
    return planned


def open_rollback(invocation: Invocation, select: Select, serial: int, *, is_reader: bool = False) -> Work:
    """Open a workspace in which a state says what is wanted; of the files only `reconciler.yaml` is read.

    How clusters are reached is not undone: that is as recorded now.
    """
    site = open_state(invocation, select, is_reader=is_reader)
    if serial == 0:
        raise UserError(
            "state #0 is the empty one, before anything was applied",
            hint="To remove everything: reconciler destroy. To go back further on, see: reconciler state history",
        )
    current = read_current(site)
    then, now = state_at(site, current, serial), current.record
    desired = wanted_again(then.record, now, serial)
    resources = (item.resource for item in desired.values())
    return Work(
        invocation=invocation,
        edge=site.edge,
        owner=site.owner,
        state_settings=site.state_settings,
        clusters={item.metadata.name: item for item in resources if isinstance(item, Cluster)},
        spark=site.spark,
        select=select,
        loaded=Loaded(
            workspace=load_workspace_file(invocation, select),
            desired=desired,
            folder=site.edge.folder,
            environment=select.environment,
            warnings=tuple(_kept_partitions(then.record, now, serial)),
            places={},
            values=Values({}),
        ),
        back_to=serial,
    )


def wanted_again(then: Record, now: Record, serial: int) -> Desired:
    """Return what was recorded then as what is wanted: effective as it stands, nothing of it is worked out anew."""
    return {
        address: Declared(_again(recorded, now.get(address)), f"state #{serial}", recorded.origins)
        for address, recorded in then.items()
    }


def _again(then: Recorded, now: Recorded | None) -> Resource:
    resource = then.resource
    if isinstance(resource, Cluster) and now is not None and isinstance(now.resource, Cluster):
        spec = now.resource.spec.model_copy(update={"properties": resource.spec.properties})
        return now.resource.model_copy(update={"spec": spec})
    if isinstance(resource, Topic) and now is not None:
        changed: dict[str, object] = {"partitions": _partitions(then, now)}
        if then.protect != now.protect:
            changed["protect"] = then.protect
        return resource.model_copy(update={"spec": resource.spec.model_copy(update=changed)})
    return resource


def _partitions(then: Recorded, now: Recorded) -> int | None:
    """Return the partitions of a topic that goes back: what it has by now is never taken away."""
    before = then.resource.spec.partitions if isinstance(then.resource, Topic) else None
    after = now.resource.spec.partitions if isinstance(now.resource, Topic) else None
    return before if before is None or after is None else max(before, after)


def _kept_partitions(then: Record, now: Record, serial: int) -> Iterator[Problem]:
    for address in sorted(then.keys() & now.keys()):
        before, after = then[address].resource, now[address].resource
        if not (isinstance(before, Topic) and isinstance(after, Topic)):
            continue
        if (after.spec.partitions or 0) > (before.spec.partitions or 0):
            yield Problem(
                file=f"state #{serial}",
                line=None,
                column=None,
                field="",
                message=f"{address} had {before.spec.partitions} partitions and keeps its {after.spec.partitions}",
                hint="Partitions are never removed: their records would be lost.",
            )
