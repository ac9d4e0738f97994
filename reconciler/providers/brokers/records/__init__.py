"""Read, produce and copy records of Kafka topics."""
