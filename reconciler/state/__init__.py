"""State of a workspace: lockfile, lease, snapshots and journals."""
