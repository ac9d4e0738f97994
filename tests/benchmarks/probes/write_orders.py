"""Write a Parquet file of orders: TARGET ROWS. The same rows each time."""

import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

target, rows = sys.argv[1], int(sys.argv[2])
random = np.random.default_rng(2013)
customers = np.char.add("customer-", random.integers(0, 50_000, rows).astype(str))
table = pa.table(
    {
        "id": pa.array(np.arange(rows)),
        "customer": pa.array(customers),
        "amount": pa.array(np.round(random.gamma(2.0, 40.0, rows), 2)),
        "quantity": pa.array(random.integers(1, 9, rows)),
        "country": pa.array(random.choice(["DE", "FR", "IT", "PL", "SE"], rows)),
        "at": pa.array(1_700_000_000_000 + np.arange(rows) * 37, pa.timestamp("ms", tz="UTC")),
    }
)
pq.write_table(table, target)
