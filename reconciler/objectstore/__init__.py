"""Objects with compare-and-swap: a directory, memory, later S3."""
