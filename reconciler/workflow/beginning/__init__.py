"""What every command begins with: what was typed, which files say what, where it works."""
