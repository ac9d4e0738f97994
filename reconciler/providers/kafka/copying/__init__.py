"""Copying into topics of a Kafka cluster exactly once: records, progress and offset map in one transaction."""
