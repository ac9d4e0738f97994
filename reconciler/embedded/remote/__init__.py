"""The remote tier: what object storage holds of a topic, one idea a module."""
