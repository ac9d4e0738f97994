"""Use cases: what each command does, in order."""
