"""Checks of a cluster, repairs without data loss, and the sweep."""
