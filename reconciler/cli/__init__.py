"""Commands, output and exit codes."""
