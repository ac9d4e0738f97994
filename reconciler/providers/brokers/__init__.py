"""What speaks the Kafka protocol: shared by the platforms whose brokers do."""
