"""The machine's rules about namespaces and topics: made, moved, deleted."""

from __future__ import annotations

import contextlib

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from reconciler.errors import UserError
from tests.embedded.driving import NAMES, NAMESPACES, Driven, fault, has_topics, process, which
from tests.embedded.model import SHORT_MS, TOMBSTONE_MS
from tests.embedded.mortal import Fault

SEGMENT = {"segment.bytes": "3000"}
"""A part or two."""
KINDS = {
    "plain": SEGMENT,
    "short": {**SEGMENT, "retention.ms": str(SHORT_MS)},
    "compact": {
        **SEGMENT,
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0",
        "delete.retention.ms": str(TOMBSTONE_MS),
    },
}


class Naming(Driven):
    """Makes, moves and deletes."""

    @initialize(partitions=st.integers(1, 2), kind=st.sampled_from(sorted(KINDS)))
    def begin(self, partitions: int, kind: str) -> None:
        self.create_namespace(0, "shop", None)
        self.create_topic(0, "shop:orders", kind, partitions, None)

    @rule(process=process, name=st.sampled_from(NAMESPACES), fault=fault)
    def create_namespace(self, process: int, name: str, fault: Fault | None) -> None:
        if name not in self.model.namespaces:
            self._do(process, lambda it: it.cluster.create_namespace(name), fault, lambda m: m.create_namespace(name))

    @rule(
        process=process,
        name=st.builds(
            lambda namespace, name: f"{namespace}:{name}".lstrip(":"),
            st.sampled_from(["", *NAMESPACES]),
            st.sampled_from(NAMES),
        ),
        kind=st.sampled_from(sorted(KINDS)),
        partitions=st.integers(1, 2),
        fault=fault,
    )
    def create_topic(self, process: int, name: str, kind: str, partitions: int, fault: Fault | None) -> None:
        namespace = name.rpartition(":")[0]
        if name in self.model.topics or (namespace and namespace not in self.model.namespaces):
            with contextlib.suppress(UserError):
                self.processes[process].cluster.create_topic(name)
                raise AssertionError(name)
            return
        self._do(
            process,
            lambda it: it.cluster.create_topic(name, partitions=partitions, configs=KINDS[kind]),
            fault,
            lambda model: model.create_topic(name, kind, partitions),
        )

    @has_topics
    @rule(process=process, which=which, to=st.sampled_from(["", *NAMESPACES]), fault=fault)
    def move_topic(self, process: int, which: int, to: str, fault: Fault | None) -> None:
        name = self._topic(which)
        target = f"{to}:{name.rpartition(':')[2]}".lstrip(":")
        if target not in self.model.topics and (not to or to in self.model.namespaces):
            self._do(
                process,
                lambda it: it.cluster.move_topic(name, target),
                fault,
                lambda model: model.move_topic(name, target),
            )

    @precondition(lambda self: len(self.model.topics) > 1)
    @rule(process=process, which=which, fault=fault)
    def delete_topic(self, process: int, which: int, fault: Fault | None) -> None:
        name = self._topic(which)
        self._do(process, lambda it: it.cluster.delete_topic(name), fault, lambda model: model.delete_topic(name))

    @precondition(lambda self: len(self.model.namespaces) > 1)
    @rule(process=process, name=st.sampled_from(NAMESPACES), fault=fault)
    def delete_namespace(self, process: int, name: str, fault: Fault | None) -> None:
        if name in self.model.namespaces:
            self._do(
                process,
                lambda it: it.cluster.delete_namespace(name, recursive=True),
                fault,
                lambda model: model.delete_namespace(name),
            )
