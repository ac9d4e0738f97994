"""Plan and apply for streaming platforms."""
