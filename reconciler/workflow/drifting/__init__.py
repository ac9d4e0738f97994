"""What has moved away from the files, sorted, and what was told of it before."""
