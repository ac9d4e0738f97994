"""Load and validate a workspace; print what came out and how long it took."""

import sys
import time
from pathlib import Path

from reconciler.manifests.load import load_manifests
from reconciler.manifests.overlays import Variables

began = time.perf_counter()
loaded = load_manifests(Path(sys.argv[1]), environment=None, variables=Variables())
took = time.perf_counter() - began
print(len(loaded.desired), took)
