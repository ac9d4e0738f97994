"""The floor of reading into Spark: a Python data source that yields one Arrow batch of records again and again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class MemoryReader(DataSourceReader):
    """Yields batches that were there before it was asked."""

    def __init__(self, options: dict[str, str]) -> None:
        self.tasks = int(options["tasks"])
        self.rows = int(options["rows"])
        self.body = bytes.fromhex(options["body"])

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self.tasks)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        del partition
        with pa.ipc.open_stream(self.body) as stream:
            batch = stream.read_next_batch()
        for first in range(0, self.rows, batch.num_rows):
            yield batch.slice(0, min(batch.num_rows, self.rows - first))


class MemorySource(DataSource):
    """`memory`: so many tasks, each yielding the same batch up to so many rows."""

    @classmethod
    def name(cls) -> str:
        return "memory"

    def schema(self) -> StructType:
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415

        with pa.ipc.open_stream(bytes.fromhex(self.options["body"])) as stream:
            return from_arrow_schema(stream.schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        del schema
        return MemoryReader(self.options)
