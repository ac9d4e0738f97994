"""The JSON documents that commands print."""
