"""The floor of listing: get the catalog's objects and parse them: FOLDER."""

import gzip
import sys
import time
from pathlib import Path

import orjson

began = time.perf_counter()
for path in sorted(Path(sys.argv[1]).iterdir()):
    body = path.read_bytes()
    orjson.loads(gzip.decompress(body) if path.suffix == ".gz" else body)
print(time.perf_counter() - began)
