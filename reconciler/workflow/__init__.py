"""What happens, in order: one module per command."""
