"""Mirror commands, and rounds that copy mirrors."""
