"""Risks of actions, errors that prevent an apply, and guards that block actions."""
