"""Redpanda clusters: the Kafka protocol for topics, the Admin API for the rest."""
