"""A workspace from Python: open, plan, apply, look for drift, read records with Spark: `shop.py [FOLDER]`.

Each part between `# %%` is a cell: Jupyter and editors run them one by one.
"""

# %% Open the workspace: its files are read, and no cluster is asked.
from __future__ import annotations

import sys
import time
import uuid
from pathlib import Path

from pyspark.sql import SparkSession

from reconciler import DirectoryStore, EmbeddedCluster, Workspace, register_topics

folder = Path(sys.argv[1] if sys.argv[1:] else "examples/quickstart")
shop = Workspace.open(folder)

# %% Plan: nothing is changed.
plan = shop.plan()
print(plan.summary)
for action in plan.actions:
    print(" ", action)

# %% Apply that plan: the same or less, and never more.
print(shop.apply(plan))
print(shop.plan().summary)

# %% Look for drift.
for item in shop.drift():
    print(item.kind, item.address, item.message)

# %% Write some records into the embedded cluster.
local = EmbeddedCluster.open(
    DirectoryStore(folder / ".clusters" / "local"),
    now_ms=lambda: time.time_ns() // 1_000_000,
    new_id=lambda: str(uuid.uuid4()),
)
with local.producer() as producer:
    for number in range(3):
        producer.send("shop:eu:orders", f"order {number}", key=f"customer {number % 2}")

# %% Read them as a DataFrame.
session = {"spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}
spark = SparkSession.builder.master("local[1]").config(map=session).getOrCreate()
register_topics(spark, shop)
orders = spark.read.format("topic-log").options(cluster="local", topic="shop:eu:orders").load()
orders.selectExpr("string(key) AS customer", "string(value) AS value").orderBy("value").show()
spark.stop()
