"""Mirror links on one cluster: its side of every transition. Whoever drives one has both clusters."""
