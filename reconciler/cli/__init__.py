"""The face: commands, rendering, and the one place errors become exit codes."""
