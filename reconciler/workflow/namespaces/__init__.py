"""Namespaces now: list, create, move, delete."""
