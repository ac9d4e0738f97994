"""Checks of a cluster, repairs that lose nothing, and the sweep."""
