"""Topics are read, copied, and written by batches with the oldest PySpark that pyproject.toml accepts.

It is kept in the user's cache folder, next to the Kafka of the tests, and comes from PyPI.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.soak]

ROOT: Final = Path(__file__).parents[2]
CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stream-reconciler" / "pyspark"
FILES: Final = ("test_source.py", "test_guide.py", "test_topic_write.py", "test_copy.py", "test_profile.py")
REFUSED: Final = {
    "test_a_filtered_read_has_the_rows_of_the_filtered_topic": "option pushFilters of topic-log needs PySpark 4.1",
    "test_what_a_query_does_not_want_is_not_fetched": "option pushFilters of topic-log needs PySpark 4.1",
    "test_the_guide_about_streams_does_what_it_says": "writing streams to topic-log needs PySpark 4.2 or newer",
}


def oldest() -> str:
    found = re.search(r'"pyspark>=([\d.]+),', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert found is not None
    return f"{found[1]}.0"


def installed(version: str) -> Path:
    """Return a folder with this PySpark and nothing else, to be put before the installed one."""
    folder = CACHE / version
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
                made = Path(scratch) / "packages"
                command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
                subprocess.run([*command, "--target", made, f"pyspark=={version}"], check=True, timeout=900)
                made.rename(folder)
    return folder


def test_topics_are_read_with_the_oldest_pyspark_and_what_needs_a_newer_one_says_which() -> None:
    version = oldest()
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    options = ("-q", "--tb=native", "-n", "0", "-p", "no:randomly", "-p", "no:cacheprovider")
    # This version leaves sockets to the garbage collector.
    leaks = ("-W", "ignore::ResourceWarning", "-W", "ignore::pytest.PytestUnraisableExceptionWarning")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *leaks, *(str(ROOT / "tests" / "jobs" / file) for file in FILES)],
        cwd=ROOT,
        env=environ | {"PYTHONPATH": str(installed(version))},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=1200,
    )
    assert set(re.findall(r"^(?:FAILED|ERROR) \S+::([a-z_0-9]+)", done.stdout, re.MULTILINE)) == set(REFUSED), (
        done.stdout
    )
    for reason in REFUSED.values():
        assert reason in done.stdout
    assert f"and this is {version}. Install it: pip install" in done.stdout
