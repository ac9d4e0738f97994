"""Importing: manifests of what the files of another tool say, one idea a module."""
