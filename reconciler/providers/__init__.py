"""Platforms, one folder each, behind one protocol."""
