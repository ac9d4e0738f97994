"""`drift --accept`: the change to the files that says what the clusters have."""
