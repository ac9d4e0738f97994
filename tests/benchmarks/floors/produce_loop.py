"""The floor of producing from Parquet: read, make JSON of each row, write. No keys, partitions, digests or swaps."""

import sys

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

source, target = sys.argv[1:]
schema = pa.schema([pa.field("value", pa.binary())])
with pq.ParquetWriter(target, schema, compression="zstd") as writer:
    for batch in pq.ParquetFile(source).iter_batches():
        values = [orjson.dumps(row) for row in batch.to_pylist()]
        writer.write_batch(pa.record_batch([pa.array(values, pa.binary())], schema=schema))
