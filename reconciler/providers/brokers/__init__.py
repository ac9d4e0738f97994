"""Code shared by the platforms whose brokers speak the Kafka protocol."""
