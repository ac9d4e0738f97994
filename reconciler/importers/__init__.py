"""Importers of topics and access rules from the files of other tools."""
