"""What an action may cost, and what is refused: errors nothing lifts, guards that `--allow` does."""
