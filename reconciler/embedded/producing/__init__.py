"""Appending: admitted, numbered, written as parts, published by one swap a partition."""
