"""Decide actions by comparing desired, recorded and observed resources."""
