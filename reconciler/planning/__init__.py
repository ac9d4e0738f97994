"""Decide, purely: three inventories in, one plan out."""
