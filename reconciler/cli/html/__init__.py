"""Results as pages: one file that needs nothing else."""
