"""Records of topics on Kafka over confluent-kafka: read, produced, copied exactly once. Picklable, for executors."""
