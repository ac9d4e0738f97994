"""Partitions: heads, pages, parts, consumer groups, and checks of appended records."""
