"""`mirror …`: mirrors shown, and verbs asked of them now."""
