"""Mirror links: driving what needs both clusters, keeping mirrors in step, showing them, and asking things of them."""
