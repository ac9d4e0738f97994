"""Declarable resources: kinds, addresses, units, configs, capabilities."""
