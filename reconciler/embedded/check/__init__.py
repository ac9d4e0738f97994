"""Checks of a cluster, safe repairs, and the sweep."""
