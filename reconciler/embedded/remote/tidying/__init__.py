"""Fewer and sound objects: merging and scrub, while nobody else uses object storage."""
