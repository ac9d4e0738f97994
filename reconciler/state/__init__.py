"""State of a workspace: lockfile, lease, snapshots and journals. A `Record` has the last applied resources."""
