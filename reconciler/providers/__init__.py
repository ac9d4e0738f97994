"""The platforms, one folder each, behind one protocol."""
