"""Mirror commands, and rounds over all mirrors."""
