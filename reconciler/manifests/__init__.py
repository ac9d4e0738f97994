"""Read manifests from YAML. Errors name the file, line and field."""
