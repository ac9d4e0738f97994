"""Where records come from and go to when they are read."""
