"""Spark jobs over topic logs; the only place that imports pyspark."""
