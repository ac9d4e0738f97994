"""A run of this workspace: its lease, its jobs, its end."""
