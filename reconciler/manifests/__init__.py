"""YAML in, resources out; every error names file, line and field."""
