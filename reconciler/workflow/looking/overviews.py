"""Clusters at a glance: what `topic list` and `namespace list` read, and nothing else."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from reconciler.errors import ReconcilerError, RetryableError
from reconciler.resources.address import cluster_address
from reconciler.resources.overviews import Overview
from reconciler.state.incarnations import read_incarnations
from reconciler.workflow.beginning.identity import refuse_stranger
from reconciler.workflow.looking.bursts import burst
from reconciler.workflow.looking.observing import AT_ONCE, gone, unreachable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reconciler.resources.address import Address
    from reconciler.workflow.beginning.opening import Site, Work


def look_over(work: Work, clusters: Sequence[str]) -> dict[str, Overview]:
    """Read what `clusters` have, all at once; one that was never made has nothing.

    Raises:
        UserError: Another cluster than the recorded one answers.
        RetryableError: Some cannot be reached; a recorded one that is gone is one of them.
    """
    recorded = recorded_clusters(work)
    found: dict[str, Overview] = {}
    lost: dict[str, RetryableError] = {}
    with burst(), ThreadPoolExecutor(max_workers=AT_ONCE, thread_name_prefix="look") as threads:
        asked = {name: threads.submit(_look, work, name, recorded) for name in clusters}
        for name, future in asked.items():
            try:
                found[name] = future.result()
            except RetryableError as error:
                lost[name] = error
    if lost:
        raise unreachable(lost)
    return found


def check_answers(work: Site, name: str) -> None:
    """Return if the cluster called `name` that answers is the recorded one.

    Raises:
        UserError: Another one answers, or this workspace has none of that name.
        RetryableError: It cannot be reached, or it is recorded and nothing is there.
    """
    try:
        stands(work, name, recorded_clusters(work))
    except RetryableError as error:
        raise unreachable({name: error}) from error


def recorded_clusters(work: Site) -> Mapping[Address, str | None]:
    """Return which clusters we applied to; looking goes on without a state that cannot be read."""
    try:
        return read_incarnations(work.state, owner=work.owner, kind="cluster")
    except ReconcilerError as error:
        work.invocation.warn(f"which clusters these should be is not known, the state cannot be read: {error.message}")
        return {}


def _look(work: Work, name: str, recorded: Mapping[Address, str | None]) -> Overview:
    return work.providers[name].overview() if stands(work, name, recorded) else Overview()


def stands(work: Site, name: str, recorded: Mapping[Address, str | None]) -> bool:
    """Tell whether a cluster was made; refuse another one in its place, and a recorded one that is gone."""
    identity, address = work.providers[name].identify(), cluster_address(name)
    if identity is not None:
        refuse_stranger(name, identity.cluster_id, (work.clusters[name].spec.cluster_id, recorded.get(address)))
        return True
    if address in recorded:
        raise gone()
    return False
