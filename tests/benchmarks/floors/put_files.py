"""The floor of keeping books: files of so many bytes each, durable, one after the other: FOLDER BYTES…."""

import os
import sys
import time
from pathlib import Path

folder, sizes = Path(sys.argv[1]), [int(size) for size in sys.argv[2:]]
folder.mkdir(parents=True)
began = time.perf_counter()
for number, size in enumerate(sizes):
    path = folder / str(number)
    with path.with_suffix(".part").open("wb") as file:
        file.write(b"x" * size)
        file.flush()
        os.fsync(file.fileno())
    path.with_suffix(".part").rename(path)
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
print(time.perf_counter() - began)
