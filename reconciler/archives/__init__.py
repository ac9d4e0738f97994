"""Topics in object storage without a cluster: list, describe, claim and release them."""
