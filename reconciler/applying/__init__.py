"""Execute plans."""
