"""Apache Kafka: the protocol of providers over its own clients."""
