"""Checking files must start as fast as reading our models does: nothing heavy is imported for it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

HEAVY = ("pyarrow", "numpy", "pyspark", "boto3", "botocore", "rich", "typer", "difflib", "orjson", "asyncio")
PROGRAM = """
import sys
from pathlib import Path
from reconciler.manifests.load import load_manifests
from reconciler.manifests.overlays import Variables
load_manifests(Path(sys.argv[1]), environment=None, variables=Variables())
print(*sorted(name for name in sys.argv[2].split(",") if name in sys.modules))
"""


def test_reading_a_workspace_imports_nothing_heavy(workspace: Any, clusters: str) -> None:
    folder = workspace({"manifests/a.yaml": clusters})
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), ",".join(HEAVY)], check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == []
