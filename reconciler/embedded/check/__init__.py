"""Every register and object of a cluster: checked, mended where that is safe, swept where nothing names it."""
