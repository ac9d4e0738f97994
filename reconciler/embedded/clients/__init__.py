"""Producers, consumers, transactions and topic logs, as Kafka users know them."""
