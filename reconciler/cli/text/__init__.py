"""Text and Markdown for users."""
