"""The floor of mirroring: the files of one topic, copied one after the other. `--sync`: each made durable."""

import os
import shutil
import sys
import time
from pathlib import Path

source, target = map(Path, sys.argv[1:3])
is_synced = "--sync" in sys.argv
files = [path for path in sorted(source.rglob("*")) if path.is_file()]
began = time.perf_counter()
for path in files:
    copy = target / path.relative_to(source)
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, copy)
    if is_synced:
        with copy.open("rb") as written:
            os.fsync(written.fileno())
took = time.perf_counter() - began
print(len(files), took)
