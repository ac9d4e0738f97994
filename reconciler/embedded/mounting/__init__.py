"""Topics detached from a cluster and attached to another: migrations, and the register that says who owns a topic."""
