"""Serve a source and a destination until standard input closes: `python -m tests.servers.confluent [--kind basic]`."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

from tests.servers.confluent.api import CONTRACT
from tests.servers.confluent.server import Confluent, Network


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--type", default="cloud", choices=["cloud", "platform"])
    parser.add_argument("--kind", default="dedicated", choices=list(CONTRACT["kinds"]), help="of Cloud clusters")
    parser.add_argument("--version", default="8.0.0", help="of Platform clusters")
    parser.add_argument("--exchanges", type=Path, help="a file for a line of JSON for each request, without secrets")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    kind = options.kind if options.type == "cloud" else None
    with ExitStack() as stack:
        network, places = Network(), {}
        for name in ("source", "destination"):
            settings = {"kind": kind, "version": options.version, "exchanges": options.exchanges}
            server = stack.enter_context(Confluent.start(network, **settings))
            places[name] = {part: getattr(server, part) for part in ("kafka", "rest", "cluster_id", "key", "secret")}
        print(json.dumps(places), flush=True)  # noqa: T201 - read by the program that started the servers
        sys.stdin.buffer.read()


if __name__ == "__main__":
    main()
