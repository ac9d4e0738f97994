"""Commands that look at clusters and act on them at once."""
