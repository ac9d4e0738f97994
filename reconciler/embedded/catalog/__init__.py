"""Namespaces, topics and links of a cluster, and their commits."""
