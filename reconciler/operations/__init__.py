"""Use cases: each command's work."""
