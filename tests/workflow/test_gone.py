"""A cluster that we applied to and that is not there any more: no command takes it for one that was never made."""

from __future__ import annotations

import io
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.errors import RetryableError
from reconciler.operations.clusters.consume import ConsumeOptions, ProduceOptions, consume, produce
from reconciler.operations.clusters.groups import GroupChange, delete_group, describe_group, list_groups, reset_group
from reconciler.operations.clusters.namespaces import create_namespace, delete_namespace, list_namespaces, move_topics
from reconciler.operations.clusters.topics import describe_topic, list_topics
from reconciler.operations.steps.invocation import Select

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Bench

ORDERS = "topic/west/shop:orders"
CHANGE = GroupChange(cluster="west", group="g")


def consumed(bench: Bench, address: str, options: ConsumeOptions) -> object:
    return consume(bench.invocation, Select(), address, options, stdout=io.BytesIO(), stop=bench.stop)


def produced(bench: Bench) -> object:
    options, stdin = ProduceOptions(input_format="jsonl"), io.BytesIO(b"{}\n")
    return produce(bench.invocation, Select(), ORDERS, options, stdin=stdin, report=lambda _r, _s: None)


COMMANDS: dict[str, Callable[[Bench], Any]] = {
    "plan": lambda b: b.plan(),
    "topic list": lambda b: list_topics(b.invocation, Select(), None),
    "topic describe": lambda b: describe_topic(b.invocation, Select(), ORDERS),
    "topic consume": lambda b: consumed(b, ORDERS, ConsumeOptions()),
    "topic consume --regex": lambda b: consumed(b, "west", ConsumeOptions(regex=".*")),
    "topic consume --group": lambda b: consumed(b, ORDERS, ConsumeOptions(group="g")),
    "topic produce": produced,
    "group list": lambda b: list_groups(b.invocation, Select(), "west"),
    "group describe": lambda b: describe_group(b.invocation, Select(), "west", "g"),
    "group reset": lambda b: reset_group(b.invocation, Select(), CHANGE, "earliest", confirm=lambda _reset: True),
    "group delete": lambda b: delete_group(b.invocation, Select(), CHANGE, confirm=lambda _deletion: True),
    "namespace list": lambda b: list_namespaces(b.invocation, Select(), "west"),
    "namespace create": lambda b: create_namespace(b.acting(), "west", "new", {}),
    "namespace move": lambda b: move_topics(b.acting(), "west", "shop", "", []),
    "namespace delete": lambda b: delete_namespace(
        b.acting(), "west", "shop", recursive=False, confirm=lambda _deletion: True
    ),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_recorded_cluster_that_is_gone_is_said_to_be(applied: Bench, command: str) -> None:
    shutil.rmtree(applied.folder / ".clusters/west")
    with pytest.raises(RetryableError, match="west: it is recorded, but nothing is there now") as refused:
        COMMANDS[command](applied)
    assert "Check that its root is mounted" in refused.value.hint
    assert "pply" not in str(refused.value)
