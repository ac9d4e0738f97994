"""Time, threads and text that every layer uses."""
