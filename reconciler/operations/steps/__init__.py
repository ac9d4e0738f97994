"""Steps of several commands."""
