"""Exporting: manifests of what is there, one idea a module."""
