"""Upkeep: what `run` does, one idea a module. It holds no lease: every swap is its own safety."""
