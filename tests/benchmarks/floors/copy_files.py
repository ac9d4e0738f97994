"""The floor of mirroring: the files of one topic, copied one after the other: SOURCE TARGET PATTERN [--sync].

The pattern is of the folders, one a partition. `--sync`: each file is made durable.
"""

import os
import shutil
import sys
import time
from pathlib import Path

source, target, pattern = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
is_synced = "--sync" in sys.argv
files = sorted(path for folder in source.rglob(pattern) for path in folder.iterdir())
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
