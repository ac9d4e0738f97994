"""The plan as JSON: its shape, its digest, saved and read back."""
