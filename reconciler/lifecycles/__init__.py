"""The state machines of the domain, as tables of legal moves."""
