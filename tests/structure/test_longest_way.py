"""A change of one config goes from the YAML to the brokers through few modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from tests.servers.kafka import Kafka
from tests.structure.longest_way import EMBEDDED, Way, on_kafka, way_of_a_changed_retention

pytestmark = pytest.mark.thorough

LIMIT: Final = {"kafka": 116, "embedded": 121}
"""How many modules a changed retention enters at most; see them with `python -m tests.structure.longest_way`.

`resources.owners` is on both ways, and `providers.brokers.ledger` on that to brokers: before anything is changed, a
plan asks the cluster which workspace owns it. `resources.inventory` is on that to brokers: a value that a topic has
already is not refused. `runtime.thread_effects` is apart from `runtime.threads`, so that a plan starts no event loop.
"""


def test_a_changed_retention_reaches_brokers_through_few_modules(start_kafka: Callable[..., Kafka]) -> None:
    way = way_of_a_changed_retention(on_kafka(start_kafka()))
    modules = [each.module for each in way]
    assert {"cli.main", "planning.planner", "providers.brokers.provider"} <= set(modules)
    assert len(modules) <= LIMIT["kafka"], modules


def test_a_changed_retention_reaches_the_embedded_cluster_through_few_modules() -> None:
    modules = [each.module for each in way_of_a_changed_retention(EMBEDDED)]
    assert {"cli.main", "planning.planner", "embedded.cluster"} <= set(modules)
    assert len(modules) <= LIMIT["embedded"], modules


def test_a_module_is_on_the_way_once_a_function_of_it_runs() -> None:
    from reconciler.planning.plan import Selection  # noqa: PLC0415
    from reconciler.planning.selection import is_partial_selection  # noqa: PLC0415 - imported is not entered

    with Way() as way:
        is_partial_selection(Selection())
    assert list(way.entered) == ["planning.selection"]
    assert way.entered["planning.selection"].function == "is_partial_selection"
