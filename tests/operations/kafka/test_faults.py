"""Brokers that hang, die, throttle and lose answers in the middle of a plan or an apply: told, and gone on later."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest

from reconciler.errors import ReconcilerError, RetryableError
from reconciler.operations.steps.invocation import Select
from reconciler.providers.brokers.seal import Seals
from tests.operations.kafka import conftest, hibernated
from tests.operations.kafka.conftest import made
from tests.operations.kafka.hibernated import Site, read_all
from tests.servers.kafka import Kafka
from tests.servers.kafkaproxy import (
    ALTER_CONFIGS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    KafkaProxy,
)

if TYPE_CHECKING:
    from conftest import Bench

    from reconciler.operations.apply import ApplyOutcome
    from reconciler.operations.plan import PlanResult

pytestmark = pytest.mark.soak  # minutes: brokers are started, killed and asked by whole commands


SOON_SECONDS: Final = 60
"""Ten for connecting, twenty for trying again, thirty for a request that hangs; a busy machine is slower."""
LESS_THAN_AN_INDEX: Final = 1 << 20
"""Brokers give ten times as much to the index of a new log, at once."""
CLUSTER: Final = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: west}
spec: {provider: kafka, kafka: {bootstrapServers: ["BOOTSTRAP"]}}
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {name: PREFIX, cluster: west}
"""
TOPIC: Final = """\
apiVersion: reconciler/v1
kind: Topic
metadata: {name: NAME, namespace: PREFIX, cluster: west}
spec: {partitions: COUNT, replicationFactor: 1, configs: {retention.ms: AGE}}
"""


@dataclass
class Shop:
    """A workspace over a broker that is maltreated, and what stands before it."""

    bench: Bench
    kafka: Kafka
    proxy: KafkaProxy
    prefix: str

    def declare(self, *names: str, partitions: int = 1, age: str = "7d") -> None:
        for name in names:
            text = TOPIC.replace("NAME", name).replace("COUNT", str(partitions)).replace("AGE", age)
            self.bench.write(f"manifests/{name}.yaml", text.replace("PREFIX", self.prefix))

    def apply(self, select: Select | None = None, *, before: Callable[[], None] = lambda: None) -> ApplyOutcome:
        """Apply; `before` happens between the plan and the first change."""

        def confirmed(_planned: PlanResult) -> bool:
            before()
            return True

        return self.bench.apply(select, confirm=confirmed)

    def there(self) -> list[str]:
        names = sorted(self.kafka.names())
        return [name.partition(".")[2] for name in names if name.startswith(f"{self.prefix}.")]

    def is_settled(self) -> bool:
        """Return True if the next plan has nothing to do."""
        return not self.bench.plan().plan.actions


@pytest.fixture(scope="module")
def kafka_behind() -> Iterator[tuple[Kafka, KafkaProxy]]:
    """Return a broker that is reached through a proxy alone."""
    with KafkaProxy() as proxy:
        extra = {"advertised.listeners": f"PLAINTEXT://{proxy.address}", "controller.quota.window.num": "2"}
        with Kafka.start(extra=extra, before=proxy.lead_to) as kafka:
            yield kafka, proxy


@pytest.fixture
def shop(bench: Bench, kafka_behind: tuple[Kafka, KafkaProxy], kafka_prefix: str) -> Shop:
    kafka, proxy = kafka_behind
    (bench.folder / "manifests/orders.yaml").unlink()
    text = CLUSTER.replace("BOOTSTRAP", proxy.address).replace("PREFIX", kafka_prefix)
    bench.write("manifests/west.yaml", text)
    return Shop(bench, kafka, proxy, kafka_prefix)


@pytest.mark.fact("F-K-084")
def test_a_quota_that_is_used_up_slows_an_apply_down_and_fails_nothing(shop: Shop) -> None:
    names = [f"t{number}" for number in range(40)]
    shop.declare(*names)
    with shop.kafka.limited(controller_mutation_rate=8):
        begun = time.monotonic()
        applied = shop.apply()
        assert applied.verdict is None, applied.verdict
        assert time.monotonic() - begun > 1
    assert shop.there() == sorted(names)
    assert shop.is_settled()


def test_a_broker_that_hangs_ends_a_plan_soon(shop: Shop) -> None:
    shop.declare("orders")
    shop.kafka.pause()
    begun = time.monotonic()
    with pytest.raises(RetryableError, match="does not answer in time"):
        shop.bench.plan()
    assert time.monotonic() - begun < SOON_SECONDS
    shop.kafka.resume()
    assert not shop.is_settled()


def test_a_broker_that_hangs_for_a_moment_is_waited_for(shop: Shop) -> None:
    shop.declare("orders")

    def hangs() -> None:
        shop.kafka.pause()
        threading.Timer(5, shop.kafka.resume).start()

    applied = shop.apply(before=hangs)
    assert applied.verdict is None, applied.verdict
    assert shop.is_settled()


def test_a_broker_that_dies_before_the_first_change_is_told_and_the_next_apply_goes_on(shop: Shop) -> None:
    shop.declare("orders", "clicks")
    with restarted(shop.kafka):
        begun = time.monotonic()
        with pytest.raises(
            ReconcilerError, match=r"refuses|closes the connection|does not answer|connection to a broker broke"
        ):
            raise_verdict(shop.apply(before=shop.kafka.kill))
        assert time.monotonic() - begun < SOON_SECONDS
    assert shop.apply().verdict is None
    assert shop.there() == ["clicks", "orders"]
    assert shop.is_settled()


