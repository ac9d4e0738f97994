"""Look at the state and the clusters, and change nothing."""
