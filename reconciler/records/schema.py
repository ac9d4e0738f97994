"""What a record is: one Arrow schema everywhere. Null and empty are different."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

HEADERS: Final = pa.list_(
    pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary(), nullable=True)])
)

_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("partition", pa.int32(), nullable=False),
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("timestamp_ms", pa.int64(), nullable=False),
    pa.field("timestamp_type", pa.int8(), nullable=False),
    pa.field("key", pa.binary(), nullable=True),
    pa.field("value", pa.binary(), nullable=True),
    pa.field("headers", HEADERS, nullable=False),
]

RECORD_SCHEMA: Final = pa.schema(_FIELDS)

INPUT_SCHEMA: Final = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=True),
        pa.field("timestamp_ms", pa.int64(), nullable=True),
        *_FIELDS[3:],
    ]
)
"""A record to be produced: it has no offset yet, and may leave its partition and its time to the producer."""
