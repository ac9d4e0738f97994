"""Importers of other tools' files."""
