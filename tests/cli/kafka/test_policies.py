"""A tiering policy that comes to several topics, or goes from them: all that brokers would refuse, in one plan."""

from __future__ import annotations

import json
from typing import Final

from tests.cli.kafka.conftest import Desk

POLICY: Final = """\
apiVersion: reconciler/v1
kind: TieringPolicy
metadata: {{name: cold}}
spec: {spec}
"""
TOPICS: Final = ("a", "b", "c", "d", "e")


def test_every_topic_that_a_policy_cannot_go_from_or_come_to_is_named_in_one_plan(desk: Desk) -> None:
    desk.write("policy", POLICY.format(spec=json.dumps({"remoteWrite": True})))
    for name in TOPICS:
        desk.topic(name, tieringPolicy="cold")
    desk.apply()
    for name in TOPICS:
        desk.topic(name)
    said = desk.plan()
    assert said.code == 1, said.out
    for name in TOPICS:
        assert f"{desk.address(name)}: its tiered storage would be left to chance" in said.out + said.err
    for name in TOPICS:
        desk.topic(name, tieringPolicy="cold", configs={"cleanup.policy": "compact"})
    said = desk.plan()
    assert said.code == 1, said.out
    for name in TOPICS:
        assert f"{desk.address(name)}: a topic that is compacted cannot be tiered" in said.out + said.err
