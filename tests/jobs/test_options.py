"""Options of the topics of a workspace, without a session."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import LongType, StringType, StructField, StructType

from reconciler.errors import UserError
from reconciler.operations.clusters.notebook import register_topic_opener
from reconciler.operations.steps.invocation import Select
from tests.jobs.test_topic_stream import Registry

SCHEMA = StructType([StructField("offset", LongType())])


def source(workspace: Path, **options: str) -> Any:
    """Return the data source of a workspace as Spark gets it."""
    registry = Registry()
    register_topic_opener(registry, workspace, environ={}, select=Select())  # type: ignore[arg-type]  # all that is asked of a session
    return registry.found(CaseInsensitiveDict(options))


def test_without_a_cluster_the_advice_is_one_for_sql_too(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="topic-log needs the option cluster") as caught:
        source(tmp_path).reader(SCHEMA)
    assert "CREATE TEMPORARY VIEW orders USING `topic-log` OPTIONS (cluster 'west', topic 'orders')" in (
        caught.value.hint
    )


@pytest.mark.parametrize("how", ["reader", "streamReader"])
def test_an_option_that_there_is_not_gets_those_that_there_are(tmp_path: Path, how: str) -> None:
    with pytest.raises(UserError, match="topic-log has no option zzz") as caught:
        getattr(source(tmp_path, zzz="red"), how)(SCHEMA).initialOffset()
    assert "; of batch reads also partitions, end," in caught.value.hint
    assert "; of streams also maxOffsetsPerTrigger." in caught.value.hint


def test_the_guide_lists_the_columns_that_a_write_takes(tmp_path: Path) -> None:
    guide = Path(__file__).parents[2] / "docs" / "guides" / "topic-streams.md"
    text = guide.read_text(encoding="utf-8").partition("\n## Write\n")[2]
    columns = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    rows = [StructField(name, StringType()) for name in ("topic", "value", "zzz")]
    with pytest.raises(UserError) as caught:
        source(tmp_path, cluster="west", topic="orders").writer(StructType(rows), overwrite=False)
    assert f"a record is written from {', '.join(columns)}." in caught.value.hint
    with pytest.raises(UserError, match="topic-log needs the option topic"):
        source(tmp_path, cluster="west").writer(StructType(rows[:2]), overwrite=False)
