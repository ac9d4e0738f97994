"""Who may do what: rules, and what a refused principal is told."""
