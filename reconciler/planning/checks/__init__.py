"""What an action may cost, and what is refused: errors that nothing lifts, guards that `--allow` does."""
