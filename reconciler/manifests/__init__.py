"""YAML in, resources out; errors name file, line and field."""
