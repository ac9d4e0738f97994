"""The embedded cluster as a platform."""
