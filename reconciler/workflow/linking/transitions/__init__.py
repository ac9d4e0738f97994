"""Transitions of mirrors over two clusters: driven step by step, by whoever comes next."""
