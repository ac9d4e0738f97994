"""Objects with compare-and-swap: a directory, memory, a bucket of S3 or Google Cloud, a container of Azure."""
