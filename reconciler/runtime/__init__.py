"""Time, threads and text for all packages."""
