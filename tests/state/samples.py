"""Small values the tests of state are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.resources.inventory import Recorded
from reconciler.resources.topic import Topic
from reconciler.state.journal import RunFile
from reconciler.state.lease import Claim
from reconciler.state.lockfile import LeaseTerms, Owner

if TYPE_CHECKING:
    from reconciler.resources.address import Address

SHOP = Owner("shop")


def claim(run: str, *, owner: Owner = SHOP, lease_s: float = 90.0) -> Claim:
    return Claim(
        owner=owner,
        run=run,
        who=f"{run}@host",
        lineage="lineage-1",
        ci_url=f"https://ci/{run}",
        terms=LeaseTerms(lease_s),
    )


def record(*names: str, run: str = "r", partitions: int = 1) -> dict[Address, Recorded]:
    topics = [
        Topic.model_validate(
            {"metadata": {"name": name, "cluster": "west"}, "spec": {"partitions": partitions, "configs": {}}}
        )
        for name in names
    ]
    return {
        topic.address: Recorded(topic, incarnation=f"id-{topic.metadata.name}", physical_name=topic.full_name, run=run)
        for topic in topics
    }


def run_file(run: str, *, epoch: int = 1, actions: tuple[str, ...] = ("create:topic/west/a",)) -> RunFile:
    return RunFile(
        run=run,
        command="apply",
        plan_digest="d" * 64,
        actions=tuple({"action": "create", "id": action} for action in actions),
        workspace="shop",
        environment=None,
        base_serial=0,
        base_sha256="",
        epoch=epoch,
        started="2026-01-01T00:00:00Z",
    )
