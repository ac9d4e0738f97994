"""Metrics, and where their numbers come from."""
