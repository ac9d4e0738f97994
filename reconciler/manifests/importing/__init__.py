"""Files of other tools as resources of ours: a reader for each tool, one neutral form, one way on from there."""
