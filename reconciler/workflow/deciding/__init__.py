"""From what is seen to a plan, and what may be done of it."""
