"""Use cases: the work of each command."""
