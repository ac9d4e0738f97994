"""The state of a workspace: lockfile, lease, snapshots and journals of runs."""
