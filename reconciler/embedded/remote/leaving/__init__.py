"""What leaves a tier: evicted, expired, deleted, swept."""
