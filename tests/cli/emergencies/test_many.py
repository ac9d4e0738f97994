"""Five hundred mirrors at once, of which three cannot: the others are done, and exactly these three are named."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.cli.sample_workspaces import Twins

MANY = 500
FAILING = ("shop:more-007", "shop:more-250", "shop:more-499")


def declare(twins: Twins, count: int) -> None:
    """Declare topics and their mirrors over the same link, and apply."""
    path = twins.folder / "manifests/all.yaml"
    names = [f"more-{number:03}" for number in range(count)]
    path.write_text(
        path.read_text()
        + "".join(f'    - {{source: "shop:{name}"}}\n' for name in names)
        + "".join(
            f"---\napiVersion: reconciler/v1\nkind: Topic\nmetadata: {{name: {name}, namespace: shop, cluster: west}}\n"
            "spec: {partitions: 1}\n"
            for name in names
        )
    )
    twins.said("apply", "--yes")


@pytest.fixture
def many(twins: Twins) -> Twins:
    """Five hundred mirrors more, three of which take records of their own already."""
    declare(twins, MANY)
    twins.said("mirror", "failover", *(f"mirror/east/{name}" for name in FAILING), "--yes")
    return twins


@pytest.mark.thorough
@pytest.mark.parametrize("state", [(), ("--no-state",)], ids=["with the state", "without"])
def test_of_twelve_failovers_those_of_damaged_partitions_fail_alone(twins: Twins, state: tuple[str, ...]) -> None:
    declare(twins, 12)
    damaged = ("shop:more-003", "shop:more-007")
    topics = twins.cluster("east").catalog.read().topics
    for name in damaged:
        head = twins.folder / ".clusters/east/heads" / topics[name].id / "00000.json"
        head.parent.mkdir(parents=True, exist_ok=True)
        head.write_text("{")
    done = twins.typed("mirror", "failover", "mirror/east/shop:more-*", "--yes", *state)
    assert done.code == 8, done.err
    topics = twins.cluster("east").catalog.read().topics
    states = {name: topic.mirror.state for name, topic in topics.items() if topic.mirror is not None}
    left = {name for name, status in states.items() if name.startswith("shop:more-") and status != "STOPPED"}
    assert left == set(damaged), done.out + done.err
    assert "cannot tell how much is lost" not in done.out


VERBS = [
    ("failover", ("--yes",), "STOPPED: it is already stopped", "STOPPED"),
    ("pause", (), "is STOPPED: cannot pause while STOPPED", "PAUSED"),
]


@pytest.mark.thorough
@pytest.mark.parametrize("state", [(), ("--no-state",)], ids=["with the state", "without"])
@pytest.mark.parametrize(("verb", "options", "says", "after"), VERBS, ids=[verb for verb, *_ in VERBS])
def test_of_five_hundred_mirrors_three_fail_and_the_others_are_done(
    many: Twins, verb: str, options: tuple[str, ...], says: str, after: str, state: tuple[str, ...]
) -> None:
    failing = tuple(f"mirror/east/{name}" for name in FAILING)
    done = many.typed("mirror", verb, "mirror/east/shop:more-*", *failing, *options, *state)
    assert done.code == 8, done.err
    topics = many.cluster("east").catalog.read().topics
    states = {name: topic.mirror.state for name, topic in topics.items() if topic.mirror is not None}
    others = Counter(state for name, state in states.items() if name.startswith("shop:more-") and name not in FAILING)
    assert others == {after: MANY - len(FAILING)}
    assert (states["shop:orders"], states["shop:clicks"]) == ("ACTIVE", "ACTIVE")
    refused = [line for line in done.out.splitlines() if line.startswith("✗")]
    assert len(refused) == len(FAILING)
    for address, line in zip(failing, refused, strict=True):
        assert address in line
        assert says in line
