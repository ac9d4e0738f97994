"""Running a stream of Spark to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException

if TYPE_CHECKING:
    from pathlib import Path

# Spark gives the Python process that plans a stream ten seconds to start, and no option says otherwise.
LATE = "Python worker failed to connect back"
STARTS = 5


def to_the_end(writer: Any, checkpoint: Path) -> None:
    """Run a stream until it has read its topic as it is now, and begin again where a busy machine was too slow."""
    for start in range(1, STARTS + 1):
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        except StreamingQueryException as failed:
            if LATE not in str(failed) or start == STARTS:
                raise
        else:
            return
