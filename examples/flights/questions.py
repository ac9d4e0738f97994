"""Questions on the mirrored flights, answered with Spark SQL: `questions.py [WORKSPACE]`.

The topics of a workspace are DataFrames: `topic-log` reads them where they lie, here on the cluster `east`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json

from reconciler import Workspace, register_topics

CLUSTER: Final = "east"
TOPICS: Final = "flights:ewr:departures, flights:jfk:departures, flights:lga:departures"
FLIGHT: Final = "origin string, dest string, month int, dep_delay double, distance int"
QUESTIONS: Final[Mapping[str, str]] = {
    "Which routes are the busiest?": """
        SELECT origin, dest, count(*) AS flights, max(distance) AS miles, round(avg(dep_delay), 1) AS minutes_late
        FROM departures GROUP BY origin, dest ORDER BY flights DESC, origin, dest LIMIT 5
    """,
    "In which month do flights leave late?": """
        SELECT month, count(*) AS flights, count_if(dep_delay IS NULL) AS cancelled,
               round(avg(dep_delay), 1) AS minutes_late, percentile(dep_delay, 0.9) AS one_in_ten_later_than
        FROM departures GROUP BY month ORDER BY month
    """,
}


def departures(spark: SparkSession) -> DataFrame:
    """Return the flights of all airports, a column a field."""
    records = spark.read.format("topic-log").options(cluster=CLUSTER, subscribe=TOPICS, columns="value").load()
    return records.select(from_json(col("value").cast("string"), FLIGHT).alias("flight")).select("flight.*")


def main(workspace: Path) -> None:
    """Answer every question with a table."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's workers need the packages that are installed here
    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
    settings |= {"spark.driver.host": "127.0.0.1", "spark.sql.shuffle.partitions": "4"}
    # A program of half a minute is over before the JVM's second compiler has paid for itself.
    settings |= {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    with SparkSession.builder.appName("questions").master("local[*]").config(map=settings).getOrCreate() as spark:
        register_topics(spark, Workspace.open(workspace))
        departures(spark).cache().createOrReplaceTempView("departures")
        for question, answer in QUESTIONS.items():
            print(question)
            spark.sql(answer).show()


if __name__ == "__main__":
    main(Path(sys.argv[1] if sys.argv[1:] else Path(__file__).with_name(".workspace")))
