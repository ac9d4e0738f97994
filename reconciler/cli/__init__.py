"""The command line: commands, output, and exit codes."""
