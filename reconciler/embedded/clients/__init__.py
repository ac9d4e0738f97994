"""Producers, consumers, transactions and topic logs."""
