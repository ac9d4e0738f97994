"""Mirror and link commands, and rounds that copy mirrors."""
