"""A streaming platform in an object store. It knows nothing of plans."""
