"""Serve until standard input closes: `python -m tests.servers.redpanda [--version 25.3.1] [--bucket FOLDER]`."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path

from tests.servers.redpanda.server import VERSIONS, Redpanda


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default=VERSIONS[0], help="of all nodes")
    parser.add_argument("--nodes", type=int, default=len(VERSIONS))
    parser.add_argument("--bucket", type=Path, help="a folder that other servers may share")
    parser.add_argument("--license", default="valid", choices=["valid", "expired", "not_present"])
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with Redpanda.start(
        versions=[options.version] * options.nodes, bucket=options.bucket, license_status=options.license
    ) as redpanda:
        place = {name: getattr(redpanda, name) for name in ("kafka", "admin", "user", "password")}
        print(json.dumps(place), flush=True)  # noqa: T201 - read by whoever started it
        sys.stdin.buffer.read()


if __name__ == "__main__":
    main()
