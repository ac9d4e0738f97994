"""Topics of a Kafka cluster in object storage: jobs archive, compare, delete and restore."""
