"""Commands that show clusters, or change them without the files."""
