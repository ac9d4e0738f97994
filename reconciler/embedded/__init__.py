"""A streaming platform that lives in object storage; knows nothing of plans."""
