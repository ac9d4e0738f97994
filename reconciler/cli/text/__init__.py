"""Output for people: text, markdown and reports."""
