"""Reading both tiers as one log."""
