"""What the files want, effective: policies compiled, tiers implied, mirrors derived."""
