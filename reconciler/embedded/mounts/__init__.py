"""Topics moved into and out of object storage, and their owners."""
