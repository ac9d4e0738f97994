"""Compute effective desired resources from manifests."""
