"""Importers of topics and access rules from files of other tools."""
