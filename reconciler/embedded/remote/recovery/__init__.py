"""Topics made anew from object storage."""
