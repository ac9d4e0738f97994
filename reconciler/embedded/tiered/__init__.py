"""The remote tier: manifests, uploads, retention, the cache and recovery."""
