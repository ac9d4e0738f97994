"""Objects with compare-and-swap: a directory, memory, a bucket of S3."""
