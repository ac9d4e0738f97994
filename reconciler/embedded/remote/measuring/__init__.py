"""What lies where, and what is done there."""
