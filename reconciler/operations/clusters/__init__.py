"""Commands that show clusters and act on them at once."""
