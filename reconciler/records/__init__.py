"""Records, and protocols to read and write topics on any platform."""
