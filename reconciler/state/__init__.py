"""The lockfile: lease, fencing, snapshots of what we own."""
