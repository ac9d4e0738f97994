"""Records of Kafka topics: read, produced, copied exactly once. Picklable, for executors."""
