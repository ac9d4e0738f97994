"""`graph`: a state machine, a workspace or the order of a plan, as nodes and arrows."""
