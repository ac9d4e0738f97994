"""What to do about each address: three-way, one address after the other."""
