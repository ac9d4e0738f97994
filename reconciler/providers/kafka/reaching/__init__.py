"""The way to the brokers: how a cluster is reached, in patience and in secret, and why where it is not."""
