"""Read a topic of RECORDS records in ten partitions, and one column of one of them; print the bytes that were fetched.

Arguments: a FOLDER for the cluster, RECORDS.
"""

import json
import os
import sys
import uuid
from pathlib import Path

from probes.embedded import fill
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.jobs.session import start_session
from reconciler.jobs.source import register
from reconciler.objectstore.directory import DirectoryStore
from reconciler.resources.workspace import SparkSpec
from tests.jobs.doubles import Metered

folder, records = Path(sys.argv[1]), int(sys.argv[2])
store = Metered(DirectoryStore(folder / "west"), folder / "fetched")
west = EmbeddedCluster.create(store, now_ms=lambda: 0, new_id=lambda: str(uuid.uuid4()))
west.create_topic("events", partitions=10, configs={"compression.type": "uncompressed"})
fill(west.sink("events"), records)
log = west.log("events")

with start_session(SparkSpec(), environ=os.environ) as running:
    register(running.session, lambda _: log)
    fetched = {}
    for name, wanted in (("floor", {}), ("ours", {"partitions": "3", "columns": "value"})):
        frame = running.session.read.format("topic-log").options(cluster="west", topic="events", **wanted).load()
        store.taken()
        counted = frame.count()
        fetched[name] = store.taken()
        if counted != (records // 10 if wanted else records):
            sys.exit(f"{name}: {counted} records were counted")
print(json.dumps(fetched))
