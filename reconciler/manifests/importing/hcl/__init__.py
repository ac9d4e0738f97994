"""Terraform's language, as far as declarations of topics need it: parsed and evaluated without running anything."""
