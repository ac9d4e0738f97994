"""Partitions: heads, pages, parts, groups, and what may be appended."""
