"""Files of other tools, read into manifests."""
