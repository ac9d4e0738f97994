"""The remote tier: manifests, uploads, retention, the read cache and recovery."""