def test_a_disk_that_is_full_at_the_first_change_is_told_and_the_next_apply_goes_on(shop: Shop) -> None:
    shop.declare("orders")
    assert shop.apply().verdict is None
    shop.declare("orders", "clicks", age="9d")
    with restarted(shop.kafka):
        begun = time.monotonic()
        with pytest.raises(ReconcilerError, match=r"refuses connections|closes the connection|does not answer"):
            raise_verdict(shop.apply(before=shop.kafka.brokers[0].fill))
        assert time.monotonic() - begun < SOON_SECONDS
        shop.kafka.brokers[0].wait_until_ended()  # It cannot write what a controller must.
    assert shop.apply().verdict is None
    assert shop.there() == ["clicks", "orders"]
    assert shop.is_settled()


def test_topics_for_which_a_disk_has_no_room_are_there_once_it_has(shop: Shop) -> None:
    """Controllers promise them before brokers make room for them; no answer tells that one could not."""
    names = [f"t{number}" for number in range(10)]
    shop.declare(*names)
    with restarted(shop.kafka):
        shop.apply(before=lambda: shop.kafka.brokers[0].fill(LESS_THAN_AN_INDEX))
        shop.kafka.kill()
    assert shop.apply().verdict is None
    assert shop.there() == sorted(names)
    assert shop.is_settled()


@contextmanager
def restarted(kafka: Kafka) -> Iterator[None]:
    """Have it back for the tests that follow, whatever comes of this one."""
    try:
        yield
    finally:
        kafka.restart()


def raise_verdict(applied: ApplyOutcome) -> None:
    """Raise why the first change failed, as is raised what ends an apply before it."""
    if applied.result is not None and applied.result.failed:
        raise applied.result.failed[0].error


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (CREATE_TOPICS, lambda shop: shop.declare("clicks")),
        (ALTER_CONFIGS, lambda shop: shop.declare("orders", age="9d")),
        (CREATE_PARTITIONS, lambda shop: shop.declare("orders", partitions=3)),
        (DELETE_TOPICS, lambda shop: (shop.bench.folder / "manifests/orders.yaml").unlink()),
    ],
    ids=["create", "configs", "partitions", "delete"],
)
def test_a_change_whose_answer_is_lost_is_settled_by_looking(
    shop: Shop, kind: int, change: Callable[[Shop], None]
) -> None:
    shop.declare("orders")
    assert shop.apply().verdict is None
    change(shop)
    shop.proxy.lose(kind)
    allowed = Select(allow=(f"delete:topic/west/{shop.prefix}:orders",))
    shop.apply(allowed)
    assert shop.proxy.lost.pop() == kind
    assert shop.apply(allowed).verdict is None
    assert shop.proxy.lost == []
    assert shop.is_settled()


# One of three brokers dies: for ten seconds nobody misses it, and its partitions have no leader.


@pytest.fixture(scope="module")
def three() -> Iterator[Kafka]:
    with Kafka.start(brokers=3) as kafka:
        yield kafka


@pytest.fixture
def replicated(bench: Bench, three: Kafka, kafka_prefix: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A topic that has a copy on every broker; afterwards all are there again."""
    topic = hibernated.TOPIC.replace("replicationFactor: 1, configs: {", "replicationFactor: 3, configs: {MORE, ")
    monkeypatch.setattr(conftest, "TOPIC", topic.replace("MORE", "min.insync.replicas: 2"))
    yield made(bench, three, kafka_prefix)
    three.wait_until_ready()


@contextmanager
def without(kafka: Kafka, broker: int) -> Iterator[None]:
    kafka.kill(broker)
    try:
        yield
    finally:
        kafka.restart(broker)


@pytest.mark.parametrize("broker", range(3))
def test_a_plan_goes_on_with_two_of_three_brokers_right_after_the_third_died(replicated: Site, broker: int) -> None:
    replicated.declare("live", "unmounted")
    replicated.apply()
    with without(replicated.kafka, broker):
        assert replicated.planned() == []


@pytest.mark.parametrize(
    "step", ["_wait_until_shown", "_wait_until_refused", "_wait_until_replicated", "_wait_for_transactions"]
)
@pytest.mark.parametrize("broker", range(3))
def test_an_unmount_goes_on_with_two_of_three_brokers(
    replicated: Site, broker: int, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends, inner = ExitStack(), getattr(Seals, step)

    def dies_before(*given: Any) -> Any:
        monkeypatch.setattr(Seals, step, inner)
        ends.enter_context(without(replicated.kafka, broker))
        return inner(*given)

    monkeypatch.setattr(Seals, step, dies_before)
    replicated.declare("live", "unmounted")
    with ends:
        applied = replicated.bench.apply()
    assert applied.verdict is None, applied.verdict
    assert replicated.physical not in replicated.kafka.names()
    replicated.declare("cold", "mounted")
    replicated.apply()
    assert sum(map(len, read_all(replicated.cold.log(replicated.topic)).values())) > 0
