"""One module per command, imported only to run it."""
