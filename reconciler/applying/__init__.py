"""Walk the graph of a plan and do it."""
