"""Turn results into lines, markdown and JSON; pure, and the same from the same input."""
