"""Topics moved into and out of object storage, and who owns them there."""
