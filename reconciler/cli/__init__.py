"""The command line: commands, rendering, and the translation of errors into exit codes."""
