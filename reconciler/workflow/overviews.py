"""Clusters at a glance: what `topic list` and `namespace list` read, and nothing else."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from reconciler.errors import ReconcilerError, RetryableError
from reconciler.resources.address import cluster_address
from reconciler.resources.overviews import Overview
from reconciler.state.incarnations import read_incarnations
from reconciler.workflow.bursts import burst
from reconciler.workflow.identity import refuse_stranger
from reconciler.workflow.observing import AT_ONCE, unreachable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reconciler.resources.address import Address
    from reconciler.workflow.opening import Work


def look_over(work: Work, clusters: Sequence[str]) -> dict[str, Overview]:
    """Read what `clusters` have, all at once; one that was never made has nothing.

    Raises:
        UserError: Another cluster than the recorded one answers.
        RetryableError: Some cannot be reached; a recorded one that is gone is one of them.
    """
    recorded = _recorded(work)
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


def _recorded(work: Work) -> Mapping[Address, str | None]:
    """Return which clusters we applied to; looking goes on without a state that cannot be read."""
    try:
        return read_incarnations(work.state, owner=work.owner, kind="cluster")
    except ReconcilerError as error:
        work.invocation.warn(f"which clusters these should be is not known, the state cannot be read: {error.message}")
        return {}


def _look(work: Work, name: str, recorded: Mapping[Address, str | None]) -> Overview:
    provider, address = work.providers[name], cluster_address(name)
    identity = provider.identify()
    if identity is not None:
        refuse_stranger(name, identity.cluster_id, (work.clusters[name].spec.cluster_id, recorded.get(address)))
        return provider.overview()
    if address in recorded:
        # A recorded cluster that is not there is out of reach, not one without topics.
        raise RetryableError(
            "it is recorded, but nothing is there now",
            hint="Check that its root is mounted and that the location in its manifest is right.",
        )
    return Overview()
