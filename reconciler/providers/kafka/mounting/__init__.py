"""Topics of a Kafka cluster in object storage: brokers detach nothing, so jobs archive, compare, delete and restore."""
