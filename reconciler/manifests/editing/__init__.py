"""Changing a manifest where it stands: one value, one entry or one document, and nothing around it."""
