"""Errors that come through Spark, in our words."""

from __future__ import annotations

import pytest

from reconciler.errors import MissingObjectError, ReconcilerError, RetryableError, UnansweredError, UserError
from reconciler.jobs.progress import translate_job_error

TRACE = """\
[PYTHON_DATA_SOURCE_ERROR] Failed to initialize Python data source reader: Traceback (most recent call last):
  File "/lib/worker.py", line 71, in main
    reader = data_source.reader(schema=schema)
reconciler.errors.{name}: {error}

JVM stacktrace:
org.apache.spark.sql.AnalysisException
"""


@pytest.mark.parametrize(
    ("ours", "kind"), [(UserError, UserError), (MissingObjectError, UserError), (UnansweredError, RetryableError)]
)
def test_an_error_of_ours_keeps_its_advice_on_its_way_through_spark(
    ours: type[ReconcilerError], kind: type[ReconcilerError]
) -> None:
    error = ours("orders does not exist", hint="Correct it. Or create it: reconciler apply.")
    found = translate_job_error("reading the topic", RuntimeError(TRACE.format(name=ours.__name__, error=error)))
    assert type(found) is kind
    assert found.message == "reading the topic failed: orders does not exist"
    assert found.hint == "Correct it. Or create it: reconciler apply."


def test_an_error_of_sparks_is_worth_another_run() -> None:
    found = translate_job_error(
        "copying records", RuntimeError("org.apache.spark.SparkException: Job aborted: a worker was lost.")
    )
    assert isinstance(found, RetryableError)
    assert found.message == "copying records failed in Spark: Job aborted: a worker was lost"
    assert found.hint.startswith("Run the same command again")
