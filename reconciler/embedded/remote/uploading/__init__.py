"""From the local tier to the remote one."""
