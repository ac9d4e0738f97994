"""Spark jobs over topic logs. No other package imports pyspark."""
