"""What a record is, and how logs of records are read and written on any platform."""
