"""The machine's rules about groups and access: offsets committed, rules set, and somebody who is held to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.stateful import rule

from reconciler.embedded.catalog.model import AclEntry
from reconciler.errors import NotAuthorizedError
from reconciler.records.log import OffsetRange
from tests.embedded.driving import NAMESPACES, Driven, fault, has_topics, process, which
from tests.embedded.model import Row, Rule
from tests.embedded.mortal import Ended, Fault
from tests.embedded.observing import GROUPS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


ALICE = "User:alice"

rules = st.lists(
    st.builds(Rule, st.sampled_from([ALICE, "User:bob", "User:*"]), st.booleans(), st.sampled_from(["read", "write"])),
    max_size=2,
    unique=True,
).map(tuple)


class Committing(Driven):
    """Commits offsets, protects, and tries."""

    @has_topics
    @rule(process=process, group=st.sampled_from(GROUPS), which=which, at=st.integers(0, 9), fault=fault)
    def commit_offsets(self, process: int, group: str, which: int, at: int, fault: Fault | None) -> None:
        name = self._topic(which)
        number = at % len(self.model.topics[name].partitions)
        if self._has_home(group):
            self._do(
                process,
                lambda it: it.cluster.groups.commit(group, {(name, number): at}),
                fault,
                lambda model: model.commit(group, {(model.topics[name].id, number): at}),
            )

    @rule(process=process, group=st.sampled_from(GROUPS), fault=fault)
    def delete_group(self, process: int, group: str, fault: Fault | None) -> None:
        self._do(
            process,
            lambda it: it.cluster.groups.delete(group, force=True),
            fault,
            lambda model: model.groups.pop(group, None),
        )

    # -- access rules

    @has_topics
    @rule(process=process, which=which, rules=rules, fault=fault)
    def protect_topic(self, process: int, which: int, rules: tuple[Rule, ...], fault: Fault | None) -> None:
        name = self._topic(which)
        self.model.topics[name].rules = rules
        if self._ended(process, lambda it: it.cluster.set_topic_acls(name, _acls(rules)), fault) is not Ended.DONE:
            self.processes[process].cluster.set_topic_acls(name, _acls(rules))

    @rule(process=process, name=st.sampled_from(NAMESPACES), rules=rules)
    def protect_namespace(self, process: int, name: str, rules: tuple[Rule, ...]) -> None:
        if name in self.model.namespaces:
            self.processes[process].cluster.set_namespace_acls(name, _acls(rules))
            self.model.namespaces[name] = rules

    @has_topics
    @rule(process=process, which=which)
    def alice_reads_and_writes_what_she_may(self, process: int, which: int) -> None:
        name = self._topic(which)
        cluster = self.processes[process].cluster.acting_as(ALICE)
        cluster.catalog.read()
        assert self._is_allowed(lambda: list(cluster.log(name).read(0, OffsetRange(0, 1)))) is self.model.may(
            ALICE, "read", name
        )
        producer = cluster.producer()
        producer.send(name, b"written", key=b"alice", partition=0)
        if self._is_allowed(producer.flush):
            assert self.model.may(ALICE, "write", name)
            self.model.topics[name].partitions[0].append([Row(0, self.now_ms, b"alice", b"written", ())], None)
        else:
            assert not self.model.may(ALICE, "write", name)

    def _is_allowed(self, act: Callable[[], object]) -> bool:
        try:
            act()
        except NotAuthorizedError:
            return False
        return True


def _acls(rules: Sequence[Rule]) -> list[AclEntry]:
    return [AclEntry(rule.principal, "allow" if rule.is_allowed else "deny", (rule.operation,)) for rule in rules]
