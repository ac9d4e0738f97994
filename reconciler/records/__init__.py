"""Records, and how logs of records are read and written on any platform."""
