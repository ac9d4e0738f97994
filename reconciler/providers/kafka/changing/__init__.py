"""Changes carried out on a cluster: many actions, one request for each kind of change."""
