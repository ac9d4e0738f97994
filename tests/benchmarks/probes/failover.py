"""Fail over MIRRORS of an embedded cluster by one command; print the seconds of its rehearsal, and of itself.

Arguments: FOLDER, MIRRORS. The clusters are folders; the command is a process of its own, as in an emergency.
"""

import json
import subprocess
import sys
import time
import uuid
from pathlib import Path

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.objectstore.directory import DirectoryStore

FILES = """\
apiVersion: reconciler/v1
kind: Workspace
metadata: {{name: bench}}
spec: {{state: "file://.state"}}
"""
CLUSTERS = "".join(
    "---\napiVersion: reconciler/v1\nkind: Cluster\n"
    f'metadata: {{name: {name}}}\nspec: {{provider: embedded, embedded: {{root: {{url: "file://.clusters/{name}"}}}}}}\n'
    for name in ("west", "east")
)
TOPIC = (
    "---\napiVersion: reconciler/v1\nkind: Topic\nmetadata: {{name: {name}, cluster: west}}\nspec: {{partitions: 1}}\n"
)
LINK = (
    "---\napiVersion: reconciler/v1\nkind: MirrorLink\nmetadata: {name: twin, cluster: east}\nspec:\n  source: west\n"
)
folder, mirrors = Path(sys.argv[1]), int(sys.argv[2])
names = [f"orders-{number:05}" for number in range(mirrors)]


def typed(*arguments: str) -> float:
    """Run a command in the folder, and return how many seconds it took."""
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "reconciler.cli.main", *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL
    )
    return time.perf_counter() - began


(folder / "manifests").mkdir(parents=True)
(folder / "reconciler.yaml").write_text(FILES.format())
listed = "  mirrorTopics:\n" + "".join(f"    - {{source: {name}}}\n" for name in names)
(folder / "manifests/all.yaml").write_text(
    CLUSTERS + "".join(TOPIC.format(name=each) for each in names) + LINK + listed
)
typed("apply", "--yes")
west = EmbeddedCluster.open(
    DirectoryStore(folder / ".clusters/west"),
    now_ms=lambda: time.time_ns() // 1_000_000,
    new_id=lambda: str(uuid.uuid4()),
)
with west.producer() as writer:  # so that each lags, and something is to be said of it
    for name in names:
        writer.send(name, "late", partition=0)
    writer.flush()
rehearsed = typed("mirror", "failover", "--link", "link/east/twin", "--dry-run")
done = typed("mirror", "failover", "--link", "link/east/twin", "--yes")
print(json.dumps({"rehearsed": rehearsed, "done": done}))
