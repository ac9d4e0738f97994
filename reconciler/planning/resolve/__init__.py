"""Effective desired resources: policies compiled, namespaces implied, mirrors derived."""
