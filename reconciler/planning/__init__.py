"""Compute a plan from three inventories, without side effects."""
