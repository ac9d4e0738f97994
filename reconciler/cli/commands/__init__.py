"""Modules of commands, imported only when they run."""
