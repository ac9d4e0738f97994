"""Serve two emulated Confluent clusters, and do to them what no client can: a line of JSON each, with a line in return.

{"adopt": […]}   mirror equal topics by the link `from-east`
{"rate": 50}     let so many requests a second through
{}               return each cluster's requests, and the times of those that were let through, since the last line
"""

import json
from contextlib import ExitStack
from sys import stdin

from tests.servers.confluent.server import Confluent, Network

FIELDS = ("kafka", "rest", "cluster_id", "key", "secret")
VALUES = {"cleanup.policy": "delete", "max.message.bytes": "4194304", "retention.ms": "604800000"}
CONFIGS = [{"name": name, "value": value} for name, value in VALUES.items()]

with ExitStack() as stack:
    network, options = Network(), {"kind": "dedicated", "limits": {"partitions": 100_000}, "heap": "2g"}
    names = ("east", "west")
    servers = {name: stack.enter_context(Confluent.start(network, **options)) for name in names}
    places = {name: {field: getattr(server, field) for field in FIELDS} for name, server in servers.items()}
    print(json.dumps(places), flush=True)
    for line in stdin:
        order, west = json.loads(line), servers["west"]
        for begin in range(0, len(order.get("create", ())), 1_000):
            some = order["create"][begin:][:1_000]
            rows = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in some]
            filled = [row | {"assignments": [], "configs": CONFIGS} for row in rows]
            with servers[order["on"]].connect() as broker:
                broker.ask("CreateTopics", 5, topics=filled, timeout_ms=60_000, validate_only=False)
        if "adopt" in order:
            west.mirrors.adopt("from-east", order["adopt"])
        west.rate = order.get("rate", west.rate)
        print(json.dumps({name: server.passed for name, server in servers.items()}), flush=True)
        for server in servers.values():
            server.passed.clear()
