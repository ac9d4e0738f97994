"""The state commands, one module each: look at what is recorded, undo, mend."""
