"""The cache of what is fetched from object storage: chunks of segments on a disk of this machine, one idea a module."""
