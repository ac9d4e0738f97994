"""Objects with compare-and-swap: in a directory, in memory, in S3, Google Cloud Storage or Azure."""
