"""`mount …`: what can be mounted, what is on its way, and stopping it."""
